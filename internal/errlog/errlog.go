package errlog

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/kielgo/kiel/status"
)

// Limits of a Log.
const (
	Interval  = 10 * time.Second // the least time between two lines about errors of one kind that goes on failing
	MaxAbouts = 1024             // how many abouts a kind keeps; errors of further ones are logged and counted, but not their recovery
	MaxPast   = 16               // how many troubles that are over are listed
	maxStarts = 4                // how many lines in one Interval a kind has that fails and recovers again and again
	maxText   = 500              // bytes of an error's text
	maxAbout  = 256              // bytes of an about
	maxStack  = 8192             // bytes of a stack, from its beginning, which says where the error was
)

// Log logs errors by kinds. Kinds are words fixed in the code, because a Log keeps each for ever. Any goroutine may call all
// methods; they wait for nothing but the Logger.
type Log struct {
	log     *slog.Logger
	failing atomic.Int32 // the number of kinds that fail now, and of those with a line that was postponed

	mu    sync.Mutex
	kinds map[string]*kind
	past  []status.Trouble // the troubles that are over, the newest last; at most MaxPast

	cause   string // a kind from which effects follow; "" for none
	effects []string
}

// kind is the state of one kind of errors.
type kind struct {
	abouts map[string]struct{} // what fails now; empty if nothing does
	level  slog.Level          // the highest level that was logged since the kind began to fail
	since  time.Time           // the first error since then
	count  uint64              // the number of errors since then
	last   string              // the text of the newest error
	logged bool                // whether a line has reported that the kind fails

	lastLine time.Time // the time of the last line about errors; kept over recoveries
	unlogged uint64    // the number of errors since lastLine
	window   time.Time // the start of the Interval in which starts are counted
	starts   int       // how many lines in that Interval reported that the kind fails anew
	traced   time.Time // when the newest line with a stack was written

	highest   slog.Level // the highest level of the lines in that Interval
	postponed *postponed // an error of a start that no line has reported; nil for none
}

// postponed is an error that no line has reported, because there were maxStarts in the Interval.
type postponed struct {
	level       slog.Level
	about, text string
	end         *ending // the recovery of the kind since then; nil if it still fails
}

// New returns a Log that writes to log, which must not be nil.
func New(log *slog.Logger) *Log {
	return &Log{log: log, kinds: make(map[string]*kind)}
}

// Failed notes an error of this kind, and logs it at level Error unless another line of the kind has just been written. about
// names what failed, such as a partition; "" is the kind itself. A line that this call writes has the attributes args.
func (l *Log) Failed(kind, about string, err error, args ...any) {
	l.failed(slog.LevelError, kind, about, err, args, nil)
}

// FailedWarn is Failed with level Warn.
func (l *Log) FailedWarn(kind, about string, err error, args ...any) {
	l.failed(slog.LevelWarn, kind, about, err, args, nil)
}

// FailedInfo is Failed with level Info, for errors that may be intended.
func (l *Log) FailedInfo(kind, about string, err error, args ...any) {
	l.failed(slog.LevelInfo, kind, about, err, args, nil)
}

// FailedDebug is Failed with level Debug, for errors that the program is given, and that are a trouble of the status all the
// same. The line recovered is at that level, too, if all lines of the kind were.
func (l *Log) FailedDebug(kind, about string, err error, args ...any) {
	l.failed(slog.LevelDebug, kind, about, err, args, nil)
}

// Explains says that the kinds effects follow from another one, cause: while cause fails, they have no line "still failing",
// unless it is of a higher level than those before. It is called before the first error.
func (l *Log) Explains(cause string, effects ...string) { l.cause, l.effects = cause, effects }

// FailedAt is Failed for an error with a stack. The first line since the kind began to fail has the beginning of the stack, but
// only one line in an Interval. FailedAt calls stack for that line alone.
func (l *Log) FailedAt(kind, about string, err error, stack func() string) {
	l.failed(slog.LevelError, kind, about, err, nil, stack)
}

// Failing reports whether anything fails, or has failed and was not logged yet. It is for callers of OK for which it is costly to
// find out what works.
func (l *Log) Failing() bool { return l.failing.Load() != 0 }

// OK notes that about works again. If nothing else of the kind fails, OK logs that the kind has recovered. While nothing fails,
// it costs one atomic load.
func (l *Log) OK(kind, about string) {
	if !l.Failing() {
		return
	}
	if end := l.remove(kind, about); end != nil {
		l.recovered(kind, end)
	}
	l.catchUp(false)
}

func (l *Log) recovered(kind string, end *ending) {
	write := l.log.Info
	if end.quiet {
		write = l.log.Debug
	}
	write("recovered", "kind", kind, "after", end.after, "errors", end.errors)
}

// Gone notes, for all kinds, that about does not exist any more, such as a partition that was released. It may have worked or
// not. Gone logs the end of a kind that had failed for an Interval or longer. It is as cheap as OK.
func (l *Log) Gone(about string) {
	if !l.Failing() {
		return
	}
	for _, kind := range l.failingKinds() {
		l.giveUp(kind, l.remove(kind, about))
	}
	l.catchUp(false)
}

// AllGone is Gone for everything that fails, but for what is of a kind that stays. It first logs what was postponed.
func (l *Log) AllGone(stays ...string) {
	l.catchUp(true)
	for _, kind := range l.failingKinds() {
		if !slices.Contains(stays, kind) {
			l.giveUp(kind, l.removeAll(kind))
		}
	}
}

func (l *Log) giveUp(kind string, end *ending) {
	if end != nil && end.after >= Interval && !end.quiet {
		l.log.Info("given up while it failed", "kind", kind, "after", end.after, "errors", end.errors)
	}
}

// failed is Failed with a level. Neither the error's method nor the Logger is called with the lock held.
func (l *Log) failed(level slog.Level, kind, about string, err error, args []any, stack func() string) {
	text, about := cut(fmt.Sprint(err), maxText), cut(about, maxAbout) // Sprint survives an Error that panics
	l.catchUp(false)
	if line := l.note(level, kind, about, text, stack != nil); line != nil {
		l.write(level, kind, about, text, line, args, stack)
	}
}

// write writes the line of an error.
func (l *Log) write(level slog.Level, kind, about, text string, line *line, args []any, stack func() string) {
	write := l.log.Error
	switch {
	case level < slog.LevelInfo:
		write = l.log.Debug
	case level < slog.LevelWarn:
		write = l.log.Info
	case level < slog.LevelError:
		write = l.log.Warn
	}
	attrs := []any{"kind", kind}
	if about != "" {
		attrs = append(attrs, "about", about)
	}
	attrs = append(attrs, "error", text)
	if line.count > 1 {
		attrs = append(attrs, "count", line.count)
	}
	if line.traced {
		attrs = append(attrs, "stack", cut(stack(), maxStack))
	}
	if line.first {
		write("failed", append(attrs, args...)...)
		return
	}
	write("still failing", append(append(attrs, "failing", line.failing, "lasts", line.lasts), args...)...)
}

// line is a line about an error.
type line struct {
	first   bool          // whether it is the first since the kind began to fail
	traced  bool          // whether it has a stack
	count   uint64        // the number of errors since the last line, with this one
	failing int           // the number of abouts that fail
	lasts   time.Duration // the time since the first error
}

// note keeps the error, and returns what to log of it; nil for nothing.
func (l *Log) note(level slog.Level, kindName, about, text string, stack bool) *line {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	k := l.kinds[kindName]
	if k == nil {
		k = &kind{abouts: make(map[string]struct{})}
		l.kinds[kindName] = k
	}
	if len(k.abouts) == 0 {
		k.since, k.count, k.logged = now, 0, false
		l.failing.Add(1)
	}
	if len(k.abouts) < MaxAbouts {
		k.abouts[about] = struct{}{}
	}
	k.count++
	k.unlogged++
	k.last = text
	if k.due(now, level) && !l.follows(kindName, k, level) {
		l.release(k)
		return k.line(now, level, stack)
	}
	if !k.logged {
		l.postpone(k, level, about, text)
	}
	return nil
}

// follows reports whether a further error of a kind follows from what fails already, so that no line is due. l.mu is held.
func (l *Log) follows(kindName string, k *kind, level slog.Level) bool {
	if !k.logged || level > k.level || !slices.Contains(l.effects, kindName) {
		return false
	}
	cause := l.kinds[l.cause]
	return cause != nil && len(cause.abouts) > 0
}

// line returns the line of an error that is due; stack says whether the error has a stack.
func (k *kind) line(now time.Time, level slog.Level, stack bool) *line {
	line := &line{first: !k.logged, count: k.unlogged, failing: len(k.abouts), lasts: now.Sub(k.since)}
	if !line.first {
		level = max(level, k.level)
	}
	k.level, k.logged, k.lastLine, k.unlogged, k.highest = level, true, now, 0, max(k.highest, level)
	if line.traced = stack && line.first && (k.traced.IsZero() || now.Sub(k.traced) >= Interval); line.traced {
		k.traced = now
	}
	return line
}

// due reports whether an error is to be logged now: the first, one of a higher level, and one an Interval after the last line. A
// kind that recovers and fails again and again is logged maxStarts times in an Interval, and then once more for each higher
// level.
func (k *kind) due(now time.Time, level slog.Level) bool {
	if k.logged {
		return level > k.level || now.Sub(k.lastLine) >= Interval
	}
	if k.windowOver(now) {
		k.window, k.starts, k.highest = now, 0, level
	}
	if k.starts >= maxStarts && level <= k.highest {
		return false
	}
	k.starts++
	return true
}

func (k *kind) windowOver(now time.Time) bool {
	return k.window.IsZero() || now.Sub(k.window) >= Interval
}

// ending is the end of a kind's failing, to be logged.
type ending struct {
	after  time.Duration
	errors uint64
	quiet  bool // no line of the kind was above Debug
}

// remove removes an about that fails no more. It returns the end if nothing of the kind fails any more and a line has reported
// that it did.
func (l *Log) remove(kindName, about string) *ending {
	about = cut(about, maxAbout)
	l.mu.Lock()
	defer l.mu.Unlock()
	k := l.kinds[kindName]
	if k == nil {
		return nil
	}
	if _, fails := k.abouts[about]; !fails {
		return nil
	}
	delete(k.abouts, about)
	if len(k.abouts) > 0 {
		return nil
	}
	return l.end(kindName, k)
}

// removeAll is remove for all that fails of a kind.
func (l *Log) removeAll(kindName string) *ending {
	l.mu.Lock()
	defer l.mu.Unlock()
	k := l.kinds[kindName]
	if len(k.abouts) == 0 {
		return nil
	}
	clear(k.abouts)
	return l.end(kindName, k)
}

// end ends the trouble of a kind of which nothing fails any more. l.mu is held.
func (l *Log) end(kindName string, k *kind) *ending {
	l.failing.Add(-1)
	now := time.Now()
	l.keep(k.trouble(kindName, now))
	end := &ending{now.Sub(k.since), k.count, k.level < slog.LevelInfo}
	if k.logged {
		return end
	}
	if k.postponed != nil {
		end.quiet = k.postponed.level < slog.LevelInfo
		k.postponed.end = end
	}
	return nil
}

// cut returns the first limit bytes of a text, without a broken character at the end, and "?" for what is not UTF-8.
func cut(text string, limit int) string {
	if len(text) > limit {
		end := limit
		for end > limit-utf8.UTFMax && !utf8.RuneStart(text[end]) {
			end--
		}
		text = strings.Clone(text[:end]) // the rest may be large
	}
	return strings.ToValidUTF8(text, "?")
}
