package usercall_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"go.uber.org/goleak"

	"github.com/kielgo/kiel/internal/errlog"
	"github.com/kielgo/kiel/internal/usercall"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func fine()    {}
func panics()  { panic("ouch") }
func goexits() { runtime.Goexit() }

// What becomes of a call is told once, when it is over; a failure is logged, and where it was.
func TestCall(t *testing.T) {
	for name, test := range map[string]struct {
		f         func()
		told, log string
		where     string
	}{
		"returns": {f: fine, told: "[<nil>]"},
		"panics":  {f: panics, told: "[file does not exist: it: ouch]", log: `kind="panic in it"`, where: "test.panics"},
		"ends its goroutine": {
			f: goexits, told: "[file does not exist: it: runtime.Goexit was called]",
			log: `kind="panic in it"`, where: "test.goexits",
		},
	} {
		t.Run(name, func(t *testing.T) {
			var log bytes.Buffer
			guard := usercall.Guard{Err: os.ErrNotExist, Log: errlog.New(slog.New(slog.NewTextHandler(&log, nil)))}
			var told []error
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				guard.Call(usercall.Callback{Kind: "it"}, test.f, func(failure error) { told = append(told, failure) })
			}()
			<-ended
			if got := fmt.Sprint(told); got != test.told {
				t.Errorf("told %s, want %s", got, test.told)
			}
			if got := log.String(); !strings.Contains(got, test.log) || !strings.Contains(got, test.where) || (got == "") != (test.log == "") {
				t.Errorf("logged %s", got)
			}
		})
	}
}

// A callback that panics again and again is logged with its stack once, then counted, and one line says that it works again. Who
// calls it hears of each panic. Other callbacks, and what works about something else, have nothing to do with it.
func TestPanicsAreCoalesced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		guard := usercall.Guard{Err: os.ErrNotExist, Log: errlog.New(slog.New(slog.NewTextHandler(&log, nil)))}
		told := 0
		call := func(c usercall.Callback, f func()) {
			guard.Call(c, f, func(failure error) {
				if failure != nil {
					told++
				}
			})
		}
		wants := func(want ...string) {
			t.Helper()
			lines := slices.Collect(strings.Lines(log.String()))
			log.Reset()
			if len(lines) != len(want) {
				t.Errorf("%d lines, want %q:\n%s", len(lines), want, strings.Join(lines, ""))
				return
			}
			for i, line := range lines {
				if !strings.Contains(line, want[i]) || strings.Contains(line, "stack=") != strings.Contains(line, "msg=failed") {
					t.Errorf("line %d is %s, want %s", i, line, want[i])
				}
			}
		}
		one, two := usercall.Callback{Kind: "handler", About: "t:1", Name: "handler of t:1"}, usercall.Callback{Kind: "handler", About: "t:2"}
		for range 100 {
			call(one, panics)
			call(two, fine)
			time.Sleep(50 * time.Millisecond)
		}
		wants(`msg=failed kind="panic in handler" about=t:1 error="file does not exist: handler of t:1: ouch" stack=`)
		call(usercall.Callback{Kind: "Observer"}, panics)
		wants(`msg=failed kind="panic in Observer" error="file does not exist: Observer: ouch" stack=`)
		time.Sleep(5 * time.Second)
		call(one, panics)
		wants(`msg="still failing" kind="panic in handler" about=t:1 error="file does not exist: handler of t:1: ouch" count=100 failing=1 lasts=10s`)
		call(one, fine)
		wants(`msg=recovered kind="panic in handler" after=10s errors=101`)
		call(one, fine)
		wants()
		if told != 102 {
			t.Errorf("told %d times", told)
		}
	})
}

// A call is said to be stuck a second after its limit, and again for as long as that is asked for and it lasts.
func TestWatch(t *testing.T) {
	const limit = 10 * time.Second
	said := []time.Duration{limit + time.Second, 2*limit + time.Second, 3*limit + time.Second}
	for name, test := range map[string]struct {
		lasts time.Duration
		asked int // to say so
		want  []time.Duration
	}{
		"in time":          {lasts: limit - 1, asked: 9},
		"returned late":    {lasts: limit + time.Second - 1, asked: 9},
		"stuck":            {lasts: time.Hour, asked: 1, want: said[:1]},
		"stuck, asked on":  {lasts: time.Hour, asked: 3, want: said},
		"stuck for a time": {lasts: 25 * time.Second, asked: 9, want: said[:2]},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var got []time.Duration
				returned := usercall.Watch(limit, func(since time.Duration) bool {
					got = append(got, since)
					return len(got) < test.asked
				})
				time.Sleep(test.lasts)
				returned()
				time.Sleep(time.Hour)
				synctest.Wait()
				if !slices.Equal(got, test.want) {
					t.Errorf("said to be stuck after %v, want %v", got, test.want)
				}
			})
		})
	}
}

// What a call that is over could say is not kept: calls may be many, and hold messages.
func TestWatchKeepsNothing(t *testing.T) {
	const limit = time.Minute
	for name, lasts := range map[string]time.Duration{
		"in time": limit / 2, "returned late": limit + time.Second/2, "said to be stuck": 3 * limit / 2,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				kept := watchFor(limit, lasts)
				runtime.GC()
				if kept.Value() != nil {
					t.Error("it is kept")
				}
			})
		})
	}
}

// watchFor watches a call that lasts so long, and returns what hangs on it.
func watchFor(limit, lasts time.Duration) weak.Pointer[[1024]byte] {
	message := new([1024]byte)
	returned := usercall.Watch(limit, func(time.Duration) bool { return message[0] == 0 })
	time.Sleep(lasts)
	returned()
	return weak.Make(message)
}

func TestLimit(t *testing.T) {
	if short, long := usercall.Limit(time.Second), usercall.Limit(time.Minute); short != 5*time.Second || long != time.Minute {
		t.Errorf("%v and %v", short, long)
	}
}
