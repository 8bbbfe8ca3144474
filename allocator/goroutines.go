package allocator

import (
	"maps"
	"slices"
	"strings"
	"sync"
)

// goroutines counts goroutines by what they do. Unlike a WaitGroup it can be waited for with a deadline and without another
// goroutine, and it names what still runs.
type goroutines struct {
	mu    sync.Mutex
	count map[string]int
	idle  chan struct{} // closed when close was called and all goroutines have returned
}

// starter keeps the count from being idle before close.
const starter = ""

func newGoroutines() *goroutines {
	return &goroutines{count: map[string]int{starter: 1}, idle: make(chan struct{})}
}

// Go runs f on a goroutine of its own, under the name of what f does. Go must not be called after close.
func (g *goroutines) Go(name string, f func()) {
	g.mu.Lock()
	g.count[name]++
	g.mu.Unlock()
	go func() {
		defer g.left(name)
		f()
	}()
}

// close ends the calls of Go: idle closes when all goroutines have returned.
func (g *goroutines) close() { g.left(starter) }

func (g *goroutines) left(name string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.count[name]--; g.count[name] == 0 {
		delete(g.count, name)
	}
	if len(g.count) == 0 {
		close(g.idle)
	}
}

// names returns the names of what still runs.
func (g *goroutines) names() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return strings.Join(slices.Sorted(maps.Keys(g.count)), ", ")
}
