package lease

import (
	"context"
	"os"
	"strings"

	"github.com/kielgo/kiel/internal/sabotage"
	"github.com/kielgo/kiel/recipe/lock"
	"github.com/kielgo/kiel/session"
)

// checked is what must be there for a write to be made, and is set with it: our contender. Tests make do with less.
func (l *NonBlockingLease) checked(ctx context.Context, inner *lock.Held) string {
	if sabotage.Of(ctx).Off(sabotage.ContenderChecked) {
		return l.path
	}
	return inner.Node()
}

// innerIdentifier is the identifier of the inner lock's contenders: ours. The lock keeps its rules when tests switch ours off.
func innerIdentifier(opts Options, off sabotage.Rules) string {
	if off.Off(sabotage.IdentifierText) {
		return strings.ToValidUTF8(opts.Identifier, "?")
	}
	return opts.Identifier
}

// kazooIdentifier is kazoo's default, for tests that show what comes of it.
func kazooIdentifier() string {
	host, _ := os.Hostname()
	return host
}

// writeAsKazoo puts a record in the place of old in several requests, for tests that show what comes of it.
func (l *NonBlockingLease) writeAsKazoo(ctx context.Context, inner *lock.Held, old *stored, data []byte) (session.Stat, error) {
	inc := inner.Incarnation()
	if old != nil {
		if err := inc.Delete(ctx, l.node, -1); err != nil {
			return session.Stat{}, err
		}
	}
	if _, err := inc.Create(ctx, l.node, data, session.Persistent); err != nil {
		return session.Stat{}, err
	}
	_, stat, err := inc.Exists(ctx, l.node)
	return stat, err
}
