package party

import (
	"context"

	"github.com/kielgo/kiel/internal/sabotage"
	"github.com/kielgo/kiel/session"
)

// NewKazooPartyIn is NewKazooParty with the rules of ctx.
func NewKazooPartyIn(ctx context.Context, s *session.Session, path string, opts KazooOptions) (*KazooParty, error) {
	return newKazooParty(s, path, opts, sabotage.Of(ctx))
}
