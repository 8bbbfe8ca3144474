package session

import (
	"fmt"
	"sync"
)

const (
	pathOverhead  = 4  // the length in front of each path in the transaction that ends a session
	sequenceWidth = 11 // what a server adds to the name of a sequential znode, at most
)

// ephemerals counts the path bytes of one ZooKeeper session's ephemeral znodes. Servers end a session in a single
// transaction with all these paths, which nothing bounds: one larger than their limits can be logged but never read
// again, and no server starts any more.
//
// What may have been created counts until it is known to be gone.
type ephemerals struct {
	budget int

	mu     sync.Mutex
	used   int
	paths  map[string]int // what exists or may exist, with what it counts
	unsure map[string]int // by the path asked for, how many sequential znodes may exist under unknown names
}

// ephemeral is one to be created.
type ephemeral struct {
	path       string
	sequential bool
}

func (e ephemeral) cost() int {
	if e.sequential {
		return len(e.path) + sequenceWidth + pathOverhead
	}
	return len(e.path) + pathOverhead
}

// reserve takes room for what is about to be created, or for none of it. What it returns is to be given to created,
// refused or unknown.
func (e *ephemerals) reserve(wanted []ephemeral) (int, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	need := 0
	for _, w := range wanted {
		if _, known := e.paths[w.path]; !known || w.sequential {
			need += w.cost()
		}
	}
	if e.used+need > e.budget {
		return 0, fmt.Errorf("%w: %d more path bytes for %d znodes, %d of %d are in use",
			ErrEphemeralBudget, need, len(wanted), e.used, e.budget)
	}
	e.used += need
	return need, nil
}

// created settles a reservation: these exist now, under these paths.
func (e *ephemerals) created(reserved int, paths []string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.used -= reserved
	for _, path := range paths {
		e.add(path)
	}
}

// refused settles a reservation: nothing was created.
func (e *ephemerals) refused(reserved int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.used -= reserved
}

// unknown settles a reservation: each of these may exist.
func (e *ephemerals) unknown(reserved int, wanted []ephemeral) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.used -= reserved
	for _, w := range wanted {
		if !w.sequential {
			e.add(w.path)
			continue
		}
		if e.unsure == nil {
			e.unsure = make(map[string]int)
		}
		e.unsure[w.path]++
		e.used += w.cost()
	}
}

func (e *ephemerals) add(path string) {
	if e.paths == nil {
		e.paths = make(map[string]int)
	}
	if _, known := e.paths[path]; !known {
		e.paths[path] = ephemeral{path: path}.cost()
		e.used += e.paths[path]
	}
}

// gone notes that a znode is not there.
func (e *ephemerals) gone(path string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if cost, known := e.paths[path]; known {
		delete(e.paths, path)
		e.used -= cost
		return
	}
	// It may be one of those whose name we did not learn.
	for width := 10; width <= sequenceWidth && width < len(path); width++ {
		asked := path[:len(path)-width]
		if n := e.unsure[asked]; n > 0 {
			if n == 1 {
				delete(e.unsure, asked)
			} else {
				e.unsure[asked] = n - 1
			}
			e.used -= ephemeral{path: asked, sequential: true}.cost()
			return
		}
	}
}

func (e *ephemerals) bytes() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.used
}
