package errlog_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/kielgo/kiel/internal/errlog"
	"github.com/kielgo/kiel/internal/statuswrite"
	"github.com/kielgo/kiel/status"
)

// logged is a Log and what it wrote.
type logged struct {
	*errlog.Log

	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logged) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

// lines returns what was written since the last call.
func (l *logged) lines() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	lines := slices.Collect(strings.Lines(l.b.String()))
	l.b.Reset()
	return lines
}

func newLogged() *logged {
	l := new(logged)
	l.Log = errlog.New(slog.New(slog.NewTextHandler(l, &slog.HandlerOptions{
		ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
			if len(groups) == 0 && a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		},
	})))
	return l
}

func (l *logged) wants(t *testing.T, lines ...string) {
	t.Helper()
	got, want := strings.Join(l.lines(), ""), strings.Join(lines, "\n")
	if want != "" {
		want += "\n"
	}
	if got != want {
		t.Errorf("logged\n%swant\n%s", got, want)
	}
}

var errRefused = errors.New("refused")

func TestAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLogged()
		l.OK("fetch", "orders:0")
		l.wants(t)
		// Nine partitions fail twice a second, for a minute.
		for i := range 120 {
			for p := range 9 {
				l.Failed("fetch", fmt.Sprint("orders:", p), errRefused, "broker", 1)
			}
			if i == 0 {
				l.wants(t, `level=ERROR msg=failed kind=fetch about=orders:0 error=refused broker=1`)
			}
			time.Sleep(500 * time.Millisecond)
		}
		var want []string
		count := 20 * 9
		for i := 1; i <= 5; i++ {
			want = append(want, fmt.Sprintf(
				`level=ERROR msg="still failing" kind=fetch about=orders:0 error=refused count=%d failing=9 lasts=%ds broker=1`, count, 10*i))
		}
		l.wants(t, want...)
		for p := range 9 {
			l.wants(t)
			l.OK("fetch", fmt.Sprint("orders:", p))
		}
		l.wants(t, `level=INFO msg=recovered kind=fetch after=1m0s errors=1080`)
		l.OK("fetch", "orders:0")
		l.wants(t)
	})
}

func TestKindsAreApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLogged()
		l.Failed("fetch", "orders:0", errRefused)
		l.FailedWarn("commit", "", errRefused)
		l.OK("offsets", "orders:0")
		l.OK("fetch", "orders:1")
		l.wants(t, `level=ERROR msg=failed kind=fetch about=orders:0 error=refused`, `level=WARN msg=failed kind=commit error=refused`)
		time.Sleep(time.Second)
		l.OK("commit", "")
		l.wants(t, `level=INFO msg=recovered kind=commit after=1s errors=1`)
	})
}

func TestAHigherLevelIsLoggedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLogged()
		l.FailedWarn("commit", "", errRefused)
		l.FailedWarn("commit", "", errRefused)
		l.Failed("commit", "", errRefused)
		l.FailedWarn("commit", "", errRefused)
		l.wants(t, `level=WARN msg=failed kind=commit error=refused`,
			`level=ERROR msg="still failing" kind=commit error=refused count=2 failing=1 lasts=0s`)
	})
}

// A stack is cut, asked for when it is written alone, and written once in an Interval.
func TestStacks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLogged()
		asked := 0
		fail := func() {
			l.FailedAt("panic", "", errRefused, func() string {
				asked++
				return "goroutine 7:" + strings.Repeat("x", 100_000)
			})
		}
		const plain = `level=ERROR msg=failed kind=panic error=refused`
		for i := range 4 {
			fail()
			fail()
			if lines := l.lines(); i == 0 {
				if len(lines) != 1 || !strings.HasPrefix(lines[0], plain+` stack="goroutine 7:xxx`) || len(lines[0]) < 8192 || len(lines[0]) > 8192+len(plain)+20 {
					t.Errorf("logged %d lines:\n%s", len(lines), strings.Join(lines, ""))
				}
			} else if got := strings.Join(lines, ""); !strings.HasPrefix(got, plain) || strings.Contains(got, "stack") {
				t.Errorf("logged %s", got)
			}
			l.OK("panic", "")
			l.lines()
		}
		time.Sleep(10 * time.Second)
		fail()
		if got := strings.Join(l.lines(), ""); !strings.Contains(got, "stack") || asked != 2 {
			t.Errorf("asked %d times, logged %s", asked, got)
		}
	})
}

func TestFlappingIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLogged()
		for range 600 {
			l.Failed("commit", "", errRefused)
			time.Sleep(50 * time.Millisecond)
			l.OK("commit", "")
			time.Sleep(50 * time.Millisecond)
		}
		// A minute: four starts in each Interval, each with its recovery.
		lines := l.lines()
		if len(lines) < 6*2 || len(lines) > 7*2*4 {
			t.Errorf("%d lines for a minute:\n%s", len(lines), strings.Join(lines, ""))
		}
		if got := l.Troubles(); len(got) != 1 || got[0].Count != 600 || got[0].Until == nil {
			t.Errorf("the troubles are %+v, want one of 600 errors that is over", got)
		}
	})
}

func TestGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLogged()
		l.Gone("orders:0")
		l.Failed("fetch", "orders:0", errRefused)
		l.Failed("fetch", "orders:1", errRefused)
		l.Failed("offsets", "orders:0", errRefused)
		l.lines()
		time.Sleep(errlog.Interval)
		l.Gone("orders:0")
		l.wants(t, `level=INFO msg="given up while it failed" kind=offsets after=10s errors=1`)
		l.FailedInfo("handler", "orders:1", errRefused)
		l.Gone("orders:7")
		l.Gone("orders:1")
		l.wants(t, `level=INFO msg=failed kind=handler about=orders:1 error=refused`, `level=INFO msg="given up while it failed" kind=fetch after=10s errors=2`)
		if l.Failing() {
			t.Error("what has gone fails")
		}
		l.AllGone()
		for i := range 3 {
			l.Failed("fetch", fmt.Sprint(i), errRefused)
			l.Failed("offsets", fmt.Sprint(i), errRefused)
		}
		l.lines()
		time.Sleep(errlog.Interval)
		l.AllGone()
		l.wants(t, `level=INFO msg="given up while it failed" kind=fetch after=10s errors=3`,
			`level=INFO msg="given up while it failed" kind=offsets after=10s errors=3`)
		if l.Failing() || len(l.Troubles()) != 3 {
			t.Error(l.Troubles())
		}
	})
}

func TestTroubles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLogged()
		if got := l.Troubles(); len(got) != 0 {
			t.Errorf("troubles of nothing: %+v", got)
		}
		began := time.Now()
		for i := range errlog.MaxPast + 3 {
			kind := fmt.Sprint("kind", string(rune('a'+i)))
			l.Failed(kind, "", errRefused)
			time.Sleep(time.Second)
			l.OK(kind, "")
		}
		l.Failed("fetch", "", errRefused)
		for i := range 30 {
			l.Failed("fetch", fmt.Sprintf("orders:%02d", i), fmt.Errorf("error %d", i))
		}
		time.Sleep(time.Second)
		l.Failed("commit", "", errRefused)
		got := l.Troubles()
		if len(got) != 2+errlog.MaxPast {
			t.Fatalf("%d troubles, want %d", len(got), 2+errlog.MaxPast)
		}
		fetch := got[1]
		if got[0].Kind != "commit" || got[0].Until != nil || len(got[0].About) > 0 {
			t.Errorf("the newest is %+v", got[0])
		}
		if fetch.Kind != "fetch" || fetch.Count != 31 || fetch.Last != "error 29" || len(fetch.About) != statuswrite.MaxListed || fetch.About[0] != "orders:00" {
			t.Errorf("the older one that goes on is %+v", fetch)
		}
		// The three oldest are forgotten.
		for i, trouble := range got[2:] {
			n := errlog.MaxPast + 2 - i
			since := began.Add(time.Duration(n) * time.Second)
			if trouble.Kind != fmt.Sprint("kind", string(rune('a'+n))) || !trouble.Since.Equal(since) || !trouble.Until.Equal(since.Add(time.Second)) {
				t.Errorf("past trouble %d is %+v", i, trouble)
			}
		}
	})
}

// Warnings that come and go don't hide an error of the same kind, nor that it is over.
func TestAnErrorAmongWarningsIsLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLogged()
		for range 6 {
			l.FailedWarn("commit", "orders:0", errRefused)
			l.Gone("orders:0")
		}
		warning := `level=WARN msg=failed kind=commit about=orders:0 error=refused`
		l.wants(t, warning, warning, warning, warning)
		l.Failed("commit", "orders:1", errors.New("no right"))
		l.Failed("commit", "orders:1", errors.New("no right"))
		time.Sleep(time.Second)
		l.OK("commit", "orders:1")
		l.wants(t, `level=ERROR msg=failed kind=commit about=orders:1 error="no right" count=3`, `level=INFO msg=recovered kind=commit after=1s errors=2`)
		l.Failed("commit", "orders:1", errors.New("no right"))
		l.OK("commit", "orders:1")
		l.wants(t)
	})
}

// A line that was postponed is logged by the first call after the Interval, whatever that call is about.
func TestWhatIsHeldBackIsLoggedLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLogged()
		flap := func(n int) {
			for range n {
				l.Failed("commit", "orders:0", errRefused)
				l.OK("commit", "orders:0")
			}
			l.lines()
		}
		// It is over.
		flap(4)
		l.Failed("commit", "orders:1", errors.New("first"))
		l.OK("commit", "orders:1")
		time.Sleep(time.Second)
		l.Failed("commit", "orders:2", errors.New("no right"))
		l.FailedWarn("commit", "orders:3", errRefused)
		time.Sleep(time.Second)
		l.OK("commit", "orders:2")
		l.OK("commit", "orders:3")
		time.Sleep(8*time.Second - time.Millisecond)
		l.OK("fetch", "orders:0")
		l.wants(t)
		time.Sleep(time.Millisecond)
		if !l.Failing() {
			t.Error("nothing is to be logged")
		}
		l.OK("fetch", "orders:0")
		l.wants(t, `level=ERROR msg=failed kind=commit about=orders:2 error="no right" count=3`, `level=INFO msg=recovered kind=commit after=1s errors=2`)
		if l.Failing() {
			t.Error("something is to be logged")
		}

		// It goes on, and is told of once.
		time.Sleep(time.Minute)
		flap(4)
		l.Failed("commit", "orders:1", errors.New("no right"))
		l.wants(t)
		time.Sleep(errlog.Interval)
		l.OK("fetch", "orders:0")
		l.wants(t, `level=ERROR msg=failed kind=commit about=orders:1 error="no right"`)
		l.OK("commit", "orders:1")
		l.wants(t, `level=INFO msg=recovered kind=commit after=10s errors=1`)

		// All ends.
		time.Sleep(time.Minute)
		flap(4)
		l.Failed("commit", "orders:1", errors.New("no right"))
		l.AllGone()
		l.wants(t, `level=ERROR msg=failed kind=commit about=orders:1 error="no right"`)
		l.AllGone()
		l.wants(t)
		if l.Failing() {
			t.Error("something is to be logged")
		}
	})
}

func TestMerge(t *testing.T) {
	now := time.Now()
	var a, b []status.Trouble
	for i := range errlog.MaxPast {
		since, until := now.Add(time.Duration(-i)*time.Minute), now.Add(time.Duration(-i)*time.Minute+time.Second)
		a = append(a, status.Trouble{Kind: "a", Since: since, Until: &until})
		b = append(b, status.Trouble{Kind: "b", Since: since, Until: &until})
	}
	b = append(b, status.Trouble{Kind: "now", Since: now.Add(-time.Hour)})
	got := errlog.Merge(a, b)
	if len(got) != 1+errlog.MaxPast || got[0].Kind != "now" || got[1].Kind != "a" || got[2].Kind != "b" || got[2].Since != now {
		t.Errorf("merged to %+v", got)
	}
	if errlog.Merge() == nil || errlog.Merge(nil, nil) == nil {
		t.Error("no troubles are nil, which is null in JSON")
	}
}

// panicking is an error of somebody who made a mistake.
type panicking struct{}

func (panicking) Error() string { panic("no") }

func TestBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLogged()
		l.Failed("panic", "", panicking{})
		l.Failed("nil", "", nil)
		l.lines()
		long := strings.Repeat("€", 1<<20) + "\xff"
		l.Failed("fetch", long, errors.New(long))
		if lines := l.lines(); len(lines) != 1 || len(lines[0]) > 1000 {
			t.Errorf("%d lines, %d bytes", len(lines), len(strings.Join(lines, "")))
		}
		for _, trouble := range l.Troubles() {
			if len(trouble.Last) > 500 || !utf8.ValidString(trouble.Last) || trouble.Last == "" {
				t.Errorf("the text %q", trouble.Last)
			}
		}
		l.OK("fetch", long)
		for i := range 3 * errlog.MaxAbouts {
			l.Failed("fetch", fmt.Sprint(i), errRefused)
		}
		time.Sleep(errlog.Interval)
		l.lines()
		l.Failed("fetch", "0", errRefused)
		l.wants(t, fmt.Sprintf(`level=ERROR msg="still failing" kind=fetch about=0 error=refused count=%d failing=%d lasts=10s`,
			3*errlog.MaxAbouts, errlog.MaxAbouts))
	})
}

func TestByManyAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLogged()
		var all sync.WaitGroup
		for i := range 8 {
			all.Go(func() {
				about := fmt.Sprint(i)
				for range 100 {
					l.Failed("fetch", about, errRefused)
					l.Troubles()
					time.Sleep(time.Second)
				}
				l.OK("fetch", about)
			})
		}
		all.Wait()
		if lines := l.lines(); len(lines) != 11 {
			t.Errorf("%d lines for 100 s:\n%s", len(lines), strings.Join(lines, ""))
		}
		if troubles := l.Troubles(); len(troubles) != 1 || troubles[0].Count != 800 {
			t.Errorf("the troubles are %+v", troubles)
		}
	})
}

func TestOKCostsNothing(t *testing.T) {
	l := newLogged()
	if n := testing.AllocsPerRun(100, func() { l.OK("fetch", "orders:0"); l.Gone("orders:0") }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkOK(b *testing.B) {
	l := newLogged()
	for b.Loop() {
		l.OK("fetch", "orders:0")
	}
}
