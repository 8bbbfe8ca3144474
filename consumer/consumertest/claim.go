package consumertest

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/ownership"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/status"
)

// claim is a claim that ends when the test says so.
type claim struct {
	id    kiel.Partition
	token int64
	lost  atomic.Bool
	began time.Time

	ctx   context.Context //nolint:containedctx // the lifetime of the claim
	end   context.CancelCauseFunc
	owned context.Context //nolint:containedctx // ends when the partition is revoked, or with ctx
	give  context.CancelCauseFunc
}

func newClaim(ctx context.Context, id kiel.Partition, token int64) *claim {
	c := &claim{id: id, token: token, began: time.Now()}
	c.ctx, c.end = context.WithCancelCause(ctx)
	c.owned, c.give = context.WithCancelCause(c.ctx)
	return c
}

func (c *claim) revoke() { c.give(ownership.ErrRevoked) }

func (c *claim) lose() {
	c.lost.Store(true)
	c.end(ownership.ErrLost)
}

func (c *claim) Topic() string                     { return c.id.Topic }
func (c *claim) Partition() int32                  { return c.id.ID }
func (c *claim) Token() int64                      { return c.token }
func (c *claim) Version() uint64                   { return 1 }
func (c *claim) EpochPath() string                 { return "" }
func (c *claim) EpochVersion() int32               { return 0 }
func (c *claim) Incarnation() *session.Incarnation { return nil }
func (c *claim) Context() context.Context          { return c.ctx }
func (c *claim) Reason() status.Reason             { return status.Reason{} }
func (c *claim) Previous() string                  { return "" }
func (c *claim) Trusted() bool                     { return !c.lost.Load() }

func (c *claim) TrustedAt() (at time.Duration, trusted bool) { return time.Since(c.began), c.Trusted() }
