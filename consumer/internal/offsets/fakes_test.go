package offsets

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/internal/testonly/conntest"
	"github.com/kielgo/kiel/session"
)

func tp(topic string, id int32) kiel.Partition { return kiel.Partition{Topic: topic, ID: id} }

// fakeClaim is a claim that a test takes away.
type fakeClaim struct {
	token    int64
	distrust atomic.Bool
	ctx      context.Context
	end      context.CancelCauseFunc
}

func newClaim(t *testing.T) *fakeClaim {
	t.Helper()
	c := &fakeClaim{token: 7}
	c.ctx, c.end = context.WithCancelCause(t.Context())
	t.Cleanup(func() { c.end(nil) })
	return c
}

func (c *fakeClaim) Token() int64                      { return c.token }
func (c *fakeClaim) Version() uint64                   { return 3 }
func (c *fakeClaim) EpochPath() string                 { return "/epoch" }
func (c *fakeClaim) EpochVersion() int32               { return 5 }
func (c *fakeClaim) Incarnation() *session.Incarnation { return nil }
func (c *fakeClaim) Trusted() bool                     { return !c.distrust.Load() }
func (c *fakeClaim) Context() context.Context          { return c.ctx }

func (c *fakeClaim) lose() {
	c.distrust.Store(true)
	c.end(ErrLost)
}

func TestMain(m *testing.M) { conntest.Main(m) }
