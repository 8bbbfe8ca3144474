package fetch

import (
	"context"
	"time"

	"github.com/kielgo/kiel"
)

const (
	// endAge is how old the end of a partition may be before a question about it has it read again.
	endAge = 5 * time.Second
	// endsPause is the least time between two reads of ends.
	endsPause = time.Second
)

// ends is the state of reading the ends of partitions that are not fetched, because they have no room or are paused. Nobody but a
// question about an end starts a read. It is guarded by the fetcher's mu.
type ends struct {
	reading chan struct{} // closed when the read that is under way has ended; nil while none is
	began   time.Time     // when that read began
	again   time.Time     // before which no other read begins
}

// Freshen has the partition's end read again if it is older than 5 s, together with the old ends of all other partitions: by one
// request to each of their leaders, and not while another read is under way. It waits for the answers until wait has passed since
// the requests were sent. While Kafka does not answer, the end stays what it was, and is asked for once in 5 s at most.
//
// Freshen costs nothing but a lock while the partition is fetched. With ReadCommitted Kafka answers with the last stable offset
// alone, so HighWatermark may be too low by the messages of undecided transactions then.
func (p *Partition) Freshen(wait time.Duration) {
	p.of.mu.Lock()
	read, left := p.refreshEnd(wait)
	p.of.mu.Unlock()
	p.wait(read, nil, left)
}

// wait waits for read, if it is not nil, but not longer than limit, and not when the partition or ended is closed.
func (p *Partition) wait(read, ended <-chan struct{}, limit time.Duration) {
	if read == nil || limit <= 0 {
		return
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-read:
	case <-p.done:
	case <-ended:
	case <-timer.C:
	}
}

// refreshEnd starts a read of the ends that are old, if this partition's is and no read is under way. It returns a channel that
// is closed when the read has ended, nil if there is none, and how much is left of wait since the read began. The fetcher's mu is
// held.
func (p *Partition) refreshEnd(wait time.Duration) (read <-chan struct{}, left time.Duration) {
	f := p.of
	now, e := time.Now(), &f.ends
	switch {
	case !p.isOutdated(now, endAge):
		return nil, 0
	case e.reading != nil:
		return e.reading, e.began.Add(wait).Sub(now)
	case !f.running || now.Before(e.again) || !f.settings.Reachable():
		return nil, 0
	}
	var old []kiel.Partition
	for k, other := range f.open {
		if other.isOutdated(now, endAge/2) { // the others would be asked for soon
			old = append(old, k.partition())
		}
	}
	e.reading, e.began = make(chan struct{}), now
	f.all.Go(func() { f.readEnds(old, now) })
	return e.reading, wait
}

// isOutdated returns whether the end of a partition is older than age, and may be asked for. That of one whose fetches fail may
// not. If it was paused or filled up while they did, no fetch shows that Kafka answers again. The fetcher's mu is held.
func (p *Partition) isOutdated(now time.Time, age time.Duration) bool {
	if p.closed || p.err != nil || p.end < 0 || !p.failing.IsZero() && !p.paused && p.hasRoom() {
		return false
	}
	if l := p.flying; l != nil && l.request != nil && now.Sub(l.request.began.Add(l.request.wait)) <= age {
		return false // had the end changed, the broker would have answered before the poll's end
	}
	return min(now.Sub(p.endAt), now.Sub(p.listedAt)) > age
}

// readEnds asks Kafka for the ends of partitions, and stores them. It blocks, in a goroutine of its own.
func (f *Fetcher) readEnds(ps []kiel.Partition, began time.Time) {
	found := f.cluster.Ends(ps)
	f.mu.Lock()
	defer f.unlock()
	now, pause := time.Now(), endAge
	if len(found) > 0 {
		pause = endsPause
	}
	f.storeEnds(found, began, now)
	close(f.ends.reading)
	f.ends.reading, f.ends.again = nil, now.Add(pause)
}

// storeEnds stores ends that were asked for at began. The fetcher's mu is held.
func (f *Fetcher) storeEnds(found map[kiel.Partition]int64, began, now time.Time) {
	for at, end := range found {
		if p := f.open[key{at.Topic, at.ID}]; p != nil && !p.endAt.After(began) { // else a later answer has it
			p.listed, p.listedAt = end, now
			if !now.After(p.endAt) { // in one instant of a coarse clock
				p.listedAt = p.endAt.Add(1)
			}
		}
	}
}

// CheckEnd has the end read if the answer to the first fetch says that the log is empty, or ends before the position. A leader
// that does not know its high watermark yet says so, too; it does not answer to a question about the end then (KIP-207), which is
// asked twice. CheckEnd waits for wait at most.
func (p *Partition) CheckEnd(ctx context.Context, wait time.Duration) {
	p.wait(p.recheck(true), ctx.Done(), wait)
}

// AskEnd has the end read, however new the answer is that is known. It waits for wait at most.
func (p *Partition) AskEnd(ctx context.Context, wait time.Duration) {
	p.wait(p.recheck(false), ctx.Done(), wait)
}

// recheck starts to read the end of a log that seems too short, and returns a channel that is closed when that has ended; nil if
// the log does not, and ifShort is true.
func (p *Partition) recheck(ifShort bool) <-chan struct{} {
	f := p.of
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.running || p.closed || p.err != nil || ifShort && p.end >= max(p.position, 1) {
		return nil
	}
	read, began := make(chan struct{}), time.Now()
	f.all.Go(func() {
		defer close(read)
		found := f.cluster.Ends([]kiel.Partition{p.partition()})
		f.mu.Lock()
		defer f.unlock()
		f.storeEnds(found, began, time.Now())
	})
	return read
}

// newestEnd returns the offset after the last readable message, by the newest answer of any kind. Fetching goes by its own
// answers alone. The fetcher's mu is held.
func (p *Partition) newestEnd() int64 {
	if p.listedAt.After(p.endAt) {
		return p.listed
	}
	return p.readable()
}
