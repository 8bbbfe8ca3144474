package consumer

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel/consumer/internal/kafkaconn"
	"github.com/kielgo/kiel/consumer/internal/reporting"
	"github.com/kielgo/kiel/internal/errlog"
	"github.com/kielgo/kiel/internal/pause"
)

// A member that is cut off from Kafka leaves the group if Options.LeaveWithoutKafkaAfter says so, and the same call of Consume or
// Run joins again. Its partitions are closed as when a member leaves, but for the last commit: nothing could store it, and a
// commit that waits for Kafka would keep the partitions from the others. Each tracker ends before its claim is released, and
// connections with a commit in flight are aborted. So no commit of the claim is sent later.

// errCutOff is the cause with which a member leaves that is cut off from Kafka.
var errCutOff = errors.New("left the group, because no broker of Kafka answers this member")

// firstStays is how much longer the first member of the group waits before it leaves. The others leave before it and see to it
// that it is the last member, which stays. The failures of members that were cut off together begin within this time.
const firstStays = 20 * time.Second

// The pauses between leaving and the first attempt to join again, which double from one leave to the next, and begin anew after a
// membership that has lasted for maxCutOffPause. Between two attempts there is a pause of cutOffPause.
const (
	cutOffPause    = 5 * time.Second
	maxCutOffPause = 5 * time.Minute
)

// rejoinProof is for how long brokers must have answered until the call returns that the member can't connect to them. A link
// that comes back for a moment counts as in reach for less.
const rejoinProof = 2 * kafkaconn.ReachGrace

// leaveCutOff makes the member leave if no broker has answered for long enough, another member is there, and the ZooKeeper
// session is trusted. It returns after how long to call it again; 0 to call it when Kafka's reachability changes.
func (m *membership) leaveCutOff() (again time.Duration) {
	limit := m.group.settings.LeaveWithoutKafkaAfter
	since, _, why := m.group.reach.Failure()
	if limit == 0 || why == nil {
		return 0
	}
	limit = max(limit, kafkaconn.ReachGrace)
	var members []string
	if s := m.snapshot(); s != nil && s.Joined {
		members = s.Members
	}
	if slices.Index(members, m.group.Member()) == 0 {
		limit += firstStays
	}
	if left := limit - time.Since(since); left > 0 {
		return min(left, errlog.Interval) // the members may change meanwhile
	}
	if inc := m.group.zk.Current(); len(members) < 2 || inc == nil || !inc.Trusted() {
		return errlog.Interval
	}
	m.log.Warn("leaving the group, no broker of Kafka answers", "since", since, "members", len(members), "error", why)
	m.leave(errCutOff)
	return 0
}

// isCutOff reports whether the member leaves, or has left, because it is cut off from Kafka.
func (m *membership) isCutOff() bool { return errors.Is(context.Cause(m.ctx), errCutOff) }

// abandon closes the partition's tracker without a last commit. No commit of it is sent from now on, and one in flight is
// aborted.
func (o *opening) abandon() {
	ctx, cancel := context.WithCancel(o.claim.Context())
	cancel()
	o.member.committer.Close(ctx, o.tracker)
}

// cutOff counts how often this member has left because it was cut off from Kafka. It belongs to the running call.
type cutOff struct {
	pause.Backoff

	waits bool // the member has left so, and has not joined again
}

// left notes that a membership that began at a time has ended because the member is cut off.
func (c *cutOff) left(began time.Time) {
	c.Growth = pause.Doubling(cutOffPause, maxCutOffPause)
	if time.Since(began) >= maxCutOffPause {
		c.Reset()
	}
	c.waits = true
}

// rejoin is join, and joins again after the member has left because it was cut off: after a pause, and when a broker answers.
// Each attempt that fails is reported. When brokers do answer, rejoin returns the error as a first join does, such as one of TLS.
func (g *Group) rejoin(ctx context.Context, join func() (*membership, error)) (*membership, error) {
	c := &g.cutOff
	if !c.waits {
		return join()
	}
	g.setCutOff(true)
	defer func() {
		g.log.AllGone(reporting.KindMember)
		c.waits = false
		g.setCutOff(false)
	}()
	for wait := c.Next(); ; wait = cutOffPause {
		if pause.Sleep(ctx, wait) != nil {
			return nil, errNotJoined
		}
		m, err := join()
		switch {
		case err == nil:
			g.settings.log.InfoContext(ctx, "a broker of Kafka answers, joining again")
			g.log.OK(reporting.KindKafka, "")
			return m, nil
		case errors.Is(err, errNotJoined) || errors.Is(err, errClientClosed):
			return nil, err
		case g.isAnswer(err):
			g.leftOut(err, time.Time{})
			return nil, err
		}
		g.notRejoined(err)
	}
}

// isAnswer reports whether a join failed though brokers answer. One that could not connect to them tells nothing while the link
// may be one that comes and goes.
func (g *Group) isAnswer(err error) bool {
	reachable, since := g.reach.State()
	return reachable && (!errors.Is(err, sarama.ErrOutOfBrokers) || time.Since(since) >= rejoinProof)
}

// notRejoined reports why the member has not joined again. It goes on trying.
func (g *Group) notRejoined(err error) {
	g.log.FailedWarn(reporting.KindKafka, "", err)
	if since, _, why := g.reach.Failure(); why != nil {
		g.log.Began(reporting.KindKafka, since)
	}
	g.report.Send(err)
}

// setCutOff stores for Waiting whether the member waits for a broker before it joins again.
func (g *Group) setCutOff(waits bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.waitsForBroker = waits
}
