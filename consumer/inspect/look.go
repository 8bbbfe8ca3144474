package inspect

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/allocator"
	"github.com/kielgo/kiel/consumer/internal/offsets"
	"github.com/kielgo/kiel/consumer/internal/topics"
	"github.com/kielgo/kiel/internal/operr"
	"github.com/kielgo/kiel/internal/pause"
	"github.com/kielgo/kiel/internal/statuswrite"
	"github.com/kielgo/kiel/ownership"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/status"
)

// Options say how to look. The zero value looks once, at all of the group.
type Options struct {
	// Window is the time between two looks, which tell what stands still from what is slow. 0 looks once.
	Window time.Duration
	// Topics limits the partitions whose claims and offsets are read; empty for all.
	Topics []string
	// MaxClaims is the number of partitions above which no claim is read, and no offset; 0 for no limit.
	MaxClaims int
	// Thorough also tries each ZooKeeper server by itself, compares ACLs, and looks for the group in other chroots.
	Thorough bool
}

// look is one call of Look.
type look struct {
	in     *Inspector
	opts   Options
	group  string
	flags  []string // of Sources
	report *Report

	wanted   []kiel.Partition // those of which offsets are read
	tooMany  bool             // there are more than Options.MaxClaims
	known    map[string]topics.Info
	before   *glance                      // the first of two looks at Kafka
	prior    *glance                      // the look right before, in a Series; nil for a look alone
	went     map[kiel.Partition]time.Time // as in a Series; nil for a look alone
	first    map[kiel.Partition]claim     // as ZooKeeper had them at the first of two looks; empty if there is one
	twice    bool                         // there was a second look at ZooKeeper
	siblings []sibling
	said     []*status.Group         // by member; nil for those that did not answer
	told     map[kiel.Partition]bool // partitions of which a finding has said why they do not go on
	acls     []string                // znodes whose ACL is not that of the group's znode
	noGroup  error
	denied   bool    // ZooKeeper refuses the group's znodes to this user
	untimed  int     // of how many partitions the last look did not ask since when messages wait, as there were too many
	refused  error   // why Kafka does not show the group's offsets
	alone    *glance // what Kafka has of the group if ZooKeeper has not answered
}

func newLook(in *Inspector, group string, opts Options) *look {
	return &look{in: in, opts: opts, group: group, flags: in.from.Flags, first: map[kiel.Partition]claim{}, told: map[kiel.Partition]bool{}, report: &Report{
		Version: Version, Group: group, Window: opts.Window.Seconds(), Chroot: in.chroot(),
		ZooKeeper: Source{State: NotAsked}, Kafka: Source{State: NotAsked}, Members: []status.Member{}, Partitions: []Partition{},
		Disagreements: []status.Disagreement{}, Findings: []Finding{},
	}}
}

// glance is one look at Kafka.
type glance struct {
	at     time.Time
	stored map[kiel.Partition]offsets.Stored
	ends   map[kiel.Partition]found
	times  map[kiel.Partition]time.Time // of the first messages that wait
	exact  map[kiel.Partition]bool      // whose time is that of the message to the millisecond
}

// waiting returns how many messages of a partition wait; -1 if that is not known, as if the stored offset is beyond the end.
func (g *glance) waiting(p kiel.Partition) int64 {
	s, stored := g.stored[p]
	end, ok := g.ends[p]
	if !stored || !ok || s.Err != nil || end.err != nil || s.Offset < 0 || end.offset < s.Offset {
		return -1
	}
	return end.offset - s.Offset
}

// sum returns how many messages wait in all partitions of which that is known, and since when the first of them; -1 if it is
// known of none.
func (g *glance) sum() (waiting int64, oldest *time.Time) {
	waiting = -1
	for p := range g.stored {
		if n := g.waiting(p); n >= 0 {
			waiting = max(waiting, 0) + n
		}
		if at, ok := g.times[p]; ok && (oldest == nil || at.Before(*oldest)) {
			oldest = &at
		}
	}
	return waiting, oldest
}

// Look describes a group. It blocks for the Window and for the answers of its sources. A source that does not answer is a
// [Finding] and no error, and so is a group without a znode. Look returns an error for a name that can't be a group's, and when
// ctx ends.
func (in *Inspector) Look(ctx context.Context, group string, opts Options) (*Report, error) {
	if err := kiel.CheckGroup(group); err != nil {
		return nil, operr.New(pkg, "look at group", "", err)
	}
	l := newLook(in, group, opts)
	zkAt := l.zooKeeper(ctx)
	if opts.Window > 0 && l.report.ZooKeeper.State == OK {
		for _, p := range l.report.Partitions {
			l.first[id(p)] = claimOf(p)
		}
	}
	kafkaAt := l.kafka(ctx, &zkAt)
	if opts.Window > 0 && l.report.ZooKeeper.State == OK { // unless that was done with Kafka
		l.again(ctx, &zkAt)
	}
	if l.in.from.Members && l.report.ZooKeeper.State == OK {
		l.askMembers(ctx)
	}
	if opts.Thorough {
		l.thorough(ctx)
	}
	if err := context.Cause(ctx); err != nil {
		return nil, operr.New(pkg, "look at group", "", err)
	}
	l.report.At = time.Now().UTC()
	l.report.ZooKeeper.Age, l.report.Kafka.Age = ageOf(zkAt, l.report.At), ageOf(kafkaAt, l.report.At)
	l.find()
	return l.report, nil
}

func ageOf(at, now time.Time) float64 {
	if at.IsZero() {
		return 0
	}
	return now.Sub(at).Seconds()
}

// largeGroup is how many times Sources.Wait the reading of a whole group may take.
const largeGroup = 6

var errLate = errors.New("no answer in time")

// id returns the partition that p describes.
func id(p Partition) kiel.Partition { return kiel.Partition{Topic: p.Topic, ID: p.Partition.Partition} }

// zooKeeper reads the group's znodes. It returns when.
func (l *look) zooKeeper(ctx context.Context) time.Time {
	at, r := time.Now(), l.report
	l.noGroup, l.denied, r.Tree = nil, false, ""
	var g *status.Group
	err := l.in.read(ctx, func(ctx context.Context, inc *session.Incarnation) error {
		exists, stat, err := inc.Exists(ctx, groupPath(l.group))
		if err == nil && exists {
			r.Tree = offsets.TreeID(stat.Czxid, stat.Ctime).String()
		}
		return err
	})
	if err == nil { // it answers: a large group may take longer than one answer
		within, cancel := context.WithTimeoutCause(ctx, largeGroup*l.in.from.Wait, errLate)
		g, err = ownership.InspectScope(within, l.in.zk, l.group, ownership.Scope{Topics: l.opts.Topics, Most: l.opts.MaxClaims})
		cancel()
	}
	switch {
	case errors.Is(err, allocator.ErrNoGroup):
		r.ZooKeeper.State, l.noGroup = OK, err
		r.Members, r.Disagreements, r.Partitions = []status.Member{}, []status.Disagreement{}, []Partition{}
		return at
	case err != nil:
		r.ZooKeeper, l.denied = Source{State: Failed, Error: shown(err)}, errors.Is(err, session.ErrNoAuth)
		return time.Time{}
	}
	r.ZooKeeper.State, r.Claims = OK, true
	r.Members, r.Disagreements, r.Partitions = g.Members, g.Disagreements, make([]Partition, len(g.Partitions))
	for i, p := range g.Partitions {
		r.Partitions[i] = Partition{Partition: p}
	}
	if l.want(); l.tooMany {
		r.Claims, r.ZooKeeper.Missed = false, []string{fmt.Sprintf("claims: more than %d partitions, name topics", l.opts.MaxClaims)}
	}
	return at
}

// topics returns the topics to ask Kafka about: those of the partitions, and those that members ask for by name.
func (l *look) topics() []string {
	all := names(l.wanted)
	for _, m := range l.report.Members {
		for _, t := range m.Topics {
			if kiel.CheckTopic(t) == nil {
				all = append(all, t)
			}
		}
	}
	for _, t := range l.opts.Topics {
		if kiel.CheckTopic(t) == nil {
			all = append(all, t)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// kafka asks Kafka, and ZooKeeper once more if there is a Window. It returns when.
func (l *look) kafka(ctx context.Context, zkAt *time.Time) (at time.Time) {
	failed := func(err error) time.Time {
		l.report.Kafka = Source{State: Failed, Error: shown(err)}
		return time.Time{}
	}
	k, err := l.in.openKafka(ctx, l.group)
	if errors.Is(err, errNotAsked) {
		return time.Time{}
	}
	if err != nil {
		return failed(err)
	}
	defer k.end()
	first, err := l.glance(ctx, k)
	if err != nil {
		return failed(err)
	}
	if l.report.ZooKeeper.State == Failed {
		l.alone = first
	} else if l.opts.Window > 0 && len(l.wanted) > 0 {
		if l.again(ctx, zkAt); ctx.Err() != nil {
			return time.Time{}
		}
		l.before = first
		if first, err = l.glance(ctx, k); err != nil {
			return failed(err)
		}
	}
	l.report.Kafka.State = OK
	l.merge(first)
	return first.at
}

// again looks at ZooKeeper a second time, after the window.
func (l *look) again(ctx context.Context, zkAt *time.Time) {
	if !l.twice && pause.Sleep(ctx, l.opts.Window) == nil {
		l.twice, *zkAt = true, l.zooKeeper(ctx)
	}
}

// same returns whether a partition had the same claim, or none, at the first of two looks.
func (l *look) same(p Partition) bool {
	was, ok := l.first[id(p)]
	return ok && was == claimOf(p)
}

// claim is what is kept of a partition from one look to another.
type claim struct {
	state status.State
	token int64
}

func claimOf(p Partition) claim { return claim{p.State, p.Token} }

// want decides of which partitions offsets are read: those whose claims are, with names that Kafka takes.
func (l *look) want() {
	l.wanted = nil
	inScope := 0
	for _, p := range l.report.Partitions {
		if len(l.opts.Topics) > 0 && !slices.Contains(l.opts.Topics, p.Topic) {
			continue
		}
		inScope++
		if kiel.CheckTopic(p.Topic) == nil {
			l.wanted = append(l.wanted, id(p))
		}
	}
	if l.tooMany = l.opts.MaxClaims > 0 && inScope > l.opts.MaxClaims; l.tooMany {
		l.wanted = nil
	}
}

// glance asks Kafka once.
func (l *look) glance(ctx context.Context, k *kafka) (*glance, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, l.in.from.Wait, errLate)
	defer cancel()
	var err error
	if l.report.ZooKeeper.State == Failed && len(l.wanted) == 0 && l.opts.MaxClaims == 0 {
		if l.wanted, err = k.committed(ctx); err != nil && !errors.Is(err, sarama.ErrGroupAuthorizationFailed) {
			return nil, err
		}
	}
	d, err := k.describe(ctx, l.topics())
	if err != nil {
		return nil, err
	}
	l.known, l.report.Cluster = d.topics, statuswrite.Name(d.cluster)
	g := &glance{}
	var there []kiel.Partition
	for _, p := range l.wanted {
		if info, ok := d.topics[p.Topic]; ok && info.Err == nil && slices.Contains(info.Partitions, p.ID) {
			there = append(there, p)
		}
	}
	if len(there) > 0 { // an empty list would ask for all
		g.stored, err = k.peek(ctx, there)
	}
	if errors.Is(err, sarama.ErrGroupAuthorizationFailed) || len(there) > 0 && errors.Is(g.stored[there[0]].Err, sarama.ErrGroupAuthorizationFailed) {
		l.refused, err, g.stored = sarama.ErrGroupAuthorizationFailed, nil, nil
	}
	if err != nil {
		return nil, err
	}
	g.at = time.Now()
	if g.ends, err = k.ends(ctx, there); err != nil {
		return nil, err
	}
	if err = k.uncommitted(ctx, g); err != nil {
		return nil, err
	}
	l.findTimes(ctx, k, g, there)
	return g, nil
}

// merge puts what Kafka has into the report.
func (l *look) merge(g *glance) {
	for i := range l.report.Partitions {
		p := &l.report.Partitions[i]
		tp := id(*p)
		s, stored := g.stored[tp]
		end, listed := g.ends[tp]
		if !stored && !listed {
			continue
		}
		o := &Offsets{Committed: -1, End: -1, Waiting: g.waiting(tp), Moved: -1, Written: -1}
		if listed && end.err == nil {
			o.End = end.offset
		}
		if stored && s.Err == nil {
			o.Committed, o.Token = s.Offset, s.Token
			topic := l.known[tp.Topic].ID
			o.otherTopic = s.TopicID != (sarama.Uuid{}) && topic != (sarama.Uuid{}) && s.TopicID != topic
			if s.Place.Tree != (offsets.ID{}) {
				o.Tree = s.Place.Tree.String()
			}
		}
		o.Error = shown(errors.Join(s.Err, end.err))
		if at, ok := g.times[tp]; ok {
			o.Oldest = &at
		}
		if b := l.before; b != nil && b.waiting(tp) >= 0 && o.Waiting >= 0 {
			o.Moved, o.Written = o.Committed-b.stored[tp].Offset, o.End-b.ends[tp].offset
		}
		p.Kafka = o
	}
	if l.untimed > 0 {
		l.report.Kafka.Missed = append(l.report.Kafka.Missed, fmt.Sprintf("since when messages wait, of %d partitions beyond %d", l.untimed, maxSearched))
	}
	if l.refused != nil {
		l.report.Kafka.Missed = append(l.report.Kafka.Missed, "the group's offsets: "+shown(l.refused))
	}
}

// thorough looks at what only doctor asks.
func (l *look) thorough(ctx context.Context) {
	l.report.Servers = l.in.servers(ctx)
	if l.report.ZooKeeper.State != OK {
		return
	}
	found, unseen, err := l.in.siblings(ctx, l.group)
	l.siblings = found
	if err != nil {
		l.missed("other chroots: " + shown(err))
	} else if len(unseen) > 0 {
		l.missed("other chroots: " + few(unseen))
	}
	if l.noGroup == nil {
		l.compareACLs(ctx)
	}
}

// missed notes what could not be seen in ZooKeeper.
func (l *look) missed(what string) {
	l.report.ZooKeeper.Missed = append(l.report.ZooKeeper.Missed, what)
}

// compareACLs finds znodes whose ACL is another one than that of the group's znode.
func (l *look) compareACLs(ctx context.Context) {
	err := l.in.read(ctx, func(ctx context.Context, inc *session.Incarnation) error {
		l.acls = nil
		own, _, err := inc.GetACL(ctx, groupPath(l.group))
		if err != nil {
			return err
		}
		for _, elem := range []string{"members", "records", "partitions", "owners", "epochs"} {
			path := groupPath(l.group, elem)
			acl, _, err := inc.GetACL(ctx, path)
			switch {
			case errors.Is(err, session.ErrNoNode):
			case err != nil:
				return err
			case !slices.Equal(acl, own):
				l.acls = append(l.acls, path)
			}
		}
		return nil
	})
	if err != nil {
		l.missed("ACLs: " + shown(err))
	}
}
