package allocator

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kielgo/kiel/internal/testonly/noerr"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/zktest"
)

// TestAllocationOfALostSession asks before the loop has noticed the loss, as in a process that was stopped and goes on.
func TestAllocationOfALostSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv, network := zktest.StartVirtual(t, zktest.Options{})
		s, err := session.New([]string{zktest.VirtualAddress}, session.Options{Dial: network.Dial})
		noerr.Must(t, err)
		a, err := New(s, "g", "b", Options{Seed: map[string][]int32{"t": {0}}})
		noerr.Must(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 2)
		go func() { ended <- s.Run(ctx) }()
		go func() { ended <- a.Run(ctx) }()
		noerr.Must(t, a.Ready(ctx))
		before := a.latest.Load()
		if got := a.Allocation(); len(got) != 1 {
			t.Error(got)
		}
		srv.Freeze()
		time.Sleep(time.Minute)
		now := a.latest.Load()
		a.latest.Amend(before)
		if got := a.Allocation(); len(got) != 0 {
			t.Error(got)
		}
		a.latest.Amend(now)
		srv.Thaw()
		cancel()
		<-ended
		<-ended
	})
}
