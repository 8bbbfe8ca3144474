package history_test

import (
	"fmt"
	"slices"

	"github.com/anishathalye/porcupine"
)

// The model of locks, elections and semaphores: who has a valid hold. A hold is valid from the moment at which it was acquired
// until its context ends; that another waits until its owner has let go of it is not asked for here.

// acquire is an Acquire that returned a hold.
type acquire struct {
	hold   int
	token  int64
	shared bool // beside others: a reader's, or a lease of a semaphore
}

// use is a hold that says that it is valid.
type use struct{ hold int }

// finish is the end of a hold, whatever ended it.
type finish struct{ hold int }

func (a acquire) String() string {
	return fmt.Sprintf("acquire%s → hold %d, token %d", map[bool]string{true: " shared"}[a.shared], a.hold, a.token)
}
func (u use) String() string    { return fmt.Sprintf("hold %d is valid", u.hold) }
func (f finish) String() string { return fmt.Sprintf("hold %d ends", f.hold) }

// room is for how many holds a state has room.
const room = 8

// holders is a state: who has a hold.
type holders struct {
	held   [room]int // in their order, then zeros
	shared bool      // those that are held are
	token  int64     // the largest
	alone  int64     // the largest of one that was not shared
}

func (s holders) count() int {
	if n := slices.Index(s.held[:], 0); n >= 0 {
		return n
	}
	return room
}

// acquire tells whether one more may be held. Tokens grow; only readers may get theirs in another order among themselves.
func (s holders) acquire(a acquire, most int, ordered bool) (bool, holders) {
	n := s.count()
	switch {
	case n > 0 && (!a.shared || !s.shared):
		return false, s
	case n >= min(most, room):
		return false, s
	case a.token <= s.alone, a.token <= s.token && (ordered || !a.shared):
		return false, s
	}
	s.held[n], s.shared, s.token = a.hold, a.shared, max(s.token, a.token)
	if !a.shared {
		s.alone = a.token
	}
	slices.Sort(s.held[:n+1])
	return true, s
}

func (s holders) end(hold int) (bool, holders) {
	i := slices.Index(s.held[:], hold)
	if i < 0 {
		return false, s
	}
	copy(s.held[i:], s.held[i+1:])
	s.held[room-1] = 0
	return true, s
}

// holdsModel is of what at most so many hold at a time, or one alone. ordered says that tokens grow among those that share it,
// too.
func holdsModel(most int, ordered bool) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return holders{} },
		Step: func(state, in, _ any) (bool, any) {
			s := state.(holders)
			switch in := in.(type) {
			case acquire:
				return both(s.acquire(in, most, ordered))
			case use:
				return slices.Contains(s.held[:], in.hold), s
			case finish:
				return both(s.end(in.hold))
			}
			return false, s
		},
		DescribeOperation: describe,
		DescribeState: func(state any) string {
			s := state.(holders)
			return fmt.Sprintf("held: %v, token %d", s.held[:s.count()], s.token)
		},
	}
}

func both[S any](ok bool, s S) (bool, any) { return ok, s }

func describe(in, _ any) string { return fmt.Sprint(in) }
