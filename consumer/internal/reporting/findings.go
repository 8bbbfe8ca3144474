package reporting

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/consumer/internal/offsets"
	"github.com/kielgo/kiel/internal/operr"
	"github.com/kielgo/kiel/internal/statuswrite"
	"github.com/kielgo/kiel/status"
)

// findingLasts is how long a finding counts. Two members that overwrite each other's commits are not seen by each audit.
const findingLasts = 10 * time.Minute

var (
	// ErrTwoTrees says that members whose group is in another ZooKeeper tree store offsets of partitions that this member owns.
	ErrTwoTrees = errors.New("members of another ZooKeeper tree work on partitions of this group")

	// ErrNewerOwner says that a later owner has stored the offset of a partition that this member is trusted to own.
	ErrNewerOwner = errors.New("a later owner works on a partition that this member owns")
)

// Findings are what audits of stored offsets have found lately.
type Findings struct {
	Reporter *Reporter
	Logger   *slog.Logger
	Count    func(discord offsets.Discord, n int) // counts findings

	mu  sync.Mutex
	all map[offsets.Discord]map[kiel.Partition]foundAt
}

// foundAt is a finding, and when it was found last.
type foundAt struct {
	offsets.Finding

	at time.Time
}

// add adds found, and drops what counts no more. It returns the discords that were dropped altogether.
func (f *Findings) add(found []offsets.Finding, now time.Time) (over []offsets.Discord) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.all == nil {
		f.all = map[offsets.Discord]map[kiel.Partition]foundAt{}
	}
	for _, one := range found {
		if f.all[one.Discord] == nil {
			f.all[one.Discord] = map[kiel.Partition]foundAt{}
		}
		f.all[one.Discord][one.Partition] = foundAt{one, now}
	}
	for discord, partitions := range f.all {
		for p, s := range partitions {
			if now.Sub(s.at) >= findingLasts {
				delete(partitions, p)
			}
		}
		if len(partitions) == 0 {
			delete(f.all, discord)
			over = append(over, discord)
		}
	}
	return over
}

// of returns the partitions of a discord, in order.
func (f *Findings) of(discord offsets.Discord, now time.Time) (ps []kiel.Partition) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for p, s := range f.all[discord] {
		if now.Sub(s.at) < findingLasts {
			ps = append(ps, p)
		}
	}
	slices.SortFunc(ps, kiel.Partition.Compare)
	return ps
}

// Report counts, logs and sends what an audit has found.
func (f *Findings) Report(ctx context.Context, found []offsets.Finding) {
	for _, over := range f.add(found, time.Now()) {
		f.Reporter.Log.OK(KindShared, string(over))
	}
	for _, discord := range offsets.Discords() {
		of := slices.DeleteFunc(slices.Clone(found), func(f offsets.Finding) bool { return f.Discord != discord })
		if len(of) == 0 {
			continue
		}
		slices.SortFunc(of, func(a, b offsets.Finding) int { return a.Partition.Compare(b.Partition) })
		f.Count(discord, len(of))
		if err := shared(discord); err != nil {
			err = operr.New("consumer", "", "", fmt.Errorf("%w: %s", err, describe(of)))
			f.Reporter.Log.FailedWarn(KindShared, string(discord), err)
			f.Reporter.Send(err)
			continue
		}
		f.warnOverwritten(ctx, of)
	}
}

// shared returns the error of a discord that means that two members work on one partition, nil for another one.
func shared(discord offsets.Discord) error {
	switch discord {
	case offsets.OtherTree:
		return ErrTwoTrees
	case offsets.NewerOwner:
		return ErrNewerOwner
	default:
		return nil
	}
}

// describe describes the first of found, and says how many more there are.
func describe(found []offsets.Finding) string {
	f := found[0]
	text := fmt.Sprintf("%s: offset %d is stored with token %d in tree %v, this member has committed %d with token %d in tree %v",
		f.Partition, f.Stored.Offset, f.Stored.Token, f.Stored.Place.Tree, f.Committed, f.Token, f.Place.Tree)
	if more := len(found) - 1; more > 0 {
		text += fmt.Sprintf("; the same goes for %d more partitions", more)
	}
	return text
}

// warnOverwritten logs offsets of another program, or of a mirror, with what becomes of them: a line for each of the first
// partitions.
func (f *Findings) warnOverwritten(ctx context.Context, found []offsets.Finding) {
	for i, one := range found {
		if i == statuswrite.MaxNames {
			f.Logger.WarnContext(ctx, "another program stored offsets of more partitions", "partitions", len(found)-i)
			return
		}
		f.Logger.WarnContext(ctx, "another program stored the offset of a partition that is owned here", "partition", one.Partition.String(),
			"offset", one.Committed, "stored", one.Stored.Offset, "reason", string(one.Discord), "then", then(one))
	}
}

// then returns what becomes of a stored offset of another program.
func then(f offsets.Finding) string {
	switch {
	case f.Marks && f.Marked != f.Committed:
		return "the next commit of this member overwrites it"
	case f.Discord == offsets.OtherCluster:
		return "this member writes its own over it, when it releases the partition at the latest"
	case f.Marks:
		return "the next mark overwrites it; without one the next owner starts there"
	default:
		return "it stays while nothing is marked, and the next owner starts there"
	}
}

// Disagreements adds to a status that others store offsets of partitions that this member owns.
func (f *Findings) Disagreements(out *status.Group, now time.Time) {
	for _, d := range []struct {
		discord offsets.Discord
		kind    status.DisagreementKind
		text    string
	}{
		{offsets.OtherTree, status.TwoTrees, "Members whose group is in another ZooKeeper tree store offsets of these partitions: messages are handled twice. " +
			"Give all members the same ensemble and chroot, or the group another name."},
		{offsets.NewerOwner, status.NewerOwner, "A later owner stores offsets of these partitions, which this member is trusted to own: messages are handled twice."},
	} {
		if ps := f.of(d.discord, now); len(ps) > 0 {
			names := make([]string, len(ps))
			for i, p := range ps {
				names[i] = p.String()
			}
			out.Disagreements = append(out.Disagreements, statuswrite.Disagreement(d.kind, d.text, names...))
		}
	}
}
