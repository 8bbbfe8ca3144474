package errlog

import (
	"log/slog"
	"time"
)

// postpone keeps an error that is not logged now, unless one of a higher level is kept. l.mu is held.
func (l *Log) postpone(k *kind, level slog.Level, about, text string) {
	switch {
	case k.postponed == nil:
		l.failing.Add(1)
	case k.postponed.level > level:
		return
	}
	k.postponed = &postponed{level: level, about: about, text: text}
}

// release drops the error that was postponed, if any. l.mu is held.
func (l *Log) release(k *kind) {
	if k.postponed != nil {
		k.postponed = nil
		l.failing.Add(-1)
	}
}

// late is a line that was postponed.
type late struct {
	kind string
	postponed
	*line
}

// catchUp logs errors that were postponed: those of an Interval that is over, or all.
func (l *Log) catchUp(all bool) {
	if !l.Failing() {
		return
	}
	for _, late := range l.postponed(all) {
		l.write(late.level, late.kind, late.about, late.text, late.line, nil, nil)
		if late.end != nil {
			l.recovered(late.kind, late.end)
		}
	}
}

// postponed returns the lines that catchUp writes.
func (l *Log) postponed(all bool) (lines []late) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	for name, k := range l.kinds {
		if k.postponed == nil || !all && !k.windowOver(now) {
			continue
		}
		one := *k.postponed
		if len(k.abouts) > 0 {
			one.end = nil // it fails again, which no line has reported, either
		}
		l.release(k)
		if k.windowOver(now) {
			k.window, k.starts, k.highest = now, 0, one.level
		}
		k.starts++
		lines = append(lines, late{name, one, k.line(now, one.level, false)})
		k.logged = one.end == nil
	}
	return lines
}
