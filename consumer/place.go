package consumer

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kielgo/kiel/consumer/internal/offsets"
	"github.com/kielgo/kiel/internal/pause"
	"github.com/kielgo/kiel/session"
)

// treeTimeout bounds the read of the group's znode, for which partitions that are being opened wait.
const treeTimeout = 2 * time.Second

// tree knows the ID of the ZooKeeper tree that the group is in. Its zero value reads nothing.
type tree struct {
	path string // of the group's znode

	known atomic.Pointer[treeOf]

	mu      sync.Mutex
	reading chan struct{} // closed when the read in flight has ended; nil when there is none
}

// treeOf is the ID of a tree, as read under an incarnation.
type treeOf struct {
	incarnation *session.Incarnation
	id          offsets.ID
}

// id returns the ID if it was read under inc, else zero. It does not block.
func (t *tree) id(inc *session.Incarnation) offsets.ID {
	if known := t.known.Load(); known != nil && known.incarnation == inc {
		return known.id
	}
	return offsets.ID{}
}

// learn reads the group's znode under inc, unless that was done before. Callers at the same time share a read.
func (t *tree) learn(ctx context.Context, inc *session.Incarnation) error {
	if inc == nil || t.path == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, treeTimeout)
	defer cancel()
	for t.id(inc) == (offsets.ID{}) {
		t.mu.Lock()
		reading := t.reading
		if reading == nil {
			t.reading = make(chan struct{})
			t.mu.Unlock()
			defer t.readEnds()
			_, err := t.read(ctx, inc)
			return err
		}
		t.mu.Unlock()
		select {
		case <-reading:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// readEnds ends the read in flight.
func (t *tree) readEnds() {
	t.mu.Lock()
	defer t.mu.Unlock()
	close(t.reading)
	t.reading = nil
}

// read reads the group's znode, and stores and returns the ID. If it can't be read, the ID stays what it was.
func (t *tree) read(ctx context.Context, inc *session.Incarnation) (offsets.ID, error) {
	exists, stat, err := inc.Exists(ctx, t.path)
	switch {
	case err != nil:
		return offsets.ID{}, fmt.Errorf("consumer: identify the group's znode: %w", err)
	case !exists:
		return offsets.ID{}, fmt.Errorf("consumer: identify the group's znode: %s does not exist", t.path)
	}
	id := offsets.TreeID(stat.Czxid, stat.Ctime)
	t.known.Store(&treeOf{inc, id})
	return id, nil
}

// place returns where commits under inc are made. It does not block.
func (m *membership) place(inc *session.Incarnation) offsets.Place {
	return offsets.Place{Tree: m.tree.id(inc), Cluster: offsets.ClusterID(m.clusterID())}
}

// learnTree makes the tree's ID known, within treeTimeout. Without it the partition is opened all the same, and its commits do
// not say where they were made.
func (m *membership) learnTree(ctx context.Context, inc *session.Incarnation) {
	if err := m.tree.learn(ctx, inc); err == nil {
		m.group.log.OK(kindTree, "")
	} else if !pause.OnlyEnd(ctx, err) {
		m.group.log.FailedWarn(kindTree, "", err)
	}
}
