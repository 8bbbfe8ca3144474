package session

import (
	"fmt"
	"sync"
)

const (
	pathOverhead  = 4  // bytes of the length in front of each path in the transaction that ends a session
	sequenceWidth = 11 // the most bytes that a server adds to the name of a sequential znode
)

// ephemerals counts the path bytes of the ephemeral znodes of one ZooKeeper session, and refuses to exceed the budget. Servers
// end a session in a single transaction with all these paths, whose size nothing limits (ZOOKEEPER-4306, ZOOKEEPER-2101,
// ZOOKEEPER-3496): a server can log a transaction that is larger than its limits, but never read it again, and then no server
// starts any more.
//
// A znode that may have been created counts until it is known not to exist.
type ephemerals struct {
	budget int // Options.EphemeralBudget

	mu     sync.Mutex
	used   int            // bytes that count, reservations included
	paths  map[string]int // the bytes of each path that exists or may exist
	unsure map[string]int // how many sequential znodes may exist under unknown names, by the path asked for
}

// ephemeral is an ephemeral znode to be created.
type ephemeral struct {
	path       string
	sequential bool
}

// cost returns how many bytes of the budget the znode takes, at most.
func (e ephemeral) cost() int {
	if e.sequential {
		return len(e.path) + sequenceWidth + pathOverhead
	}
	return len(e.path) + pathOverhead
}

// reserve takes room for all of wanted, or returns an error and takes none. The caller ends the reservation by giving the
// returned number of bytes to created, refused or unknown.
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

// created ends a reservation: znodes with these paths exist now.
func (e *ephemerals) created(reserved int, paths []string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.used -= reserved
	for _, path := range paths {
		e.add(path)
	}
}

// refused ends a reservation: nothing was created.
func (e *ephemerals) refused(reserved int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.used -= reserved
}

// unknown ends a reservation: each of wanted may exist.
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

// add counts a path, unless it counts already. The caller holds mu.
func (e *ephemerals) add(path string) {
	if e.paths == nil {
		e.paths = make(map[string]int)
	}
	if _, known := e.paths[path]; !known {
		e.paths[path] = ephemeral{path: path}.cost()
		e.used += e.paths[path]
	}
}

// gone records that a znode does not exist.
func (e *ephemerals) gone(path string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if cost, known := e.paths[path]; known {
		delete(e.paths, path)
		e.used -= cost
		return
	}
	// The path may be that of a sequential znode whose name we did not learn.
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

// bytes returns how many bytes count.
func (e *ephemerals) bytes() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.used
}
