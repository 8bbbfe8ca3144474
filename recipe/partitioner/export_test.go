package partitioner

import (
	"context"

	"github.com/kielgo/kiel/internal/sabotage"
	"github.com/kielgo/kiel/session"
)

// NewIn is New with the rules of ctx.
func NewIn(ctx context.Context, s *session.Session, path string, items []string, opts Options) (*SetPartitioner, error) {
	return newPartitioner(s, path, items, opts, sabotage.Of(ctx))
}
