package queue_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/kielgo/kiel/internal/testonly/recipetest"
	"github.com/kielgo/kiel/recipe/queue"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/zktest"
)

// The harms that executions here do without the rule that answers them (test/mutants).
const (
	twoConsumers = "two work on one entry"
	lostEntry    = "an entry is gone and nobody has it"
	twoEntries   = "one put made two entries"
	pythonFails  = "Python's put fails"
	overtaken    = "an entry overtakes one that was put before it"
	brokenLink   = "a put that can't be carried out breaks the link under another"
)

// execution is a run of an execution: G is a Go process, the client "g" of the network; the other process is Python.
type execution struct {
	*world
	g *session.Session
	p *session.Incarnation
}

// inExecution runs an execution in a bubble.
func inExecution(t *testing.T, run func(x *execution)) {
	t.Helper()
	inWorld(t, func(w *world) { run(&execution{w, w.Session("g"), w.Incarnation(w.Session("python"))}) })
}

const pythonID = "0123456789abcdef0123456789abcdef"

// pythonTakes is kazoo's _take. It reports whether Python holds the entry now.
func (x *execution) pythonTakes() bool {
	if _, err := x.p.Create(x.Context(), taken, []byte(pythonID), session.Ephemeral); err != nil {
		return false
	}
	if _, _, err := x.p.Get(x.Context(), entry); err != nil {
		_ = x.p.Delete(x.Context(), taken, -1)
		return false
	}
	return true
}

// pythonConsumes is kazoo's consume.
func (x *execution) pythonConsumes() {
	if _, err := x.p.Multi(x.Context(), session.DeleteOp(entry, -1), session.DeleteOp(taken, -1)); err != nil {
		x.Error(err)
	}
}

// pythonStillHolds checks that the entry and Python's hold still exist.
func (x *execution) pythonStillHolds() {
	x.Helper()
	_, _, there := x.Srv.Get(entry)
	if id, _, _ := x.Srv.Get(taken); string(id) != pythonID || !there {
		x.Errorf(twoConsumers+": Python has lost it; znodes:\n%s", x.Srv.Dump())
	}
}

// steps has these happen at requests of g.
func (x *execution) steps(list ...recipetest.Step) {
	for i, step := range list {
		list[i].Match = func(r zktest.Request) bool { return r.Client == "g" && step.Match(r) }
	}
	x.Steps(list...)
}

// takes has Python take the entry.
func (x *execution) takes() {
	if !x.pythonTakes() {
		x.Error("Python did not get it")
	}
}

func anyRequest(zktest.Request) bool { return true }

// §1: 2^31-1 entries were created in the directory. Of creates in quick succession every other one gets -2147483648, which comes
// before all others. A handle that got the first of the last numbers puts nothing more.
func TestNumbersEnd(t *testing.T) {
	inExecution(t, func(x *execution) {
		q := x.queue(x.g)
		x.Must(x.Srv.Create(path, nil))
		numbers := []string{"2147483647", "-2147483648"}
		x.Srv.SetHook(func(r *zktest.Request) zktest.Action {
			if r.Client == "g" && isPut(*r) {
				r.Ops[0].Flags, r.Ops[0].Path = 0, r.Ops[0].Path+numbers[0]
				numbers = numbers[1:]
			}
			return zktest.Action{}
		})
		if _, err := q.Put(x.Context(), []byte("first"), queue.DefaultPriority); err != nil {
			x.Error(err)
		}
		if _, err := q.Put(x.Context(), []byte("second"), queue.DefaultPriority); err != nil && !errors.Is(err, queue.ErrSequenceExhausted) {
			x.Error(err)
		}
		// Python takes what sorts first.
		value, _, err := x.p.Get(x.Context(), path+"/"+x.Srv.Children(path)[0])
		if err != nil {
			x.Error(err)
		} else if string(value) != "first" {
			x.Errorf(overtaken+": Python gets the %s; znodes:\n%s", value, x.Srv.Dump())
		}
	})
}

// §7 (a): G gives an entry back, the reply is lost, Python takes the entry under the same name, and G's delete is sent again.
func TestTakenByAnotherBeforeTheRetry(t *testing.T) {
	inExecution(t, func(x *execution) {
		q := x.locking(x.g)
		x.put(q, "one")
		h := x.take(q, "one")
		x.steps(recipetest.LosesReply(is(zktest.OpDelete)), recipetest.Before(anyRequest, x.takes))
		x.Check(h.Release(x.Context()))
		time.Sleep(10 * time.Second)
		x.pythonStillHolds()
	})
}

// §7 (b): two handles in one session. The first one's request is lost, and the second one takes the entry. The znode that the
// first one finds then belongs to its own session.
func TestTwoHandlesInOneSession(t *testing.T) {
	inExecution(t, func(x *execution) {
		first, second := x.locking(x.g), x.locking(x.g)
		x.put(first, "one")
		x.steps(recipetest.Meets(zktest.Action{Ignore: true}, isTake))
		got := make(chan *queue.Held)
		go func() {
			h, err := first.TryGet(x.Context())
			if err != nil && !errors.Is(err, queue.ErrEmpty) {
				x.Error(err)
			}
			got <- h
		}()
		time.Sleep(time.Millisecond)
		h := must[*queue.Held](x.world)(second.TryGet(x.Context()))
		x.Net.Client("g").Cut()
		if other := <-got; other != nil {
			if other.Context().Err() == nil && h.Context().Err() == nil {
				x.Errorf(twoConsumers+": both handles hold %s", h.Path())
			}
			_ = other.Release(x.Context())
		}
		_ = h.Release(x.Context())
	})
}

// §7 (c): G consumes an entry and the reply is lost. The queue is purged, and its names are given again.
func TestNamesGivenAgainBeforeTheRetry(t *testing.T) {
	inExecution(t, func(x *execution) {
		q := x.locking(x.g)
		x.put(q, "one")
		h := x.take(q, "one")
		x.steps(recipetest.LosesReply(isMulti), recipetest.Before(anyRequest, func() {
			err := errors.Join(x.Srv.Delete(path), x.Srv.Create(entry, []byte("new")), x.Srv.Create(path+"/taken", nil))
			if err != nil || !x.pythonTakes() {
				x.Errorf("Python did not get it: %v", err)
			}
		}))
		x.Check(h.Consume(x.Context()))
		time.Sleep(10 * time.Second)
		x.pythonStillHolds()
	})
}

// §7, why a take checks the entry: between G's read and its take Python takes the entry and consumes it.
func TestConsumedJustBefore(t *testing.T) {
	inExecution(t, func(x *execution) {
		q := x.locking(x.g)
		x.put(q, "one")
		creates := func(r zktest.Request) bool {
			return r.Op == zktest.OpMulti && r.Ops[len(r.Ops)-1].Op == zktest.OpCreate
		}
		x.steps(recipetest.Before(creates, func() {
			x.takes()
			x.pythonConsumes()
		}))
		h, err := q.TryGet(x.Context())
		if h != nil {
			x.Errorf(twoConsumers + ": G holds what Python has consumed")
			_ = h.Release(x.Context())
		} else if !errors.Is(err, queue.ErrEmpty) {
			x.Error(err)
		}
		x.nothingTaken()
	})
}

// §7, why a consume is one transaction: Python takes whatever is free at any moment.
func TestTakenDuringTheConsume(t *testing.T) {
	inExecution(t, func(x *execution) {
		q := x.locking(x.g)
		x.put(q, "one")
		h := x.take(q, "one")
		x.Srv.SetHook(func(r *zktest.Request) zktest.Action {
			if r.Client == "g" && x.pythonTakes() {
				x.Errorf(twoConsumers + ": Python takes what G has worked on")
			}
			return zktest.Action{}
		})
		x.Check(h.Consume(x.Context()))
		x.wantLen(q, 0)
	})
}

// §7, why a hold knows its znode by czxid: somebody deletes the znode, and Python takes the entry, under the same name, before G
// looks.
func TestTakenByAnotherBeforeTheLook(t *testing.T) {
	inExecution(t, func(x *execution) {
		q := x.locking(x.g)
		x.put(q, "one")
		h := x.take(q, "one")
		x.steps(recipetest.Before(func(r zktest.Request) bool { return r.Op == zktest.OpExists && r.Path == taken }, x.takes))
		x.Must(x.Srv.Delete(taken))
		time.Sleep(time.Minute)
		if h.Valid() {
			x.Errorf(twoConsumers + ": G's hold lasts beside Python's")
		} else if cause := context.Cause(h.Context()); !errors.Is(cause, queue.ErrLost) {
			x.Errorf("ended with %v", cause)
		}
		_ = h.Release(x.Context())
		x.pythonStillHolds()
	})
}

// §11 (a): the context of a Get ends after its delete was sent.
func TestContextEndsDuringTheRemoval(t *testing.T) {
	for what, answered := range map[string]bool{"answered": true, "not answered": false} {
		t.Run(what, func(t *testing.T) {
			inExecution(t, func(x *execution) {
				q := x.queue(x.g)
				x.put(q, "x")
				link := x.Net.Client("g")
				x.steps(recipetest.Before(is(zktest.OpDelete), func() { link.BlackHole(zktest.ToClient) }))
				ctx := x.Within(100 * time.Millisecond)
				if answered {
					time.AfterFunc(time.Second, link.Heal)
				}
				value, err := q.Get(ctx)
				if n := len(x.Srv.Children(path)); n == 0 && value == nil {
					x.Errorf(lostEntry+": it is gone, and Get has returned %v", err)
				} else if answered {
					x.wantValue(value, err, "x", nil)
				} else {
					x.wantValue(value, err, "x", session.ErrUncertain)
					x.wantValue(value, err, "x", context.DeadlineExceeded)
				}
				link.Heal()
			})
		})
	}
}

// §11 (b): the reply to a put is lost, and the name of an entry does not tell whose it is.
func TestReplyToPutLost(t *testing.T) {
	for what, values := range map[string]string{"one": "1", "two together": "1 2"} {
		t.Run(what, func(t *testing.T) {
			inExecution(t, func(x *execution) {
				q := x.queue(x.g)
				x.Must(x.Srv.Create(path, nil))
				x.steps(recipetest.LosesReply(isPut))
				var list [][]byte
				for v := range strings.FieldsSeq(values) {
					list = append(list, []byte(v))
				}
				_, err := q.PutAll(x.Context(), list, queue.DefaultPriority)
				if n := len(x.Srv.Children(path)); n > len(list) {
					x.Errorf(twoEntries+": %d entries of %d values: %v", n, len(list), err)
				} else if !errors.Is(err, session.ErrUncertain) || n != len(list) {
					x.Errorf("%d entries, %v", n, err)
				}
			})
		})
	}
}

// §11: a put that does not fit a request is refused before it is sent. A server would drop the connection, and with it other
// requests of the same session right behind the put, whose outcome nobody would know then.
func TestPutThatDoesNotFit(t *testing.T) {
	const limit = 1<<20 - 1 // of a server
	for what, values := range map[string][]int{"one": {limit}, "each fits, all don't": {limit / 2, limit / 2}} {
		t.Run(what, func(t *testing.T) {
			inExecution(t, func(x *execution) {
				q, other := x.queue(x.g), x.queue(x.g)
				x.put(other, "before")
				x.Net.Client("g").Delay(50 * time.Millisecond)
				refused := make(chan error, 1)
				go func() {
					var list [][]byte
					for _, size := range values {
						list = append(list, make([]byte, size))
					}
					_, err := q.PutAll(x.Context(), list, queue.DefaultPriority)
					refused <- err
				}()
				time.Sleep(10 * time.Millisecond)
				_, err := other.Put(x.Context(), []byte("small"), queue.DefaultPriority)
				large := <-refused
				switch {
				case errors.Is(err, session.ErrUncertain):
					x.Errorf(brokenLink+": put: %v; put of what does not fit: %v", err, large)
				case err != nil || !errors.Is(large, session.ErrTooLarge) || errors.Is(large, session.ErrUncertain):
					x.Errorf("put: %v; put of what does not fit: %v", err, large)
				}
				if n := len(x.Srv.Children(path)); n != 2 && (n != 1 || err == nil) {
					x.Errorf("%d entries", n)
				}
			})
		})
	}
}

// §13: somebody deletes the queue's directory. A Python process that has created it once does not create it again: its put works
// because G, which waits for an entry, has created it.
func TestDirectoryDeleted(t *testing.T) {
	inExecution(t, func(x *execution) {
		x.Must(x.Srv.Create(path, nil))
		got := make(chan string, 1)
		go func() {
			value, err := x.queue(x.g).Get(x.Context())
			if err != nil && !errors.Is(err, session.ErrNoNode) {
				x.Error(err)
			}
			got <- string(value)
		}()
		time.Sleep(time.Second)
		x.Must(x.Srv.Delete(path))
		time.Sleep(time.Second)
		_, err := x.p.Create(x.Context(), path+"/entry-100-", []byte("x"), session.PersistentSequential)
		switch value := <-got; {
		case errors.Is(err, session.ErrNoNode):
			x.Errorf(pythonFails+": %v", err)
		case err != nil || value != "x":
			x.Errorf("%v, got %q", err, value)
		}
	})
}

// §13: a value is nil. If that were stored as nil, Python's get would delete the entry and return None, as if there were nothing.
func TestNilIsAValue(t *testing.T) {
	inExecution(t, func(x *execution) {
		path, err := x.queue(x.g).Put(x.Context(), nil, queue.DefaultPriority)
		x.Must(err)
		value, _, err := x.p.Get(x.Context(), path)
		x.Must(errors.Join(err, x.p.Delete(x.Context(), path, -1)))
		if value == nil {
			x.Errorf(lostEntry+": Python takes %s and gets None", path)
		}
	})
}
