package queue

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/kielgo/kiel/session"
)

const (
	// oddPause is between two looks at the entries that can't be taken off the queue.
	oddPause = 10 * time.Second

	// maxOdd is how many such entries a handle remembers.
	maxOdd = 1000
)

// errOdd says that an entry can't be taken off the queue.
var errOdd = errors.New("queue: entry has children")

// oddities are entries that can't be taken off the queue: they were warned about, and are skipped until it is time to look at
// them again.
type oddities struct {
	mu    sync.Mutex
	paths map[string]bool // "" says that there was no room for more
	again time.Time       // when to look at them again
}

// pass is to be called before entries are passed: it forgets the odd ones if it is time to look at them again.
func (o *oddities) pass() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if now := time.Now(); !now.Before(o.again) {
		o.paths, o.again = make(map[string]bool), now.Add(oddPause)
	}
}

// known reports whether an entry was found to be odd a short while ago.
func (o *oddities) known(path string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.paths[path]
}

// add remembers an entry, if there is room. It reports whether that, or that there is none, is news.
func (o *oddities) add(path string) (room, news bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if room = len(o.paths) < maxOdd; !room {
		path = ""
	}
	news = !o.paths[path]
	o.paths[path] = true
	return room, news
}

// later tells when to look again at so many odd entries that were just passed: no watch tells when their children go.
func (o *oddities) later(entries int) (<-chan time.Time, func()) {
	if entries == 0 {
		return nil, func() {}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	timer := time.NewTimer(time.Until(o.again))
	return timer.C, func() { timer.Stop() }
}

// isOdd reports whether an entry that was read has children: ZooKeeper does not delete it.
func (d *directory) isOdd(ctx context.Context, path string, stat session.Stat) bool {
	if stat.NumChildren == 0 {
		return false
	}
	switch room, news := d.odd.add(path); {
	case !news:
	case room:
		d.log.WarnContext(ctx, "entry has children and is left alone", "path", path)
	default:
		d.log.WarnContext(ctx, "more entries have children than are told of", "path", path, "told", maxOdd)
	}
	return true
}
