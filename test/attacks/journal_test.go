package attacks_test

import (
	"cmp"
	"encoding/json"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/kielgo/kiel/internal/eventlog"
	"github.com/kielgo/kiel/ownership"
)

// journal is what one member's observer and handlers tell, as an event log.
type journal struct {
	name  string
	now   func() int64
	clock eventlog.Clock // of now
	mu    sync.Mutex
	seen  []eventlog.Event
	acts  map[int32]int64
	out   *json.Encoder // when not nil, it is written there too
}

func newJournal(name string, now func() int64) *journal {
	return &journal{name: name, now: now, clock: eventlog.NewClock(now), acts: map[int32]int64{}}
}

// add adds an event. It needs the lock.
func (j *journal) add(e eventlog.Event) {
	e.Member = j.name
	j.seen = append(j.seen, e)
	if j.out != nil {
		if err := j.out.Encode(e); err != nil {
			panic(err)
		}
	}
}

// observe notes an event of the owner's.
func (j *journal) observe(e ownership.Event) {
	j.mu.Lock()
	defer j.mu.Unlock()
	out := eventlog.Event{
		T: j.now(), Event: string(e.Kind), Topic: e.Topic, Token: e.Token, Version: e.Version,
		Session: strconv.FormatInt(e.Session, 16),
	}
	if e.Partition >= 0 {
		out.Partition = &e.Partition
	}
	if !e.Since.IsZero() {
		out.Since = j.clock.Of(e.Since)
	}
	j.add(out)
}

// act notes that a handler acts, if its claim is trusted: the moment is taken before it asks, so that nothing that holds up the
// process in between can make it late.
func (j *journal) act(c *ownership.Claim) {
	j.mu.Lock()
	defer j.mu.Unlock()
	at := j.now()
	if !c.Trusted() {
		return
	}
	id := c.Partition()
	n := j.acts[id]
	j.acts[id]++
	j.add(eventlog.Event{T: at, Event: eventlog.Message, Topic: c.Topic(), Partition: &id, Offset: &n})
}

// put notes an event about a partition at an offset.
func (j *journal) put(kind string, c *ownership.Claim, offset int64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	id := c.Partition()
	j.add(eventlog.Event{T: j.now(), Event: kind, Topic: c.Topic(), Partition: &id, Offset: &offset})
}

func (j *journal) events() []eventlog.Event {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.seen)
}

// count counts the events of a kind.
func (j *journal) count(kind string) int {
	n := 0
	for _, e := range j.events() {
		if e.Event == kind {
			n++
		}
	}
	return n
}

// term is an unbroken ownership.
type term struct {
	member     string
	partition  int32
	start, end int64
	how        string // it ended
}

// terms returns all ownerships that logs tell of, by their beginning.
func terms(logs []eventlog.Log) []term {
	var all []term
	for _, l := range logs {
		open := map[int32]*term{}
		end := func(id int32, at int64, how string) {
			if tm := open[id]; tm != nil {
				tm.end, tm.how = at, how
				all = append(all, *tm)
				delete(open, id)
			}
		}
		for _, e := range l.Events {
			switch e.Event {
			case eventlog.Claimed:
				open[*e.Partition] = &term{member: l.Name, partition: *e.Partition, start: e.T}
			case eventlog.Releasing, eventlog.Lost, eventlog.Untrusted, eventlog.Left:
				at := e.T
				if e.Since != 0 {
					at = min(at, e.Since)
				}
				if e.Partition != nil {
					end(*e.Partition, at, e.Event)
					continue
				}
				for id := range open {
					end(id, at, e.Event)
				}
			}
		}
	}
	slices.SortFunc(all, func(a, b term) int { // in virtual time a term may begin and end within an instant
		return cmp.Or(cmp.Compare(a.start, b.start), cmp.Compare(a.end, b.end))
	})
	return all
}

// margin returns the shortest time from the end of one member's trust to the beginning of another's term in the same partition;
// below zero it is how long two members owned it. An orderly release has no margin and needs none. It is 0 when no partition
// changed hands.
func margin(all []term) time.Duration {
	var shortest []time.Duration
	for i, b := range all {
		for _, a := range all[:i] {
			if a.member != b.member && a.partition == b.partition && (a.how == eventlog.Untrusted || b.start < a.end) {
				shortest = append(shortest, time.Duration(b.start-a.end))
			}
		}
	}
	if len(shortest) == 0 {
		return 0
	}
	return slices.Min(shortest)
}
