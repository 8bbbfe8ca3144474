package offsets

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/internal/operr"
)

const (
	// auditInterval is the least time between two audits of a member, and auditSpread what chance adds at most. A member that
	// joins waits as long for its first audit.
	auditInterval = time.Minute
	auditSpread   = 45 * time.Second
	// maxQuiet is the longest time after an own commit for which an audit waits, and maxPostponed the longest time for which
	// commits postpone it.
	maxQuiet     = 10 * time.Second
	maxPostponed = 10 * time.Second
	// toleratedAudits is how many audits in a row may fail before the log says so.
	toleratedAudits = 3
)

// kindAudit is the kind of errors in the log which say that audits fail.
const kindAudit = "audit"

// Discord is why the stored offset of an open partition is none that this member, or a former owner, has stored.
type Discord string

// Why a stored offset does not fit.
const (
	OtherTree    Discord = "other_tree"    // a member whose group is in another ZooKeeper tree has stored it, in this cluster
	NewerOwner   Discord = "newer_owner"   // a later owner of the same tree has stored it, although the claim is trusted
	OtherCluster Discord = "other_cluster" // a mirror has copied it from another cluster
	OtherProgram Discord = "other_program" // a program that is no member has stored it
)

// Discords returns all Discords.
func Discords() []Discord { return []Discord{OtherTree, NewerOwner, OtherCluster, OtherProgram} }

// Finding is a stored offset that does not fit an open partition.
type Finding struct {
	Partition kiel.Partition
	Discord   Discord
	Stored    Stored // as read
	Committed int64  // the offset that this member has committed last
	Marked    int64  // the marked position
	Marks     bool   // something was marked since the partition was opened
	Token     int64  // the token of this member's claim
	Place     Place  // where this member's commits are made
}

// audit is the state of audits. It belongs to Run.
//
// An audit reads the stored offsets of all open partitions, and compares with which claim, in which tree and in which cluster
// they were stored. A member that reads right after its own commit sees that alone. So an audit comes at a random moment, in the
// second half of the time between two commits: of two members that commit equally often, one sees the other's commit.
type audit struct {
	answers chan question // receives answers
	running bool          // a read is in flight
	failed  int           // how many audits have failed since one was answered
	due     time.Time     // when the next audit was due; zero before that
	last    time.Time     // when the newest commit was answered; zero before the first
	gap     time.Duration // the time between the two newest commits
}

// sent stores that commits were sent and answered.
func (a *audit) sent(start, answered time.Time) {
	if !a.last.IsZero() {
		a.gap = start.Sub(a.last)
	}
	a.last = answered
}

// untilAudit returns a random time from one audit to the next.
func untilAudit() time.Duration { return auditInterval + rand.N(auditSpread) }

// quiet returns for how long an audit is to wait because of an own commit.
func (a *audit) quiet(now time.Time) time.Duration {
	half := min(a.gap/2, maxQuiet)
	left := half - now.Sub(a.last)
	if a.last.IsZero() || left <= 0 || now.Sub(a.due) >= maxPostponed {
		return 0
	}
	return min(left+rand.N(half*4/5+1), maxPostponed-now.Sub(a.due))
}

// askAudit reads the stored offsets of the open partitions, in one request, if now is a moment for that. It returns after what
// time it is to be called again.
func (c *Committer) askAudit(ctx context.Context, now time.Time) time.Duration {
	a := &c.audit
	open := slices.DeleteFunc(c.all(), func(t *Tracker) bool { return !t.isOpen() })
	if c.options.Audited == nil || a.running {
		return untilAudit()
	}
	if len(open) == 0 {
		c.options.Audited(nil)
		return untilAudit()
	}
	if a.due.IsZero() {
		a.due = now
	}
	if wait := a.quiet(now); wait > 0 {
		return wait
	}
	a.due, a.running = time.Time{}, true
	c.ask(ctx, c.options.Store.Peek, question{trackers: open}, LastCommitTimeout, a.answers)
	return untilAudit()
}

// judge compares the answer to an audit with the Trackers. A read that failed says nothing; the next audit reads again. The
// answer to a read that began before a partition's first commit was stored may be what a former owner has stored, in a former
// tree, too. A later commit makes no difference: what another one has stored after the first, it has stored while the partition
// was open here.
func (c *Committer) judge(ctx context.Context, q question) {
	c.audit.running = false
	if err := q.unread(); err != nil {
		c.auditFailed(ctx, err)
	} else {
		c.audit.failed = 0
		c.options.Errors.OK(kindAudit, "")
	}
	if q.err != nil {
		return
	}
	var found []Finding
	for _, t := range q.trackers {
		s, err := q.of(t)
		if err != nil || s.Offset < 0 || !t.beganBefore(q.asked) {
			continue
		}
		if f, ok := t.judge(s, c.placeOf(t)); ok {
			found = append(found, f)
		}
	}
	c.options.Audited(found)
}

// beganBefore reports whether an offset of t was stored before at.
func (t *Tracker) beganBefore(at time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return !t.beganAt.IsZero() && t.beganAt.Before(at)
}

// unread returns why no offset could be read; nil if some could.
func (q question) unread() error {
	var first error
	for _, t := range q.trackers {
		_, err := q.of(t)
		if err == nil {
			return nil
		}
		if first == nil {
			first = err
		}
	}
	return first
}

// auditFailed counts an audit that could read nothing, and logs the error if there were several in a row. While no broker
// answers, that is the trouble which is told, and an audit adds nothing to it.
func (c *Committer) auditFailed(ctx context.Context, err error) {
	if c.options.Reachable != nil && !c.options.Reachable() {
		return
	}
	c.audit.failed++
	if c.audit.failed >= toleratedAudits && ctx.Err() == nil {
		c.options.Errors.FailedWarn(kindAudit, "", operr.New("consumer", fmt.Sprintf("stored offsets were not compared %d times in a row", c.audit.failed), "", err))
	}
}

// placeOf returns where commits of t are made, as far as it is known.
func (c *Committer) placeOf(t *Tracker) Place {
	if c.options.Place == nil {
		return Place{}
	}
	return c.options.Place(t.claim.Incarnation())
}

// judge reports whether s, which the store had while t was open, does not fit t, whose commits are made in own. It returns false
// if the claim has ended meanwhile.
func (t *Tracker) judge(s Stored, own Place) (Finding, bool) {
	if !t.claim.Trusted() {
		return Finding{}, false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	discord := t.discord(s, own)
	if t.closed || discord == "" {
		return Finding{}, false
	}
	return Finding{
		Partition: t.partition, Discord: discord, Stored: s, Committed: t.committed.offset, Marked: t.next, Marks: t.used,
		Token: t.claim.Token(), Place: own,
	}, true
}

// discord returns why s does not fit t, "" if it does, or if that can't be told. Tokens are compared within a tree alone, and
// trees within a cluster alone. t.mu is held.
func (t *Tracker) discord(s Stored, own Place) Discord {
	unknown := ID{}
	switch {
	case !s.Ours:
		return t.byOthers(s)
	case s.Place == (Place{}) || (s.Place.Cluster == unknown) != (own.Cluster == unknown):
		return "" // an earlier version has stored it, or one that did not know where it was
	case s.Place.Cluster != own.Cluster:
		return t.once(OtherCluster, s.Offset)
	case s.Place.Tree == unknown || own.Tree == unknown:
		return ""
	case s.Place.Tree != own.Tree:
		return OtherTree
	case s.Token > t.claim.Token():
		return NewerOwner
	}
	return ""
}

// foreign is an offset that an audit has found, and why it does not fit.
type foreign struct {
	discord Discord
	offset  int64
}

// once returns discord for an offset, and "" for the same one as at the last audit. t.mu is held.
func (t *Tracker) once(discord Discord, offset int64) Discord {
	f := foreign{discord, offset}
	if t.foreign != nil && *t.foreign == f {
		return ""
	}
	t.foreign = &f
	return discord
}

// byOthers returns OtherProgram for an offset that another program has stored, once for each offset. The user's own transactions
// store offsets, too: of messages that were handed out, in partitions in which nothing is marked, or no mark is committed. t.mu
// is held.
func (t *Tracker) byOthers(s Stored) Discord {
	marks := t.used && (t.auto || t.byUser)
	if !marks && s.Offset >= t.committed.offset && s.Offset <= t.delivered {
		return ""
	}
	return t.once(OtherProgram, s.Offset)
}
