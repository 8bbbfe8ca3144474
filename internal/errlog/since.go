package errlog

import "time"

// Began notes that a kind has failed since a moment before its first error. While nothing of the kind fails, it does nothing.
func (l *Log) Began(kind string, since time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if k := l.kinds[kind]; k != nil && len(k.abouts) > 0 && since.Before(k.since) {
		k.since = since
	}
}
