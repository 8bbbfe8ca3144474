package lease

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/kielgo/kiel/internal/operr"
	"github.com/kielgo/kiel/session"
)

// MultiNonBlockingLease is a handle on several leases, its slots, of which a program wants one or all. Several goroutines may use
// it.
type MultiNonBlockingLease struct {
	path  string
	slots []*NonBlockingLease
}

// NewMulti returns a handle on count leases, at path/0, path/1 and so on. It checks its arguments and does no I/O.
func NewMulti(s *session.Session, path string, count int, opts Options) (*MultiNonBlockingLease, error) {
	if count < 1 {
		return nil, operr.New("lease", "", "", fmt.Errorf("argument count: %d is less than 1", count))
	}
	if err := session.CheckPath(path); err != nil {
		return nil, operr.New("lease", "", "", err)
	}
	m := &MultiNonBlockingLease{path: path}
	for n := range count {
		l, err := New(s, session.Join(path, strconv.Itoa(n)), opts)
		if err != nil {
			return nil, err
		}
		m.slots = append(m.slots, l)
	}
	return m, nil
}

// Len returns the number of slots.
func (m *MultiNonBlockingLease) Len() int { return len(m.slots) }

// Held reports whether this handle has a hold of a slot that may be relied on at this moment.
func (m *MultiNonBlockingLease) Held() bool {
	for _, l := range m.slots {
		if l.Held() {
			return true
		}
	}
	return false
}

// ObtainAny obtains the first slot that is free or held by this handle's identifier, as kazoo does. It renews a slot that this
// handle has, unless a lower one is free: then the handle has both, until the higher one ends. If all slots are taken, the error
// wraps ErrNotObtained.
func (m *MultiNonBlockingLease) ObtainAny(ctx context.Context) (*Held, error) {
	var taken []error
	for _, l := range m.slots {
		h, err := l.Obtain(ctx)
		if err == nil {
			return h, nil
		}
		if !errors.Is(err, ErrNotObtained) {
			return nil, err
		}
		taken = append(taken, err)
	}
	return nil, errors.Join(taken...)
}

// ObtainAll obtains all slots, in their order, or none: if one is taken, ObtainAll releases the slots that it has obtained, and
// the error wraps ErrNotObtained. Two processes that call it at the same time can both fail. After an error that wraps
// session.ErrUncertain, the slot of that error may stay taken, see [NonBlockingLease.Obtain].
func (m *MultiNonBlockingLease) ObtainAll(ctx context.Context) ([]*Held, error) {
	var all, fresh []*Held
	for _, l := range m.slots {
		had := l.current()
		h, err := l.Obtain(ctx)
		if err != nil {
			errs := []error{err}
			for _, f := range fresh {
				errs = append(errs, f.Release(ctx)) // the removal goes on in the background if ctx has ended
			}
			return nil, errors.Join(errs...)
		}
		all = append(all, h)
		if h != had {
			fresh = append(fresh, h)
		}
	}
	return all, nil
}

// Slot describes a slot and its holder.
type Slot struct {
	Path   string // the slot's path
	Record Record // the holder's record, empty if there is none
	Taken  bool   // the record blocks other identifiers at this moment, by the handle's clock
}

// Slots returns all slots in their order. It creates nothing.
func (m *MultiNonBlockingLease) Slots(ctx context.Context) ([]Slot, error) {
	list := make([]Slot, 0, len(m.slots))
	for _, l := range m.slots {
		r, taken, err := l.Holder(ctx)
		if err != nil {
			return nil, err
		}
		list = append(list, Slot{Path: l.path, Record: r, Taken: taken})
	}
	return list, nil
}
