package page_test

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"go.uber.org/goleak"

	"github.com/kielgo/kiel/consumer/page"
	"github.com/kielgo/kiel/internal/testonly/logtest"
	"github.com/kielgo/kiel/test/page/scene"
)

var pictures = flag.String("pictures", "", "folder in which to keep pictures of the page")

func TestMain(m *testing.M) {
	logtest.Silence()
	flag.Parse()
	// On two processors: the tests mostly wait. The longest is in the first file, and the others run beside it.
	if err := errors.Join(flag.Set("test.parallel", "3"), flag.Set("test.shuffle", "off")); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m,
		// sarama's meters share a goroutine that never ends.
		goleak.IgnoreAnyFunction("github.com/rcrowley/go-metrics.(*meterArbiter).tick"),
		goleak.IgnoreAnyFunction("github.com/eapache/go-resiliency/breaker.(*Breaker).timer"),
	)
}

// stage starts a scene in which something is wrong, and waits until its page shows all of it.
func stage(t *testing.T, b *browser) *scene.Scene {
	t.Helper()
	s, err := scene.Start(t.Context(), page.Options{Refresh: 500 * time.Millisecond, Window: 3 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	run(b, chromedp.Navigate(s.URL))
	if err := s.Incident(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.until(patience, shows("orders:0 stands still in"))
	b.until(patience, shows("kiel release billing orders:2"))
	return s
}

// The page in a browser: it complains of nothing, asks nobody else, fits, can be used by all, and goes on by itself.
func TestPage(t *testing.T) {
	t.Parallel()
	b := newBrowser(t)
	b.size(1280, false)
	s := stage(t, b)
	eval[int](b, "window.marker = 1")
	for _, width := range []int64{390, 900, 1600} {
		for _, dark := range []bool{false, true} {
			what := fmt.Sprintf("%d", width)
			if dark {
				what += "-dark"
			}
			b.size(width, dark)
			b.check(what)
			if w := eval[int64](b, "document.documentElement.scrollWidth"); w > width {
				t.Errorf("%s: the page is %d wide", what, w)
			}
			if *pictures != "" {
				b.picture(what)
			}
		}
	}
	b.size(1280, false)
	began := eval[string](b, `document.getElementById("at").textContent`)
	b.until(patience, fmt.Sprintf(`document.getElementById("at").textContent !== %q`, began))
	if eval[int](b, "window.marker || 0") != 1 {
		t.Error("the page was loaded anew")
	}
	if title := eval[string](b, "document.title"); !strings.HasSuffix(title, "· billing · kiel") || strings.HasPrefix(title, "all well") {
		t.Errorf("title %q", title)
	}
	origin, _, _ := strings.Cut(s.URL, "/group/")
	b.calm(origin)
}

// Whoever has a keyboard alone gets to what is wrong, to a partition and back, and keeps the place while the page changes.
func TestKeyboard(t *testing.T) {
	t.Parallel()
	b := newBrowser(t)
	b.size(1280, false)
	stage(t, b)
	run(b, chromedp.KeyEvent(kb.Tab))
	if got := eval[string](b, "document.activeElement.textContent"); got != "Skip to what is wrong" {
		t.Errorf("the first stop is %q", got)
	}
	run(b, chromedp.KeyEvent(kb.Enter))
	b.until(patience, `location.hash === "#wrong"`)
	b.focus(`a[href="?partition=orders%3A5#partition"]`)
	began := eval[string](b, `document.getElementById("at").textContent`)
	b.until(patience, fmt.Sprintf(`document.getElementById("at").textContent !== %q`, began))
	if got := eval[string](b, `document.activeElement.getAttribute("href")`); got != "?partition=orders%3A5#partition" {
		t.Errorf("the focus has gone to %q", got)
	}
	b.focus("pre")
	began = eval[string](b, `document.getElementById("part-findings").textContent`)
	b.until(patience, fmt.Sprintf(`document.getElementById("part-findings").textContent !== %q`, began))
	if got := eval[string](b, `document.activeElement.tagName`); got != "PRE" {
		t.Errorf("the focus on a command has gone to %s", got)
	}
	if !eval[bool](b, `(() => { const at = document.getElementById("at"); return new Date(at.getAttribute("datetime")).toISOString().includes(at.textContent) })()`) {
		t.Error("the tooltip has the time of another look")
	}
	b.focus(`a[href="?partition=orders%3A5#partition"]`)
	run(b, chromedp.KeyEvent(kb.Enter))
	b.until(patience, shows("owner c")+` && document.querySelector("#partition h3") !== null && location.search === "?partition=orders%3A5"`)
	b.check("a partition")
	run(b, chromedp.Navigate(eval[string](b, `document.getElementById("close").href`)))
	b.until(patience, `document.getElementById("partition") === null`)
	run(b, chromedp.Navigate(eval[string](b, `document.getElementById("other").href`)))
	b.until(patience, shows("as a grid")+` && document.querySelectorAll("#partitions tbody tr").length === 16`)
	b.check("as a table")
	run(b, chromedp.Click("#pause"))
	time.Sleep(600 * time.Millisecond)
	began = eval[string](b, `document.getElementById("at").textContent`)
	time.Sleep(2 * time.Second)
	if got := eval[string](b, `document.getElementById("at").textContent`); got != began {
		t.Errorf("paused, the page goes on from %s to %s", began, got)
	}
}

// A text that somebody copies stays selected while the page changes.
func TestSelectionStays(t *testing.T) {
	t.Parallel()
	b := newBrowser(t)
	b.size(1280, false)
	stage(t, b)
	eval[bool](b, `(() => { const c = [...document.querySelectorAll("pre code")].find(e => e.textContent.includes("release")); getSelection().selectAllChildren(c); return true })()`)
	time.Sleep(3 * time.Second)
	if got := eval[string](b, "getSelection().toString()"); got != "kiel release billing orders:2" {
		t.Errorf("%q is selected", got)
	}
	before := eval[string](b, `document.getElementById("part-findings").innerHTML`)
	eval[bool](b, "getSelection().removeAllRanges() || true")
	b.until(patience, fmt.Sprintf(`document.getElementById("part-findings").innerHTML.length > 0 && (%d, true)`, len(before)))
}

// When the member behind a proxy is away, the page stays, old as it is, and goes on when the member is back.
func TestProxyWithoutMember(t *testing.T) {
	t.Parallel()
	b := newBrowser(t)
	b.size(900, false)
	s := stage(t, b)
	u, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	u.Path = "/"
	var away atomic.Bool
	behind := httputil.NewSingleHostReverseProxy(u)
	behind.ErrorLog = log.New(io.Discard, "", 0)
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if away.Load() {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		behind.ServeHTTP(w, r)
	}))
	defer func() { proxy.CloseClientConnections(); proxy.Close() }()
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	run(b, chromedp.Navigate(proxy.URL+"/group/"))
	b.until(patience, shows("orders:0 stands still in"))
	eval[int](b, "window.marker = 1")
	away.Store(true)
	proxy.CloseClientConnections()
	b.until(patience, `document.getElementById("live").classList.contains("stale")`)
	time.Sleep(6 * time.Second) // until it has asked for itself
	if text := b.text(); !strings.Contains(text, "kiel release billing orders:2") || eval[int](b, "window.marker || 0") != 1 {
		t.Errorf("it is gone: %s", text)
	}
	away.Store(false)
	b.until(patience, `!window.marker && !document.getElementById("live").classList.contains("stale") && `+shows("orders:0 stands still in"))
}

// Without scripts the page shows the same, and loads itself anew.
func TestWithoutScripts(t *testing.T) {
	t.Parallel()
	b := newBrowser(t)
	b.size(900, false)
	s := stage(t, b)
	call(b, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true})
	run(b, chromedp.Navigate(s.URL))
	loads := func() (n int) {
		b.mu.Lock()
		defer b.mu.Unlock()
		for _, asked := range b.asked {
			if asked == s.URL {
				n++
			}
		}
		return n
	}
	began, before := time.Now(), loads()
	for loads() < before+2 {
		if time.Since(began) > patience {
			t.Fatal("the page is not loaded anew")
		}
		time.Sleep(100 * time.Millisecond)
	}
	for _, want := range []string{"orders:0 stands still in", "kiel release billing orders:2"} {
		b.until(patience, shows(want))
	}
	if u, err := url.Parse(s.URL); err != nil || u.Path != "/group/" {
		t.Errorf("%s", s.URL)
	}
}
