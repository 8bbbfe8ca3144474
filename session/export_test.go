package session

import (
	"time"

	"github.com/go-zookeeper/zk"
)

// SetClock replaces a Session's clock, before Run.
func SetClock(s *Session, now func() (mono, wall time.Duration)) {
	s.now = func() instant {
		mono, wall := now()
		return instant{mono: mono, wall: wall}
	}
}

// Raw returns the go-zookeeper client under an incarnation.
func Raw(i *Incarnation) *zk.Conn { return i.c.zk }

// EphemeralBytes returns how many bytes the paths of the session's ephemeral znodes take, and how many they may take.
func EphemeralBytes(i *Incarnation) (used, budget int) {
	return i.c.ephemerals.bytes(), i.c.ephemerals.budget
}

// Waits returns how many watches somebody waits on.
func Waits(i *Incarnation) int { return i.c.watches.size() }

// Sets returns how many DataWatches there are.
func Sets(i *Incarnation) int {
	i.c.watches.mu.Lock()
	defer i.c.watches.mu.Unlock()
	return len(i.c.watches.sets)
}

// ServerError maps an error of go-zookeeper.
func ServerError(err error) error { return serverError(err) }
