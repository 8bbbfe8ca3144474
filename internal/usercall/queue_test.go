package usercall_test

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kielgo/kiel/internal/errlog"
	"github.com/kielgo/kiel/internal/usercall"
)

// quiet is a guard whose log nobody reads.
func quiet() usercall.Guard {
	return usercall.Guard{Err: os.ErrNotExist, Log: errlog.New(slog.New(slog.DiscardHandler))}
}

// journal is a queue, and what its calls have noted. It is read once they are over.
type journal struct {
	usercall.Queue

	notes []string
}

func newJournal() *journal {
	j := &journal{}
	j.Guard, j.Limit, j.Most = quiet(), time.Minute, 3
	j.Stuck = func(usercall.Callback) bool { return false }
	j.Done = func(what usercall.Callback, failure error) {
		if failure != nil {
			j.notes = append(j.notes, fmt.Sprintf("%s failed", what.Kind))
		}
	}
	return j
}

// say puts in a call that takes a second.
func (j *journal) say(what string) {
	j.Put(usercall.Callback{Kind: what}, func() { j.note(what) })
}

// newest puts in a call that replaces another one.
func (j *journal) newest(kind string, n int) {
	j.PutNewest(usercall.Callback{Kind: kind}, func() { j.note(fmt.Sprint(kind, n)) })
}

func (j *journal) note(what string) {
	time.Sleep(time.Second)
	j.notes = append(j.notes, what)
}

// ends closes the queue and compares what was called.
func (j *journal) ends(t *testing.T, want ...string) {
	t.Helper()
	<-j.Close()
	if !slices.Equal(j.notes, want) {
		t.Errorf("called %q, want %q", j.notes, want)
	}
}

// Calls come in the order in which they were put in, one at a time, and nobody who puts one in waits.
func TestQueueKeepsTheOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j, began := newJournal(), time.Now()
		for _, what := range []string{"a", "b", "c"} {
			j.say(what)
		}
		if took := time.Since(began); took != 0 {
			t.Errorf("put in within %v", took)
		}
		time.Sleep(time.Hour) // its goroutine has ended
		j.say("d")
		began = time.Now()
		j.ends(t, "a", "b", "c", "d")
		if took := time.Since(began); took != time.Second {
			t.Errorf("the last took %v", took)
		}
	})
}

// Behind a call that takes long no more than Most wait, of which the oldest go, and one of each kind that is replaced.
func TestQueueIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJournal()
		j.say("slow")
		synctest.Wait()
		j.newest("z", 0)
		for n := range 1000 {
			j.newest("x", n)
			j.say(fmt.Sprint("a", n))
			j.newest("y", n)
		}
		j.newest("x", 1000)
		j.ends(t, "slow", "z0", "x1000", "y999", "a997", "a998", "a999")
	})
}

// One of the merged calls of a kind is made, the oldest or the newest, unless another call was put in between.
func TestQueueMerges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJournal()
		merged := func(kind, about string, oldest bool, n int) {
			j.PutMerged(usercall.Callback{Kind: kind, About: about}, oldest, func() { j.note(fmt.Sprint(about, n)) })
		}
		j.say("slow")
		synctest.Wait()
		for n := range 3 {
			merged("e", "new", false, n)
			merged("e", "old", true, n)
		}
		j.say("between")
		merged("e", "old", true, 3)
		merged("e", "new", false, 3)
		merged("f", "new", false, 4)
		j.ends(t, "slow", "old0", "new2", "between", "old3", "new3", "new4")
	})
}

// A queue without a bound drops nothing; one with a bound says what it drops.
func TestQueueSaysWhatItDrops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for most, want := range map[int]int{0: 0, 3: 7} {
			j, dropped := newJournal(), 0
			j.Most, j.Dropped = most, func() { dropped++ }
			j.say("slow")
			synctest.Wait()
			for range 10 {
				j.say("a")
			}
			<-j.Close()
			if dropped != want || len(j.notes) != 11-want {
				t.Errorf("with a bound of %d, %d are dropped and %d called", most, dropped, len(j.notes))
			}
		}
	})
}

// A call that panics or ends its goroutine is reported before the next one, and the calls go on.
func TestQueueGoesOnAfterFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJournal()
		j.Most = 9
		for kind, f := range map[string]func(){"panic": panics, "goexit": goexits} {
			j.say("before")
			j.Put(usercall.Callback{Kind: kind}, f)
			j.say("after")
			time.Sleep(time.Minute)
			synctest.Wait()
			if want := []string{"before", kind + " failed", "after"}; !slices.Equal(j.notes, want) {
				t.Errorf("called %q, want %q", j.notes, want)
			}
			j.notes = nil
		}
		// The last call of all is told of, too.
		j.Done = func(what usercall.Callback, failure error) {
			if failure != nil {
				j.say(what.Kind + " at last")
			}
		}
		j.Put(usercall.Callback{Kind: "goexit"}, goexits)
		j.ends(t, "goexit at last")
		j.say("too late")
		synctest.Wait()
		if len(j.notes) != 1 {
			t.Errorf("called %q after the end", j.notes)
		}
	})
}

func TestQueueSaysWhatIsStuck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJournal()
		began, stuck := time.Now(), []string(nil)
		j.Stuck = func(what usercall.Callback) bool {
			stuck = append(stuck, fmt.Sprint(what.Kind, time.Since(began)))
			return false
		}
		block := make(chan struct{})
		j.Put(usercall.Callback{Kind: "it"}, func() { <-block })
		time.Sleep(time.Hour)
		synctest.Wait()
		close(block)
		j.ends(t)
		if !slices.Equal(stuck, []string{"it1m1s"}) {
			t.Errorf("stuck: %q", stuck)
		}
	})
}

// After Discard no call begins, and the end of the one under way is told.
func TestQueueIsDiscarded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJournal()
		closed := j.Close
		j.say("under way")
		synctest.Wait()
		j.say("waits")
		early := closed()
		returned, began := j.Discard(), time.Now()
		j.say("too late")
		<-returned
		<-early
		if took := time.Since(began); took != time.Second {
			t.Errorf("over after %v", took)
		}
		j.ends(t, "under way")
		idle := newJournal()
		<-idle.Discard()
		idle.say("too late")
		idle.ends(t)
	})
}

// After End no call begins; those under way are named until they have returned.
func TestCallsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var stuck atomic.Int64
		c := &usercall.Calls{Guard: quiet(), Limit: time.Minute, Stuck: func(usercall.Callback, time.Duration) bool { stuck.Add(1); return true }}
		block := make(chan struct{})
		first := c.Go(usercall.Callback{Kind: "one"}, func() error { <-block; return os.ErrClosed }, nil)
		c.Go(usercall.Callback{Kind: "two", About: "it"}, func() error { <-block; return nil }, nil)
		if fast := c.Go(usercall.Callback{Kind: "three"}, func() error { return nil }, nil); fast.Result() != nil {
			t.Error(fast.Result())
		}
		time.Sleep(2*time.Minute + 30*time.Second)
		if n := stuck.Load(); n != 4 {
			t.Errorf("said %d times that one is stuck, want twice of each", n)
		}
		returned := c.End()
		if got := strings.Join(c.Kinds(), " "); got != "one two" || !c.Over() {
			t.Errorf("%q are under way, over %v", got, c.Over())
		}
		if late := c.Go(usercall.Callback{Kind: "late"}, func() error { return os.ErrExist }, nil); late.Result() != nil || late.Returned() != nil {
			t.Error("a call after the end")
		}
		time.Sleep(time.Hour)
		select {
		case <-returned:
			t.Error("returned")
		default:
		}
		close(block)
		<-returned
		if err := first.Result(); !errors.Is(err, os.ErrClosed) || stuck.Load() != 4 || len(c.Kinds()) > 0 {
			t.Errorf("%v, %d times stuck, %q under way", err, stuck.Load(), c.Kinds())
		}
	})
}

// A call that is replaced again and again is made before what keeps coming behind it.
func TestQueueNewestIsNotPutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJournal()
		for n := range 100 {
			j.say("error")
			j.newest("x", n)
			time.Sleep(900 * time.Millisecond)
		}
		<-j.Close()
		made := slices.DeleteFunc(j.notes, func(note string) bool { return note == "error" })
		if len(made) < 20 || made[len(made)-1] != "x99" {
			t.Errorf("of 100 were made %q", made)
		}
	})
}
