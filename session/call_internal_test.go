package session

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/go-zookeeper/zk"

	"github.com/kielgo/kiel/internal/testonly/noerr"
)

// A write that its caller gives up may not be queued yet. What is called after that must not overtake it: a look would not find
// what is written later.
func TestLookAfterAWriteThatWasGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up := make(chan struct{})
		close(up)
		life, end := context.WithCancelCause(t.Context())
		c := &client{ctx: life, cancel: end, link: link{up: up, isUp: true}, calls: make(chan struct{}, 512)}
		ctx, giveUp := context.WithCancel(t.Context())
		queued, wrote := make(chan struct{}), false
		given := make(chan error)
		go func() {
			_, err := call(ctx, c, &sending{}, func(*zk.Conn) (struct{}, error) {
				<-queued
				wrote = true
				return struct{}{}, nil
			})
			given <- err
		}()
		synctest.Wait()
		giveUp()
		if err := <-given; !errors.Is(err, ErrUncertain) {
			t.Fatalf("given up: %v", err)
		}
		look := func(ctx context.Context) (bool, error) {
			return call(ctx, c, nil, func(*zk.Conn) (bool, error) { return wrote, nil })
		}
		hurried, stop := context.WithCancel(t.Context())
		stop()
		if _, err := look(hurried); !errors.Is(err, context.Canceled) {
			t.Errorf("a look whose context ends: %v", err)
		}
		found := make(chan bool)
		go func() {
			saw, err := look(t.Context())
			noerr.Want(t, err)
			found <- saw
		}()
		synctest.Wait()
		close(queued)
		if !<-found {
			t.Error("the look came before the write")
		}
		c.wg.Wait()
		if _, err := look(t.Context()); err != nil || len(c.givenUp) != 0 {
			t.Errorf("%v, %d writes are still waited for", err, len(c.givenUp))
		}
	})
}

// Nothing is waited for once the client has ended.
func TestGivenUpWriteAndTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		life, end := context.WithCancelCause(t.Context())
		c := &client{ctx: life, cancel: end}
		c.giveUpOn(make(chan struct{}))
		end(ErrClosed)
		if err := c.ready(t.Context()); !errors.Is(err, ErrClosed) {
			t.Errorf("%v, want %v", err, ErrClosed)
		}
	})
}

// TestErrorTexts names the package once, whatever an error wraps.
func TestErrorTexts(t *testing.T) {
	refused := failure("multi", "/a", &MultiError{Index: 3, Err: ErrBadVersion})
	for want, err := range map[string]error{
		"session: multi /a: operation 3: version conflict":  refused,
		"session: set /a: outcome unknown: connection lost": failure("set", "/a", unfinished(true, errLost)),
		"outcome unknown: ZooKeeper session is over":        unfinished(true, ErrSessionExpired),
		"request too large: 9 bytes, and the servers end the connection when they get 7: their jute.maxbuffer is probably smaller, and " +
			"Options.MaxPacket should be 1 KiB less than that": &TooLargeError{Bytes: 9, Limit: 7, CostsConnection: true},
	} {
		if got := err.Error(); got != want {
			t.Errorf("%q is not %q", got, want)
		}
	}
	if m, ok := errors.AsType[*MultiError](refused); !ok || m.Index != 3 || !errors.Is(refused, ErrBadVersion) {
		t.Error("a caller can't find the MultiError")
	}
}
