package usercall

import (
	"errors"
	"maps"
	"slices"
	"sync"
	"time"
)

// Call is a call on a goroutine of its own. A nil one has returned nil.
type Call struct {
	done chan struct{}
	err  error // once done is closed
}

// Returned is closed when the call is over; nil when it is.
func (c *Call) Returned() <-chan struct{} {
	if c == nil {
		return nil
	}
	return c.done
}

// Result waits for the end of the call.
func (c *Call) Result() error {
	if c == nil {
		return nil
	}
	<-c.done
	return c.err
}

// Go calls f on a goroutine of its own, and then, if that is not nil, then with the outcome. A panic is an error, and so is the
// end of the goroutine.
func (g Guard) Go(what Callback, f func() error, then func(error)) *Call {
	c := &Call{done: make(chan struct{})}
	go g.Call(what, func() { c.err = f() }, func(failure error) {
		if failure != nil {
			c.err = failure
		}
		if then != nil {
			then(c.err)
		}
		close(c.done)
	})
	return c
}

// ErrNotStarted says that the end came before a call.
var ErrNotStarted = errors.New("not started")

// Calls are the calls of one part of the library that should return soon. Any number may be under way at the same time. One that
// does not return is reported, and after End none begins.
type Calls struct {
	Guard Guard
	Limit time.Duration // after which a call is said to be stuck
	// Stuck is called for a call that is stuck, again after each further Limit while it returns true, and not after End.
	Stuck func(what Callback, since time.Duration) (again bool)

	mu    sync.Mutex
	n     int            // calls under way, those included that have not begun
	names map[string]int // calls that have begun, by kind
	over  bool           // nothing is called any more
	none  chan struct{}  // closed when over and no call is under way; nil before End
}

// Go calls f as that of Guard does. After End, Go returns nil. A call that had not begun before End does nothing, and then gets
// nil.
func (c *Calls) Go(what Callback, f func() error, then func(error)) *Call {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over {
		return nil
	}
	c.n++
	returned := Watch(c.Limit, func(since time.Duration) bool { return !c.Over() && c.Stuck(what, since) })
	begun := false
	return c.Guard.Go(what, func() error {
		if begun = c.begin(what.Kind); !begun {
			return ErrNotStarted
		}
		return f()
	}, func(err error) {
		returned()
		if !begun {
			err = nil
		}
		if then != nil {
			then(err)
		}
		c.finish(what.Kind, begun)
	})
}

// begin notes that a call begins, unless nothing is called any more.
func (c *Calls) begin(kind string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.over {
		if c.names == nil {
			c.names = make(map[string]int)
		}
		c.names[kind]++
	}
	return !c.over
}

func (c *Calls) finish(kind string, begun bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if begun {
		if c.names[kind]--; c.names[kind] == 0 {
			delete(c.names, kind)
		}
	}
	if c.n--; c.n == 0 && c.over {
		close(c.none)
	}
}

// Over reports whether nothing is called any more.
func (c *Calls) Over() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.over
}

// End lets no call begin any more. It returns a channel that is closed when all running calls have returned.
func (c *Calls) End() (returned <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.over {
		c.over, c.none = true, make(chan struct{})
		if c.n == 0 {
			close(c.none)
		}
	}
	return c.none
}

// Kinds returns what is being called, sorted.
func (c *Calls) Kinds() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Sorted(maps.Keys(c.names))
}
