package ownership

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/internal/operr"
	"github.com/kielgo/kiel/internal/statuswrite"
	"github.com/kielgo/kiel/ownership/internal/claims"
	"github.com/kielgo/kiel/session"
)

// Errors of [Block.Delete].
var (
	// ErrNotPersistent says that the znode in a claim's place belongs to a session, or that there is none. It is left alone.
	ErrNotPersistent = errors.New("no persistent znode is in the claim's place")
	// ErrClaimed says that the partition was claimed, or the znode was replaced, since the Block was found. Nothing was deleted.
	ErrClaimed = errors.New("claimed meanwhile")
)

// Block is the znode in the place of a partition's claim, as [FindBlock] has found it.
type Block struct {
	Path       string     `json:"path"`
	Exists     bool       `json:"exists"`
	Persistent bool       `json:"persistent"`         // it stays until somebody deletes it
	Session    string     `json:"session,omitempty"`  // the session that it goes with, in hexadecimal digits; "" if it is persistent
	Owner      string     `json:"owner,omitempty"`    // whom its data names; "" if they can't be read
	Since      *time.Time `json:"since,omitempty"`    // when it was created, by the servers' clock
	Children   int32      `json:"children,omitempty"` // a znode with children can't be deleted

	version      int32  // the znode's
	epoch        string // the path of the partition's epoch or, if there are no epochs at all, of the znode above them
	hasEpoch     bool
	epochVersion int32 // as read before the znode was
}

// FindBlock reads, after a Sync, the znode in the place of a partition's claim. It writes nothing. The epoch is read first:
// whoever claims the partition after that writes the epoch, so that [Block.Delete] is refused.
func FindBlock(ctx context.Context, inc *session.Incarnation, group string, p kiel.Partition) (*Block, error) {
	if err := kiel.CheckGroup(group); err != nil {
		return nil, operr.New(pkg, "find claim", "", err)
	}
	paths := claims.NewPaths(session.Join("kiel", "groups", kiel.GroupZnode(group)))
	if err := paths.Check(p); err != nil {
		return nil, operr.New(pkg, "find claim", "", err)
	}
	b := &Block{Path: paths.Owner(p), epoch: paths.Epoch(p)}
	if err := b.find(ctx, inc, paths.Epochs); err != nil {
		return nil, operr.New(pkg, "find claim", p.String(), err)
	}
	return b, nil
}

func (b *Block) find(ctx context.Context, inc *session.Incarnation, epochs string) error {
	if err := inc.Sync(ctx, b.Path); err != nil {
		return err
	}
	exists, stat, err := inc.Exists(ctx, b.epoch)
	if err != nil {
		return err
	}
	b.hasEpoch, b.epochVersion = exists, stat.Version
	if !exists {
		if exists, _, err = inc.Exists(ctx, epochs); err != nil {
			return err
		}
		if !exists {
			b.epoch = epochs
		}
	}
	data, stat, err := inc.Get(ctx, b.Path)
	if errors.Is(err, session.ErrNoNode) {
		return nil
	}
	if err != nil {
		return err
	}
	b.Exists, b.Persistent, b.version, b.Children, b.Since = true, persistent(stat), stat.Version, stat.NumChildren, statuswrite.Millis(stat.Ctime)
	if !b.Persistent {
		b.Session = fmt.Sprintf("0x%x", uint64(stat.EphemeralOwner))
	}
	if r, err := claims.Decode(data); err == nil {
		b.Owner = statuswrite.Name(r.Owner)
	}
	return nil
}

// Delete deletes the znode if it is persistent, and nobody has claimed the partition since the Block was found. A claim writes
// the epoch in its transaction, and epochs stay. So the delete travels with a check of the epoch's version. If there was no
// epoch, it travels with the creation and the deletion of one, which the servers refuse if there is one by then. So a living
// claim is never deleted, however late the request arrives. No znode of the caller's is left: members might not be allowed to
// write it.
//
// Errors are ErrNotPersistent, ErrClaimed, session.ErrNotEmpty for a znode with children, and the session's. If the outcome is
// unknown (session.ErrUncertain), the znode may be deleted later; find out by FindBlock.
func (b *Block) Delete(ctx context.Context, inc *session.Incarnation) error {
	if !b.Exists || !b.Persistent {
		return operr.New(pkg, "delete", b.Path, ErrNotPersistent)
	}
	ops := []session.Op{session.CheckOp(b.epoch, b.epochVersion)}
	if !b.hasEpoch {
		ops = []session.Op{session.CreateOp(b.epoch, nil, session.Persistent), session.DeleteOp(b.epoch, 0)}
	}
	_, err := inc.Multi(ctx, append(ops, session.DeleteOp(b.Path, b.version))...)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, session.ErrUncertain):
	case errors.Is(err, session.ErrBadVersion), errors.Is(err, session.ErrNodeExists), errors.Is(err, session.ErrNoNode):
		err = operr.Because(ErrClaimed, err)
	}
	return operr.New(pkg, "delete", b.Path, err)
}
