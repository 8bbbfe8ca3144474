package consumer

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kielgo/kiel/consumer/internal/offsets"
	"github.com/kielgo/kiel/consumer/internal/reporting"
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
	former      []offsets.ID // the IDs that were read before under the same incarnation; the group's znode was created again since
}

// id returns the ID if it was read under inc, else zero. It does not block.
func (t *tree) id(inc *session.Incarnation) offsets.ID {
	if known := t.known.Load(); known != nil && known.incarnation == inc {
		return known.id
	}
	return offsets.ID{}
}

// had reports whether id is, or was, the ID under inc. A session is in one tree alone, so commits with a former ID were made in
// this tree.
func (t *tree) had(inc *session.Incarnation, id offsets.ID) bool {
	known := t.known.Load()
	return known != nil && known.incarnation == inc && (known.id == id || slices.Contains(known.former, id))
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
		return offsets.ID{}, failure("identify the group's znode", "", err)
	case !exists:
		return offsets.ID{}, failure("identify the group's znode", "", fmt.Errorf("%s does not exist", t.path))
	}
	id := offsets.TreeID(stat.Czxid, stat.Ctime)
	t.store(inc, id)
	return id, nil
}

// store makes id the ID under inc.
func (t *tree) store(inc *session.Incarnation, id offsets.ID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := &treeOf{incarnation: inc, id: id}
	if known := t.known.Load(); known != nil && known.incarnation == inc {
		now.former = known.former
		if known.id != id {
			now.former = append(slices.Clone(known.former), known.id)
		}
	}
	t.known.Store(now)
}

// place returns where commits under inc are made. It does not block.
func (m *membership) place(inc *session.Incarnation) offsets.Place {
	return offsets.Place{Tree: m.tree.id(inc), Cluster: m.hashed.of(m.clusterID())}
}

// clusterHash keeps the ID of the cluster, which each offset of each commit needs.
type clusterHash struct{ known atomic.Pointer[hashOf] }

// hashOf is the ID of the text that Kafka has for its cluster.
type hashOf struct {
	text string
	id   offsets.ID
}

// of returns the ID of a cluster.
func (c *clusterHash) of(text string) offsets.ID {
	known := c.known.Load()
	if known == nil || known.text != text {
		known = &hashOf{text, offsets.ClusterID(text)}
		c.known.Store(known)
	}
	return known.id
}

// learnTree makes the tree's ID known, within treeTimeout. Without it the partition is opened all the same, and its commits do
// not say where they were made.
func (m *membership) learnTree(ctx context.Context, inc *session.Incarnation) {
	if err := m.tree.learn(ctx, inc); err == nil {
		m.group.log.OK(reporting.KindTree, "")
	} else if !pause.OnlyEnd(ctx, err) {
		m.group.log.FailedWarn(reporting.KindTree, "", err)
	}
}

// audited takes what an audit has found. It does not block. If the tree's ID is not known, because its read failed when
// partitions were opened, it is read for the next audit.
func (m *membership) audited(found []offsets.Finding) {
	m.judging.Start(func() {
		if inc := m.group.zk.Current(); len(m.openings.list()) > 0 {
			m.learnTree(m.life, inc)
		}
		m.findings.Report(m.life, m.verified(m.life, found))
	})
}

// verified returns found without what says that another tree is used if this member's own ID of the tree has changed: somebody
// has deleted the group's znode, and it was created again. Later audits find offsets with an ID that this member had before: they
// are of this tree, and only a newer token is a finding.
func (m *membership) verified(ctx context.Context, found []offsets.Finding) []offsets.Finding {
	i := slices.IndexFunc(found, func(f offsets.Finding) bool { return f.Discord == offsets.OtherTree })
	inc := m.group.zk.Current()
	if i < 0 || inc == nil {
		return found
	}
	ctx, cancel := context.WithTimeout(ctx, treeTimeout)
	defer cancel()
	if id, err := m.tree.read(ctx, inc); err == nil && id != found[i].Place.Tree {
		return slices.DeleteFunc(found, func(f offsets.Finding) bool { return f.Discord == offsets.OtherTree })
	}
	return inOneTree(found, func(id offsets.ID) bool { return m.tree.had(inc, id) })
}

// inOneTree returns found with the offsets that have an ID of this tree compared by their tokens.
func inOneTree(found []offsets.Finding, had func(offsets.ID) bool) []offsets.Finding {
	var out []offsets.Finding
	for _, f := range found {
		if f.Discord == offsets.OtherTree && had(f.Stored.Place.Tree) {
			if f.Stored.Token <= f.Token {
				continue
			}
			f.Discord = offsets.NewerOwner
		}
		out = append(out, f)
	}
	return out
}
