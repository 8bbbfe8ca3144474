package lock_test

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/kielgo/kiel/internal/seqnode"
	"github.com/kielgo/kiel/internal/testonly/recipetest"
	"github.com/kielgo/kiel/recipe"
	"github.com/kielgo/kiel/recipe/lock"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/zktest"
)

// The executions that a lock must withstand, of the attacks on recipes. § is the number of the attack in the table of
// test/attacks/recipes.md, which names the mutant that each test kills.

// The harms of the executions.
const (
	twoHolders = "two holders"
	twoAtWork  = "two at work"      // one of the two works under a hold that has ended but was not released
	ownWay     = "in its own way"   // a contender that nobody uses any more stands in front of its own handle
	starved    = "starved"          // contenders that came later acquire the lock first
	orphaned   = "orphaned"         // a contender that nobody uses stays
	servedLate = "never served"     // a call never acquires the lock
	wrongError = "the wrong answer" // the error does not say what is wrong
	staleWrite = "stale write"      // a sink that compares tokens lets an earlier holder through
	unreadable = "unreadable"       // kazoo raises an exception when it reads the data
)

// python is a kazoo Lock, with the requests that kazoo sends.
type python struct {
	w    *world
	inc  *session.Incarnation
	node string // of its contender
}

func (w *world) python(name string) *python {
	w.Helper()
	inc, err := w.Session(name).Incarnation(w.Context())
	w.Must(err)
	w.Must(inc.EnsurePath(w.Context(), path))
	return &python{w: w, inc: inc}
}

// contend creates a contender, and reports whether kazoo takes it for the holder: no child has the same word and a number that is
// smaller as text.
func (p *python) contend() bool {
	p.w.Helper()
	node, err := p.inc.Create(p.w.Context(), path+"/"+seqnode.NewGUID()+"__lock__", []byte("python"), session.EphemeralSequential)
	p.w.Must(err)
	p.node = node
	_, own, _ := strings.Cut(node, "__lock__")
	children, _, err := p.inc.Children(p.w.Context(), path)
	p.w.Must(err)
	for _, name := range children {
		if _, number, ok := strings.Cut(name, "__lock__"); ok && len(number) >= 10 && number < own {
			return false
		}
	}
	return true
}

// release does what kazoo's release does.
func (p *python) release() {
	p.w.Helper()
	p.w.Check(p.inc.Delete(p.w.Context(), p.node, -1))
}

// stick replaces the server's sequence numbers: creates get these numbers in turn.
func (w *world) stick(numbers ...string) {
	var n atomic.Int64
	w.Srv.SetHook(func(r *zktest.Request) zktest.Action {
		if r.Op == zktest.OpCreate && r.Flags == 3 {
			r.Flags = 1
			r.Path += numbers[int(n.Add(1)-1)%len(numbers)]
		}
		return zktest.Action{}
	})
}

// §1: the directory has seen 2^31-1 creates, and each contender gets the number 2147483647 again; when creates come in quick
// succession, every other one gets -2147483648. Python holds the lock, and two of our contenders try.
func TestSequenceSticks(t *testing.T) {
	for what, numbers := range map[string][]string{"one number": {"2147483647"}, "two numbers": {"2147483647", "-2147483648"}} {
		t.Run(what, func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.stick(numbers...)
				p := w.python("python")
				if !p.contend() {
					w.Fatal("Python does not hold the lock")
				}
				ctx := w.Within(10 * time.Second)
				one := w.acquireLater(ctx, w.lock("one"))
				time.Sleep(time.Second)
				two := w.acquireLater(ctx, w.lock("two"))
				time.Sleep(time.Second)
				for _, other := range []*acquiring{one, two} {
					switch {
					case !other.Ended(): // it waits
					case other.Err == nil:
						w.Errorf(twoHolders+": Python holds %s, and ours %s", p.node, other.Value.Node())
					case !errors.Is(other.Err, lock.ErrSequenceExhausted):
						w.Errorf(wrongError+": %v", other.Err)
					}
				}
				<-ctx.Done()
			})
		})
	}
}

// §1: a contender that has waited since before the overflow sees a contender with a negative number, which holds the lock in
// kazoo's view, although it came later. (kazoo ignores a negative number of nine digits.)
func TestNegativeNumberIsInFront(t *testing.T) {
	for _, number := range []string{"-2147483648", "-000000001"} {
		t.Run(number, func(t *testing.T) {
			inWorld(t, func(w *world) {
				first, second := w.python("first"), w.python("second")
				if !first.contend() {
					w.Fatal("Python does not hold the lock")
				}
				ours := w.waiter("ours")
				w.stick(number)
				if !second.contend() {
					w.Fatal("Python waits")
				}
				first.release()
				time.Sleep(time.Second)
				if ours.Ended() {
					w.Errorf(twoHolders+": Python holds %s, and ours is through: %v", second.node, ours.Err)
				}
				second.release()
				<-ours.Done
				if ours.Err != nil {
					w.Errorf(servedLate+": %v", ours.Err)
				}
			})
		})
	}
}

// §4: the reply to the create is lost. The contender is found by its GUID and not created twice: the second would wait for the
// first, which nobody uses.
func TestLostCreateReply(t *testing.T) {
	for losses := 1; losses <= 3; losses++ {
		inWorld(t, func(w *world) {
			l := w.lock("ours")
			w.acquireAndRelease(l)
			w.Srv.LoseReply(losses, is(zktest.OpCreate))
			h, err := l.Acquire(w.Within(time.Minute))
			if blocked, ok := errors.AsType[*recipe.BlockedError](err); ok && blocked.Identifier == "ours" {
				w.Fatalf(ownWay+": %v", err)
			}
			w.Must(err)
			w.wantContenders(1)
			w.Release(h)
			w.wantContenders(0)
		})
	}
}

// §4: an attempt has two contenders, because a create that was given up arrives after all. The call keeps the first and removes
// the other, for which everybody would wait. (The hook turns the Sync into a second create, in the same session.)
func TestContenderFoundTwice(t *testing.T) {
	inWorld(t, func(w *world) {
		l := w.lock("ours")
		w.acquireAndRelease(l)
		var create *zktest.Request
		doubled := false
		w.Srv.SetHook(func(r *zktest.Request) zktest.Action {
			switch {
			case r.Op == zktest.OpCreate && create == nil:
				create = new(*r)
				return zktest.Action{LoseReply: true}
			case r.Op == zktest.OpSync && r.Path == path && !doubled:
				doubled = true
				r.Op, r.Path, r.Data, r.Flags, r.ACL = create.Op, create.Path, create.Data, create.Flags, create.ACL
			}
			return zktest.Action{}
		})
		h := w.acquire(l)
		if !doubled {
			w.Fatal("the hook did nothing")
		}
		if !strings.HasSuffix(h.Node(), "1") {
			w.Errorf("holds %s, want the first, 1", h.Node())
		}
		w.Release(h)
		if left := w.contenders(); len(left) > 0 {
			w.Errorf(orphaned+": %q", left)
		}
	})
}

// §8: the release can't remove the contender yet and repeats its delete. The user acquires the lock again, and the reply to that
// create is lost. If the old contender were taken for the new one, the release would remove it under the new hold.
func TestReacquireBesideTheRelease(t *testing.T) {
	inWorld(t, func(w *world) {
		l, other := w.lock("ours"), w.lock("other")
		h := w.acquire(l)
		var again *acquiring
		client := w.Net.Client("ours")
		recipetest.BesideItsRelease(w, w.Srv, client, h, is(zktest.OpCreate), func() { again = w.acquireLater(w.Context(), l) })
		next, err := other.TryAcquire(w.Context())
		if err != nil && !errors.Is(err, lock.ErrNotAcquired) {
			w.Fatal(err)
		}
		if next != nil && again.Ended() && again.Err == nil && again.Value.Valid() {
			w.Errorf(twoHolders+": %s, and %s of the other", again.Value.Node(), next.Node())
		}
		client.Heal()
		if next != nil {
			w.Release(next)
		}
		w.Release(again.Get(w))
		w.wantContenders(0)
	})
}

// §9: a holder loses trust while its work is still stopping. Its contender exists until Release, so that nobody else acquires the
// lock, not even through the same handle.
func TestEndOfTrustGivesNothingAway(t *testing.T) {
	inWorld(t, func(w *world) {
		s := w.Session("ours")
		l := w.lockIn(s, "ours")
		h := w.acquire(l)
		id := w.ID(s)
		next := w.waiter("next")
		w.LoseTrust("ours", h.Incarnation())
		w.Ended(h, session.ErrTrustLost)
		if w.ID(s) != id {
			w.Fatal("the session is another: nothing was tested")
		}
		second, err := l.TryAcquire(w.Context())
		if err == nil {
			w.Errorf(twoAtWork + ": the handle got a second hold")
			w.Release(second)
		} else if !errors.Is(err, lock.ErrNotAcquired) {
			w.Error(err)
		}
		time.Sleep(time.Minute)
		if next.Ended() {
			w.Errorf(twoAtWork+": the next one has it: %v", next.Err)
		}
		w.Release(h)
		w.Release(next.Get(w))
	})
}

// §9: a waiter with a bad link loses trust again and again while its session lives on, and each time a new contender comes.
func TestWaiterKeepsItsPlaceWithoutTrust(t *testing.T) {
	inWorld(t, func(w *world) {
		s := w.Session("ours")
		id := w.ID(s)
		holder := w.acquire(w.lock("holder"))
		ours := w.waiterOf(w.lockIn(s, "ours"))
		const rounds = 3
		for range rounds {
			next := w.waiter("next")
			inc := s.Current()
			w.LoseTrust("ours", inc)
			w.Release(holder)
			time.Sleep(time.Second)
			if ours.Ended() {
				break
			}
			if !next.Ended() || next.Err != nil {
				w.Fatalf("nobody has it: %v", next.Err)
			}
			holder = next.Value
		}
		if w.ID(s) != id {
			w.Fatal("the session is another: nothing was tested")
		}
		if !ours.Ended() {
			w.Errorf(starved+": %d others who came later were served", rounds)
			w.Release(holder)
			<-ours.Done
		}
		if ours.Err != nil {
			w.Fatal(ours.Err)
		}
		w.Release(ours.Value)
	})
}

// §13: an identifier is not valid UTF-8, such as a host's name in an old encoding. kazoo's contenders(), also that of an
// Election, decodes all identifiers and raises UnicodeDecodeError. New refuses such an identifier; the test then uses another.
func TestIdentifierThatPythonCannotRead(t *testing.T) {
	inWorld(t, func(w *world) {
		s := w.Session("ours")
		l, err := lock.New(s, path, lock.Options{Identifier: "z\xfcrich"})
		if err != nil {
			l = w.lockIn(s, "z\u00fcrich")
		}
		w.acquire(l)
		children, _, err := w.python("python").inc.Children(w.Context(), path)
		if err != nil || len(children) != 1 {
			w.Fatalf("%q, %v", children, err)
		}
		for _, name := range children {
			data, _, ok := w.Srv.Get(path + "/" + name)
			if !ok || !utf8.Valid(data) { // as strict as Python's decode("utf-8")
				w.Errorf(unreadable+": %q of %s", data, name)
			}
		}
	})
}

// General rules: an operator deletes the contender of a waiter, and then the contender in front goes. The waiter is not the
// holder then, although nobody is in front: the next contender would not see it.
func TestNobodyInFrontIsNotEnough(t *testing.T) {
	inWorld(t, func(w *world) {
		first, second := w.python("first"), w.python("second")
		if !first.contend() {
			w.Fatal("Python does not hold the lock")
		}
		ours := w.waiter("ours")
		for _, name := range w.Srv.Children(path) {
			if node := path + "/" + name; node != first.node {
				w.Must(w.Srv.Delete(node))
			}
		}
		first.release()
		time.Sleep(time.Second)
		if !ours.Ended() || ours.Err != nil {
			w.Fatalf("ours does not get it: %v", ours.Err)
		}
		if second.contend() && ours.Value.Valid() {
			w.Errorf(twoHolders+": Python holds %s, and ours %s; znodes:\n%s", second.node, ours.Value.Node(), w.Srv.Dump())
		}
		second.release()
		w.Release(ours.Value)
	})
}

// General rules: the lock's znode is deleted while nobody uses the lock, as it must be when its numbers are used up. Numbers then
// begin at 0 again, but the next holder's token is larger.
func TestTokensGrowBeyondTheDirectory(t *testing.T) {
	inWorld(t, func(w *world) {
		l := w.lock("ours")
		hold := func() int64 {
			h := w.acquire(l)
			w.Release(h)
			return h.Token()
		}
		before := hold()
		w.Must(w.Srv.Delete(path))
		if after := hold(); after <= before {
			w.Errorf(staleWrite+": token %d after %d", after, before)
		}
	})
}

// §13: somebody deletes the lock's directory.
func TestDirectoryDeletedInBetween(t *testing.T) {
	inWorld(t, func(w *world) {
		w.Must(w.Srv.Create(path, nil))
		l := w.lockIn(w.Session("ours"), "ours")
		for range 2 {
			h, err := l.Acquire(w.Context())
			if errors.Is(err, session.ErrNoNode) {
				w.Errorf(wrongError+": %v", err)
				return
			}
			w.Must(err)
			w.Release(h)
			w.Check(w.Srv.Delete(path))
		}
	})
}
