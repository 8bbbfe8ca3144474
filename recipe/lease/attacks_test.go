package lease_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/kielgo/kiel/internal/seqnode"
	"github.com/kielgo/kiel/recipe/lease"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/zktest"
)

// The executions that a lease must withstand, of the attacks on recipes. § is the number of the attack in
// test/attacks/recipes.md, whose table names the mutant that each test kills. Those of §6 are in clocks_test.go.

// What an execution can do.
const (
	twoHolders = "two holders"
	robbed     = "robbed"    // the record of another was removed
	nobodys    = "nobody's"  // a lease that nobody has, and nobody can obtain
	cancelled  = "cancelled" // a hold ended though the lease did not
	refused    = "refused"   // who could have the lease is not given it
)

// python is a kazoo NonBlockingLease, with the requests that kazoo sends.
type python struct {
	w         *world
	s         *session.Session
	name      string
	ahead     time.Duration // its clock is
	contender string
}

func (w *world) python(name string) *python {
	w.Helper()
	return &python{w: w, s: w.session(name), name: name}
}

// inc is kazoo's client: after an expired session it goes on in the next.
func (p *python) inc() *session.Incarnation {
	p.w.Helper()
	inc, err := p.s.Incarnation(p.w.Context())
	p.w.Must(err)
	return inc
}

func (p *python) must(err error) {
	p.w.Helper()
	p.w.Must(err)
}

// locks acquires the inner lock.
func (p *python) locks() {
	p.w.Helper()
	ctx := p.w.Context()
	p.must(p.inc().EnsurePath(ctx, path))
	node, err := p.inc().Create(ctx, path+"/"+seqnode.NewGUID()+"__lock__", []byte(p.name), session.EphemeralSequential)
	p.must(err)
	p.contender = node
	_, own, _ := strings.Cut(node, "__lock__")
	for first := false; !first; time.Sleep(100 * time.Millisecond) {
		children, _, err := p.inc().Children(ctx, path)
		p.must(err)
		first = true
		for _, name := range children {
			if _, number, ok := strings.Cut(name, "__lock__"); ok && number < own {
				first = false
			}
		}
	}
}

// mayTake reads the record.
func (p *python) mayTake() bool {
	p.w.Helper()
	data, _, err := p.inc().Get(p.w.Context(), node)
	if errors.Is(err, session.ErrNoNode) {
		return true
	}
	p.must(err)
	r, err := lease.Decode(data)
	p.must(err)
	return r.Holder == p.name || !time.Now().Add(p.ahead).Before(r.End)
}

// replaces writes the record.
func (p *python) replaces(d time.Duration) {
	p.w.Helper()
	if err := p.inc().Delete(p.w.Context(), node, -1); err != nil && !errors.Is(err, session.ErrNoNode) {
		p.w.Fatal(err)
	}
	r := lease.Record{Version: 1, Holder: p.name, End: time.Now().Add(p.ahead + d)}
	_, err := p.inc().Create(p.w.Context(), node, lease.Encode(r), session.Persistent)
	p.must(err)
}

func (p *python) unlocks() {
	p.w.Helper()
	p.must(p.inc().Delete(p.w.Context(), p.contender, -1))
}

// obtains is all of it.
func (p *python) obtains(d time.Duration) bool {
	p.w.Helper()
	p.locks()
	taken := p.mayTake()
	if taken {
		p.replaces(d)
	}
	p.unlocks()
	return taken
}

// mustObtain checks that the lease is free for Python.
func (p *python) mustObtain(d time.Duration) {
	p.w.Helper()
	if !p.obtains(d) {
		p.w.Error("Python does not get the lease")
	}
}

// §5a: Go's hold expires, Python takes over by deleting the record and creating its own, and then Go releases: Release must not
// take that record for Go's because its version is the same.
func TestLateReleaseLeavesTheNextHolder(t *testing.T) {
	inWorld(t, func(w *world) {
		h := w.obtain(w.lease("ours"))
		time.Sleep(time.Minute)
		w.ended(h, lease.ErrExpired)
		w.python("python").mustObtain(time.Minute)
		w.release(h)
		if w.python("third").obtains(time.Minute) {
			w.Error(twoHolders + ": Python, and a third that came after our release")
		}
	})
}

// §5a among ourselves: the record was set, removed and made again, and has the version that it had.
func TestLateReleaseLeavesTheNextButOne(t *testing.T) {
	inWorld(t, func(w *world) {
		h := w.obtain(w.lease("ours"))
		time.Sleep(time.Minute)
		w.ended(h, lease.ErrExpired)
		w.release(w.obtain(w.lease("next")))
		w.obtain(w.lease("next but one"))
		record := w.record()
		w.release(h)
		if now := w.record(); now != record {
			w.Errorf(robbed+": the record is %q, and was %q", now, record)
		}
	})
}

// §5b: Python is stalled between its read and its delete while its session expires, Go obtains the lease, and Python goes on. It
// can't know; so our hold ends.
func TestStalledPythonReplacesOurRecord(t *testing.T) {
	inWorld(t, func(w *world) {
		w.python("before").mustObtain(2 * time.Second)
		time.Sleep(3 * time.Second)
		p := w.python("python")
		p.locks()
		if !p.mayTake() {
			w.Fatal("the lease is not free")
		}
		inc := p.inc()
		w.Srv.KillSession(inc.SessionID())
		<-inc.Context().Done() // kazoo goes on in another session
		h := w.obtain(w.lease("ours"))
		p.replaces(time.Minute)
		time.Sleep(time.Second)
		if h.Valid() {
			w.Errorf(twoHolders+": ours, and Python, whose record stands: %s", w.record())
		} else {
			w.ended(h, lease.ErrLost)
		}
	})
}

// §5c: a renewal is broken off by the link. Were it two requests, as kazoo's, only the first might be done, and the lease be
// anybody's while we hold it.
func TestRenewalLosesItsLink(t *testing.T) {
	inWorld(t, func(w *world) {
		s := w.session("ours")
		h := w.obtain(w.leaseIn(s, lease.Options{Identifier: "ours", Duration: time.Hour}))
		time.Sleep(10 * time.Second)
		client := w.Net.Client("ours")
		lost := false
		w.Srv.SetHook(func(r *zktest.Request) zktest.Action {
			if r.Client == "ours" && (isRecord(*r) || r.Op == zktest.OpDelete && r.Path == node) {
				lost = true
				client.Refuse()
				return zktest.Action{LoseReply: true}
			}
			return zktest.Action{}
		})
		if err := h.Renew(w.Within(5 * time.Second)); err == nil || !lost {
			w.Fatalf("renewed: %v", err)
		}
		if w.python("python").obtains(time.Minute) && h.Valid() { // when our contender is gone with our session
			w.Error(twoHolders + ": ours, and Python in the middle of our renewal")
		}
		w.Srv.SetHook(nil)
		client.Heal()
	})
}

// §5: our contender of the inner lock is removed before the write arrives, and Python obtains the lease. The record has the
// version that we saw: only the check of our contender tells.
func TestWriteWithoutTheInnerLock(t *testing.T) {
	inWorld(t, func(w *world) {
		w.python("before").mustObtain(2 * time.Second)
		time.Sleep(3 * time.Second)
		p := w.python("python")
		raced := false
		w.Srv.SetHook(func(r *zktest.Request) zktest.Action {
			if r.Client == "ours" && isRecord(*r) && !raced {
				raced = true
				for _, name := range w.Srv.Children(path) {
					if strings.Contains(name, "__lock__") {
						p.must(w.Srv.Delete(path + "/" + name))
					}
				}
				p.mustObtain(time.Minute)
			}
			return zktest.Action{}
		})
		h, err := w.lease("ours").Obtain(w.Context())
		switch {
		case !raced:
			w.Fatal("nothing was tested")
		case err == nil:
			w.Errorf(twoHolders+": Python, and ours, whose record stands: %s", w.record())
			h.Detach()
		case !errors.Is(err, lease.ErrNotObtained):
			w.Error(err)
		default:
			w.wantHolder("python")
		}
	})
}

// §13: an identifier that is no UTF-8. A record is JSON and can't hold it: the process does not know its own lease again. New
// refuses it, and is given another.
func TestIdentifierThatNoRecordHolds(t *testing.T) {
	inWorld(t, func(w *world) {
		restarted := func(client string) error {
			opts := lease.Options{Identifier: "z\xfcrich", Duration: time.Minute}
			s := w.session(client)
			l, err := lease.New(s, path, opts)
			if err != nil {
				opts.Identifier = "z\u00fcrich"
				l = w.leaseIn(s, opts)
			}
			h, err := l.Obtain(w.Context())
			if err == nil {
				w.Cleanup(h.Detach)
			}
			return err
		}
		w.Must(restarted("one"))
		switch err := restarted("again"); {
		case errors.Is(err, lease.ErrNotObtained):
			w.Errorf(refused+": %v", err)
		case err != nil:
			w.Error(err)
		}
	})
}

// §13: somebody deletes the lease's directory, and with it whose lease it is.
func TestDirectoryDeletedInBetween(t *testing.T) {
	inWorld(t, func(w *world) {
		w.Must(w.Srv.Create(path, nil))
		l := w.lease("ours")
		for range 2 {
			h, err := l.Obtain(w.Context())
			if errors.Is(err, session.ErrNoNode) {
				w.Errorf(refused+": %v", err)
				return
			}
			w.Must(err)
			w.release(h)
			w.Check(w.Srv.Delete(path))
		}
	})
}
