package consumer

import (
	"context"
	"errors"
	"runtime"
	"time"

	"github.com/IBM/sarama"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/kielgo/kiel/consumer/internal/kafkaconn"
	"github.com/kielgo/kiel/consumer/internal/offsets"
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

	// A pump looks for its handler when that may be back: spins times at once,
	// then after a sixteenth of the time that the handler has had, in these bounds;
	// the runtime makes 1 ms of less when the process has nothing else to do.
	spins    = 50
	minPause = 50 * time.Microsecond
	maxPause = 100 * time.Millisecond
	// hintPause is minPause for a handler that hinted the last time.
	hintPause = 2 * time.Millisecond
)

// errStreamEnded says that a stream closed by itself.
var errStreamEnded = errors.New("consumer: reading ended by itself")

// pump moves messages from a stream to a handler, and keeps what the handler has
// not taken yet in a queue of about limit bytes, so that the other partitions of
// the broker go on.
//
// Nothing stands on offer: a channel takes no offer back, and a process that was
// stopped for long would hand it out when it goes on. So a message is sent only
// when the handler waits for one already, right after trust was checked. When the
// handler has others' messages in hand the pump does not know when it comes back;
// it looks when the claim hints at it, and from time to time.
type pump struct {
	claim     *claim
	limit     int
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
		hinted bool             // the handler was found by a hint, the last time
		pause  = minPause
		last   = time.Now() // when a message was handed out
		again  = time.NewTimer(0)
	)
	defer again.Stop()
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
		var head *sarama.ConsumerMessage
		if q.len() > 0 {
			if !p.claim.Trusted() {
				return offsets.ErrLost
			}
			head = q.head()
			if !ready {
				if p.prepare != nil {
					if !kafkaconn.Await(ctx, p.prepare(head).returned()) {
						return context.Cause(ctx)
					}
					if !p.claim.Trusted() { // it may have taken long
						return offsets.ErrLost
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
		var look <-chan time.Time
		if head != nil {
			select {
			case p.claim.out <- head: // the handler waits
				p.claim.forget()
				if tries, pause = 0, minPause; hinted {
					tries, pause = spins, hintPause
				}
				if ready, hinted, last = false, false, time.Now(); !p.taken(ctx, &q) {
					return context.Cause(ctx)
				}
				continue
			default:
			}
			if tries++; tries < spins {
				runtime.Gosched()
				continue
			}
			again.Reset(min(max(time.Since(last)/16, pause), maxPause))
			look = again.C
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
		case <-p.claim.back:
			tries, hinted = 0, true
		case <-look:
			hinted = false
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
	return kafkaconn.Await(ctx, p.telling.returned())
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
