package queue

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"

	"github.com/kielgo/kiel/internal/seqnode"
	"github.com/kielgo/kiel/session"
)

// cheaperThanList is how many entries a list sends in the time of one round trip, roughly.
const cheaperThanList = 64

// listing is what a handle knows of a directory's entries from one list. It lacks none that exists as long as nothing was created
// in the directory since the list: see serves. Several goroutines may use it.
type listing struct {
	history uint64 // Incarnation.History of the list
	dir     int64  // czxid of the directory
	creates uint32 // how many children were ever created in the directory
	foreign int    // how many children are no entries

	mu    sync.Mutex
	names []string // sorted, without those that are known to be gone
}

// creates returns how many children were ever created in a directory: the next sequence number. Servers show 2*n - NumChildren as
// cversion, in 32 bits.
func creates(stat session.Stat) uint32 { return (uint32(stat.Cversion) + uint32(stat.NumChildren)) / 2 }

// newListing returns the entries among the children of a directory, which are sorted.
func newListing(inc *session.Incarnation, stat session.Stat, children []string) *listing {
	entries := make([]string, 0, len(children))
	for _, name := range children {
		if strings.HasPrefix(name, prefix) {
			entries = append(entries, name)
		}
	}
	return &listing{
		history: inc.History(), dir: stat.Czxid, creates: creates(stat), foreign: len(children) - len(entries), names: entries,
	}
}

// serves reports whether the listing may be used instead of a new list, given what a server has just said of the directory: it
// lacks no entry, and those of its entries that others have taken are so few that reading them costs less than a list. When the
// sequence numbers come to their end, the number of creates stands still, so it says nothing.
func (l *listing) serves(inc *session.Incarnation, stat session.Stat) bool {
	if l.history != inc.History() || l.dir != stat.Czxid || l.creates != creates(stat) || l.creates >= seqnode.FirstRefused {
		return false
	}
	taken := l.len() + l.foreign - int(stat.NumChildren)
	return taken <= 1+int(stat.NumChildren)/cheaperThanList
}

// len returns how many names there are.
func (l *listing) len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.names)
}

// after returns the first name after the given one, and false if there is none.
func (l *listing) after(name string) (string, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	i, found := slices.BinarySearch(l.names, name)
	if found {
		i++
	}
	if i == len(l.names) {
		return "", false
	}
	return l.names[i], true
}

// drop takes a name out whose entry is gone.
func (l *listing) drop(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	i, found := slices.BinarySearch(l.names, name)
	if !found {
		return
	}
	copy(l.names[1:i+1], l.names[:i]) // names are taken from the front, so few are moved
	l.names[0] = ""
	l.names = l.names[1:]
}

// known returns the newest listing if it serves, and nil otherwise.
func (d *directory) known(ctx context.Context, inc *session.Incarnation) (*listing, error) {
	l := d.newest.Load()
	if l == nil || l.len() == 0 {
		return nil, nil
	}
	exists, stat, err := inc.Exists(ctx, d.entries)
	if err != nil || !exists || !l.serves(inc, stat) {
		return nil, err
	}
	return l, nil
}

// listed returns the entries, and a watch on their directory if they were listed just now: the watch is nil if the newest listing
// serves.
func (d *directory) listed(ctx context.Context, inc *session.Incarnation) (*listing, *session.Watch, error) {
	if l, err := d.known(ctx, inc); l != nil || err != nil {
		return l, nil, err
	}
	names, stat, watch, err := d.children(ctx, inc, d.entries)
	if err != nil {
		return nil, nil, err
	}
	l := newListing(inc, stat, names)
	d.newest.Store(l)
	return l, watch, nil
}

// forget has the next call of listed list the entries, unless another goroutine has listed them meanwhile.
func (d *directory) forget(l *listing) { d.newest.CompareAndSwap(l, nil) }

// gone takes an entry out of the newest listing.
func (d *directory) gone(name string) {
	if l := d.newest.Load(); l != nil {
		l.drop(name)
	}
}

// children returns the names in the directory at path, sorted, its metadata, and a watch on it. It creates the directory when
// that is missing.
func (d *directory) children(ctx context.Context, inc *session.Incarnation, path string) ([]string, session.Stat, *session.Watch, error) {
	for {
		names, stat, watch, err := inc.ChildrenW(ctx, path)
		if !errors.Is(err, session.ErrNoNode) {
			return names, stat, watch, err
		}
		if err := d.ensure(ctx, inc, path); err != nil {
			return nil, session.Stat{}, nil, err
		}
	}
}
