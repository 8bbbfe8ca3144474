package ownership_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kielgo/kiel/internal/testonly/noerr"
	"github.com/kielgo/kiel/ownership"
)

// Without an Observer, partitions are claimed, handed over, lost and released as with one.
func TestWithoutObserver(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.assign(map[string]string{"a": items(10)})
		var lost atomic.Int32
		handler := func(ctx context.Context, c *ownership.Claim) error {
			<-ctx.Done()
			if !c.Trusted() {
				lost.Add(1)
			}
			return nil
		}
		unobserved := memberOptions{handler: handler, unobserved: true}
		a, b := w.join("a", unobserved), w.join("b", unobserved)
		a.owns(5*time.Second, items(10))
		w.assign(map[string]string{"b": items(10)})
		b.owns(time.Second, items(10))
		if n := lost.Load(); n > 0 {
			t.Errorf("%d handlers were not trusted any more when they were told to finish", n)
		}
		before := b.token("t:3")
		noerr.Must(t, w.srv.Delete(owners+"/t:3"))
		w.within(time.Second, "claimed again", func() bool { return b.token("t:3") > before })
		if n := lost.Load(); n != 1 {
			t.Errorf("%d handlers have lost their claim, want 1", n)
		}
		w.kill(b.sessionID())
		w.within(10*time.Second, "claimed again in another session", func() bool { return b.token("t:4") > before })
		b.owns(time.Second, items(10))
		b.quit()
		<-b.done
		if names := w.srv.Children(owners); len(names) > 0 {
			t.Errorf("%v are left", names)
		}
	})
}
