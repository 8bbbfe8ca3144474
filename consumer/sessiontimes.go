package consumer

import (
	"context"
	"errors"
	"time"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel/consumer/internal/offsets"
	"github.com/kielgo/kiel/consumer/internal/sessions"
	"github.com/kielgo/kiel/internal/operr"
)

// ownTime is how much later than an eager session ownership loses the claim of a handler that does not return: the session
// decides, and has this time left for commits and releases.
func ownTime(rebalanceTimeout time.Duration) time.Duration {
	return min(rebalanceTimeout/10, time.Second)
}

// halfOf returns when, of the time that a session has to end, what moves does not wait for Cleanup any more: half of it, or the
// time that two last commits may take before its end, if that is later.
func halfOf(d time.Duration) time.Duration { return max(d/2, d-2*offsets.LastCommitTimeout) }

// stopTime is how long what an eager session calls may take when the member leaves. The rest of StopTimeout is for commits,
// releases and the end of ownership, which gives handlers as much and ownTime more.
func stopTime(stopTimeout time.Duration) time.Duration {
	owners := stopTimeout - cleanupGrace(stopTimeout)
	return owners - min(owners/5, 5*time.Second) - ownTime(owners)
}

// deadline returns when a timer ends that has begun at a time.
func (d *driver) deadline(what sessions.What, since time.Time) time.Time {
	set := d.member.group.settings
	switch what {
	case sessions.WaitOver:
		if !d.state.Holds() {
			return since.Add(max(set.RebalanceTimeout, maxAge))
		}
		if d.first.After(since) {
			since = d.first
		}
		return since.Add(claimsWait)
	case sessions.GainOver:
		return since.Add(claimsWait)
	case sessions.PauseOver:
		return d.begun.Add(d.pause)
	case sessions.Aged:
		return d.begun.Add(max(d.age, minAge))
	case sessions.IdleOver:
		return since.Add(d.member.group.zk.Timeout())
	case sessions.HalfOver:
		return d.endOf(halfOf, func() time.Time { return d.left.Add(min(set.StopTimeout, set.RebalanceTimeout) / 2) })
	case sessions.AllOver:
		all := func(t time.Duration) time.Duration { return t }
		return d.endOf(all, func() time.Time { return d.left.Add(set.StopTimeout) })
	default: // BackOver
		return since.Add(set.RebalanceTimeout)
	}
}

// endOf returns when a part of the time is over that the session has to end. incremental is when that is for an incremental
// session while the member leaves: its ConsumeClaims have the time that ownership gives them, and Cleanup what is left.
func (d *driver) endOf(part func(time.Duration) time.Duration, incremental func() time.Time) time.Time {
	set := d.member.group.settings
	at := d.ended.Add(part(set.RebalanceTimeout))
	switch {
	case d.left.IsZero():
	case !d.state.Kind.Eager:
		at = incremental()
	default:
		if leaving := d.left.Add(part(min(set.RebalanceTimeout, stopTime(set.StopTimeout)))); leaving.Before(at) {
			at = leaving
		}
	}
	return at
}

// why returns the cause of the context of a session that ends. d.mu is held.
func (d *driver) why(cause sessions.Cause) error {
	switch cause {
	case sessions.Rebalance:
		return sarama.ErrRebalanceInProgress
	case sessions.LostClaim:
		return operr.Because(sarama.ErrSessionHeartbeatFailed, d.cause)
	case sessions.Exited:
		return sarama.ErrSessionConsumeClaimExited
	case sessions.TimedOut:
		return sarama.ErrRebalanceTimedOut
	case sessions.Asked:
		return d.member.whyEnded()
	default:
		return nil
	}
}

// whyEnded returns the cause of the session's context when the membership has ended: sarama's error for a lost membership, with
// the reason, or context.Canceled when the member leaves because it was asked to.
func (m *membership) whyEnded() error {
	cause := context.Cause(m.ctx)
	if cause == nil || errors.Is(cause, context.Canceled) {
		return context.Canceled
	}
	return operr.Because(sarama.ErrSessionHeartbeatFailed, cause)
}

// whyLeft returns whyEnded when the membership has ended, else nil.
func (m *membership) whyLeft() error {
	if m.ctx.Err() == nil {
		return nil
	}
	return m.whyEnded()
}
