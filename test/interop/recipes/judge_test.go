package recipes_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// claim says that somebody held something from one moment to another, by the clock of this process.
//
// It reaches up to the last moment for which there is proof. For Go that is Valid, or a context that has not ended and a session
// that is trusted. A Python process that was stopped can't know that its session has ended meanwhile, and kazoo would not tell
// it: there the server is the judge. Python asks whether the znode of its hold stands, and the claim goes up to the moment before
// the last question to which the answer was yes.
type claim struct {
	who, what   string
	shared      bool // beside others that are
	session     int64
	began, last time.Duration
}

func (c claim) String() string {
	return fmt.Sprintf("%s held %q from %v to %v", c.who, c.what, c.began, c.last)
}

// claims are those of one schedule. All methods may be called from any goroutine.
type claims struct {
	mu    sync.Mutex
	all   []*claim
	ended map[int64]time.Duration // sessions that were ended behind the back of their client
}

// add notes a claim, or that one reaches further than was known.
func (cs *claims) add(c claim) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	for _, known := range cs.all {
		if known.who == c.who && known.what == c.what && known.began == c.began {
			known.last = max(known.last, c.last)
			return
		}
	}
	cs.all = append(cs.all, &c)
}

// end says that a session was ended at a moment, or a little later. Its client can't know.
func (cs *claims) end(session int64, at time.Duration) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if cs.ended == nil {
		cs.ended = make(map[int64]time.Duration)
	}
	cs.ended[session] = at
}

// kill says that a process has done nothing any more since a moment.
func (cs *claims) kill(who string, at time.Duration) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	for _, c := range cs.all {
		if c.who == who {
			c.last = min(c.last, at)
		}
	}
}

// judge returns what is wrong: more than so many held something at one time, and not all of them as readers.
func (cs *claims) judge(limit int) []string {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	byWhat := make(map[string][]claim)
	for _, c := range cs.all {
		c := *c
		if at, ok := cs.ended[c.session]; ok {
			c.last = min(c.last, at)
		}
		if c.last > c.began {
			byWhat[c.what] = append(byWhat[c.what], c)
		}
	}
	var wrong []string
	for _, list := range byWhat {
		slices.SortFunc(list, func(a, b claim) int { return int(a.began - b.began) })
		for i, c := range list {
			beside, readers := []string{c.String()}, c.shared
			counted := map[string]bool{c.who: true}
			for _, other := range list[:i] {
				if !counted[other.who] && other.last > c.began {
					counted[other.who] = true
					beside = append(beside, other.String())
					readers = readers && other.shared
				}
			}
			if len(beside) > limit && !readers {
				wrong = append(wrong, strings.Join(beside, ", while "))
			}
		}
	}
	return wrong
}

// The judge finds what it is there for.
func TestJudge(t *testing.T) {
	at := func(who string, began, last time.Duration) claim { return claim{who: who, began: began, last: last} }
	reader := func(who string, began, last time.Duration) claim {
		return claim{who: who, began: began, last: last, shared: true}
	}
	for name, c := range map[string]struct {
		claims []claim
		limit  int
		wrong  int
	}{
		"one after the other":  {[]claim{at("a", 1, 2), at("b", 2, 3), at("a", 3, 4)}, 1, 0},
		"at one time":          {[]claim{at("a", 1, 3), at("b", 2, 3)}, 1, 1},
		"within another":       {[]claim{at("b", 2, 3), at("a", 1, 4)}, 1, 1},
		"twice by one":         {[]claim{at("a", 1, 3), at("a", 2, 4)}, 1, 0},
		"two of two":           {[]claim{at("a", 1, 4), at("b", 2, 3), at("c", 3, 5)}, 2, 0},
		"three of two":         {[]claim{at("a", 1, 4), at("b", 2, 4), at("c", 3, 5)}, 2, 1},
		"a renewal beside one": {[]claim{at("a", 1, 4), at("a", 2, 5), at("b", 3, 6)}, 2, 0},
		"readers":              {[]claim{reader("a", 1, 4), reader("b", 2, 4)}, 1, 0},
		"writer with reader":   {[]claim{reader("a", 1, 4), at("b", 2, 4)}, 1, 1},
		"reader with writer":   {[]claim{at("a", 1, 4), reader("b", 2, 4)}, 1, 1},
		"other things": {[]claim{
			{who: "a", what: "x", began: 1, last: 4},
			{who: "b", what: "y", began: 2, last: 4},
		}, 1, 0},
		"known better later":  {[]claim{at("a", 1, 2), at("a", 1, 4), at("b", 3, 4)}, 1, 1},
		"session ended":       {[]claim{{who: "a", session: 7, began: 1, last: 9}, at("b", 5, 8)}, 1, 0},
		"session ended later": {[]claim{{who: "a", session: 7, began: 1, last: 9}, at("b", 4, 8)}, 1, 1},
		"never held":          {[]claim{at("a", 2, 2), at("b", 1, 4)}, 1, 0},
	} {
		cs := new(claims)
		for _, one := range c.claims {
			cs.add(one)
		}
		cs.end(7, 5)
		if wrong := cs.judge(c.limit); len(wrong) != c.wrong {
			t.Errorf("%s: %q", name, wrong)
		}
	}
	cs := new(claims)
	cs.add(at("a", 1, 9))
	cs.kill("a", 4)
	cs.add(at("b", 4, 9))
	if wrong := cs.judge(1); len(wrong) > 0 {
		t.Errorf("killed: %q", wrong)
	}
}
