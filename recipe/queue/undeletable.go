package queue

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/kielgo/kiel/session"
)

const (
	// undeletablePause is the time for which a handle skips the entries that can't be deleted.
	undeletablePause = 10 * time.Second

	// maxUndeletable is how many such entries a handle remembers.
	maxUndeletable = 1000
)

// errUndeletable says that an entry can't be deleted, because it has children.
var errUndeletable = errors.New("entry has children")

// undeletable remembers the entries that can't be deleted. A warning was logged for each; until again they are skipped.
type undeletable struct {
	mu    sync.Mutex
	paths map[string]bool // paths of the entries; "" when there were more than maxUndeletable
	again time.Time       // when the handle reads these entries again
}

// refresh forgets the entries if it is time to read them again. A Get calls it before it goes through its list.
func (u *undeletable) refresh() {
	u.mu.Lock()
	defer u.mu.Unlock()
	if now := time.Now(); !now.Before(u.again) {
		u.paths, u.again = make(map[string]bool), now.Add(undeletablePause)
	}
}

// has reports whether the entry at path is remembered.
func (u *undeletable) has(path string) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.paths[path]
}

// add remembers the entry at path if there is room. It reports whether there is room, and whether that is news.
func (u *undeletable) add(path string) (room, news bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if room = len(u.paths) < maxUndeletable; !room {
		path = ""
	}
	news = !u.paths[path]
	u.paths[path] = true
	return room, news
}

// timer returns when to read the skipped entries again, nil if there are none. No watch fires when their children go.
func (u *undeletable) timer(skipped int) (<-chan time.Time, func()) {
	if skipped == 0 {
		return nil, func() {}
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	timer := time.NewTimer(time.Until(u.again))
	return timer.C, func() { timer.Stop() }
}

// isUndeletable reports whether an entry that was read has children: ZooKeeper does not delete it then.
func (d *directory) isUndeletable(ctx context.Context, path string, stat session.Stat) bool {
	if stat.NumChildren == 0 {
		return false
	}
	switch room, news := d.undeletable.add(path); {
	case !news:
	case room:
		d.log.WarnContext(ctx, "skipping an entry that has children", "path", path)
	default:
		d.log.WarnContext(ctx, "too many entries have children, no warning for the others", "path", path, "warned", maxUndeletable)
	}
	return true
}
