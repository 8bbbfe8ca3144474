package consumer

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/consumer/internal/offsets"
	"github.com/kielgo/kiel/status"
)

// findingLasts is how long a finding counts. Two members that overwrite each other's commits are not seen by each audit.
const findingLasts = 10 * time.Minute

// findings are what audits of stored offsets have found lately.
type findings struct {
	mu  sync.Mutex
	all map[offsets.Discord]map[kiel.Partition]foundAt
}

// foundAt is a finding, and when it was found last.
type foundAt struct {
	offsets.Finding

	at time.Time
}

// add adds found, and drops what counts no more. It returns the discords that were dropped altogether.
func (f *findings) add(found []offsets.Finding, now time.Time) (over []offsets.Discord) {
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
func (f *findings) of(discord offsets.Discord, now time.Time) (ps []kiel.Partition) {
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

// audited takes what an audit has found. It does not block. If the tree's ID is not known, because its read failed when partitions
// were opened, it is read for the next audit.
func (m *membership) audited(found []offsets.Finding) {
	m.judging.Start(func() {
		if inc := m.group.zk.Current(); len(m.openings.list()) > 0 {
			m.learnTree(m.life, inc)
		}
		m.report(m.life, m.verified(m.life, found))
	})
}

// verified returns found without what says that another tree is used if this member's own ID of the tree has changed: somebody
// has deleted the group's znode, and it was created again. Later audits find offsets with an ID that this member had before: they
// are of this tree, and only a newer token is a finding.
func (m *membership) verified(ctx context.Context, found []offsets.Finding) []offsets.Finding {
	i := slices.IndexFunc(found, func(f offsets.Finding) bool { return f.Discord == offsets.OtherTree })
	inc := m.group.zk.Current()
	if i < 0 || inc == nil {
		return found
	}
	ctx, cancel := context.WithTimeout(ctx, treeTimeout)
	defer cancel()
	if id, err := m.tree.read(ctx, inc); err == nil && id != found[i].Place.Tree {
		return slices.DeleteFunc(found, func(f offsets.Finding) bool { return f.Discord == offsets.OtherTree })
	}
	return inOneTree(found, func(id offsets.ID) bool { return m.tree.had(inc, id) })
}

// inOneTree returns found with the offsets that have an ID of this tree compared by their tokens.
func inOneTree(found []offsets.Finding, had func(offsets.ID) bool) []offsets.Finding {
	var out []offsets.Finding
	for _, f := range found {
		if f.Discord == offsets.OtherTree && had(f.Stored.Place.Tree) {
			if f.Stored.Token <= f.Token {
				continue
			}
			f.Discord = offsets.NewerOwner
		}
		out = append(out, f)
	}
	return out
}

// report counts, logs and sends what an audit has found.
func (m *membership) report(ctx context.Context, found []offsets.Finding) {
	for _, over := range m.findings.add(found, time.Now()) {
		m.group.log.OK(kindShared, string(over))
	}
	for _, discord := range offsets.Discords() {
		of := slices.DeleteFunc(slices.Clone(found), func(f offsets.Finding) bool { return f.Discord != discord })
		if len(of) == 0 {
			continue
		}
		slices.SortFunc(of, func(a, b offsets.Finding) int { return a.Partition.Compare(b.Partition) })
		m.metrics.discords.WithLabelValues(string(discord)).Add(float64(len(of)))
		if err := shared(discord); err != nil {
			err = failure("", "", fmt.Errorf("%w: %s", err, describeFindings(of)))
			m.group.log.FailedWarn(kindShared, string(discord), err)
			m.group.pass(err)
			continue
		}
		m.warnOverwritten(ctx, of)
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

// describeFindings describes the first of found, and says how many more there are.
func describeFindings(found []offsets.Finding) string {
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
func (m *membership) warnOverwritten(ctx context.Context, found []offsets.Finding) {
	for i, f := range found {
		if i == maxNamed {
			m.log.WarnContext(ctx, "another program stored offsets of more partitions", "partitions", len(found)-i)
			return
		}
		m.log.WarnContext(ctx, "another program stored the offset of a partition that is owned here", "partition", f.Partition.String(),
			"offset", f.Committed, "stored", f.Stored.Offset, "reason", string(f.Discord), "then", then(f))
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

// disagreements adds to a status that others store offsets of partitions that this member owns.
func (f *findings) disagreements(out *status.Group, now time.Time) {
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
			out.Disagreements = append(out.Disagreements, status.NewDisagreement(d.kind, d.text, names...))
		}
	}
}
