package consumer

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/consumer/internal/fetch"
	"github.com/kielgo/kiel/consumer/internal/offsets"
	"github.com/kielgo/kiel/internal/pause"
	"github.com/kielgo/kiel/status"
)

const (
	// shutPause is how often a member looks whether partitions that it owns are not open. Only if some are it asks Kafka for
	// their ends.
	shutPause = time.Minute
	// shutLimit is how long a partition must have been shut before its end is asked for: opening one takes less.
	shutLimit = 10 * time.Second
)

// shut is a partition that this member owns, as it stands while it is not open: it goes on at the committed offset.
type shut struct {
	claim   ownedClaim
	since   time.Time        // since when it is not open; zero while it is open
	start   int64            // the start position that was found last; -1 before that
	tracker *offsets.Tracker // of the last opening; nil if a start position was found since, or none was opened

	end    int64     // the end of what may be read; -1 before it is known
	endAt  time.Time // when end was read
	next   int64     // the offset of a message that the handler is to get next
	nextAt time.Time // its timestamp, before 1970 if it has none; zero if it is not known

	waits     int64     // a committed offset behind which messages waited; -1 if none did
	waitSince time.Time // when that was seen first
}

// committed returns the committed offset, -1 before it is known.
func (s *shut) committed() int64 {
	if s.tracker != nil {
		return s.tracker.Progress().Committed
	}
	return s.start
}

// setEnd stores the end.
func (s *shut) setEnd(end int64, now time.Time) {
	s.end, s.endAt = end, now
	switch committed := s.committed(); {
	case committed < 0 || end <= committed:
		s.waits = -1
	case s.waits != committed:
		s.waits, s.waitSince = committed, now
	}
}

// lag returns how many offsets wait, and the age of the first message of them. If its timestamp is not known, it is as old as the
// time since it was seen to wait. ok is false if the offsets are not known, or the committed one is not in the log: then the
// partition can't be opened.
func (s *shut) lag(now time.Time) (messages int64, behind time.Duration, ok bool) {
	committed := s.committed()
	if committed < 0 || s.end < committed {
		return 0, 0, false
	}
	messages = s.end - committed
	switch {
	case messages == 0:
	case s.nextAt.UnixMilli() >= 0 && committed <= s.next:
		behind = fetch.Age(s.nextAt)
	case s.waits == committed:
		behind = now.Sub(s.waitSince)
	}
	return messages, behind, true
}

// shutPartitions has the partitions that a member owns, open or not.
type shutPartitions struct {
	mu  sync.Mutex
	all map[kiel.Partition]*shut
}

// claimed adds a partition, which is not open yet. It keeps what is known of one whose claim has gone on.
func (l *shutPartitions) claimed(o *opening) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.all == nil {
		l.all = map[kiel.Partition]*shut{}
	}
	if s := l.all[o.tp]; s == nil || s.claim != o.claim {
		l.all[o.tp] = &shut{claim: o.claim, since: o.since, start: -1, end: -1, waits: -1}
	}
}

// of calls f with what is known of the opening's partition, unless that has another claim by now.
func (l *shutPartitions) of(o *opening, f func(*shut)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s := l.all[o.tp]; s != nil && s.claim == o.claim {
		f(s)
	}
}

// found stores the start position that was found.
func (l *shutPartitions) found(o *opening, start int64) {
	l.of(o, func(s *shut) { s.start, s.tracker = start, nil })
}

// opened stores that the partition is open.
func (l *shutPartitions) opened(o *opening) { l.of(o, func(s *shut) { s.since = time.Time{} }) }

// closed stores that the partition is not open any more, and how far it had come.
func (l *shutPartitions) closed(o *opening, p *Partition) {
	now, end := time.Now(), p.stream.End()
	marked := p.tracker.Progress().Marked
	at := p.timestampAt(marked)
	l.of(o, func(s *shut) {
		s.since, s.tracker = now, p.tracker
		s.next, s.nextAt = marked, at
		if p.keepsItself { // what the program has stored meanwhile is read
			s.start, s.tracker, s.nextAt = -1, nil, time.Time{}
		}
		if end >= 0 {
			s.setEnd(end, now)
		}
	})
}

// gaveUp drops a partition whose claim has ended, unless it has another one by now.
func (l *shutPartitions) gaveUp(p kiel.Partition, claim ownedClaim) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s := l.all[p]; s != nil && s.claim == claim {
		delete(l.all, p)
	}
}

// due returns the partitions whose ends are to be read, and those whose committed offsets are not known.
func (l *shutPartitions) due(now time.Time) (ends, unknown []kiel.Partition) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for p, s := range l.all {
		if s.since.IsZero() || now.Sub(s.since) < shutLimit || now.Sub(s.endAt) < shutPause/2 {
			continue
		}
		ends = append(ends, p)
		if s.committed() < 0 {
			unknown = append(unknown, p)
		}
	}
	return ends, unknown
}

// answered stores committed offsets that were not known, and ends.
func (l *shutPartitions) answered(committed map[kiel.Partition]offsets.Stored, ends map[kiel.Partition]int64, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for p, s := range l.all {
		if found, ok := committed[p]; ok && found.Err == nil && s.committed() < 0 {
			s.start = found.Offset
		}
		if end, ok := ends[p]; ok && !s.since.IsZero() {
			s.setEnd(end, now)
		}
	}
}

// each calls f with each partition that is not open, and with its lag, as far as that is known.
func (l *shutPartitions) each(now time.Time, f func(p kiel.Partition, messages int64, behind time.Duration)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for p, s := range l.all {
		if messages, behind, ok := s.lag(now); ok && !s.since.IsZero() {
			f(p, messages, behind)
		}
	}
}

// offsets returns the offsets of a partition that is not open for the status; nil if none is known.
func (l *shutPartitions) offsets(p kiel.Partition, now time.Time) *status.Offsets {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.all[p]
	if s == nil || s.since.IsZero() || s.committed() < 0 {
		return nil
	}
	committed := s.committed()
	lag, behind, _ := s.lag(now)
	out := &status.Offsets{Position: committed, Committed: committed, Marked: committed, End: s.end, Lag: lag, LagSeconds: behind.Seconds()}
	if s.tracker != nil {
		progress := s.tracker.Progress()
		out.Marked = progress.Marked
		if !progress.Oldest.IsZero() {
			out.OldestUncommitted = max(now.Sub(progress.Oldest), 0).Seconds()
		}
	}
	return out
}

// watchShut asks Kafka once in shutPause for the ends of the partitions that are owned and not open, by one request to each of
// their leaders, until ctx ends. While all are open it asks for nothing. Committed offsets that no opening has read are read
// once.
func (m *membership) watchShut(ctx context.Context) {
	for pause.Sleep(ctx, shutPause) == nil {
		if ends, unknown := m.shut.due(time.Now()); len(ends) > 0 && m.group.isReachable() {
			var committed map[kiel.Partition]offsets.Stored
			if len(unknown) > 0 {
				committed, _ = m.reader.GetAll(ctx, unknown) // the openings report errors of Kafka
				maps.DeleteFunc(committed, m.isFormer)
			}
			m.shut.answered(committed, m.fetcher.ends(ctx, ends), time.Now())
		}
	}
}

// isFormer returns whether a stored offset is of an earlier topic of the same name: the partition does not go on there.
func (m *membership) isFormer(p kiel.Partition, found offsets.Stored) bool {
	return !found.IsCopied(offsets.ClusterID(m.cluster)) && !offsets.SameTopic(found.TopicID, m.catalog.ID(p.Topic))
}

// timestampAt returns the timestamp of the message at offset, if p still has it; or else of the first one that came, if that is
// behind. It is zero if p has neither.
func (p *Partition) timestampAt(offset int64) time.Time {
	c := p.cursor.Load()
	if c == nil {
		return time.Time{}
	}
	for i := range c.messages {
		if m := &c.messages[i]; m.Offset == offset || m.Offset > offset && i == 0 && c.before == 0 {
			return m.Timestamp
		}
	}
	return time.Time{}
}
