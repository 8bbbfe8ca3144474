package offsets

import (
	"context"
	"slices"
	"time"
)

// content is the position of a Tracker that a commit has.
type content int

const (
	marked    content = iota // the marked position
	passed                   // the marked position, which nobody has marked: it has passed offsets without messages
	committed                // the committed position again
	restored                 // the committed position again, before the partition is released
)

// passedWait is how long the first message waits for a commit that may be written. That is longer than a commit takes when Kafka
// refuses it at once in all attempts.
const passedWait = 2 * time.Second

// due returns the content of a commit that is not asked for by the user.
func (t *Tracker) due() content {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.dirty || t.used {
		return marked
	}
	return passed
}

// AwaitPassed is called before a Delivered with messages. If a commit of a position that has passed no message may be written, it
// waits for the answer, so that the commit is not stored after what the user commits of these messages in a transaction. It waits
// until ctx ends, for passedWait at most; then it aborts the connections. Still a broker may store later what it had received
// before the abort, or before ctx ended. After the first message AwaitPassed costs one atomic load.
func (t *Tracker) AwaitPassed(ctx context.Context) {
	if t.begun.Load() {
		return
	}
	late := time.NewTimer(passedWait)
	defer late.Stop()
	for p := t.begin(false); p != nil; p = t.begin(false) {
		select {
		case <-p.answered:
		case <-ctx.Done():
			return
		case <-late.C:
			if p := t.begin(true); p != nil {
				p.committer.abort(p)
			}
			return
		}
	}
}

// begin notes that messages may be handed out from now on, so that no commit of a passed position is marked as sent any more. It
// returns a commit of such a position that may have been written and is not answered, or nil. If there is one, it notes nothing
// unless anyway is true.
func (t *Tracker) begin(anyway bool) *pendingCommit {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.last
	if p != nil && (p.content != passed || !p.sent || p.isAnswered()) {
		p = nil
	}
	if p == nil || anyway {
		t.begun.Store(true)
	}
	return p
}

// isAnswered reports whether the request is answered.
func (p *pendingCommit) isAnswered() bool {
	select {
	case <-p.answered:
		return true
	default:
		return false
	}
}

// lastWait is how long a last commit waits for those of other partitions that are given up at the same time. It is less than a
// request to Kafka takes, for whose end they would wait else.
const lastWait = time.Millisecond

// together returns requests, and if one of them is for the last commit of a partition, also those that come while the last
// commits of other partitions that are given up are expected. It waits for them for lastWait at most: the handlers of some may
// take long.
func (c *Committer) together(ctx context.Context, requests []commitRequest) []commitRequest {
	expected := c.expected(requests)
	if len(expected) == 0 {
		return requests
	}
	late := time.NewTimer(lastWait)
	defer late.Stop()
	for len(expected) > 0 {
		select {
		case q := <-c.requests:
			requests = append(requests, q)
			delete(expected, q.tracker)
		case <-late.C:
			return requests
		case <-ctx.Done():
			return requests
		}
	}
	return requests
}

// expected returns the Trackers whose last commit has still to be asked for, if requests have the last commit of another one.
func (c *Committer) expected(requests []commitRequest) map[*Tracker]bool {
	if c.options.Kept == nil || !slices.ContainsFunc(requests, func(q commitRequest) bool { return q.last }) {
		return nil
	}
	kept, expected := c.options.Kept(), map[*Tracker]bool{}
	for _, t := range c.all() {
		if t.isDirty() && !kept[t.partition] {
			expected[t] = true
		}
	}
	for _, q := range requests {
		delete(expected, q.tracker)
	}
	return expected
}

// wanted returns the Trackers of requests.
func (c *Committer) wanted(requests []commitRequest) map[*Tracker]content {
	trackers := map[*Tracker]content{}
	for _, q := range requests {
		if q.tracker == nil {
			for _, t := range c.all() {
				if _, asked := trackers[t]; !asked && t.isDirty() {
					trackers[t] = t.due()
				}
			}
		} else if content, asked := trackers[q.tracker]; !asked || content == passed {
			trackers[q.tracker] = q.content
		}
	}
	return trackers
}

// waiting returns the Trackers that Run commits once an interval: the marked ones. It leaves out those of whose last commit the
// observer was not notified yet, and those that Kafka has refused for their size a moment ago.
func (c *Committer) waiting(now time.Time) map[*Tracker]content {
	trackers := map[*Tracker]content{}
	for _, t := range c.all() {
		if c.options.Auto && t.isDirty() && t.isObserved() && !t.isPaused(now) {
			trackers[t] = t.due()
		}
	}
	return trackers
}
