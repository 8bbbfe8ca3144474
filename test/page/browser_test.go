package page_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/kielgo/kiel/test/servers/software"
)

// browser is one tab of a real browser.
type browser struct {
	t   *testing.T
	ctx context.Context

	mu       sync.Mutex
	complain []string // what the page has logged or thrown, and what its policy has refused
	asked    []string // the addresses of all requests
}

// patience is how long the browser has for what is not timed.
const patience = time.Minute

// newBrowser starts a browser, until the test ends.
func newBrowser(t *testing.T) *browser {
	t.Helper()
	path, err := software.Browser()
	if err != nil {
		t.Fatal(err)
	}
	opts := []chromedp.ExecAllocatorOption{chromedp.NoFirstRun, chromedp.NoDefaultBrowserCheck, chromedp.Headless, chromedp.ExecPath(path), chromedp.UserDataDir(t.TempDir()), chromedp.Flag("disable-dev-shm-usage", true)}
	if os.Geteuid() == 0 {
		opts = append(opts, chromedp.NoSandbox)
	}
	allocator, end := chromedp.NewExecAllocator(context.Background(), opts...)
	ctx, cancel := chromedp.NewContext(allocator)
	t.Cleanup(func() {
		_ = chromedp.Cancel(ctx) // waits for the browser's end
		cancel()
		end()
	})
	b := &browser{t: t, ctx: ctx}
	if err := chromedp.Listen(ctx, b.hear); err != nil {
		t.Fatal(err)
	}
	call(b, network.Enable, network.EnableParams{})
	call(b, log.Enable, cdp.Empty{})
	call(b, runtime.Enable, cdp.Empty{})
	return b
}

// hear keeps what the page complains of, and what it asks for.
func (b *browser) hear(event any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch e := event.(type) {
	case *network.EventRequestWillBeSent:
		b.asked = append(b.asked, e.Request.URL)
	case *log.EventEntryAdded:
		if e.Entry.Level == log.EntryLevelError || e.Entry.Level == log.EntryLevelWarning {
			b.complain = append(b.complain, fmt.Sprintf("%s: %s (%s)", e.Entry.Source, e.Entry.Text, e.Entry.URL))
		}
	case *runtime.EventExceptionThrown:
		b.complain = append(b.complain, fmt.Sprintf("%+v", e.ExceptionDetails))
	case *runtime.EventConsoleAPICalled:
		b.complain = append(b.complain, fmt.Sprintf("console.%s", e.Type))
	}
}

// run runs an action in a browser, and returns its value.
func run[T any](b *browser, action chromedp.Action[T]) T {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	value, err := chromedp.Run(ctx, action)
	if err != nil {
		b.t.Fatal(err)
	}
	return value
}

// call sends a command of the browser's protocol.
func call[P, R any](b *browser, command cdp.Command[P, R], params P) {
	b.t.Helper()
	run(b, chromedp.Func(func(ctx context.Context, target *chromedp.Target) error {
		_, err := cdp.Call(ctx, target, command, params)
		return err
	}))
}

// eval evaluates an expression in the page.
func eval[T any](b *browser, expression string) T {
	b.t.Helper()
	return run(b, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
}

// focus gives an element of the page the focus, in one step: chromedp looks for it first, and the page may have put another one
// in its place then.
func (b *browser) focus(selector string) {
	b.t.Helper()
	quoted, _ := json.Marshal(selector)
	b.until(patience, fmt.Sprintf("(() => { const e = document.querySelector(%s); e.focus(); return document.activeElement === e })()", quoted))
}

// text returns what the page shows.
func (b *browser) text() string {
	b.t.Helper()
	return eval[string](b, `document.body ? document.body.innerText : ""`)
}

// until waits until an expression is true, and returns how long that took. While another page is being loaded there may be
// nothing of what the expression asks for, which is not true.
func (b *browser) until(limit time.Duration, expression string) time.Duration {
	b.t.Helper()
	began := time.Now()
	tried := "(() => { try { return Boolean(" + expression + ") } catch { return false } })()"
	for !eval[bool](b, tried) {
		if time.Since(began) > limit {
			b.t.Fatalf("not within %v: %s\n%s", limit, expression, b.text())
		}
		time.Sleep(50 * time.Millisecond)
	}
	return time.Since(began)
}

// shows is an expression that is true if the page shows a text.
func shows(text string) string {
	quoted, _ := json.Marshal(text)
	return "document.body.innerText.replace(/\\s+/g, ' ').includes(" + string(quoted) + ")"
}

// size sets the size of the window, and whether it is dark.
func (b *browser) size(width int64, dark bool) {
	b.t.Helper()
	scheme := "light"
	if dark {
		scheme = "dark"
	}
	call(b, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: width, Height: 900, DeviceScaleFactor: 1, Mobile: width < 600})
	call(b, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}})
}

// check has axe-core look for what keeps people from using the page.
func (b *browser) check(what string) {
	b.t.Helper()
	path, err := software.Axe()
	if err != nil {
		b.t.Fatal(err)
	}
	axe, err := os.ReadFile(path)
	if err != nil {
		b.t.Fatal(err)
	}
	eval[bool](b, string(axe)+"\n;true")
	found := eval[string](b, `axe.run(document, {resultTypes: ["violations"]}).then(r => JSON.stringify(r.violations.map(v => v.id + ": " + v.help + " at " + v.nodes.slice(0, 3).map(n => n.html + " " + n.failureSummary).join(" | ")), null, 1))`)
	if found != "[]" {
		b.t.Errorf("%s: axe finds %s", what, found)
	}
}

// picture keeps a picture of the whole page.
func (b *browser) picture(name string) {
	b.t.Helper()
	png := run(b, chromedp.FullScreenshot(100))
	if err := os.WriteFile(filepath.Join(*pictures, name+".png"), png, 0o644); err != nil {
		b.t.Fatal(err)
	}
}

// calm checks that the page has complained of nothing, and has asked nobody but where it comes from.
func (b *browser) calm(origin string) {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, text := range b.complain {
		b.t.Errorf("the page complains: %s", text)
	}
	for _, url := range b.asked {
		if !strings.HasPrefix(url, origin) {
			b.t.Errorf("the page asks %s", url)
		}
	}
}
