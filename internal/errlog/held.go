package errlog

import (
	"log/slog"
	"time"
)

// hold keeps an error that is not logged now, unless one of a higher level is kept. l.mu is held.
func (l *Log) hold(k *kind, level slog.Level, about, text string) {
	switch {
	case k.held == nil:
		l.failing.Add(1)
	case k.held.level > level:
		return
	}
	k.held = &heldBack{level: level, about: about, text: text}
}

// release drops the error that was held back, if any. l.mu is held.
func (l *Log) release(k *kind) {
	if k.held != nil {
		k.held = nil
		l.failing.Add(-1)
	}
}

// late is a line that was held back.
type late struct {
	kind string
	heldBack
	*line
}

// catchUp logs errors that were held back: those of an Interval that is over, or all.
func (l *Log) catchUp(all bool) {
	if !l.Failing() {
		return
	}
	for _, late := range l.heldBack(all) {
		l.write(late.level, late.kind, late.about, late.text, late.line, nil, nil)
		if late.end != nil {
			l.recovered(late.kind, late.end)
		}
	}
}

// heldBack returns the lines that catchUp writes.
func (l *Log) heldBack(all bool) (lines []late) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	for name, k := range l.kinds {
		if k.held == nil || !all && !k.windowOver(now) {
			continue
		}
		held := *k.held
		if len(k.abouts) > 0 {
			held.end = nil // it fails again, which no line has reported, either
		}
		l.release(k)
		if k.windowOver(now) {
			k.window, k.starts, k.highest = now, 0, held.level
		}
		k.starts++
		lines = append(lines, late{name, held, k.line(now, held.level, false)})
		k.logged = held.end == nil
	}
	return lines
}
