package zktest

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Stats has a server's present figures, and its counters since NewServer.
type Stats struct {
	Requests    map[Op]int // the requests received, by operation; the parts of a multi are not counted
	Connections int        // open connections
	Sessions    int        // live sessions
	Watches     int        // watched paths of all connections; data and child watches are counted separately
	Znodes      int        // znodes of the tree
	Zxid        int64      // the last zxid

	SessionsCreated, SessionsExpired, SessionsReattached int // counters
}

// Stats returns the server's counters.
func (s *Server) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.stats
	st.Requests = maps.Clone(st.Requests)
	st.Connections, st.Sessions = len(s.conns), len(s.sessions)
	st.Watches = s.dataWatches.size() + s.childWatches.size()
	st.Znodes, st.Zxid = len(s.tree), s.zxid
	return st
}

// Get returns a znode's data and Stat. ok is false if there is no such znode.
func (s *Server) Get(path string) (data []byte, stat Stat, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.tree[path]
	if n == nil {
		return nil, Stat{}, false
	}
	return slices.Clone(n.data), n.statNow(), true
}

// Children returns the sorted names of a znode's children, or nil if there is no such znode.
func (s *Server) Children(path string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.tree[path]
	if n == nil {
		return nil
	}
	return slices.AppendSeq(make([]string, 0, len(n.children)), slices.Values(slices.Sorted(maps.Keys(n.children))))
}

// Create creates a persistent znode that is open to the world, and the parents that are missing. Create, Set and Delete act like
// an operator in another session: they take zxids, and watches fire. ACLs do not apply to them.
func (s *Server) Create(path string, data []byte) error {
	return s.operate(func(t *txn) Error {
		if !validPath(path) {
			return ErrBadArguments
		}
		for i, b := range path {
			if above := path[:i]; b == '/' && i > 0 && t.tree.get(above) == nil {
				if _, code := t.create(&Request{Op: OpCreate, Path: above, Data: []byte{}, ACL: openACL()}); code != 0 {
					return code
				}
			}
		}
		_, code := t.create(&Request{Op: OpCreate, Path: path, Data: slices.Clone(data), ACL: openACL()})
		return code
	})
}

// Set replaces a znode's data.
func (s *Server) Set(path string, data []byte) error {
	return s.operate(func(t *txn) Error {
		_, code := t.set(path, slices.Clone(data), -1)
		return code
	})
}

// Delete deletes a znode and all znodes below it, in one transaction.
func (s *Server) Delete(path string) error {
	return s.operate(func(t *txn) Error {
		below := path + "/"
		var paths []string
		for p := range t.tree {
			if strings.HasPrefix(p, below) {
				paths = append(paths, p)
			}
		}
		slices.SortFunc(paths, func(a, b string) int { return strings.Compare(b, a) }) // children first
		for _, p := range append(paths, path) {
			if _, code := t.delete(p, -1); code != 0 {
				return code
			}
		}
		return 0
	})
}

// SetCreates sets how many children a znode has had so far, which is the number of its next sequential child. As on a real server
// the number does not grow beyond 2147483647: all later sequential children get that one. (A real server gives -2147483648 to
// every other create while the create before is in progress; zktest never does.)
func (s *Server) SetCreates(path string, creates int32) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.tree.get(path)
	if n == nil {
		return ErrNoNode
	}
	if creates < 0 {
		return ErrBadArguments
	}
	n.creates = creates
	return nil
}

// operate runs an operator's transaction, or rolls it back if do returns an error.
func (s *Server) operate(do func(t *txn) Error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.begin(0, nil)
	if code := do(t); code != 0 {
		t.rollback()
		return code
	}
	s.commit(t)
	return nil
}

// Dump returns the tree as text, one line for each znode: path, data, and the owner of an ephemeral znode.
func (s *Server) Dump() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var b strings.Builder
	for _, path := range slices.Sorted(maps.Keys(s.tree)) {
		if path == "/" || strings.HasPrefix(path, "/zookeeper") {
			continue
		}
		n := s.tree[path]
		fmt.Fprintf(&b, "%s %q", path, n.data)
		if n.stat.EphemeralOwner != 0 {
			fmt.Fprintf(&b, " owner=%#x", n.stat.EphemeralOwner)
		}
		b.WriteByte('\n')
	}
	return b.String()
}
