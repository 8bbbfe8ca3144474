package health_test

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kielgo/kiel/allocator"
	"github.com/kielgo/kiel/health"
	"github.com/kielgo/kiel/internal/testonly/noerr"
	"github.com/kielgo/kiel/internal/testonly/recipetest"
	"github.com/kielgo/kiel/ownership"
	"github.com/kielgo/kiel/status"
	"github.com/kielgo/kiel/zktest"
)

var (
	_ health.Source = (*allocator.PartitionAllocator)(nil)
	_ health.Source = (*ownership.Owner)(nil)
)

// part is a source that runs.
type part interface {
	health.Source
	Run(ctx context.Context) error
}

// checkPart asserts what the three paths say of a member before it runs, when it has settled, while ZooKeeper is away, and at its
// end.
func checkPart(t *testing.T, nw *zktest.Network, p part) {
	h := health.Handler(p)
	expect := func(when string, live, ready int, says string) {
		t.Helper()
		if code, body, _ := ask(t, h, http.MethodGet, "/healthz"); code != live {
			t.Errorf("%s: /healthz %d %s", when, code, body)
		}
		code, body, _ := ask(t, h, http.MethodGet, "/readyz")
		if code != ready || !strings.Contains(body, says) {
			t.Errorf("%s: /readyz %d %s, want %d with %q", when, code, body, ready, says)
		}
		_, text, _ := ask(t, h, http.MethodGet, "/status")
		var g status.Group
		noerr.Must(t, json.Unmarshal([]byte(text), &g))
		if g.Self == nil || g.Self.Name != "a" || g.Self.Ready != (ready == http.StatusOK) || !strings.Contains(body, g.Self.Waiting) {
			t.Errorf("%s: /status says %+v, /readyz %s", when, g.Self, body)
		}
	}
	expect("before", 200, 503, "Run was not called")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	time.Sleep(time.Second)
	expect("settled", 200, 200, "ok")
	nw.BlackHole(zktest.Both)
	time.Sleep(20 * time.Second)
	expect("without ZooKeeper", 200, 503, "ession")
	nw.Heal()
	time.Sleep(5 * time.Second)
	expect("with ZooKeeper again", 200, 200, "ok")
	cancel()
	noerr.Want(t, <-done)
	time.Sleep(time.Second) // what /status says may be as old
	expect("after", 200, 503, "")
}

func newAllocator(t *testing.T, nw *zktest.Network) *allocator.PartitionAllocator {
	t.Helper()
	a, err := allocator.New(recipetest.Session(t, nw, "a"), "g", "a", allocator.Options{Seed: map[string][]int32{"t": {0, 1}}})
	noerr.Must(t, err)
	return a
}

func TestAllocator(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, nw := zktest.StartVirtual(t, zktest.Options{})
		checkPart(t, nw, newAllocator(t, nw))
	})
}

func TestOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, nw := zktest.StartVirtual(t, zktest.Options{})
		o, err := ownership.New(newAllocator(t, nw), func(ctx context.Context, _ *ownership.Claim) error {
			<-ctx.Done()
			return nil
		}, ownership.Options{})
		noerr.Must(t, err)
		checkPart(t, nw, o)
	})
}
