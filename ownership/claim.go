package ownership

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/status"
)

// Claim is what a handler holds while it owns a partition. Its methods may be called from any goroutine, at any time; none
// blocks.
type Claim struct {
	id           kiel.Partition
	token        int64
	version      uint64
	epochPath    string
	epochVersion int32
	inc          *session.Incarnation
	origin       origin

	over     atomic.Bool             // released or lost
	ctx      context.Context         //nolint:containedctx // the claim's lifetime
	end      context.CancelCauseFunc // ends ctx
	work     context.Context         //nolint:containedctx // the handlers' lifetime, a child of ctx
	revoke   context.CancelCauseFunc // ends work
	said     bool                    // the Observer was called with Claimed; for the goroutine that calls it alone
	opened   time.Time               // when the loop noticed that the Observer has returned; for the loop alone, as is …
	revoking bool                    // its handler was asked to finish
}

// Topic returns the partition's topic.
func (c *Claim) Topic() string { return c.id.Topic }

// Partition returns the partition's number.
func (c *Claim) Partition() int32 { return c.id.ID }

// Token returns the fencing token: the mzxid of the partition's epoch znode. It grows with every change of owner. Give it to a
// store that can refuse an older one.
func (c *Claim) Token() int64 { return c.token }

// Version returns the version of the snapshot that the claim acts on.
func (c *Claim) Version() uint64 { return c.version }

// Reason returns why the partition came to this member. The caller must not change it.
func (c *Claim) Reason() status.Reason { return c.origin.reason }

// Previous returns the owner before, as far as this member knows, as statuswrite.Name has it; "" when it does not.
func (c *Claim) Previous() string { return c.origin.previous }

// Incarnation returns the incarnation of the session in which the claim is held.
func (c *Claim) Incarnation() *session.Incarnation { return c.inc }

// EpochPath returns the path of the partition's epoch znode.
func (c *Claim) EpochPath() string { return c.epochPath }

// EpochVersion returns the version of the epoch znode while this claim exists. A write to ZooKeeper is fenced by a multi of a
// check of it and a set of the written znode with the writer's last version; neither is enough without the other.
func (c *Claim) EpochVersion() int32 { return c.epochVersion }

// Trusted reports whether the partition surely is this member's at this moment. It reads the clock and costs nanoseconds: ask
// before each effect. It stays true after a revocation, until the handler has returned or the claim is lost.
func (c *Claim) Trusted() bool { return !c.over.Load() && c.inc.Trusted() }

// TrustedAt is Trusted, and returns the moment that it judged, as session.Incarnation.TrustedAt does; 0 when the answer is no.
func (c *Claim) TrustedAt() (at time.Duration, trusted bool) {
	if c.over.Load() {
		return 0, false
	}
	return c.inc.TrustedAt()
}

// Context returns the lifetime of the claim, which is longer than that of the handler's context: it lasts after a revocation, for
// the last commits. Its cause is [ErrLost] when nothing may be committed any more, or [ErrRevoked] after the handler has returned
// and the claim is released.
func (c *Claim) Context() context.Context { return c.ctx }

// isOpen reports whether the Observer has returned from Claimed for it.
func (c *Claim) isOpen() bool { return !c.opened.IsZero() }

// finish ends the claim; it is not trusted from now on.
func (c *Claim) finish(cause error) {
	c.over.Store(true)
	c.end(cause)
}

// info describes an open claim.
func (c *Claim) info() OwnedClaim {
	return OwnedClaim{
		Topic: c.id.Topic, Partition: c.id.ID, Token: c.token, Version: c.version,
		Since: c.opened, Revoking: c.revoking, Reason: c.origin.reason, Previous: c.origin.previous,
	}
}

// OwnedClaim describes a claim that this member owns.
type OwnedClaim struct {
	Topic     string
	Partition int32
	Token     int64
	Version   uint64        // of the snapshot acted on
	Since     time.Time     // when it was opened
	Revoking  bool          // its handler was asked to finish
	Reason    status.Reason // why the partition came to this member
	Previous  string        // the owner before, "" when it is not known; see [Event]
}
