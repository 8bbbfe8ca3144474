package inspect

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/internal/operr"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/status"
)

// SeriesOptions say how a [Series] looks. The zero value works.
type SeriesOptions struct {
	// Window is how old a look has to be for a later one to be compared with it, as Options.Window. Default: 10 s.
	Window time.Duration
	// MaxClaims is as in Options.
	MaxClaims int
	// Self returns what a member in this process says of itself, as health.Source does; nil if there is none. It may take a
	// second or two.
	Self func() *status.Group
}

// Series looks at one group again and again, for somebody who watches it. A look reads the group's znodes only if some of them
// have changed since the look before, or have not been read for half a minute: else it costs one small request for each of seven
// znodes. It judges by an earlier look what stands still, so that each reads Kafka's offsets once. It writes nothing, as
// Inspector.Look.
//
// A Series is for one goroutine. It has no goroutines but those of its connections, which the first Look opens and Close ends.
type Series struct {
	from  Sources
	group string
	opts  SeriesOptions

	in     *Inspector // nil while there are no connections
	client *kafka     // nil until Kafka is asked, and after an error
	marks  marks      // of the znodes before they were read
	read   *look      // what was read of ZooKeeper; nil before the first time, and after an error
	readAt time.Time
	fresh  bool                         // the last look has read it, and did not take it from the look before
	last   *status.Group                // the members and claims of the look before, nil before the first
	prior  *glance                      // at Kafka, of the look before; nil if that did not answer
	went   map[kiel.Partition]time.Time // when a partition's stored offset was another one last, of those that were seen to go on
	past   []pastLook                   // those that a look may be compared with, the oldest first
	wanted []kiel.Partition             // those of the last time that ZooKeeper answered
	seen   map[string]*time.Time        // since when there is each finding, nil if that is not known; nil before the first look
}

// pastLook is what is kept of a look.
type pastLook struct {
	at         time.Time
	glance     *glance // nil if Kafka did not answer
	partitions map[kiel.Partition]claim
}

const (
	defaultWindow = 10 * time.Second
	readAgain     = 30 * time.Second // after that ZooKeeper is read whole though nothing seems to have changed
)

// NewSeries makes a Series. It connects to nothing. It returns an error if the sources or the group's name are not valid.
func NewSeries(from Sources, group string, opts SeriesOptions) (*Series, error) {
	if err := kiel.CheckGroup(group); err != nil {
		return nil, operr.New(pkg, "look at group", "", err)
	}
	if _, err := session.New(from.Servers, from.Session); err != nil {
		return nil, operr.New(pkg, "look at group", "", err)
	}
	from.Wait = cmp.Or(from.Wait, patience)
	if from.Config != nil {
		config := *from.Config
		config.Net.DialTimeout = min(config.Net.DialTimeout, from.Wait)
		from.Config = &config
	}
	opts.Window = cmp.Or(opts.Window, defaultWindow)
	return &Series{from: from, group: group, opts: opts}, nil
}

// Close ends the connections, and forgets what was read. A later Look begins anew.
func (s *Series) Close(ctx context.Context) (err error) {
	s.endKafka()
	if s.in != nil {
		err = s.in.Close(ctx)
	}
	*s = Series{from: s.from, group: s.group, opts: s.opts}
	return err
}

func (s *Series) endKafka() {
	if s.client != nil {
		s.client.end()
		s.client = nil
	}
}

// Look describes the group, as Inspector.Look does. Until the first look is as old as the window, nothing is found to stand
// still, and the Window of the Report is 0. Look returns the errors of Open, and an error when ctx ends.
func (s *Series) Look(ctx context.Context) (*Report, error) {
	if s.in == nil || s.in.zk == nil {
		in, err := Open(ctx, s.from)
		if err != nil {
			return nil, err
		}
		s.in = in
	}
	l := newLook(s.in, s.group, Options{MaxClaims: s.opts.MaxClaims})
	zkAt := s.zooKeeper(ctx, l)
	before := s.compareWith(l, time.Now())
	kafkaAt := s.kafka(ctx, l, before)
	if l.report.ZooKeeper.State == OK {
		s.hearMembers(ctx, l)
	}
	if err := context.Cause(ctx); err != nil {
		return nil, operr.New(pkg, "look at group", "", err)
	}
	r := l.report
	r.At, r.Window = time.Now().UTC(), l.opts.Window.Seconds()
	r.ZooKeeper.Age, r.Kafka.Age = ageOf(zkAt, r.At), ageOf(kafkaAt, r.At)
	l.find()
	s.remember(r)
	s.changes(r)
	return r, nil
}

// marks are the metadata of a group's znodes, which differ when something below has changed.
type marks [7]session.Stat

func (s *Series) readMarks(ctx context.Context) (found marks, err error) {
	err = s.in.read(ctx, func(ctx context.Context, inc *session.Incarnation) error {
		for i, elem := range []string{"", "members", "records", "partitions", "zones", "owners", "epochs"} {
			path := groupPath(s.group)
			if elem != "" {
				path = groupPath(s.group, elem)
			}
			exists, stat, err := inc.Exists(ctx, path)
			if err != nil {
				return err
			}
			found[i] = session.Stat{}
			if exists {
				found[i] = stat
			}
		}
		return nil
	})
	return found, err
}

// zooKeeper reads the group's znodes unless they are as they were. It returns when.
func (s *Series) zooKeeper(ctx context.Context, l *look) time.Time {
	at := time.Now()
	now, err := s.readMarks(ctx)
	switch {
	case err != nil:
		s.read, l.wanted = nil, s.wanted
		l.report.ZooKeeper, l.denied = Source{State: Failed, Error: shown(err)}, errors.Is(err, session.ErrNoAuth)
		return time.Time{}
	case s.read != nil && now == s.marks && at.Sub(s.readAt) < readAgain:
		l.takeFrom(s.read)
		s.fresh = false
		return at
	}
	s.fresh = true
	read := newLook(s.in, s.group, l.opts)
	readAt := read.zooKeeper(ctx)
	l.takeFrom(read)
	s.read = nil
	if !readAt.IsZero() {
		s.marks, s.read, s.readAt, s.wanted = now, read, at, read.wanted
	}
	return readAt
}

// takeFrom takes what another look has read of ZooKeeper, of which nothing is changed.
func (l *look) takeFrom(read *look) {
	from, to := read.report, l.report
	to.ZooKeeper, to.Tree, to.Claims = from.ZooKeeper, from.Tree, from.Claims
	to.ZooKeeper.Missed = slices.Clone(from.ZooKeeper.Missed)
	to.Members, to.Disagreements, to.Partitions = from.Members, from.Disagreements, slices.Clone(from.Partitions)
	l.wanted, l.tooMany, l.noGroup, l.denied = read.wanted, read.tooMany, read.noGroup, read.denied
}

// compareWith keeps what ZooKeeper has said, and has the look compared with the last one that is as old as the window.
func (s *Series) compareWith(l *look, now time.Time) (this *pastLook) {
	i := len(s.past) - 1
	for i >= 0 && now.Sub(s.past[i].at) < s.opts.Window {
		i--
	}
	if i >= 0 {
		l.first = s.past[i].partitions
		l.before = s.past[i].glance
		l.opts.Window = now.Sub(s.past[i].at)
		s.past = s.past[i:]
	}
	if l.report.ZooKeeper.State != OK {
		s.past = nil
		return &pastLook{}
	}
	past := pastLook{at: now, partitions: make(map[kiel.Partition]claim, len(l.report.Partitions))}
	for _, p := range l.report.Partitions {
		past.partitions[id(p)] = claimOf(p)
	}
	s.past = append(s.past, past)
	return &s.past[len(s.past)-1]
}

// kafka asks Kafka, and keeps the answer. It returns when.
func (s *Series) kafka(ctx context.Context, l *look, keep *pastLook) (at time.Time) {
	if s.client == nil {
		client, err := s.in.openKafka(ctx, s.group)
		switch {
		case errors.Is(err, errNotAsked):
			return time.Time{}
		case err != nil:
			l.report.Kafka = Source{State: Failed, Error: shown(err)}
			return time.Time{}
		}
		s.client = client
	}
	if l.prior = s.prior; l.prior == nil {
		l.prior = &glance{}
	}
	g, err := l.glance(ctx, s.client)
	s.prior = g
	if err != nil {
		s.endKafka()
		l.report.Kafka = Source{State: Failed, Error: shown(err)}
		return time.Time{}
	}
	keep.glance = g
	s.goOn(l.prior, g)
	l.went = s.went
	if l.before != nil {
		l.opts.Window = g.at.Sub(l.before.at)
	}
	l.report.Kafka.State = OK
	if l.report.ZooKeeper.State == Failed {
		l.alone = g
	}
	l.merge(g)
	return g.at
}

// goOn notes which partitions have gone on from one look to the next.
func (s *Series) goOn(before, now *glance) {
	went := make(map[kiel.Partition]time.Time, len(s.went))
	for p, is := range now.stored {
		if at, ok := s.went[p]; ok {
			went[p] = at
		}
		if was, ok := before.stored[p]; ok && was.Err == nil && is.Err == nil && was.Offset != is.Offset {
			went[p] = before.at
		}
	}
	s.went = went
}

// maxCoarse is of how many partitions that go on a look in a Series finds out how old the first message is that waits.
const maxCoarse = 200

// findTimes finds the times of the first messages that wait. In a Series it takes those that it knows from the look before, finds
// those of partitions that have not gone on to the millisecond, and those of others roughly: of those with the most messages, if
// there are many.
func (l *look) findTimes(ctx context.Context, k *kafka, g *glance, ps []kiel.Partition) {
	g.exact = map[kiel.Partition]bool{}
	late, coarse, known := map[kiel.Partition]int64{}, map[kiel.Partition]bool{}, map[kiel.Partition]time.Time{}
	var going []kiel.Partition
	for _, p := range ps {
		if g.waiting(p) <= 0 {
			continue
		}
		offset := g.stored[p].Offset
		if l.prior != nil {
			was, ok := l.prior.stored[p]
			stands := ok && was.Err == nil && was.Offset == offset
			if stands && l.prior.exact[p] {
				known[p], g.exact[p] = l.prior.times[p], true
				continue
			}
			if !stands {
				going = append(going, p)
				continue
			}
		}
		late[p] = offset
	}
	slices.SortStableFunc(going, func(a, b kiel.Partition) int { return cmp.Compare(g.waiting(b), g.waiting(a)) })
	for _, p := range going[:min(len(going), maxCoarse)] {
		late[p], coarse[p] = g.stored[p].Offset, true
	}
	l.untimed = l.fewest(late)
	g.times = k.times(ctx, late, coarse, g.at)
	for p := range g.times {
		if !coarse[p] {
			g.exact[p] = true
		}
	}
	maps.Copy(g.times, known)
}

// fewest leaves out partitions whose times are too many to be found, and returns how many. It keeps those whose times the look
// knows that this one is compared with, then the first by topic and number, so that two looks find times of the same.
func (l *look) fewest(late map[kiel.Partition]int64) (left int) {
	if len(late) <= maxSearched {
		return 0
	}
	unknown := func(p kiel.Partition) int {
		if l.before != nil {
			if _, ok := l.before.times[p]; ok {
				return 0
			}
		}
		return 1
	}
	all := slices.SortedFunc(maps.Keys(late), func(a, b kiel.Partition) int {
		return cmp.Or(cmp.Compare(unknown(a), unknown(b)), cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.ID, b.ID))
	})
	for _, p := range all[maxSearched:] {
		delete(late, p)
	}
	return len(all) - maxSearched
}

// hearMembers asks the members if the Sources say so, and the one in this process.
func (s *Series) hearMembers(ctx context.Context, l *look) {
	if s.from.Members {
		l.askMembers(ctx)
	}
	if s.opts.Self == nil {
		return
	}
	g := s.opts.Self()
	if g == nil || g.Self == nil || g.Group != s.group {
		return
	}
	i := slices.IndexFunc(l.report.Members, func(m status.Member) bool { return m.Name == g.Self.Name })
	if i < 0 {
		return
	}
	if l.said == nil {
		l.said, l.report.Answers = make([]*status.Group, len(l.report.Members)), make([]Answer, len(l.report.Members))
		for i, m := range l.report.Members {
			l.report.Answers[i] = Answer{Member: m.Name, State: NotAsked}
		}
	}
	l.said[i], l.report.Answers[i] = trimmed(g), Answer{Member: g.Self.Name, State: OK}
	l.takeOver()
}

// remember has findings of which no source knows since when begin when the Series first found them, unless they were there at its
// first look.
func (s *Series) remember(r *Report) {
	seen := make(map[string]*time.Time, len(r.Findings))
	for i := range r.Findings {
		f := &r.Findings[i]
		key := string(f.Kind) + " " + f.Member + " " + strings.Join(f.Objects, " ")
		at, ok := s.seen[key]
		if !ok && s.seen != nil {
			at = &r.At
		}
		if seen[key] = at; f.Since == nil {
			f.Since = at
		}
	}
	s.seen = seen
}

// changes finds what differs from the look before.
func (s *Series) changes(r *Report) {
	if r.ZooKeeper.State != OK || s.last != nil && !s.fresh {
		return
	}
	now := &status.Group{At: r.At, Members: r.Members, Partitions: make([]status.Partition, len(r.Partitions))}
	for i, p := range r.Partitions {
		now.Partitions[i] = p.Partition
	}
	before := s.last
	if before == nil {
		before = &status.Group{}
	}
	f := &following{show: func(c Change) { r.Changes = append(r.Changes, c) }}
	f.compare(before, now)
	s.last = now
}
