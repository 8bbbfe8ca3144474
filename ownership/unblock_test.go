package ownership_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/internal/testonly/noerr"
	"github.com/kielgo/kiel/ownership"
	"github.com/kielgo/kiel/session"
)

// asOperator gives a test an incarnation of a program that is no member.
func (w *world) asOperator(do func(ctx context.Context, inc *session.Incarnation)) {
	w.t.Helper()
	s, err := session.New([]string{"zk:2181"}, session.Options{Dial: w.nw.Client("operator").Dial})
	noerr.Must(w.t, err)
	ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
	defer cancel()
	ran := make(chan error, 1)
	go func() { ran <- s.Run(ctx) }()
	defer func() { <-ran }()
	defer s.Close(context.Background())
	inc, err := s.Incarnation(ctx)
	noerr.Must(w.t, err)
	do(ctx, inc)
}

var blocked = kiel.Partition{Topic: "t", ID: 1}

// A persistent znode in a claim's place is deleted, with and without an epoch, and the member claims the partition.
func TestBlockIsDeleted(t *testing.T) {
	for name, epoch := range map[string]bool{"with an epoch": true, "without an epoch": false} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				noerr.Must(t, w.srv.Create(owners+"/t:1", []byte(`{"owner":"x"}`)))
				if epoch {
					noerr.Must(t, w.srv.Create(epochs+"/t:1", nil))
				}
				w.asOperator(func(ctx context.Context, inc *session.Incarnation) {
					b, err := ownership.FindBlock(ctx, inc, "g", blocked)
					if err != nil || !b.Exists || !b.Persistent || b.Owner != "x" || b.Since == nil || b.Session != "" {
						t.Fatalf("%+v, %v", b, err)
					}
					noerr.Must(t, b.Delete(ctx, inc))
				})
				if left := w.srv.Dump(); !epoch && strings.Contains(left, "epochs") { // a member might not be allowed to write it
					t.Errorf("left %s", left)
				}
				w.assign(map[string]string{"a": items(2)})
				w.join("a", memberOptions{}).owns(5*time.Second, items(2))
			})
		})
	}
}

// A claim that is made after the znode was found is never deleted: neither one that found an epoch, nor one that created it.
func TestBlockThatBecameAClaim(t *testing.T) {
	for name, epoch := range map[string]bool{"with an epoch": true, "without an epoch": false} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				noerr.Must(t, w.srv.Create(owners+"/t:1", nil))
				if epoch {
					noerr.Must(t, w.srv.Create(epochs+"/t:1", nil))
				}
				w.asOperator(func(ctx context.Context, inc *session.Incarnation) {
					b, err := ownership.FindBlock(ctx, inc, "g", blocked) // before a member may have created the epoch
					if err != nil || !b.Persistent {
						t.Fatalf("%+v, %v", b, err)
					}
					if err := w.srv.Delete(owners + "/t:1"); err != nil { // somebody else was faster
						t.Fatal(err)
					}
					a := w.owning("a", items(2), memberOptions{})
					if err := b.Delete(ctx, inc); !errors.Is(err, ownership.ErrClaimed) {
						t.Errorf("got %v", err)
					}
					time.Sleep(time.Minute)
					a.owns(0, items(2))
					if n := a.told(ownership.ErrLost); n > 0 {
						t.Errorf("a lost its claim")
					}
					claim, err := ownership.FindBlock(ctx, inc, "g", blocked)
					if err != nil || !claim.Exists || claim.Persistent || claim.Session == "" || claim.Owner != "a" {
						t.Errorf("%+v, %v", claim, err)
					}
					if err := claim.Delete(ctx, inc); !errors.Is(err, ownership.ErrNotPersistent) {
						t.Errorf("a living claim: %v", err)
					}
				})
			})
		})
	}
}

// Nothing stands in the place of a free partition.
func TestNoBlock(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.asOperator(func(ctx context.Context, inc *session.Incarnation) {
			b, err := ownership.FindBlock(ctx, inc, "g", blocked)
			if err != nil || b.Exists {
				t.Errorf("%+v, %v", b, err)
			}
			if err := b.Delete(ctx, inc); !errors.Is(err, ownership.ErrNotPersistent) {
				t.Errorf("got %v", err)
			}
		})
	})
}
