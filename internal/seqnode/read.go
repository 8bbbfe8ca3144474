package seqnode

import (
	"context"
	"errors"

	"github.com/kielgo/kiel/session"
)

// Read returns the data and the metadata of a znode. If the znode's ACL forbids reading, Read returns the metadata alone.
func Read(ctx context.Context, inc *session.Incarnation, path string) ([]byte, session.Stat, error) {
	data, stat, err := inc.Get(ctx, path)
	if !errors.Is(err, session.ErrNoAuth) {
		return data, stat, err
	}
	exists, stat, err := inc.Exists(ctx, path)
	if err == nil && !exists {
		err = session.ErrNoNode
	}
	return nil, stat, err
}

// ReadW is [Read] with a watch. The watch is nil after an error.
func ReadW(ctx context.Context, inc *session.Incarnation, path string) ([]byte, session.Stat, *session.Watch, error) {
	data, stat, watch, err := inc.GetW(ctx, path)
	if !errors.Is(err, session.ErrNoAuth) {
		return data, stat, watch, err
	}
	exists, stat, watch, err := inc.ExistsW(ctx, path)
	if err == nil && !exists {
		watch.Stop()
		return nil, stat, nil, session.ErrNoNode
	}
	return nil, stat, watch, err
}
