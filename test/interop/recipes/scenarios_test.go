package recipes_test

import (
	"context"
	"math/big"
	"time"

	"github.com/kielgo/kiel/party"
	"github.com/kielgo/kiel/recipe/barrier"
	"github.com/kielgo/kiel/recipe/counter"
	"github.com/kielgo/kiel/recipe/election"
	"github.com/kielgo/kiel/recipe/lease"
	"github.com/kielgo/kiel/recipe/lock"
	"github.com/kielgo/kiel/recipe/partitioner"
	"github.com/kielgo/kiel/recipe/queue"
	"github.com/kielgo/kiel/recipe/semaphore"
	"github.com/kielgo/kiel/session"
)

// here stands in the place of the path in the arguments of Python's.
const here = "<path>"

// who is a name with everything that could be encoded in more than one way.
const who = "gö-\U0001F600 it's \"<&>\" \\ \u007f"

// scenario is something that both languages write.
type scenario struct {
	name   string
	python []request
	golang func(w *writer)
}

func scenarios() []scenario {
	var all []scenario
	for _, list := range [][]scenario{
		lockScenarios(), semaphoreScenarios(), leaseScenarios(), queueScenarios(), barrierScenarios(), counterScenarios(),
		memberScenarios(),
	} {
		all = append(all, list...)
	}
	return all
}

func lockScenarios() []scenario {
	held := func(identifier string, persistent bool) func(w *writer) {
		return func(w *writer) {
			l, err := lock.New(w.s, w.path, lock.Options{Identifier: identifier, Persistent: persistent})
			w.must(err)
			w.acquire(l)
		}
	}
	return []scenario{
		{"lock", []request{
			{Object: "l", Make: "Lock", Args: []any{here, who}},
			{Object: "l", Call: "acquire"},
		}, held(who, false)},
		{"lock without identifier", []request{
			{Object: "l", Make: "Lock", Args: []any{here}},
			{Object: "l", Call: "acquire"},
		}, held("", false)},
		{"persistent lock", []request{
			{Object: "l", Make: "Lock", Args: []any{here, who}},
			{Object: "l", Call: "acquire", Kwargs: map[string]any{"ephemeral": false}},
		}, held(who, true)},
		{"read lock and write lock", []request{
			{Object: "r", Make: "ReadLock", Args: []any{here, "reads"}},
			{Object: "r", Call: "acquire"},
			{Object: "w", Make: "WriteLock", Args: []any{here, "writes"}},
			{Object: "w", Call: "acquire", Thread: true},
		}, func(w *writer) {
			read, err := lock.NewRead(w.s, w.path, lock.Options{Identifier: "reads"})
			w.must(err)
			write, err := lock.NewWrite(w.another, w.path, lock.Options{Identifier: "writes"})
			w.must(err)
			w.acquire(read)
			w.later(func(ctx context.Context) { _, _ = write.Acquire(ctx) })
		}},
		{"election", []request{
			{Object: "e", Make: "Election", Args: []any{here, who}},
			{Object: "e", Call: "run", Function: "sleep", Args: []any{3600}, Thread: true},
		}, func(w *writer) {
			e, err := election.New(w.s, w.path, election.Options{Identifier: who})
			w.must(err)
			w.later(func(ctx context.Context) {
				_ = e.Run(ctx, func(ctx context.Context) error {
					<-ctx.Done()
					return nil
				})
			})
		}},
	}
}

// acquire acquires a lock until the end of the scenario.
func (w *writer) acquire(l *lock.Lock) {
	w.Helper()
	h, err := l.Acquire(w.Context())
	w.must(err)
	w.finally(func() { w.must(h.Release(context.WithoutCancel(w.Context()))) })
}

func semaphoreScenarios() []scenario {
	var all []scenario
	for name, identifier := range map[string]string{
		"semaphore":                                     who,
		"semaphore without identifier":                  "",
		"semaphore with an apostrophe":                  "it's",
		"semaphore with quotes":                         `"it"`,
		"semaphore with a backslash and a line's end":   "a\\\n\t\x00b",
		"semaphore with what Python takes for no ASCII": "\u0080\u00ff\u20ac",
	} {
		all = append(all, scenario{name, []request{
			{Object: "holds", Make: "Semaphore", Args: []any{here, identifier, 2}},
			{Object: "holds", Call: "acquire"},
			{Object: "also", Make: "Semaphore", Args: []any{here, identifier, 2}},
			{Object: "also", Call: "acquire"},
			{Object: "waits", Make: "Semaphore", Args: []any{here, identifier, 2}},
			{Object: "waits", Call: "acquire", Thread: true},
		}, func(w *writer) {
			for range 2 {
				h, err := w.semaphore(w.s, identifier).Acquire(w.Context())
				w.must(err)
				w.finally(func() { w.must(h.Release(context.WithoutCancel(w.Context()))) })
			}
			waits := w.semaphore(w.another, identifier)
			w.later(func(ctx context.Context) { _, _ = waits.Acquire(ctx) })
		}})
	}
	return all
}

func (w *writer) semaphore(s *session.Session, identifier string) *semaphore.Semaphore {
	sem, err := semaphore.New(s, w.path, semaphore.Options{MaxLeases: 2, Identifier: identifier})
	w.must(err)
	return sem
}

func leaseScenarios() []scenario {
	identifier, two := map[string]any{"identifier": who}, map[string]any{"identifier": "two"}
	options := lease.Options{Identifier: who, Duration: time.Minute}
	return []scenario{
		{"lease", []request{
			{Object: "l", Make: "NonBlockingLease", Args: []any{here}, Seconds: 60, Kwargs: identifier},
		}, func(w *writer) {
			l, err := lease.New(w.s, w.path, options)
			w.must(err)
			h, err := l.Obtain(w.Context())
			w.must(err)
			w.finally(h.Detach)
		}},
		{"multi lease", []request{
			{Object: "one", Make: "MultiNonBlockingLease", Args: []any{2, here}, Seconds: 60, Kwargs: identifier},
			{Object: "two", Make: "MultiNonBlockingLease", Args: []any{2, here}, Seconds: 60, Kwargs: two},
		}, func(w *writer) {
			for _, identifier := range []string{who, "two"} {
				l, err := lease.NewMulti(w.s, w.path, 2, lease.Options{Identifier: identifier, Duration: time.Minute})
				w.must(err)
				h, err := l.ObtainAny(w.Context())
				w.must(err)
				w.finally(h.Detach)
			}
		}},
		{"lease that waits for its inner lock", []request{
			{Object: "l", Make: "Lock", Args: []any{here, "in front"}},
			{Object: "l", Call: "acquire"},
			{Object: "w", Make: "NonBlockingLease", Args: []any{here}, Seconds: 60, Kwargs: identifier, Thread: true},
		}, func(w *writer) {
			w.inFront(w.path)
			l, err := lease.New(w.another, w.path, options)
			w.must(err)
			w.later(func(ctx context.Context) { _, _ = l.Obtain(ctx) })
		}},
		{"multi lease that waits for its inner lock", []request{
			{Object: "l", Make: "Lock", Args: []any{here + "/0", "in front"}},
			{Object: "l", Call: "acquire"},
			{Object: "w", Make: "MultiNonBlockingLease", Args: []any{2, here}, Seconds: 60, Kwargs: identifier, Thread: true},
		}, func(w *writer) {
			w.inFront(w.path + "/0")
			l, err := lease.NewMulti(w.another, w.path, 2, options)
			w.must(err)
			w.later(func(ctx context.Context) { _, _ = l.ObtainAny(ctx) })
		}},
	}
}

// inFront has a lock held until the end of the scenario.
func (w *writer) inFront(path string) {
	w.Helper()
	l, err := lock.New(w.s, path, lock.Options{Identifier: "in front"})
	w.must(err)
	w.acquire(l)
}

func queueScenarios() []scenario {
	return []scenario{
		{"queue", []request{
			{Object: "q", Make: "Queue", Args: []any{here}},
			{Object: "q", Call: "put", Bytes: "first"},
			{Object: "q", Call: "put", Bytes: "at once", Args: []any{0}},
			{Object: "q", Call: "put", Bytes: "gö", Args: []any{999}},
		}, func(w *writer) {
			q, err := queue.New(w.s, w.path, queue.Options{})
			w.must(err)
			for _, put := range []struct {
				value    string
				priority int
			}{{"first", queue.DefaultPriority}, {"at once", 0}, {"gö", 999}} {
				_, err = q.Put(w.Context(), []byte(put.value), put.priority)
				w.must(err)
			}
		}},
		{"locking queue", []request{
			{Object: "q", Make: "LockingQueue", Args: []any{here}},
			{Object: "q", Call: "put", Bytes: "first"},
			{Object: "q", Call: "put_all", ListOfBytes: []string{"second", "gö"}, Args: []any{7}},
			{Object: "q", Call: "get", Args: []any{5}},
		}, func(w *writer) {
			q, err := queue.NewLocking(w.s, w.path, queue.Options{})
			w.must(err)
			_, err = q.Put(w.Context(), []byte("first"), queue.DefaultPriority)
			w.must(err)
			_, err = q.PutAll(w.Context(), [][]byte{[]byte("second"), []byte("gö")}, 7)
			w.must(err)
			h, err := q.Get(w.Context())
			w.must(err)
			w.finally(func() { w.must(h.Release(context.WithoutCancel(w.Context()))) })
		}},
	}
}

func barrierScenarios() []scenario {
	return []scenario{
		{"barrier", []request{
			{Object: "b", Make: "Barrier", Args: []any{here}},
			{Object: "b", Call: "create"},
		}, func(w *writer) {
			b, err := barrier.New(w.s, w.path, barrier.Options{})
			w.must(err)
			w.must(b.Create(w.Context()))
		}},
		{"double barrier that is waited at", []request{
			{Object: "d", Make: "DoubleBarrier", Args: []any{here, 2}, Kwargs: map[string]any{"identifier": who}},
			{Object: "d", Call: "enter", Thread: true},
		}, func(w *writer) {
			d, err := barrier.NewDouble(w.s, w.path, 2, barrier.DoubleOptions{Identifier: who})
			w.must(err)
			w.later(func(ctx context.Context) { _, _ = d.Enter(ctx) })
		}},
		{"double barrier that was entered", []request{
			{Object: "d", Make: "DoubleBarrier", Args: []any{here, 1}, Kwargs: map[string]any{"identifier": who}},
			{Object: "d", Call: "enter"},
		}, func(w *writer) {
			d, err := barrier.NewDouble(w.s, w.path, 1, barrier.DoubleOptions{Identifier: who})
			w.must(err)
			m, err := d.Enter(w.Context())
			w.must(err)
			w.finally(func() { w.must(m.Leave(context.WithoutCancel(w.Context()))) })
		}},
	}
}

func counterScenarios() []scenario {
	kazoo := func(value any, kwargs map[string]any) []request {
		return []request{
			{Object: "c", Make: "Counter", Args: []any{here}, Kwargs: kwargs},
			{Object: "c", Call: "__add__", Args: []any{value}},
		}
	}
	huge, _ := new(big.Int).SetString("-123456789012345678901234567890", 10)
	all := []scenario{
		{"counter", kazoo(-7, nil), func(w *writer) {
			c, err := counter.New(w.s, w.path, counter.Options[int64]{})
			w.must(err)
			_, err = c.Add(w.Context(), -7)
			w.must(err)
		}},
		{"huge counter", kazoo(huge, nil), func(w *writer) {
			c, err := counter.NewBig(w.s, w.path, counter.Options[*big.Int]{})
			w.must(err)
			_, err = c.Add(w.Context(), huge)
			w.must(err)
		}},
		{"Curator's counter", kazoo(-2, map[string]any{"support_curator": true}), func(w *writer) {
			c, err := counter.NewCurator(w.s, w.path, counter.Options[int32]{})
			w.must(err)
			_, err = c.Add(w.Context(), -2)
			w.must(err)
		}},
	}
	for name, value := range map[string]float64{
		"counter of floats":       2.5,
		"counter of whole floats": -3,
		"counter of large floats": 1e16,
		"counter of small floats": 1e-5,
	} {
		floats := map[string]any{"default": pythonFloat(0)}
		all = append(all, scenario{name, kazoo(pythonFloat(value), floats), func(w *writer) {
			c, err := counter.NewFloat(w.s, w.path, counter.Options[float64]{})
			w.must(err)
			_, err = c.Add(w.Context(), value)
			w.must(err)
		}})
	}
	return all
}

func memberScenarios() []scenario {
	const name = "gö-€ 1" // fit for a znode
	joined := func(of func(*session.Session, string, party.KazooOptions) (interface {
		Join(ctx context.Context) error
		Leave(ctx context.Context) error
	}, error), identifier string,
	) func(w *writer) {
		return func(w *writer) {
			m, err := of(w.s, w.path, party.KazooOptions{Identifier: identifier})
			w.must(err)
			w.must(m.Join(w.Context()))
			w.finally(func() { w.must(m.Leave(context.WithoutCancel(w.Context()))) })
		}
	}
	type member = interface {
		Join(ctx context.Context) error
		Leave(ctx context.Context) error
	}
	deep := func(s *session.Session, path string, o party.KazooOptions) (member, error) {
		return party.NewKazooParty(s, path, o)
	}
	shallow := func(s *session.Session, path string, o party.KazooOptions) (member, error) {
		return party.NewShallowParty(s, path, o)
	}
	kazoo := func(class, identifier string) []request {
		return []request{
			{Object: "p", Make: class, Args: []any{here}, Kwargs: map[string]any{"identifier": identifier}},
			{Object: "p", Call: "join"},
		}
	}
	items := []string{"a", "b/c", "ä 1"}
	options := map[string]any{"identifier": name, "time_boundary": 0.1}
	return []scenario{
		{"party", kazoo("Party", name), joined(deep, name)},
		{"party without identifier", kazoo("Party", ""), joined(deep, "")},
		{"shallow party", kazoo("ShallowParty", name), joined(shallow, name)},
		{"shallow party without identifier", kazoo("ShallowParty", ""), joined(shallow, "")},
		{"set partitioner", []request{
			{Object: "s", Make: "SetPartitioner", Args: []any{here, items}, Kwargs: options},
		}, func(w *writer) {
			options := partitioner.Options{Identifier: name, TimeBoundary: 100 * time.Millisecond}
			p, err := partitioner.New(w.s, w.path, items, options)
			w.must(err)
			w.must(p.Start(w.Context()))
			w.finally(func() { w.must(p.Finish(context.WithoutCancel(w.Context()))) })
		}},
	}
}
