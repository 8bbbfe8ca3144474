package recipes_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/kielgo/kiel/recipe/lease"
	"github.com/kielgo/kiel/recipe/lock"
	"github.com/kielgo/kiel/recipe/semaphore"
	"github.com/kielgo/kiel/test/wait"
)

// These tests show of holds what random schedules do not: readers of both languages read at one time and do not pass a writer,
// and each language lists and counts the other's. TestRandomSchedules and TestFirstComeFirstServed show that contenders wait for
// each other, TestGolden shows the bytes.

// Readers of both languages read together, and a writer of either waits for them and keeps them out.
func TestReadersAndWriters(t *testing.T) {
	r := newRig(t)
	const path = "/rw"
	ctx := t.Context()
	read, err := lock.NewRead(r.s, path, lock.Options{Identifier: "go reads"})
	r.must(err)
	write, err := lock.NewWrite(r.s, path, lock.Options{Identifier: "go writes"})
	r.must(err)
	r.py.do(request{Object: "read", Make: "ReadLock", Args: []any{path, "python reads"}})
	r.py.do(request{Object: "write", Make: "WriteLock", Args: []any{path, "python writes"}})

	held, err := read.Acquire(ctx)
	r.must(err)
	r.want(r.py.do(request{Object: "read", Call: "acquire"}), "true")
	r.want(r.tree(path), " p \"\"\n/<guid>__rlock__<sequence> e \"go reads\"\n/<guid>__rlock__<sequence> e \"python reads\"")
	if _, err := write.TryAcquire(ctx); !errors.Is(err, lock.ErrNotAcquired) {
		t.Errorf("a writer beside readers: %v", err)
	}
	r.want(r.py.do(request{Object: "write", Call: "acquire", Args: []any{false}}), "false")

	done := make(chan error, 1)
	var writing *lock.Held
	go func() {
		var err error
		writing, err = write.Acquire(ctx)
		done <- err
	}()
	wait.Until(t, 20*time.Second, func() bool { return strings.Contains(r.tree(path), "go writes") }, func() string { return "a writer waits" })
	// A reader that comes after a writer waits behind it.
	if _, err := read.TryAcquire(ctx); !errors.Is(err, lock.ErrNotAcquired) {
		t.Errorf("a reader passed a writer: %v", err)
	}
	r.must(held.Release(ctx))
	r.py.do(request{Object: "read", Call: "release"})
	r.must(<-done)
	r.want(r.py.do(request{Object: "read", Call: "acquire", Args: []any{false}}), "false")
	acquired := r.py.later(request{Object: "write", Call: "acquire"})
	wait.Until(t, 20*time.Second, func() bool { return strings.Contains(r.tree(path), "python writes") }, func() string { return "Python waits" })
	if !writing.Valid() {
		t.Error("the writer lost its lock")
	}
	r.must(writing.Release(ctx))
	got, err := acquired()
	r.must(err)
	r.want(got, "true")
	if _, err := read.TryAcquire(ctx); !errors.Is(err, lock.ErrNotAcquired) {
		t.Errorf("a reader beside Python's writer: %v", err)
	}
	r.py.do(request{Object: "write", Call: "release"})
	held, err = read.TryAcquire(ctx)
	r.must(err)
	r.must(held.Release(ctx))
	r.want(r.tree(path), ` p ""`)
}

// Each language lists the other's leases of a semaphore, and counts them.
func TestSemaphoreHolders(t *testing.T) {
	r := newRig(t)
	ctx := t.Context()
	const path = "/semaphore"
	s, err := semaphore.New(r.s, path, semaphore.Options{MaxLeases: 2, Identifier: "gö"})
	r.must(err)
	held, err := s.Acquire(ctx)
	r.must(err)
	defer func() { r.must(held.Release(ctx)) }()
	for _, name := range []string{"python", "another"} {
		r.py.do(request{Object: name, Make: "Semaphore", Args: []any{path, name, 2}})
		r.want(r.py.do(request{Object: name, Call: "acquire", Args: []any{false}}), fmt.Sprint(name == "python"))
	}
	holders := map[string]bool{}
	list, err := s.LeaseHolders(ctx)
	r.must(err)
	for _, h := range list {
		holders[h.Identifier] = true
	}
	if theirs := r.py.do(request{Object: "python", Call: "lease_holders"}); theirs != "[gö python]" && theirs != "[python gö]" ||
		len(list) != 2 || !holders["gö"] || !holders["python"] {
		t.Errorf("Go lists %v, Python %s", holders, theirs)
	}
	wrong, err := semaphore.New(r.s, path, semaphore.Options{MaxLeases: 3})
	r.must(err)
	if _, err := wrong.TryAcquire(ctx); !errors.Is(err, semaphore.ErrMaxLeases) {
		t.Errorf("three leases of a semaphore that has two: %v", err)
	}
	r.py.do(request{Object: "python", Call: "release"})
}

// Each language finds the slots of a lease that the other has, and names who has them.
func TestSlotsOfALease(t *testing.T) {
	r := newRig(t)
	ctx := t.Context()
	many, err := lease.NewMulti(r.s, "/many", 2, lease.Options{Identifier: "go", Duration: time.Minute})
	r.must(err)
	obtains := func(name string) string {
		r.py.do(request{
			Object: name, Make: "MultiNonBlockingLease", Args: []any{2, "/many"}, Seconds: 60,
			Kwargs: map[string]any{"identifier": name},
		})
		return r.py.do(request{Object: name, Truth: true})
	}
	r.want(obtains("python"), "true")
	other, err := many.ObtainAny(ctx)
	r.must(err)
	defer func() { r.must(other.Release(ctx)) }()
	r.want(obtains("another"), "false")
	slots, err := many.Slots(ctx)
	r.must(err)
	if len(slots) != 2 || slots[0].Record.Holder != "python" || slots[1].Record.Holder != "go" {
		t.Errorf("slots %+v", slots)
	}
}
