package page_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/kielgo/kiel/consumer/inspect"
	"github.com/kielgo/kiel/consumer/page"
	"github.com/kielgo/kiel/internal/statuswrite"
	"github.com/kielgo/kiel/internal/testonly/assert"
	"github.com/kielgo/kiel/internal/testonly/noerr"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/status"
	"github.com/kielgo/kiel/zktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is a ZooKeeper with a group, a page of it, and who looks.
type world struct {
	t     *testing.T
	zk    *zktest.Server
	page  *page.Handler
	looks atomic.Int32 // how often the member in this process was asked: once per look
	stop  func()       // ends Run, and waits
}

// Status counts looks.
func (w *world) Status() *status.Group {
	w.looks.Add(1)
	g := statuswrite.Group("g", status.SourceMember, time.Now())
	g.Self = &status.Self{Name: "c1"}
	return g
}

// newWorld starts all of it in a bubble.
func newWorld(t *testing.T, opts page.Options) *world {
	t.Helper()
	w := &world{t: t}
	zk, network := zktest.StartVirtual(t, zktest.Options{})
	w.zk = zk
	w.create("/kiel/groups/g/members/c1", `{}`)
	w.create("/kiel/groups/g/partitions", `["orders:0","orders:1"]`)
	w.create("/kiel/groups/g/owners/orders:0", `{"owner":"c1"}`)
	sources := inspect.Sources{
		Servers: []string{zktest.VirtualAddress}, Session: session.Options{Dial: network.Client("page").Dial, Logger: slog.New(slog.DiscardHandler)},
	}
	opts.Self = w
	var err error
	if w.page, err = page.New("g", sources, opts); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- w.page.Run(ctx) }()
	w.stop = sync.OnceFunc(func() {
		cancel()
		noerr.Want(t, <-done)
	})
	return w
}

func (w *world) create(path, data string) {
	w.t.Helper()
	if err := w.zk.Create(path, []byte(data)); err != nil {
		w.t.Fatal(err)
	}
}

// get asks for a path.
func (w *world) get(path string) *httptest.ResponseRecorder { return w.do(http.MethodGet, path) }

func (w *world) do(method, path string) *httptest.ResponseRecorder {
	rec := httptest.NewRecorder()
	w.page.ServeHTTP(rec, httptest.NewRequestWithContext(w.t.Context(), method, path, http.NoBody))
	return rec
}

// stream is a viewer.
type stream struct {
	deaf bool // it reads nothing

	mu     sync.Mutex
	until  time.Time // when a write fails
	header http.Header
	code   int
	body   bytes.Buffer
	end    func()
	done   chan struct{}   // closed when it was served
	gone   <-chan struct{} // closed when the viewer has gone
}

func (s *stream) Header() http.Header { return s.header }

func (s *stream) WriteHeader(code int) { s.code = code }

func (s *stream) Write(p []byte) (int, error) {
	s.mu.Lock()
	until := s.until
	s.mu.Unlock()
	if s.deaf {
		if until.IsZero() {
			<-s.gone
		}
		time.Sleep(time.Until(until))
		return 0, os.ErrDeadlineExceeded
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.body.Write(p)
}

func (s *stream) SetWriteDeadline(at time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.until = at
	return nil
}

func (s *stream) Flush() {}

// take returns what has come since it was called last.
func (s *stream) take() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	text := s.body.String()
	s.body.Reset()
	return text
}

// watch has somebody watch until end is called.
func (w *world) watch(query string) *stream {
	s := &stream{header: http.Header{}, code: http.StatusOK}
	w.begin(s, query)
	return s
}

// begin has a viewer watch.
func (w *world) begin(s *stream, query string) {
	ctx, cancel := context.WithCancel(w.t.Context())
	done := make(chan struct{})
	s.gone = ctx.Done()
	go func() {
		defer close(done)
		w.page.ServeHTTP(s, httptest.NewRequestWithContext(ctx, http.MethodGet, "/group/events"+query, http.NoBody))
	}()
	s.end, s.done = func() { cancel(); <-done }, done
}

// wants checks that an answer has texts.
func wants(t *testing.T, got *httptest.ResponseRecorder, code int, texts ...string) {
	t.Helper()
	assert.Equal(t, got.Code, code, "code: %s", got.Body)
	for _, text := range texts {
		if !strings.Contains(got.Body.String(), text) {
			t.Errorf("it does not say %q: %s", text, got.Body)
		}
	}
}

// The page says what kiel says, under any prefix, and what it links to is beside it.
func TestPage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, page.Options{})
		defer w.stop()
		got := w.get("/deep/prefix/")
		wants(t, got, http.StatusOK, "<title>3 problems · g · kiel</title>", "a znode without a session is in the claim&#39;s place, so nobody can own the partition",
			"<code>kiel release g orders:0</code>", "#kielpersistentclaim", "members <b>1</b>", "owned <b>0</b> of 2", `href="?partition=orders%3A1#partition"`, "Kafka was not asked")
		for _, link := range []string{"page.css", "page.js", "icon.svg", "report.json"} {
			if !strings.Contains(got.Body.String(), `"`+link+`"`) {
				t.Errorf("no relative link to %s", link)
			}
			for _, prefix := range []string{"/", "/deep/prefix/"} {
				wants(t, w.get(prefix+link), http.StatusOK)
			}
		}
		var report inspect.Report
		if err := json.Unmarshal(w.get("/report.json").Body.Bytes(), &report); err != nil || report.Group != "g" || report.Problems() != 3 {
			t.Errorf("%v: %+v", err, report)
		}
		for _, f := range report.Findings {
			if !strings.Contains(got.Body.String(), strings.ReplaceAll(f.Text, "'", "&#39;")) {
				t.Errorf("the page does not say %q", f.Text)
			}
		}
		wants(t, w.get("/?view=table"), http.StatusOK, "<th scope=\"col\">because</th>", "as a grid")
		wants(t, w.get("/?partition=orders:1"), http.StatusOK, `id="partition"`, "no owner")
		wants(t, w.get("/?partition=orders:7"), http.StatusOK, "orders:7 is not in the group")
		wants(t, w.get("/?q=orders:1"), http.StatusOK, `value="orders:1"`, `title="orders:1,`)
		wants(t, w.get("/none"), http.StatusNotFound)
	})
}

// Nothing but reading is answered, and no script or style but the page's own is allowed.
func TestHeaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, page.Options{})
		defer w.stop()
		for _, path := range []string{"/", "/page.js", "/report.json", "/none"} {
			for _, method := range []string{http.MethodGet, http.MethodHead, http.MethodPost} {
				got := w.do(method, path)
				policy := got.Header().Get("Content-Security-Policy")
				if !strings.HasPrefix(policy, "default-src 'none'; ") || strings.Contains(policy, "unsafe") || strings.Contains(policy, "http") {
					t.Errorf("%s: %q", path, policy)
				}
				if got.Header().Get("Cache-Control") != "no-store" || got.Header().Get("X-Content-Type-Options") != "nosniff" {
					t.Errorf("%s: %v", path, got.Header())
				}
				if method == http.MethodPost && (got.Code != http.StatusMethodNotAllowed || got.Header().Get("Allow") != "GET, HEAD") {
					t.Errorf("%s: %d", path, got.Code)
				}
			}
		}
		body := w.get("/").Body.String()
		for _, bad := range []string{"<style", "style=", "<script>", "onclick", "javascript:", "src=\"http", "href=\"/"} {
			if strings.Contains(body, bad) {
				t.Errorf("the page has %q", bad)
			}
		}
	})
}

// However many watch, the group is looked at once per refresh, and ZooKeeper is read only when something has changed.
func TestManyViewersCostOneLook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, page.Options{Refresh: 2 * time.Second})
		defer w.stop()
		const n = 60
		var viewers []*stream
		for range n {
			viewers = append(viewers, w.watch(""))
		}
		time.Sleep(time.Second)
		looks, reads := w.looks.Load(), w.zk.Stats().Requests[zktest.OpGetData]
		for _, v := range viewers {
			if text := v.take(); !strings.Contains(text, "event: part-lead\ndata: <h1>") || !strings.Contains(text, "event: look") {
				t.Fatalf("%q", text)
			}
		}
		time.Sleep(20 * time.Second)
		if got := w.looks.Load() - looks; got < 9 || got > 11 {
			t.Errorf("%d looks in 20 s", got)
		}
		assert.Equal(t, w.zk.Stats().Requests[zktest.OpGetData]-reads, 0, "reads while nothing has changed")
		for _, v := range viewers {
			if text := v.take(); strings.Contains(text, "part-lead") || strings.Count(text, "event: look") < 9 {
				t.Fatalf("what has not changed is sent again: %q", text)
			}
		}
		noerr.Must(t, w.zk.Delete("/kiel/groups/g/owners/orders:0"))
		time.Sleep(3 * time.Second)
		for _, v := range viewers {
			if text := v.take(); !strings.Contains(text, "part-lead") || !strings.Contains(text, "part-grid") {
				t.Fatalf("what has changed is not sent: %q", text)
			}
			v.end()
		}
	})
}

// While nobody watches, nobody is asked, and no connection is open.
func TestNobodyWatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, page.Options{})
		defer w.stop()
		time.Sleep(time.Hour)
		if n := w.zk.Stats().SessionsCreated; n != 0 || w.looks.Load() != 0 {
			t.Errorf("%d sessions, %d looks before anybody came", n, w.looks.Load())
		}
		for range 2 {
			v := w.watch("")
			time.Sleep(time.Minute)
			assert.Equal(t, w.zk.Stats().Sessions, 1, "sessions while somebody watches")
			v.end()
			time.Sleep(time.Minute)
			if n := w.zk.Stats(); n.Sessions != 0 || n.Connections != 0 {
				t.Errorf("%d sessions and %d connections are left", n.Sessions, n.Connections)
			}
			looks := w.looks.Load()
			time.Sleep(time.Hour)
			assert.Equal(t, w.looks.Load(), looks, "looks while nobody watches")
		}
	})
}

// Viewers are bounded, and the places of those who go are free.
func TestViewersAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, page.Options{MaxViewers: 2})
		a, b := w.watch(""), w.watch("")
		time.Sleep(time.Second)
		wants(t, w.get("/events"), http.StatusServiceUnavailable, "too many viewers")
		wants(t, w.get("/"), http.StatusOK)
		a.end()
		c := w.watch("?q=orders:1")
		time.Sleep(time.Second)
		if text := c.take(); !strings.Contains(text, "orders:1") || strings.Contains(text, `"orders:0,`) {
			t.Errorf("%q", text)
		}
		w.stop() // ends the streams
		b.end()
		c.end()
		wants(t, w.get("/"), http.StatusServiceUnavailable, "ended")
	})
}

// A viewer that reads nothing loses its place, and holds nobody up meanwhile.
func TestDeafViewer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, page.Options{MaxViewers: 2})
		defer w.stop()
		deaf := &stream{deaf: true, header: http.Header{}}
		w.begin(deaf, "")
		other := w.watch("")
		defer other.end()
		time.Sleep(time.Second)
		other.take()
		time.Sleep(8 * time.Second)
		if n := strings.Count(other.take(), "event: look"); n < 4 {
			t.Errorf("%d looks are shown beside a viewer that reads nothing", n)
		}
		time.Sleep(5 * time.Second)
		select {
		case <-deaf.done:
		default:
			t.Error("it is served for ever")
		}
		deaf.end()
		third := w.watch("")
		time.Sleep(time.Second)
		assert.Equal(t, third.code, http.StatusOK, "the status of the answer to one more in its place")
		third.end()
	})
}

// A stream ends after a while, so that a login in front of the page is asked again.
func TestStreamsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, page.Options{})
		defer w.stop()
		v := w.watch("")
		time.Sleep(9 * time.Minute)
		select {
		case <-v.done:
			t.Error("it has ended")
		default:
		}
		time.Sleep(time.Minute + time.Second)
		select {
		case <-v.done:
		default:
			t.Error("it does not end")
		}
		time.Sleep(3 * time.Second) // as browsers do
		v = w.watch("")
		time.Sleep(3 * time.Second)
		if n := w.zk.Stats().SessionsCreated; n != 1 || !strings.Contains(v.take(), "c1 joined") {
			t.Errorf("what was seen is forgotten meanwhile: %d sessions", n)
		}
		v.end()
	})
}

// ZooKeeper goes away: the page says so, and shows the members as they were.
func TestZooKeeperAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, page.Options{})
		defer w.stop()
		v := w.watch("")
		defer func() { v.end() }()
		time.Sleep(time.Second)
		w.zk.Down()
		time.Sleep(5 * time.Second)
		for _, after := range []time.Duration{0, time.Hour} {
			for range after / (5 * time.Minute) {
				time.Sleep(5 * time.Minute)
				next := w.watch("") // streams end; browsers come again
				v.end()
				v = next
			}
			v.take()
			wants(t, w.get("/"), http.StatusOK, "no quorum of ZooKeeper answers", "as of", "</span> c1</th>", "ZooKeeper <b>failed</b>")
			time.Sleep(10 * time.Second)
			if text := v.take(); strings.Count(text, "event: look") < 2 { // a look takes as long as it waits
				t.Errorf("%v later nobody looks: %s", after, text)
			}
		}
		w.zk.Restart(false)
		time.Sleep(10 * time.Second)
		if text := w.get("/").Body.String(); strings.Contains(text, "no quorum") || strings.Contains(text, "as of") {
			t.Errorf("%s", text)
		}
	})
}

func TestRunOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, page.Options{})
		w.stop()
		if err := w.page.Run(t.Context()); !errors.Is(err, page.ErrRun) {
			t.Error(err)
		}
	})
}

func TestNewChecks(t *testing.T) {
	good := inspect.Sources{Servers: []string{"localhost:2181"}}
	for name, err := range map[string]error{
		"group":   second(page.New("", good, page.Options{})),
		"servers": second(page.New("g", inspect.Sources{}, page.Options{})),
		"refresh": second(page.New("g", good, page.Options{Refresh: -1})),
	} {
		if err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if _, err := page.New("g", good, page.Options{}); err != nil {
		t.Error(err)
	}
}

func second(_ *page.Handler, err error) error { return err }

// Run that was not called, or has not found anything yet, is said.
func TestNotRunning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, err := page.New("g", inspect.Sources{Servers: []string{"localhost:2181"}}, page.Options{})
		noerr.Must(t, err)
		rec := httptest.NewRecorder()
		h.ServeHTTP(rec, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", http.NoBody))
		wants(t, rec, http.StatusServiceUnavailable, "was not called")
	})
}
