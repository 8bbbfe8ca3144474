package queue

import (
	"context"
	"errors"
	"maps"
	"sync"
	"time"

	"github.com/kielgo/kiel/session"
)

const (
	// oddPause is between two looks at an entry that can't be taken off the queue.
	oddPause = 10 * time.Second

	// maxOdd is how many such entries a handle remembers.
	maxOdd = 1000
)

// errOdd says that an entry can't be taken off the queue.
var errOdd = errors.New("queue: entry has children")

// oddities remembers entries that can't be taken off the queue: until it is time to look at one again, it is neither
// read nor warned about.
type oddities struct {
	mu    sync.Mutex
	until map[string]time.Time // by path; under "" those for which there is no room
}

// known reports whether an entry was found to be odd a short while ago.
func (o *oddities) known(path string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return time.Now().Before(o.until[path])
}

// add remembers an entry. It reports whether that is news; for those that it has no room for, it is once in a while.
func (o *oddities) add(path string) (room, news bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	now := time.Now()
	if len(o.until) >= maxOdd {
		o.forget(now)
	}
	if room = len(o.until) < maxOdd; !room {
		path = ""
	}
	news = !now.Before(o.until[path])
	if o.until == nil {
		o.until = make(map[string]time.Time)
	}
	if news {
		o.until[path] = now.Add(oddPause)
	}
	return room, news
}

// forget drops what is to be looked at again. It needs mu.
func (o *oddities) forget(now time.Time) {
	maps.DeleteFunc(o.until, func(_ string, until time.Time) bool { return !now.Before(until) })
}

// later tells when to look again at so many odd entries that were just passed: no watch tells when their children go.
func (o *oddities) later(entries int) (<-chan time.Time, func()) {
	if entries == 0 {
		return nil, func() {}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	now := time.Now()
	o.forget(now)
	pause := oddPause
	for _, until := range o.until {
		pause = min(pause, until.Sub(now))
	}
	timer := time.NewTimer(pause)
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
