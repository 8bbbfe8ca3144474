package lock

import (
	"context"

	"github.com/kielgo/kiel/internal/sabotage"
	"github.com/kielgo/kiel/session"
)

// NewIn is New with the rules of ctx.
func NewIn(ctx context.Context, s *session.Session, path string, opts Options) (*Lock, error) {
	return newLock(s, path, opts, sabotage.Of(ctx), word, word)
}
