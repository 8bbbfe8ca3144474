package session_test

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kielgo/kiel/internal/testonly/noerr"
	"github.com/kielgo/kiel/internal/testonly/recipetest"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/zktest"
)

// TestBuffersFit is red if a session has a buffer for the largest answer before there is such an answer, or can't take one that
// comes.
func TestBuffersFit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv, nw := zktest.StartVirtual(t, zktest.Options{})
		const sessions = 50
		heap := func() int64 {
			var m runtime.MemStats
			runtime.GC()
			runtime.GC()
			runtime.ReadMemStats(&m)
			return int64(m.HeapAlloc)
		}
		before := heap()
		var last *session.Session
		for i := range sessions {
			last, _ = recipetest.Stoppable(t, nw, fmt.Sprint("c", i), session.Options{MaxPacket: 64 << 10})
		}
		time.Sleep(time.Second)
		each := (heap() - before) / sessions
		t.Attr("heap_of_a_session", fmt.Sprint(each))
		if each > 600<<10 {
			t.Errorf("a session has %d bytes of heap", each)
		}
		for size := 1 << 10; size <= 800<<10; size *= 2 {
			path := fmt.Sprint("/large", size)
			noerr.Must(t, srv.Create(path, make([]byte, size)))
			inc, err := last.Incarnation(t.Context())
			noerr.Must(t, err)
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			if data, _, err := inc.Get(ctx, path); err != nil || len(data) != size {
				t.Errorf("%d of %d bytes: %v", len(data), size, err)
			}
			cancel()
			if size == 64<<10 {
				nw.Client(fmt.Sprint("c", sessions-1)).Cut() // the next connection begins with the buffer of before
			}
		}
	})
}
