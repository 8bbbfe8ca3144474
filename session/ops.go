package session

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/go-zookeeper/zk"

	"github.com/kielgo/kiel/internal/operr"
)

// Mode is the kind of a znode to be created.
type Mode int32

// The modes, by ZooKeeper's numbers.
const (
	Persistent           Mode = zk.FlagPersistent
	Ephemeral            Mode = zk.FlagEphemeral
	PersistentSequential Mode = zk.FlagSequence
	EphemeralSequential  Mode = zk.FlagEphemeralSequential
)

func (m Mode) ephemeral() bool  { return m == Ephemeral || m == EphemeralSequential }
func (m Mode) sequential() bool { return m == PersistentSequential || m == EphemeralSequential }

// Reads and Sync are repeated until they are answered, ctx ends, or the ZooKeeper session ends. Writes are repeated only while
// surely nothing was done.

// watching is the kind of watch that a read asks for.
type watching int

const (
	unwatched watching = iota
	timed              // wakes within the session timeout
	lasting            // does not wake because time has passed
)

// Get returns a znode's data and metadata.
func (i *Incarnation) Get(ctx context.Context, path string) ([]byte, Stat, error) {
	data, stat, _, err := i.get(ctx, path, unwatched)
	return data, stat, err
}

// GetW is Get with a watch for changes of the data and for the znode's deletion.
func (i *Incarnation) GetW(ctx context.Context, path string) ([]byte, Stat, *Watch, error) {
	return i.get(ctx, path, timed)
}

func (i *Incarnation) get(ctx context.Context, path string, watch watching) ([]byte, Stat, *Watch, error) {
	type reply struct {
		data []byte
		stat *Stat
	}
	r, w, err := read(ctx, i, "get", opGetData, path, watch, func(conn *zk.Conn, full string) (reply, error) {
		data, stat, err := conn.Get(full)
		return reply{data, stat}, err
	})
	if err != nil {
		return nil, Stat{}, nil, err
	}
	return r.data, *r.stat, w, nil
}

// Children returns the names of a znode's children, sorted bytewise, and its metadata.
func (i *Incarnation) Children(ctx context.Context, path string) ([]string, Stat, error) {
	names, stat, _, err := i.children(ctx, path, unwatched)
	return names, stat, err
}

// ChildrenW is Children with a watch for children that come and go, and for the znode's own deletion.
func (i *Incarnation) ChildrenW(ctx context.Context, path string) ([]string, Stat, *Watch, error) {
	return i.children(ctx, path, timed)
}

// ChildrenLasting is ChildrenW with a watch that does not wake because time has passed. Because a watch may get lost, its user
// must check the znode by a timer, at least once per session timeout, but need not list the children again while the znode's
// metadata show that they are the same.
func (i *Incarnation) ChildrenLasting(ctx context.Context, path string) ([]string, Stat, *Watch, error) {
	return i.children(ctx, path, lasting)
}

func (i *Incarnation) children(ctx context.Context, path string, watch watching) ([]string, Stat, *Watch, error) {
	type reply struct {
		names []string
		stat  *Stat
	}
	r, w, err := read(ctx, i, "children of", opChildren2, path, watch, func(conn *zk.Conn, full string) (reply, error) {
		names, stat, err := conn.Children(full)
		return reply{names, stat}, err
	})
	if err != nil {
		return nil, Stat{}, nil, err
	}
	slices.Sort(r.names)
	return r.names, *r.stat, w, nil
}

// Exists reports whether the znode exists, and returns its metadata.
func (i *Incarnation) Exists(ctx context.Context, path string) (bool, Stat, error) {
	found, stat, _, err := i.exists(ctx, path, unwatched)
	return found, stat, err
}

// ExistsW is Exists with a watch for the znode's creation, deletion, and changes of its data.
func (i *Incarnation) ExistsW(ctx context.Context, path string) (bool, Stat, *Watch, error) {
	return i.exists(ctx, path, timed)
}

func (i *Incarnation) exists(ctx context.Context, path string, watch watching) (bool, Stat, *Watch, error) {
	type reply struct {
		found bool
		stat  *Stat
	}
	r, w, err := read(ctx, i, "exists", opExists, path, watch, func(conn *zk.Conn, full string) (reply, error) {
		found, stat, err := conn.Exists(full)
		return reply{found, stat}, err
	})
	switch {
	case err != nil:
		return false, Stat{}, nil, err
	case !r.found:
		i.c.ephemerals.gone(i.c.full(path))
		return false, Stat{}, w, nil
	}
	return true, *r.stat, w, nil
}

// read sends the read f, with a watch or without, and adds name and path to its error.
func read[T any](ctx context.Context, i *Incarnation, name string, op int32, path string, watch watching,
	f func(conn *zk.Conn, full string) (T, error),
) (T, *Watch, error) {
	var none T
	if err := checkPath(path); err != nil {
		return none, nil, failure(name, path, err)
	}
	full := i.c.full(path)
	var w *Watch
	if watch != unwatched {
		w = i.join(watchKey{op: op, path: full, lasting: watch == lasting})
	}
	value, err := call(ctx, i.c, nil, func(conn *zk.Conn) (T, error) { return f(conn, full) })
	if err != nil {
		if w != nil {
			w.Stop()
		}
		i.missing(full, err)
		if errors.Is(err, ErrAnswerTooLarge) {
			err = fmt.Errorf("%w, but Options.MaxAnswer is %d (whatever jute.maxbuffer the servers have)", err, i.c.opts.MaxAnswer)
		}
		return none, nil, failure(name, path, err)
	}
	return value, w, nil
}

// join returns a Watch that also wakes when this incarnation ends.
func (i *Incarnation) join(key watchKey) *Watch {
	w := i.c.watches.join(key, i.Timeout())
	if i.ctx.Err() == nil {
		return w // the end of the incarnation wakes all watches of the client
	}
	w.Stop()
	closed := make(chan struct{})
	close(closed)
	return &Watch{hub: &i.c.watches, wait: &wait{key: key, c: closed}}
}

// missing records that a path has no znode, if err says so: the path may be that of an ephemeral znode of ours.
func (i *Incarnation) missing(full string, err error) {
	if errors.Is(err, ErrNoNode) {
		i.c.ephemerals.gone(full)
	}
}

// GetACL returns a znode's access control list and metadata.
func (i *Incarnation) GetACL(ctx context.Context, path string) ([]ACL, Stat, error) {
	type reply struct {
		acl  []ACL
		stat *Stat
	}
	r, _, err := read(ctx, i, "acl of", opGetACL, path, unwatched, func(conn *zk.Conn, full string) (reply, error) {
		acl, stat, err := conn.GetACL(full)
		return reply{acl, stat}, err
	})
	if err != nil {
		return nil, Stat{}, err
	}
	return r.acl, *r.stat, nil
}

// Sync makes the server that we are connected to catch up with the leader, so that the next read shows everything that was
// written before Sync was called. It proves nothing about the session: a leader that was deposed, and does not know that yet,
// answers it too.
func (i *Incarnation) Sync(ctx context.Context, path string) error {
	_, _, err := read(ctx, i, "sync", opSync, path, unwatched, func(conn *zk.Conn, full string) (string, error) {
		return conn.Sync(full)
	})
	return err
}

// Create creates a znode with Options.ACL and returns its path, which for a sequential znode ends with a number. The parent must
// exist. nil data is stored as empty data.
func (i *Incarnation) Create(ctx context.Context, path string, data []byte, mode Mode) (string, error) {
	op := CreateOp(path, data, mode)
	results, err := i.write(ctx, "create", []Op{op}, func(conn *zk.Conn) ([]OpResult, error) {
		created, err := conn.Create(i.c.full(path), stored(data), int32(mode), i.c.opts.ACL)
		return []OpResult{{Path: created}}, err
	})
	if err != nil {
		return "", err
	}
	return results[0].Path, nil
}

// Set writes a znode's data if the znode has that version; -1 means any version. It returns the new metadata. nil data is stored
// as empty data.
func (i *Incarnation) Set(ctx context.Context, path string, data []byte, version int32) (Stat, error) {
	op := SetOp(path, data, version)
	results, err := i.write(ctx, "set", []Op{op}, func(conn *zk.Conn) ([]OpResult, error) {
		stat, err := conn.Set(i.c.full(path), stored(data), version)
		if err != nil {
			return nil, err
		}
		return []OpResult{{Stat: *stat}}, nil
	})
	if err != nil {
		return Stat{}, err
	}
	return results[0].Stat, nil
}

// Delete deletes a znode if it has that version; -1 means any version.
func (i *Incarnation) Delete(ctx context.Context, path string, version int32) error {
	_, err := i.write(ctx, "delete", []Op{DeleteOp(path, version)}, func(conn *zk.Conn) ([]OpResult, error) {
		return []OpResult{{}}, conn.Delete(i.c.full(path), version)
	})
	return err
}

// EnsurePath creates path and its parents, as far as they are missing, as persistent znodes with empty data.
func (i *Incarnation) EnsurePath(ctx context.Context, path string) error {
	if err := checkPath(path); err != nil {
		return failure("ensure", path, err)
	}
	// Somebody may delete a parent meanwhile; that is tried again, but not for ever.
	const tries = 5
	var err error
	for range tries {
		if err = i.ensure(ctx, path); !errors.Is(err, ErrNoNode) && (!errors.Is(err, ErrUncertain) || ctx.Err() != nil) {
			return err
		}
	}
	return err
}

// ensure creates path and its parents, once.
func (i *Incarnation) ensure(ctx context.Context, path string) error {
	found, _, err := i.Exists(ctx, path)
	if err != nil || found || path == "/" {
		return err
	}
	parent := "/"
	if at := strings.LastIndexByte(path, '/'); at > 0 {
		parent = path[:at]
	}
	if err := i.ensure(ctx, parent); err != nil {
		return err
	}
	if _, err := i.Create(ctx, path, nil, Persistent); !errors.Is(err, ErrNodeExists) {
		return err
	}
	return nil
}

// EphemeralBudget returns how many bytes the paths of one ZooKeeper session's ephemeral znodes may take: Options.EphemeralBudget.
func (s *Session) EphemeralBudget() int { return s.opts.EphemeralBudget }

// EphemeralSize returns how many bytes of the budget an ephemeral znode that is created with path and mode takes at most.
func (s *Session) EphemeralSize(path string, mode Mode) int {
	return ephemeral{path: fullPath(s.opts.Chroot, path), sequential: mode.sequential()}.cost()
}

// MaxPacket returns the size of the largest request that is sent, in bytes: Options.MaxPacket.
func (i *Incarnation) MaxPacket() int { return i.c.opts.MaxPacket }

// failure returns the error of an operation on a path. A path that is not valid is quoted.
func failure(op, path string, err error) error {
	if fault(path) != "" {
		path = quote(path)
	}
	return operr.New(pkg, op, path, err)
}
