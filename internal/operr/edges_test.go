package operr_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/allocator"
	"github.com/kielgo/kiel/allocfn"
	"github.com/kielgo/kiel/internal/sharedset"
	"github.com/kielgo/kiel/internal/testonly/noerr"
	"github.com/kielgo/kiel/internal/testonly/operrtest"
	"github.com/kielgo/kiel/internal/testonly/recipetest"
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

// only returns the error of a call.
func only[T any](_ T, err error) error { return err }

// TestEdgesOfPureFunctions has each say its package, and its object, once.
func TestEdgesOfPureFunctions(t *testing.T) {
	operrtest.Once(t, kiel.CheckTopic("a/b"), "kiel", "invalid name", `topic "a/b"`)
	operrtest.Once(t, only(kiel.ParsePartition("a")), "kiel", `item "a"`, "not topic:id")
	operrtest.Once(t, only(allocfn.ParseID("f/x")), "allocfn", "bad allocation function", `"x"`)
	operrtest.Once(t, allocfn.Func{Name: "f"}.Validate(), "allocfn", "f has no Assign")
	operrtest.Once(t, only(allocfn.Measure(allocfn.Plan{Assignment: allocfn.Assignment{1}}, allocfn.Plan{})), "allocfn", "measure", "the plan before")

	operrtest.Once(t, only(party.New(nil, "x", party.Options{})), "party", "session is nil")
	operrtest.Once(t, only(sharedset.New(nil, "x", sharedset.Options{})), "sharedset", "session is nil")
	s, err := session.New([]string{"zk"}, session.Options{})
	noerr.Must(t, err)
	operrtest.Once(t, only(party.New(s, "x", party.Options{Name: "a/b"})), "party", `path "x"`, "invalid name", `member "a/b"`)
	operrtest.Once(t, only(party.NewShallowParty(s, "x", party.KazooOptions{})), "party", `path "x"`)
	operrtest.Once(t, only(sharedset.New(s, "x", sharedset.Options{})), "sharedset", `path "x"`)
	operrtest.Once(t, only(lock.New(s, "x", lock.Options{})), "lock", `path "x"`)
	operrtest.Once(t, only(lease.New(s, "x", lease.Options{Duration: time.Minute})), "lease", `path "x"`)
	operrtest.Once(t, only(semaphore.New(s, "x", semaphore.Options{})), "semaphore", `path "x"`)
	operrtest.Once(t, only(queue.New(s, "x", queue.Options{})), "queue", `path "x"`)
	operrtest.Once(t, only(barrier.New(s, "x", barrier.Options{})), "barrier", `path "x"`)
	operrtest.Once(t, only(counter.New(s, "x", counter.Options[int64]{})), "counter", `path "x"`)
	operrtest.Once(t, only(election.New(s, "x", election.Options{})), "election", `path "x"`)
	operrtest.Once(t, only(partitioner.New(s, "x", nil, partitioner.Options{})), "partitioner", `path "x"`)
	operrtest.Once(t, only(allocator.New(s, "a\xff", "m", allocator.Options{Zone: "\n"})), "allocator", `group "a\xff"`, "option Zone")
	operrtest.Once(t, allocator.Options{Zone: "\n"}.Validate(), "allocator", "option Zone")
	operrtest.Once(t, only(allocator.New(s, "g", "m", allocator.Options{PythonFunc: "f/x", Func: allocfn.Func{Name: "f"}})),
		"allocator", "option PythonFunc", "option Func:", "f has no Assign")
}

// TestEdgesOfOperations has each operation that fails say its package, itself and its object once, whichever package has the
// cause.
func TestEdgesOfOperations(t *testing.T) {
	recipetest.InWorld(t, func(w *recipetest.World) {
		s := w.Session("a")
		inc, err := s.Incarnation(w.Context())
		noerr.Must(w, err)
		ctx, end := context.WithCancelCause(w.Context())
		end(errors.New("enough"))
		w.Write("/bad", "no JSON")
		w.Write("/kiel/groups/g/partitions", `["t:0"]`)

		operrtest.Once(t, only(party.Read(w.Context(), inc, "/none")), "party", "read", "/none", "no such znode")
		p := recipetest.Must[*party.Party](t)(party.New(s, "/p", party.Options{Name: "m"}))
		operrtest.Once(t, p.Refresh(ctx), "party", "refresh", "/p", "enough")
		k := recipetest.Must[*party.KazooParty](t)(party.NewKazooParty(s, "/k", party.KazooOptions{Identifier: "m"}))
		operrtest.Once(t, k.Join(ctx), "party", "join", k.Node(), "enough")
		operrtest.Once(t, only(sharedset.Read(w.Context(), inc, "/none")), "sharedset", "read", "/none", "no such znode")
		operrtest.Once(t, only(sharedset.Read(w.Context(), inc, "/bad")), "sharedset", "read /bad", "unreadable data")
		set := recipetest.Must[*sharedset.Set](t)(sharedset.New(s, "/set", sharedset.Options{}))
		operrtest.Once(t, only(set.Add(ctx, "t:0")), "sharedset", "add to", "/set", "enough")
		operrtest.Once(t, only(set.Add(w.Context(), "\n")), "sharedset", "add to", "/set", "invalid item")

		l := recipetest.Must[*lock.Lock](t)(lock.New(s, "/l", lock.Options{}))
		operrtest.Once(t, only(l.Acquire(ctx)), "lock", "acquire", "/l", "enough")
		sem := recipetest.Must[*semaphore.Semaphore](t)(semaphore.New(s, "/sem", semaphore.Options{}))
		operrtest.Once(t, only(sem.Acquire(ctx)), "semaphore", "acquire", "/sem", "enough")
		q := recipetest.Must[*queue.Queue](t)(queue.New(s, "/q", queue.Options{}))
		operrtest.Once(t, only(q.TryGet(w.Context())), "queue", "/q", "empty")
		c := recipetest.Must[*counter.Counter[int64]](t)(counter.New(s, "/bad", counter.Options[int64]{}))
		operrtest.Once(t, only(c.Get(w.Context())), "counter", "get", "/bad")
		b := recipetest.Must[*barrier.Barrier](t)(barrier.New(s, "/b", barrier.Options{}))
		operrtest.Once(t, b.Create(ctx), "barrier", "create", "/b", "enough")
		e := recipetest.Must[*election.Election](t)(election.New(s, "/e", election.Options{}))
		operrtest.Once(t, e.Run(w.Context(), nil), "election", "run", "/e", "no function to call")
		set2 := recipetest.Must[*partitioner.SetPartitioner](t)(partitioner.New(s, "/part", []string{"x"}, partitioner.Options{}))
		operrtest.Once(t, set2.Start(ctx), "partitioner", "start", "/part", "enough")

		a := recipetest.Must[*allocator.PartitionAllocator](t)(allocator.New(s, "g", "m", allocator.Options{}))
		operrtest.Once(t, a.AddPartitions(ctx, map[string][]int32{"t": {1}}), "allocator", "add partitions", "enough")
		operrtest.Once(t, a.AddPartitions(w.Context(), map[string][]int32{"t/": {1}}), "allocator", "add partitions", "invalid name")
		operrtest.Once(t, a.RemoveTopic(w.Context(), "other"), "allocator", "remove topic", "other", "not in the set")
		operrtest.Once(t, a.Ready(ctx), "allocator", "wait until ready", "enough")
		operrtest.Once(t, a.Rebalance(ctx), "allocator", "rebalance", "enough")
		operrtest.Once(t, only(allocator.Inspect(w.Context(), s, "none")), "allocator", "inspect group", `"none"`)
		operrtest.Once(t, only(allocator.Inspect(w.Context(), s, "a\xff")), "allocator", "inspect", `group "a\xff"`)
	})
}
