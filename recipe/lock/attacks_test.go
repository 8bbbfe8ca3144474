package lock_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
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
	if err != nil {
		w.Fatal(err)
	}
	if err := inc.EnsurePath(w.Context(), path); err != nil {
		w.Fatal(err)
	}
	return &python{w: w, inc: inc}
}

// contend creates a contender, and reports whether kazoo takes it for the holder: no child has the same word and a number that is
// smaller as text.
func (p *python) contend() bool {
	p.w.Helper()
	node, err := p.inc.Create(p.w.Context(), path+"/"+seqnode.NewGUID()+"__lock__", []byte("python"), session.EphemeralSequential)
	if err != nil {
		p.w.Fatal(err)
	}
	p.node = node
	_, own, _ := strings.Cut(node, "__lock__")
	children, _, err := p.inc.Children(p.w.Context(), path)
	if err != nil {
		p.w.Fatal(err)
	}
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
	if err := p.inc.Delete(p.w.Context(), p.node, -1); err != nil {
		p.w.Error(err)
	}
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
	execution := func(numbers ...string) func(t *testing.T) {
		return func(t *testing.T) {
			w := newWorld(t)
			w.stick(numbers...)
			p := w.python("python")
			if !p.contend() {
				t.Fatal("Python does not hold the lock")
			}
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			one := w.acquireLater(ctx, w.lock("one"))
			time.Sleep(time.Second)
			two := w.acquireLater(ctx, w.lock("two"))
			time.Sleep(time.Second)
			for _, other := range []*acquiring{one, two} {
				switch {
				case !other.ended(): // it waits
				case other.err == nil:
					t.Errorf(twoHolders+": Python holds %s, and ours %s", p.node, other.held.Node())
				case !errors.Is(other.err, lock.ErrSequenceExhausted):
					t.Errorf(wrongError+": %v", other.err)
				}
			}
			<-ctx.Done()
		}
	}
	t.Run("one number", func(t *testing.T) { synctest.Test(t, execution("2147483647")) })
	t.Run("two numbers", func(t *testing.T) { synctest.Test(t, execution("2147483647", "-2147483648")) })
}

// §1: a contender that has waited since before the overflow sees a contender with a negative number, which holds the lock in
// kazoo's view, although it came later. (kazoo ignores a negative number of nine digits.)
func TestNegativeNumberIsInFront(t *testing.T) {
	for _, number := range []string{"-2147483648", "-000000001"} {
		t.Run(number, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				first, second := w.python("first"), w.python("second")
				if !first.contend() {
					t.Fatal("Python does not hold the lock")
				}
				ours := w.acquireLater(t.Context(), w.lock("ours"))
				time.Sleep(time.Second)
				w.stick(number)
				if !second.contend() {
					t.Fatal("Python waits")
				}
				first.release()
				time.Sleep(time.Second)
				if ours.ended() {
					t.Errorf(twoHolders+": Python holds %s, and ours is through: %v", second.node, ours.err)
				}
				second.release()
				<-ours.done
				if ours.err != nil {
					t.Errorf(servedLate+": %v", ours.err)
				}
			})
		})
	}
}

// §4: the reply to the create is lost. The contender is found by its GUID and not created twice: the second would wait for the
// first, which nobody uses.
func TestLostCreateReply(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for losses := 1; losses <= 3; losses++ {
			w := newWorld(t)
			l := w.lock("ours")
			w.acquireAndRelease(l)
			w.Srv.LoseReply(losses, is(zktest.OpCreate))
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			h, err := l.Acquire(ctx)
			if blocked, ok := errors.AsType[*recipe.BlockedError](err); ok && blocked.Identifier == "ours" {
				t.Errorf(ownWay+": %v", err)
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			w.wantContenders(1)
			w.release(h)
			w.wantContenders(0)
		}
	})
}

// §4: an attempt has two contenders, because a create that was given up arrives after all. The call keeps the first and removes
// the other, for which everybody would wait. (The hook turns the Sync into a second create, in the same session.)
func TestContenderFoundTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
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
		h, err := l.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if !doubled {
			t.Fatal("the hook did nothing")
		}
		if !strings.HasSuffix(h.Node(), "1") {
			t.Errorf("holds %s, want the first, 1", h.Node())
		}
		w.release(h)
		if left := w.contenders(); len(left) > 0 {
			t.Errorf(orphaned+": %q", left)
		}
	})
}

// §8: the release can't remove the contender yet and repeats its delete. The user acquires the lock again, and the reply to that
// create is lost. If the old contender were taken for the new one, the release would remove it under the new hold.
func TestReacquireBesideTheRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		l, other := w.lock("ours"), w.lock("other")
		h, err := l.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var again *acquiring
		client := w.Net.Client("ours")
		recipetest.BesideItsRelease(t, w.Srv, client, h, is(zktest.OpCreate), func() { again = w.acquireLater(t.Context(), l) })
		next, err := other.TryAcquire(w.Context())
		if err != nil && !errors.Is(err, lock.ErrNotAcquired) {
			t.Fatal(err)
		}
		if next != nil && again.ended() && again.err == nil && again.held.Valid() {
			t.Errorf(twoHolders+": %s, and %s of the other", again.held.Node(), next.Node())
		}
		client.Heal()
		if next != nil {
			w.release(next)
		}
		<-again.done
		if again.err != nil {
			t.Fatal(again.err)
		}
		w.release(again.held)
		w.wantContenders(0)
	})
}

// §9: a holder loses trust while its work is still stopping. Its contender exists until Release, so that nobody else acquires the
// lock, not even through the same handle.
func TestEndOfTrustGivesNothingAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		s := w.Session("ours")
		l := w.lockIn(s, "ours")
		h, err := l.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		id := w.ID(s)
		next := w.acquireLater(t.Context(), w.lock("next"))
		time.Sleep(time.Second)
		w.loseTrust("ours", h.Incarnation())
		w.ended(h, session.ErrTrustLost)
		if w.ID(s) != id {
			t.Fatal("the session is another: nothing was tested")
		}
		second, err := l.TryAcquire(t.Context())
		if err == nil {
			t.Errorf(twoAtWork + ": the handle got a second hold")
			w.release(second)
		} else if !errors.Is(err, lock.ErrNotAcquired) {
			t.Error(err)
		}
		time.Sleep(time.Minute)
		if next.ended() {
			t.Errorf(twoAtWork+": the next one has it: %v", next.err)
		}
		w.release(h)
		<-next.done
		if next.err != nil {
			t.Fatal(next.err)
		}
		w.release(next.held)
	})
}

// §9: a waiter with a bad link loses trust again and again while its session lives on, and each time a new contender comes.
func TestWaiterKeepsItsPlaceWithoutTrust(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		s := w.Session("ours")
		id := w.ID(s)
		holder := w.acquire(w.lock("holder"))
		ours := w.acquireLater(t.Context(), w.lockIn(s, "ours"))
		time.Sleep(time.Second)
		const rounds = 3
		for range rounds {
			next := w.acquireLater(w.Context(), w.lock("next"))
			time.Sleep(time.Second)
			inc := s.Current()
			w.loseTrust("ours", inc)
			w.release(holder)
			time.Sleep(time.Second)
			if ours.ended() {
				break
			}
			if !next.ended() || next.err != nil {
				t.Fatalf("nobody has it: %v", next.err)
			}
			holder = next.held
		}
		if w.ID(s) != id {
			t.Fatal("the session is another: nothing was tested")
		}
		if !ours.ended() {
			t.Errorf(starved+": %d others who came later were served", rounds)
			w.release(holder)
			<-ours.done
		}
		if ours.err != nil {
			t.Fatal(ours.err)
		}
		w.release(ours.held)
	})
}

// §13: an identifier is not valid UTF-8, such as a host's name in an old encoding. kazoo's contenders(), also that of an
// Election, decodes all identifiers and raises UnicodeDecodeError. New refuses such an identifier; the test then uses another.
func TestIdentifierThatPythonCannotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		s := w.Session("ours")
		l, err := lock.New(s, path, lock.Options{Identifier: "z\xfcrich"})
		if err != nil {
			l = w.lockIn(s, "z\u00fcrich")
		}
		w.acquire(l)
		children, _, err := w.python("python").inc.Children(w.Context(), path)
		if err != nil || len(children) != 1 {
			t.Fatalf("%q, %v", children, err)
		}
		for _, name := range children {
			data, _, ok := w.Srv.Get(path + "/" + name)
			if !ok || !utf8.Valid(data) { // as strict as Python's decode("utf-8")
				t.Errorf(unreadable+": %q of %s", data, name)
			}
		}
	})
}

// General rules: an operator deletes the contender of a waiter, and then the contender in front goes. The waiter is not the
// holder then, although nobody is in front: the next contender would not see it.
func TestNobodyInFrontIsNotEnough(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		first, second := w.python("first"), w.python("second")
		if !first.contend() {
			t.Fatal("Python does not hold the lock")
		}
		ours := w.acquireLater(t.Context(), w.lock("ours"))
		time.Sleep(time.Second)
		for _, name := range w.Srv.Children(path) {
			if node := path + "/" + name; node != first.node {
				if err := w.Srv.Delete(node); err != nil {
					t.Fatal(err)
				}
			}
		}
		first.release()
		time.Sleep(time.Second)
		if !ours.ended() || ours.err != nil {
			t.Fatalf("ours does not get it: %v", ours.err)
		}
		if second.contend() && ours.held.Valid() {
			t.Errorf(twoHolders+": Python holds %s, and ours %s; znodes:\n%s", second.node, ours.held.Node(), w.Srv.Dump())
		}
		second.release()
		w.release(ours.held)
	})
}

// General rules: the lock's znode is deleted while nobody uses the lock, as it must be when its numbers are used up. Numbers then
// begin at 0 again, but the next holder's token is larger.
func TestTokensGrowBeyondTheDirectory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		l := w.lock("ours")
		w.acquireAndRelease(l)
		hold := func() int64 {
			h, err := l.Acquire(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			w.release(h)
			return h.Token()
		}
		before := hold()
		if err := w.Srv.Delete(path); err != nil {
			t.Fatal(err)
		}
		if after := hold(); after <= before {
			t.Errorf(staleWrite+": token %d after %d", after, before)
		}
	})
}

// §13: somebody deletes the lock's directory.
func TestDirectoryDeletedInBetween(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		if err := w.Srv.Create(path, nil); err != nil {
			t.Fatal(err)
		}
		l := w.lockIn(w.Session("ours"), "ours")
		for range 2 {
			h, err := l.Acquire(t.Context())
			if errors.Is(err, session.ErrNoNode) {
				t.Errorf(wrongError+": %v", err)
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			w.release(h)
			if err := w.Srv.Delete(path); err != nil {
				t.Error(err)
			}
		}
	})
}
