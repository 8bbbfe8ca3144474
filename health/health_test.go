package health_test

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/kielgo/kiel/health"
	"github.com/kielgo/kiel/internal/statuswrite"
	"github.com/kielgo/kiel/internal/testonly/noerr"
	"github.com/kielgo/kiel/status"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// source is a member whose answers a test chooses.
type source struct {
	group, member string
	alive         error
	hangs         bool
	waits         string
	trust         float64
	described     atomic.Int64
}

func (s *source) Alive(ctx context.Context) error {
	if !s.hangs {
		return s.alive
	}
	<-ctx.Done()
	return errors.New("the loop did not answer")
}

func (s *source) NotReady() string { return s.waits }

func (s *source) Status() *status.Group {
	s.described.Add(1)
	g := statuswrite.Group(s.group, status.SourceMember, time.Unix(0, 0).UTC())
	g.Self = &status.Self{Name: s.member, Session: status.Session{TrustLeft: s.trust}}
	return g
}

func ask(t *testing.T, h http.Handler, method, target string) (code int, body string, header http.Header) {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), method, target, http.NoBody))
	return w.Code, w.Body.String(), w.Header()
}

func TestProbes(t *testing.T) {
	well := &source{group: "g", member: "a"}
	tests := map[string]struct {
		handler    http.Handler
		target     string
		code       int
		body, mime string
	}{
		"alive":         {health.Handler(well), "/healthz", 200, "ok\n", "text/plain; charset=utf-8"},
		"dead":          {health.Handler(&source{alive: errors.New("Run has returned")}), "/healthz", 503, "Run has returned\n", "text/plain; charset=utf-8"},
		"one is dead":   {health.Handler(well, &source{alive: errors.New("ended")}), "/healthz", 503, "ended\n", "text/plain; charset=utf-8"},
		"both are dead": {health.Handler(&source{alive: errors.New("x")}, &source{alive: errors.New("y")}), "/healthz", 503, "x\ny\n", "text/plain; charset=utf-8"},
		// Whatever a member waits for, no restart helps.
		"alive though it waits": {health.Handler(&source{waits: "no trust"}), "/healthz", 200, "ok\n", "text/plain; charset=utf-8"},
		"ready":                 {health.Handler(well, well), "/readyz", 200, "ok\n", "text/plain; charset=utf-8"},
		"waits":                 {health.Handler(&source{waits: "orders:7: claimed by b"}), "/readyz", 503, "orders:7: claimed by b\n", "text/plain; charset=utf-8"},
		"one waits":             {health.Handler(well, &source{waits: "no trust"}), "/readyz", 503, "no trust\n", "text/plain; charset=utf-8"},
		"another path":          {health.Handler(well), "/", 404, "404 page not found\n", "text/plain; charset=utf-8"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			code, body, header := ask(t, test.handler, http.MethodGet, test.target)
			if code != test.code || body != test.body || header.Get("Content-Type") != test.mime {
				t.Errorf("%d %q %s, want %d %q %s", code, body, header.Get("Content-Type"), test.code, test.body, test.mime)
			}
		})
	}
}

// A loop that hangs is found after Timeout, and sooner if the probe gives up sooner.
func TestALoopThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := health.Live(&source{hangs: true})
		start := time.Now()
		if code, body, _ := ask(t, h, http.MethodGet, "/"); code != http.StatusServiceUnavailable || body != "the loop did not answer\n" {
			t.Errorf("%d %q", code, body)
		}
		if took := time.Since(start); took != health.Timeout {
			t.Errorf("answered after %v, want %v", took, health.Timeout)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		w := httptest.NewRecorder()
		start = time.Now()
		h.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, "/", http.NoBody))
		if took := time.Since(start); took != time.Second || w.Code != http.StatusServiceUnavailable {
			t.Errorf("the request ended after 1 s, answered %d after %v", w.Code, took)
		}
	})
}

func TestStatus(t *testing.T) {
	a, b := &source{group: "g", member: "a"}, &source{group: "g", member: "b"}
	c := &source{group: "other", member: "a"}
	one, several := health.Handler(a), health.Handler(a, b, c)
	tests := map[string]struct {
		handler http.Handler
		target  string
		code    int
		member  string // of the answer
	}{
		"one":             {one, "/status", 200, "g a"},
		"one by its name": {one, "/status?group=g&member=a", 200, "g a"},
		"another group":   {one, "/status?group=x", 404, ""},
		"another member":  {one, "/status?member=b", 404, ""},
		"several":         {several, "/status", 400, ""},
		"several still":   {several, "/status?group=g", 400, ""},
		"by group":        {several, "/status?group=other", 200, "other a"},
		"by both":         {several, "/status?group=g&member=b", 200, "g b"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			code, body, header := ask(t, test.handler, http.MethodGet, test.target)
			if code != test.code {
				t.Fatalf("%d %s, want %d", code, body, test.code)
			}
			if test.member == "" {
				return
			}
			var g status.Group
			noerr.Must(t, json.Unmarshal([]byte(body), &g))
			if got := g.Group + " " + g.Self.Name; got != test.member || g.Version != status.Version {
				t.Errorf("got %q in version %d, want %q", got, g.Version, test.member)
			}
			if mime := header.Get("Content-Type"); mime != "application/json" {
				t.Errorf("Content-Type %q", mime)
			}
		})
	}
}

// However many look at a member, it describes itself once a second at most.
func TestManyWhoLook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &source{group: "g", member: "a"}
		h := health.Handler(s)
		began := time.Now()
		for time.Since(began) < 10*time.Second {
			var all sync.WaitGroup
			for range 60 {
				all.Go(func() {
					if code, _, _ := ask(t, h, http.MethodGet, "/status"); code != http.StatusOK {
						t.Errorf("answered %d", code)
					}
				})
			}
			all.Wait()
			time.Sleep(100 * time.Millisecond)
		}
		if n := s.described.Load(); n > 10 {
			t.Errorf("described %d times in 10 s", n)
		}
	})
}

func TestStatusIsIndentedWhenAsked(t *testing.T) {
	h := health.Handler(&source{group: "<g>"})
	_, plain, _ := ask(t, h, http.MethodGet, "/status")
	_, pretty, _ := ask(t, h, http.MethodGet, "/status?pretty")
	if strings.Count(plain, "\n") != 1 || !strings.Contains(pretty, "\n  \"version\": 1,\n") {
		t.Errorf("plain:\n%s\npretty:\n%s", plain, pretty)
	}
	if strings.Contains(plain, "<") {
		t.Errorf("a name could be taken for HTML: %s", plain)
	}
}

// A status with a number that JSON can't show gives an error, not half a document.
func TestStatusThatJSONCanNotShow(t *testing.T) {
	if code, body, _ := ask(t, health.Handler(&source{trust: math.NaN()}), http.MethodGet, "/status"); code != http.StatusInternalServerError {
		t.Errorf("%d %s", code, body)
	}
}

func TestOnlyReading(t *testing.T) {
	h := health.Handler(&source{group: "g"})
	for _, target := range []string{"/healthz", "/readyz", "/status"} {
		for method, want := range map[string]int{
			http.MethodGet: 200, http.MethodHead: 200, http.MethodPost: 405, http.MethodPut: 405, http.MethodDelete: 405, http.MethodOptions: 405,
		} {
			code, _, header := ask(t, h, method, target)
			if code != want || want == 405 && header.Get("Allow") != "GET, HEAD" {
				t.Errorf("%s %s: %d, Allow %q, want %d", method, target, code, header.Get("Allow"), want)
			}
			if header.Get("Cache-Control") != "no-store" || header.Get("X-Content-Type-Options") != "nosniff" {
				t.Errorf("%s %s: headers %v", method, target, header)
			}
		}
	}
}
