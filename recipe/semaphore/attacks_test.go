package semaphore_test

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/kielgo/kiel/internal/seqnode"
	"github.com/kielgo/kiel/internal/testonly/recipetest"
	"github.com/kielgo/kiel/recipe/semaphore"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/zktest"
)

// The executions that a semaphore must withstand, of the attacks on recipes. § is the number of the attack in
// test/attacks/recipes.md, whose table names the mutant that each test kills.

// What an execution can do.
const (
	tooMany   = "too many leases" // more than was agreed on
	twoAtWork = "two at work"     // with one handle's lease: one that has ended, but was not released, and the next
	starved   = "starved"         // others who came later are served first

	refused    = "refused"    // who could have a lease is not given it
	unreadable = "unreadable" // kazoo raises an exception when it reads what we have written
)

// python is a kazoo Semaphore, with the requests that kazoo sends.
type python struct {
	w      *world
	inc    *session.Incarnation
	leases int
	made   bool // it has made the znode
	lease  string
}

func (w *world) python(leases int) *python {
	w.Helper()
	inc, err := w.Session("python").Incarnation(w.Context())
	w.Must(err)
	return &python{w: w, inc: inc, leases: leases}
}

// looks is how kazoo's acquire begins: it makes the znode, empty, or looks whether that has another number. kazoo raises
// ValueError then.
func (p *python) looks() (accepted bool) {
	p.w.Helper()
	data, _, err := p.inc.Get(p.w.Context(), path)
	if errors.Is(err, session.ErrNoNode) {
		p.must(p.inc.EnsurePath(p.w.Context(), path))
		p.made = true
		return true
	}
	p.must(err)
	agreed, err := strconv.Atoi(string(data))
	return err != nil || agreed == p.leases
}

// writes is the step after that: who has made the znode writes its number, whatever exists there.
func (p *python) writes() {
	p.w.Helper()
	if p.made {
		_, err := p.inc.Set(p.w.Context(), path, []byte(strconv.Itoa(p.leases)), -1)
		p.must(err)
	}
}

// takes takes a lease, if one is free; nobody else is at the inner lock.
func (p *python) takes() bool {
	p.w.Helper()
	ctx := p.w.Context()
	p.must(p.inc.EnsurePath(ctx, lockDir))
	contender, err := p.inc.Create(ctx, lockDir+"/"+seqnode.NewGUID()+"__lock__", nil, session.EphemeralSequential)
	p.must(err)
	leases, _, err := p.inc.Children(ctx, path)
	p.must(err)
	taken := len(leases) < p.leases
	if taken {
		p.lease, err = p.inc.Create(ctx, path+"/"+seqnode.NewGUID(), []byte("python"), session.Ephemeral)
		p.must(err)
	}
	p.must(p.inc.Delete(ctx, contender, -1))
	return taken
}

func (p *python) must(err error) {
	p.w.Helper()
	p.w.Must(err)
}

// §8: the release can't remove the lease yet and goes on trying, the user acquires again, and that reply is lost. Were the old
// lease taken for the new one, as kazoo's are, which have one name, the release would remove it under the new hold.
func TestReacquireBesideTheRelease(t *testing.T) {
	inWorld(t, func(w *world) {
		sem, others := w.semaphore("ours", 2), []*semaphore.Semaphore{w.semaphore("b", 2), w.semaphore("c", 2)}
		h := w.acquire(sem)
		var again *acquiring
		client := w.Net.Client("ours")
		recipetest.BesideItsRelease(w, w.Srv, client, h, makesLease, func() { again = w.acquireLater(w.Context(), sem) })
		var holds []*semaphore.Held
		for _, other := range others {
			next, err := other.TryAcquire(w.Context())
			if err == nil {
				holds = append(holds, next)
			} else if !errors.Is(err, semaphore.ErrNotAcquired) {
				w.Fatal(err)
			}
		}
		if again.Ended() && again.Err == nil && again.Value.Context().Err() == nil && len(holds) == 2 {
			w.Errorf(tooMany+": %s besides %s and %s", again.Value.Node(), holds[0].Node(), holds[1].Node())
		}
		client.Heal()
		for _, h := range holds {
			w.Release(h)
		}
		<-again.Done
		if again.Err != nil {
			w.Fatal(again.Err)
		}
		w.Release(h)
		w.Release(again.Value)
		w.wantZnodes(0, 0)
	})
}

// §9: a holder loses trust, and its work is still stopping. Its lease exists until it has released, so that nobody follows.
func TestEndOfTrustGivesNothingAway(t *testing.T) {
	inWorld(t, func(w *world) {
		s := w.Session("ours")
		sem := w.semaphoreIn(s, "ours", 2)
		h := w.acquire(sem)
		id := w.ID(s)
		b := w.acquire(w.semaphore("b", 2))
		c := w.waiter("c", 2)
		w.LoseTrust("ours", h.Incarnation())
		w.Ended(h, session.ErrTrustLost)
		if w.ID(s) != id {
			w.Fatal("the session is another: nothing was tested")
		}
		time.Sleep(time.Minute)
		if c.Ended() {
			w.Errorf(tooMany+": the next one has a lease: %v", c.Err)
		}
		w.Release(h)
		w.Release(c.Get(w))
		w.Release(b)
		w.wantZnodes(0, 0)
	})
}

// §9: the same, and the handle acquires again: it gets no second lease while the first is at work.
func TestHandleGivesNoSecondLease(t *testing.T) {
	inWorld(t, func(w *world) {
		sem := w.semaphore("ours", 2)
		h := w.acquire(sem)
		w.LoseTrust("ours", h.Incarnation())
		w.Ended(h, session.ErrTrustLost)
		second, err := sem.Acquire(w.Within(time.Minute))
		if err == nil {
			w.Error(twoAtWork + ": the handle got another lease before the first was released")
			w.Release(second)
		} else if b := w.Blocked(err, context.DeadlineExceeded); b.Blocker != h.Node() {
			w.Errorf("got %v", err)
		}
		w.Release(h)
		w.Release(w.acquire(sem))
		w.wantZnodes(0, 0)
	})
}

// §9: the first waiter loses trust, and its session lives on: it keeps its place.
func TestWaiterKeepsItsPlaceWithoutTrust(t *testing.T) {
	inWorld(t, func(w *world) {
		h := w.acquire(w.semaphore("holder", 1))
		s := w.Session("ours")
		ours := w.acquireLater(w.Context(), w.semaphoreIn(s, "ours", 1))
		time.Sleep(time.Second)
		id, inc := w.ID(s), s.Current()
		later := w.waiter("later", 1)
		w.LoseTrust("ours", inc)
		time.Sleep(time.Minute)
		w.Release(h)
		time.Sleep(time.Second)
		if w.ID(s) != id {
			w.Fatal("the session is another: nothing was tested")
		}
		first, second := ours, later
		if !ours.Ended() {
			w.Error(starved + ": another who came later was served")
			first, second = later, ours
		}
		for _, next := range []*acquiring{first, second} {
			w.Release(next.Get(w))
		}
		w.wantZnodes(0, 0)
	})
}

// §10: the one who makes the znode dies right after that. Whoever comes next must see its number, or is never checked: here
// Python, with three leases, beside Go with one.
func TestMakerDies(t *testing.T) {
	inWorld(t, func(w *world) {
		client := w.Net.Client("maker")
		w.Srv.SetHook(func(r *zktest.Request) zktest.Action {
			if _, _, made := w.Srv.Get(path); made && r.Client == "maker" {
				client.Refuse()
				return zktest.Action{Cut: true}
			}
			return zktest.Action{}
		})
		w.acquireLater(w.Context(), w.semaphore("maker", 1))
		time.Sleep(20 * time.Second)
		w.wantZnodes(0, 0) // its session has expired
		p := w.python(3)
		accepted := p.looks()
		if p.made {
			w.Fatal("the znode was not made: nothing was tested")
		}
		h := w.acquire(w.semaphore("ours", 1))
		if accepted && p.takes() && h.Context().Err() == nil {
			data, _, _ := w.Srv.Get(path)
			w.Errorf(tooMany+": ours and Python's, and the znode says %s", data)
		}
		w.Release(h)
		w.Srv.SetHook(nil)
		client.Heal()
	})
}

// §10: Python creates the znode, empty; Go finds it so and writes 1. In between Python has written 3.
func TestNumberWrittenBeforeOurs(t *testing.T) { beside(t, is(zktest.OpSetData)) }

// §10: the same, but Go has written 1, and Python writes 3 just before the lease is created.
func TestNumberWrittenBeforeTheLease(t *testing.T) { beside(t, makesLease) }

// §10: the same, but Python writes 3 when Go has its lease.
func TestNumberWrittenAfterTheLease(t *testing.T) { beside(t, nil) }

// beside lets Python create the znode and write 3 before a request of Go, which wants one lease, or after all of them.
func beside(t *testing.T, before func(r zktest.Request) bool) {
	t.Helper()
	inWorld(t, func(w *world) {
		p := w.python(3)
		if !p.looks() || !p.made {
			w.Fatal("Python did not make the znode")
		}
		if before != nil {
			w.Steps(recipetest.Before(func(r zktest.Request) bool { return r.Client == "ours" && before(r) }, p.writes))
		}
		h, err := w.semaphore("ours", 1).Acquire(w.Context())
		if err != nil && !errors.Is(err, semaphore.ErrMaxLeases) {
			w.Fatal(err)
		}
		if before == nil {
			p.writes()
		}
		if !p.takes() {
			w.Fatal("Python gets no lease")
		}
		time.Sleep(time.Second)
		if err == nil {
			if h.Context().Err() == nil {
				w.Error(tooMany + ": two, and one was agreed on")
			} else {
				w.Ended(h, semaphore.ErrMaxLeases)
			}
			w.Release(h)
		}
		w.wantZnodes(1, 0) // Python's
	})
}

// §10: somebody removes our contender of the inner lock just before the lease is made, and Python takes the last one.
func TestInnerLockLostBeforeTheLease(t *testing.T) {
	inWorld(t, func(w *world) {
		p := w.python(1)
		if !p.looks() {
			w.Fatal("Python is refused")
		}
		p.writes()
		overtaken, once := make(chan struct{}), false
		w.Srv.SetHook(func(r *zktest.Request) zktest.Action {
			if r.Client == "ours" && makesLease(*r) && !once {
				once = true
				defer close(overtaken)
				for _, name := range w.Srv.Children(lockDir) {
					if err := w.Srv.Delete(lockDir + "/" + name); err != nil || !strings.Contains(name, "__lock__") {
						w.Errorf("%s: %v", name, err)
					}
				}
				if !p.takes() {
					w.Error("Python gets no lease")
				}
			}
			return zktest.Action{}
		})
		ours := w.acquireLater(w.Context(), w.semaphore("ours", 1))
		<-overtaken
		time.Sleep(time.Second)
		if ours.Ended() {
			w.Errorf(tooMany+": Python's and ours: %v", ours.Err)
		}
		p.must(p.inc.Delete(w.Context(), p.lease, -1))
		w.Release(ours.Get(w))
		w.wantZnodes(0, 0)
	})
}

// §13: an identifier that is no UTF-8. kazoo's lease_holders() decodes those of all, and raises UnicodeDecodeError. New refuses
// it, and is given another.
func TestIdentifierThatPythonCannotRead(t *testing.T) {
	inWorld(t, func(w *world) {
		s := w.Session("ours")
		ours, err := semaphore.New(s, path, semaphore.Options{Identifier: "z\xfcrich"})
		if err != nil {
			ours, err = semaphore.New(s, path, semaphore.Options{Identifier: "z\u00fcrich"})
		}
		w.Must(err)
		h := w.acquire(ours)
		leases := w.Srv.Children(path)
		if len(leases) != 1 {
			w.Fatalf("%q", leases)
		}
		data, _, ok := w.Srv.Get(path + "/" + leases[0])
		if !ok || !utf8.Valid(data) { // as strict as Python's decode("utf-8")
			w.Errorf(unreadable+": %q of %s", data, leases[0])
		}
		w.Release(h)
	})
}

// §13: somebody deletes the semaphore's znode, or the directory of its inner lock.
func TestDirectoryDeletedInBetween(t *testing.T) {
	for _, deleted := range []string{path, lockDir} {
		t.Run(deleted, func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.Must(errors.Join(w.Srv.Create(path, []byte("1")), w.Srv.Create(lockDir, nil)))
				sem := w.semaphore("ours", 1)
				for range 2 {
					h, err := sem.Acquire(w.Context())
					if errors.Is(err, session.ErrNoNode) {
						w.Errorf(refused+": %v", err)
						return
					}
					w.Must(err)
					w.Release(h)
					w.Check(w.Srv.Delete(deleted))
				}
			})
		})
	}
}

// §13: the directory in which we make our semaphore is one of Python's, too. As nil its data would be None to that, which kazoo
// can't decode: it raises AttributeError when it makes sure that all agree on the number of leases.
func TestNilIsNoNumber(t *testing.T) {
	inWorld(t, func(w *world) {
		w.Release(w.acquire(w.semaphore("ours", 1)))
		data, _, err := w.python(1).inc.Get(w.Context(), path[:strings.LastIndexByte(path, '/')])
		w.Must(err)
		if data == nil {
			w.Error(unreadable + ": None")
		}
	})
}
