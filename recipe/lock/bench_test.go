package lock_test

import (
	"testing"

	"github.com/kielgo/kiel/internal/testonly/recipetest"
	"github.com/kielgo/kiel/recipe/lock"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/zktest"
)

// BenchmarkAcquireRelease takes a free lock on zktest over TCP.
func BenchmarkAcquireRelease(b *testing.B) {
	_, address := zktest.Start(b, zktest.Options{})
	s, err := session.New([]string{address}, session.Options{})
	if err != nil {
		b.Fatal(err)
	}
	recipetest.Run(b, s)
	ctx := b.Context()
	l, err := lock.New(s, path, lock.Options{})
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		h, err := l.Acquire(ctx)
		if err != nil {
			b.Fatal(err)
		}
		if err := h.Release(ctx); err != nil {
			b.Fatal(err)
		}
	}
}
