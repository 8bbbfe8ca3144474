package consumer

import (
	"context"
	"errors"
	"runtime"
	"time"

	"github.com/IBM/sarama"
	"github.com/prometheus/client_golang/prometheus"
)

const (
	// patience is how long a full queue waits for its handler before it takes
	// what was fetched all the same and pauses its partition. sarama fetches all
	// partitions of a broker in one loop, which waits for the slowest: nobody
	// waits for a slow handler longer than this, and a handler that empties a
	// queue within patience is never paused.
	patience = 50 * time.Millisecond
	// overhead is what a message takes in memory beside its key and value.
	overhead = 160

	// A strict pump looks for its handler again and again: spins times at once,
	// then after an eighth of the time that the handler has had, in these bounds.
	spins    = 50
	minPause = time.Millisecond // runtime timers are hardly finer
	maxPause = 10 * time.Millisecond
)

// errStreamEnded says that a stream closed by itself.
var errStreamEnded = errors.New("consumer: reading ended by itself")

// pump moves messages from a stream to a handler: it checks trust before it
// offers each one, and keeps what the handler has not taken yet in a queue of
// about limit bytes, so that the other partitions of the broker go on.
type pump struct {
	claim     *claim
	limit     int
	strict    bool                                    // nothing stands on offer: see Options.StrictHandOut
	prepare   func(*sarama.ConsumerMessage) *callback // has the interceptors see a message; nil for none
	handedOut func(*sarama.ConsumerMessage) *callback // has the observer told of one
	telling   *callback                               // the last that handedOut returned
	messages  prometheus.Counter
	bytes     prometheus.Counter
}

// run hands out messages until ctx ends, trust does, or the stream; it returns
// why, and has closed Messages then.
func (p *pump) run(ctx context.Context) error {
	defer close(p.claim.out)
	var (
		q      queue
		in     = p.claim.gate.stream.Messages()
		closed bool
		full   bool
		timer  <-chan time.Time // running while a full queue is waited for
		ready  bool             // the interceptors have seen the head of q
		tries  int              // to find the handler waiting for the head of q
		last   = time.Now()     // when a message was handed out
	)
	for {
		if full && q.bytes < p.limit {
			full, timer = false, nil
			p.claim.gate.setFull(false)
		}
		if !full && q.bytes >= p.limit {
			full, timer = true, time.After(patience)
		}
		from := in
		if closed || timer != nil {
			from = nil
		}
		var to chan<- *sarama.ConsumerMessage
		var head *sarama.ConsumerMessage
		if q.len() > 0 {
			if !p.claim.Trusted() {
				return errLost
			}
			to, head = p.claim.out, q.head()
			if !ready {
				if p.prepare != nil {
					if !await(ctx, p.prepare(head).returned()) {
						return context.Cause(ctx)
					}
					if !p.claim.Trusted() { // it may have taken long
						return errLost
					}
				}
				p.claim.offered.Store(head.Offset + 1)
				ready = true
			}
		} else if closed {
			return errStreamEnded
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		default:
		}
		var again <-chan time.Time // when to look for the handler again
		if head != nil && p.strict {
			select {
			case to <- head: // it waits
				if ready, tries, last = false, 0, time.Now(); !p.taken(ctx, &q) {
					return context.Cause(ctx)
				}
				continue
			default:
			}
			if tries++; tries < spins {
				runtime.Gosched()
				continue
			}
			to, again = nil, time.After(min(max(time.Since(last)/8, minPause), maxPause))
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case m, ok := <-from:
			if !ok {
				closed = true
				continue
			}
			q.push(m)
		case to <- head:
			if ready = false; !p.taken(ctx, &q) {
				return context.Cause(ctx)
			}
		case <-again:
		case <-timer:
			timer = nil
			p.claim.gate.setFull(true)
		}
	}
}

// taken notes that the head of q was handed out. It is false when ctx ends before
// the observer knows.
func (p *pump) taken(ctx context.Context, q *queue) bool {
	head := q.head()
	q.pop()
	p.messages.Inc()
	p.bytes.Add(float64(len(head.Key) + len(head.Value)))
	p.telling = p.handedOut(head)
	return await(ctx, p.telling.returned())
}

// queue is a queue of messages that knows its size.
type queue struct {
	items []*sarama.ConsumerMessage
	from  int
	bytes int
}

func (q *queue) len() int                      { return len(q.items) - q.from }
func (q *queue) head() *sarama.ConsumerMessage { return q.items[q.from] }

func (q *queue) push(m *sarama.ConsumerMessage) {
	q.items = append(q.items, m)
	q.bytes += size(m)
}

func (q *queue) pop() {
	q.bytes -= size(q.items[q.from])
	q.items[q.from] = nil
	q.from++
	switch {
	case q.from == len(q.items):
		q.items, q.from = q.items[:0], 0
	case q.from >= 1024 && q.from > len(q.items)/2:
		n := copy(q.items, q.items[q.from:])
		clear(q.items[n:])
		q.items, q.from = q.items[:n], 0
	}
}

func size(m *sarama.ConsumerMessage) int { return len(m.Key) + len(m.Value) + overhead }
