package offsets

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/internal/operr"
)

const (
	// MaxText is how long a text may be so that brokers store it whose offset.metadata.max.bytes is 4,096, as it is unless
	// changed. Kafka counts UTF-16 code units, and the rest of the metadata take up to 90.
	MaxText = 4000
	// maxTextBytes is how long a text may be in any case. A string of Kafka's protocol has 32,767 bytes at most.
	maxTextBytes = 32_000
	// refusedPause is how long an offset is not committed once an interval after Kafka has refused it for its size.
	refusedPause = time.Minute
	// learnedFor is for how long texts are taken for too long after a broker has refused one. Brokers may be given another limit.
	learnedFor = 10 * time.Minute
)

// textLimit knows how long the texts are that brokers take. Its zero value is for brokers that take any.
type textLimit struct {
	learned atomic.Pointer[learned] // nil as long as none was refused
	taken   int                     // the longest text that was stored, if that is longer than MaxText; belongs to Run
}

// learned is how long texts may be, as a refusal says. It does not change.
type learned struct {
	limit int       // in UTF-16 code units
	until time.Time // until when limit counts
}

// fits reports whether brokers may take text.
func (l *textLimit) fits(text string) bool {
	if l == nil || text == "" {
		return true
	}
	known := l.learned.Load()
	return len(text) <= maxTextBytes &&
		(known == nil || len(text) <= known.limit || units(text) <= known.limit || !time.Now().Before(known.until))
}

// refused stores that a broker has refused text.
func (l *textLimit) refused(text string) {
	limit := units(text) - 1
	if most := max(MaxText, l.taken); limit > most {
		limit = most
	}
	now := time.Now()
	if known := l.learned.Load(); known == nil || limit < known.limit || !now.Before(known.until) {
		l.learned.Store(&learned{limit: max(limit, 1), until: now.Add(learnedFor)})
	}
}

// stored stores that a broker has stored text.
func (l *textLimit) stored(text string) {
	if len(text) > MaxText {
		l.taken = max(l.taken, units(text))
	}
}

// units returns the length of text in UTF-16 code units, as Kafka counts.
func units(text string) int {
	n := utf8.RuneCountInString(text)
	for _, r := range text {
		if r > 0xFFFF {
			n++
		}
	}
	return n
}

// commit stores pending, and those again without their texts whose texts Kafka refuses.
func (c *Committer) commit(ctx context.Context, pending []*pendingCommit) map[kiel.Partition]error {
	commits := make([]OffsetCommit, 0, len(pending))
	for _, p := range pending {
		commits = append(commits, p.offsetCommit())
	}
	results := c.options.Store.Commit(ctx, commits)
	var again []OffsetCommit
	for _, p := range pending {
		if p.text != "" && errors.Is(results[p.tracker.partition], ErrTooLarge) {
			c.texts.refused(p.text)
			p.tracker.dropText(p, results[p.tracker.partition])
			again = append(again, p.offsetCommit())
		}
	}
	if len(again) > 0 {
		maps.Copy(results, c.options.Store.Commit(ctx, again))
	}
	return results
}

// reportText reports whether texts of p's Tracker are lost. If Kafka has refused p's offset for its size all the same, the offset
// is not committed again at once.
func (c *Committer) reportText(p *pendingCommit, err error) {
	t := p.tracker
	if err == nil {
		c.texts.stored(p.text)
	}
	if errors.Is(err, ErrTooLarge) {
		t.pause(time.Now().Add(refusedPause))
	}
	first, lost := t.takeLost()
	switch {
	case c.options.Text == nil:
	case lost != nil:
		c.options.Text(t.partition, operr.New("consumer", "commit", t.partition.String(), lost), first)
	case err == nil && p.text != "" && !first:
		c.options.Text(t.partition, nil, false)
	}
}

// fit returns text, or "" if it is too long for Kafka. t.mu is held.
func (t *Tracker) fit(text string) string {
	if t.texts.fits(text) {
		return text
	}
	t.lost = fmt.Errorf("%w: %d characters", ErrTextLost, units(text))
	return ""
}

// dropText removes the text from p and from the Tracker, because Kafka has refused it with err.
func (t *Tracker) dropText(p *pendingCommit, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lost = fmt.Errorf("%w: %d characters", ErrTextLost, units(p.text))
	if kerr, ok := errors.AsType[sarama.KError](err); ok {
		t.lost = operr.Because(t.lost, kerr)
	}
	if t.text == p.text {
		t.text = ""
	}
	if t.committed.text == p.text {
		t.committed.text = ""
	}
	p.text = ""
}

// takeLost returns the error of a text that is lost since the call before; nil if none is. first is false if a call before has
// returned one.
func (t *Tracker) takeLost() (first bool, lost error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	first, lost = !t.hadLost, t.lost
	t.lost, t.hadLost = nil, t.hadLost || lost != nil
	return first, lost
}

// pause has the position not committed once an interval until then. Commit and a release commit it all the same.
func (t *Tracker) pause(until time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.resumeAt = until
}

// isPaused reports whether the position is not to be committed now, unless somebody asks for that.
func (t *Tracker) isPaused(now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return now.Before(t.resumeAt)
}
