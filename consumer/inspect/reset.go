package inspect

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/allocator"
	"github.com/kielgo/kiel/consumer/internal/offsets"
	"github.com/kielgo/kiel/internal/operr"
	"github.com/kielgo/kiel/internal/statuswrite"
	"github.com/kielgo/kiel/ownership"
	"github.com/kielgo/kiel/session"
)

var (
	// ErrInUse says that the group has members or claims, here or under another chroot. Nothing was written.
	ErrInUse = errors.New("the group is in use")
	// ErrTarget says that a text is no target of a reset.
	ErrTarget = errors.New("not a target: start, end, OFFSET, +N, -N, @-1h, or @ and a time as 2006-01-02T15:04:05Z")
	// ErrChanged says that members or claims have appeared during a reset, or that somebody else has stored offsets. They may
	// have read or overwritten what the reset has stored.
	ErrChanged = errors.New("the group was used during the reset")
	// ErrOtherTree says that members in another ZooKeeper tree have stored the topic's offsets. They may run: nobody can see them
	// here.
	ErrOtherTree = errors.New("members in another ZooKeeper tree have stored the offsets")
)

// Reset says which offsets to store.
type Reset struct {
	Topic      string
	Partitions []int32 // none: all of the topic
	To         Target
	Write      bool // false: only say what would be stored
	AnyTree    bool // also if members in another ZooKeeper tree have stored the offsets: that tree is known to be gone
}

// targetKind is what a Target counts from.
type targetKind int

const (
	toStart targetKind = iota
	toEnd
	toOffset
	toShift
	toTime
)

// Target is where a reset moves offsets to. It is kept within the messages that Kafka has.
type Target struct {
	kind targetKind
	n    int64
	at   time.Time
}

// ParseTarget reads a Target: "start", "end", an offset, a shift of the stored offset ("+10", "-10"), or the first message from a
// time on ("@-1h", "@2006-01-02T15:04:05Z"). A time is relative to now. Its error is [ErrTarget].
func ParseTarget(s string, now time.Time) (Target, error) {
	bad := operr.New(pkg, "", strconv.Quote(statuswrite.Name(s)), ErrTarget)
	switch {
	case s == "start":
		return Target{kind: toStart}, nil
	case s == "end":
		return Target{kind: toEnd}, nil
	case strings.HasPrefix(s, "@-"):
		d, err := time.ParseDuration(s[2:])
		if err != nil || d < 0 {
			return Target{}, bad
		}
		return Target{kind: toTime, at: now.Add(-d)}, nil
	case strings.HasPrefix(s, "@"):
		at, err := time.Parse(time.RFC3339, s[1:])
		if err != nil || at.UnixMilli() < 0 {
			return Target{}, bad
		}
		return Target{kind: toTime, at: at}, nil
	}
	n, err := strconv.ParseInt(s, 10, 64)
	switch {
	case err != nil:
		return Target{}, bad
	case s[0] == '+' || s[0] == '-':
		return Target{kind: toShift, n: n}, nil
	default:
		return Target{kind: toOffset, n: n}, nil
	}
}

// ResetResult says what a reset stores, or has stored.
type ResetResult struct {
	Version    int              `json:"version"`
	Group      string           `json:"group"`
	Topic      string           `json:"topic"`
	Written    bool             `json:"written"`
	Partitions []ResetPartition `json:"partitions"`
	// NotExcluded is what may still go wrong, though the look after the write has found nothing.
	NotExcluded string `json:"not_excluded"`
}

// ResetPartition is a partition of a reset. An offset that is not known is -1.
type ResetPartition struct {
	Partition int32  `json:"partition"`
	Start     int64  `json:"start"`
	End       int64  `json:"end"`
	From      int64  `json:"from"` // what was stored before
	To        int64  `json:"to"`
	Error     string `json:"error,omitempty"` // why it was not stored; after an answer that did not come it may be stored late
}

const notExcluded = "A process that was just about to join, or that left the group because it reached no Kafka, may have read the offsets from before. " +
	"A commit that was on its way to Kafka may arrive minutes late. Start members when the old processes have ended, and look again then: kiel offsets show."

// resetting is one call of ResetOffsets.
type resetting struct {
	in     *Inspector
	group  string
	reset  Reset
	kafka  *kafka
	topic  offsets.Topic
	place  offsets.Place
	ends   [2]map[kiel.Partition]found // the starts and the ends
	known  map[kiel.Partition]offsets.Stored
	unseen []string // what may be chroots with members
}

// ResetOffsets stores offsets for a group that nobody uses, with the metadata that members write: topic, tree, cluster, and the
// numbers that were stored before; their token is 0, that of no claim. Texts of marks are dropped. It stores nothing while there
// is a member or a claim, here or under another chroot that it can see, and looks again right before the write. After the write
// it looks once more, and returns [ErrChanged] with the result if somebody has used the group meanwhile.
//
// Other errors are ErrInUse, ErrOtherTree, allocator.ErrNoGroup, those of Kafka and of the session. With an error of Kafka's,
// some offsets may have been stored: those of the result's partitions without an Error.
func (in *Inspector) ResetOffsets(ctx context.Context, group string, reset Reset) (*ResetResult, error) {
	if err := errors.Join(kiel.CheckGroup(group), kiel.CheckTopic(reset.Topic)); err != nil {
		return nil, operr.New(pkg, "reset offsets", "", err)
	}
	r := &resetting{in: in, group: group, reset: reset}
	result, err := r.run(ctx)
	if err != nil {
		err = operr.New(pkg, "reset offsets of group", strconv.Quote(group), err)
	}
	return result, err
}

func (r *resetting) run(ctx context.Context) (*ResetResult, error) {
	if err := r.idle(ctx); err != nil {
		return nil, err
	}
	k, err := r.in.openKafka(ctx, r.group)
	if err != nil {
		return nil, err
	}
	defer k.end()
	r.kafka = k
	if err := r.readKafka(ctx); err != nil {
		return nil, err
	}
	result := &ResetResult{Version: Version, Group: r.group, Topic: r.reset.Topic, Partitions: []ResetPartition{}, NotExcluded: notExcluded}
	if len(r.unseen) > 0 {
		result.NotExcluded += " Members under other chroots that were not looked at: " + few(r.unseen) + "."
	}
	if err := r.plan(ctx, result); err != nil || !r.reset.Write {
		return result, err
	}
	commits, err := r.prepare(ctx, result)
	if err != nil {
		return nil, err
	}
	stored, err := r.write(ctx, commits, result)
	result.Written = err == nil
	if stored == 0 {
		return result, err
	}
	return result, errors.Join(err, r.lookAgain(ctx, result))
}

// idle returns an error unless the group exists and has neither members nor claims. It also learns the tree. It looks at this
// group last.
func (r *resetting) idle(ctx context.Context) error {
	beside, unseen, err := r.in.siblings(ctx, r.group)
	if err != nil {
		return err
	}
	if r.unseen = unseen; len(beside) > 0 {
		return operr.Because(ErrInUse, errors.New("a group of this name has members under "+few(chroots(beside))+"; stop them first"))
	}
	var members, claims []string
	err = r.in.read(ctx, func(ctx context.Context, inc *session.Incarnation) error {
		if err := inc.Sync(ctx, groupPath(r.group)); err != nil {
			return err
		}
		exists, stat, err := inc.Exists(ctx, groupPath(r.group))
		if err != nil {
			return err
		}
		if !exists {
			return fmt.Errorf("%w: no znode %s in %s", allocator.ErrNoGroup, groupPath(r.group), r.in.chroot())
		}
		r.place.Tree = offsets.TreeID(stat.Czxid, stat.Ctime)
		if members, err = children(ctx, inc, groupPath(r.group, "members")); err != nil {
			return err
		}
		claims, err = children(ctx, inc, groupPath(r.group, "owners"))
		return err
	})
	switch {
	case err != nil:
		return err
	case len(members) > 0:
		return operr.Because(ErrInUse, errors.New("members "+few(members)+" run; stop them first"))
	case len(claims) > 0:
		return operr.Because(ErrInUse, errors.New("claims of "+few(claims)+" exist; wait until their sessions have ended (kiel doctor says whose)"))
	}
	return nil
}

// children returns the names of a znode's children, none if there is no such znode.
func children(ctx context.Context, inc *session.Incarnation, path string) ([]string, error) {
	names, _, err := inc.Children(ctx, path)
	if errors.Is(err, session.ErrNoNode) {
		return nil, nil
	}
	return names, err
}

// few returns the first of some names.
func few(names []string) string {
	const most = 5
	shown := make([]string, 0, most)
	for _, name := range names[:min(len(names), most)] {
		shown = append(shown, statuswrite.Name(name))
	}
	s := strings.Join(shown, ", ")
	if len(names) > most {
		s += fmt.Sprintf(" and %d more", len(names)-most)
	}
	return s
}

// readKafka reads the topic, its stored offsets, and where its messages begin and end.
func (r *resetting) readKafka(ctx context.Context) error {
	d, err := r.kafka.describe(ctx, []string{r.reset.Topic})
	if err != nil {
		return err
	}
	info := d.topics[r.reset.Topic]
	if info.Err != nil || len(info.Partitions) == 0 {
		return operr.New("", "describe topic", r.reset.Topic, cmpErr(info.Err, sarama.ErrUnknownTopicOrPartition))
	}
	r.place.Cluster = offsets.ClusterID(d.cluster)
	r.topic = offsets.Topic{Name: r.reset.Topic, ID: info.ID, Cluster: r.place.Cluster, Partitions: info.Partitions}
	if r.known, err = r.stored(ctx); err != nil {
		return err
	}
	for i, at := range []int64{sarama.OffsetOldest, sarama.OffsetNewest} {
		if r.ends[i], err = r.list(ctx, at); err != nil {
			return err
		}
	}
	return nil
}

func cmpErr(err, otherwise error) error {
	if err != nil {
		return err
	}
	return otherwise
}

// partitions returns the partitions of the topic.
func (r *resetting) partitions() []kiel.Partition {
	ps := make([]kiel.Partition, len(r.topic.Partitions))
	for i, id := range r.topic.Partitions {
		ps[i] = kiel.Partition{Topic: r.topic.Name, ID: id}
	}
	return ps
}

// stored reads the stored offsets of all of the topic's partitions. One that can't be read is an error.
func (r *resetting) stored(ctx context.Context) (map[kiel.Partition]offsets.Stored, error) {
	found, err := r.kafka.store.Fetch(ctx, r.partitions())
	if err != nil {
		return nil, err
	}
	for _, p := range r.partitions() {
		s := found[p]
		unknown := offsets.ID{}
		switch {
		case s.Err != nil:
			return nil, s.Err
		case r.reset.AnyTree || s.IsCopied(r.place.Cluster):
		case s.Ours && s.Place.Tree != unknown && s.Place.Tree != r.place.Tree:
			return nil, operr.Because(ErrOtherTree, fmt.Errorf("%s was stored in %s, this is %s: their members, whom nobody sees here, may run", p, s.Place.Tree, r.place.Tree))
		}
	}
	return found, nil
}

// list asks for an offset of each partition. One that is not answered is an error.
func (r *resetting) list(ctx context.Context, at int64) (map[kiel.Partition]found, error) {
	question := map[kiel.Partition]int64{}
	for _, p := range r.partitions() {
		question[p] = at
	}
	answers, err := r.kafka.list(ctx, question)
	if err != nil {
		return nil, err
	}
	for _, p := range r.partitions() {
		f, ok := answers[p]
		if !ok || f.err != nil {
			return nil, operr.New("", "list offset of", p.String(), cmpErr(f.err, sarama.ErrLeaderNotAvailable))
		}
	}
	return answers, nil
}

// plan computes the offsets to store.
func (r *resetting) plan(ctx context.Context, result *ResetResult) error {
	wanted := r.reset.Partitions
	if len(wanted) == 0 {
		wanted = r.topic.Partitions
	}
	var times map[kiel.Partition]found
	if r.reset.To.kind == toTime {
		var err error
		if times, err = r.list(ctx, r.reset.To.at.UnixMilli()); err != nil {
			return err
		}
	}
	for _, id := range slices.Compact(slices.Sorted(slices.Values(wanted))) {
		p := kiel.Partition{Topic: r.topic.Name, ID: id}
		if !slices.Contains(r.topic.Partitions, id) {
			return operr.New("", "", p.String(), sarama.ErrUnknownTopicOrPartition)
		}
		one := ResetPartition{Partition: id, Start: r.ends[0][p].offset, End: r.ends[1][p].offset, From: r.known[p].Offset}
		to := int64(0)
		switch r.reset.To.kind {
		case toStart:
			to = one.Start
		case toEnd:
			to = one.End
		case toOffset:
			to = r.reset.To.n
		case toShift:
			if s := r.known[p]; one.From < 0 || !s.IsCopied(r.place.Cluster) && !offsets.SameTopic(s.TopicID, r.topic.ID) {
				return fmt.Errorf("%s has no stored offset to shift, or one of a former topic of this name", p)
			}
			to = shifted(one.From, r.reset.To.n)
		case toTime:
			if to = times[p].offset; to < 0 {
				to = one.End
			}
		}
		one.To = min(max(to, one.Start), one.End)
		result.Partitions = append(result.Partitions, one)
	}
	return nil
}

// lateWrite is how long after the last look at the members an offset may be written.
const lateWrite = 5 * time.Second

// shifted returns from + n, at most the largest offset.
func shifted(from, n int64) int64 {
	if n > math.MaxInt64-from {
		return math.MaxInt64
	}
	return from + n
}

// prepare returns what to commit, right after another look at the members.
func (r *resetting) prepare(ctx context.Context, result *ResetResult) ([]offsets.OffsetCommit, error) {
	beginning, err := r.topic.BeginningIn(r.known)
	if err != nil {
		return nil, err
	}
	if err := r.idle(ctx); err != nil {
		return nil, err
	}
	looked := time.Now()
	authorize := func() error {
		if time.Since(looked) > lateWrite {
			return errors.New("not stored: it took too long since the last look for members; try again")
		}
		return nil
	}
	commits := make([]offsets.OffsetCommit, len(result.Partitions))
	for i, p := range result.Partitions {
		commits[i] = offsets.OffsetCommit{
			Partition: kiel.Partition{Topic: r.topic.Name, ID: p.Partition}, Offset: p.To, TopicID: r.topic.ID, LeaderEpoch: -1,
			FirstPartitions: beginning.FirstPartitions, Began: beginning.At, Place: r.place, Authorize: authorize,
		}
	}
	return commits, nil
}

// write stores the offsets, and returns of how many Kafka has said that they are stored.
func (r *resetting) write(ctx context.Context, commits []offsets.OffsetCommit, result *ResetResult) (stored int, err error) {
	errs := r.kafka.store.Commit(ctx, commits)
	for i, c := range commits {
		if one := errs[c.Partition]; one != nil {
			result.Partitions[i].Error, err = shown(one), cmpErr(err, one)
			continue
		}
		stored++
	}
	if err != nil {
		err = fmt.Errorf("%d of %d offsets were stored: %w", stored, len(commits), err)
	}
	return stored, err
}

// lookAgain looks whether somebody has used the group during the reset.
func (r *resetting) lookAgain(ctx context.Context, result *ResetResult) error {
	if err := r.idle(ctx); errors.Is(err, ErrInUse) {
		return operr.Because(ErrChanged, err)
	} else if err != nil {
		return err
	}
	now, err := r.stored(ctx)
	if errors.Is(err, ErrOtherTree) {
		return operr.Because(ErrChanged, err)
	} else if err != nil {
		return err
	}
	for _, p := range result.Partitions {
		tp := kiel.Partition{Topic: r.topic.Name, ID: p.Partition}
		if p.Error == "" && (now[tp].Offset != p.To || now[tp].Token != 0) {
			return operr.Because(ErrChanged, fmt.Errorf("%s has offset %d, not %d", tp, now[tp].Offset, p.To))
		}
	}
	return nil
}

// Release deletes the znode in the place of a partition's claim if it is persistent, and nobody has claimed the partition since
// it was read; with write false it only reads. It waits for ZooKeeper
// for Sources.Wait at most, and leaves no znode. Errors are those of ownership.FindBlock, and of Delete of what that returns.
func (in *Inspector) Release(ctx context.Context, group string, p kiel.Partition, write bool) (b *ownership.Block, err error) {
	err = in.read(ctx, func(ctx context.Context, inc *session.Incarnation) error {
		if b, err = ownership.FindBlock(ctx, inc, group, p); err != nil || !write {
			return err
		}
		err := b.Delete(ctx, inc)
		if !errors.Is(err, session.ErrUncertain) {
			return err
		}
		after, again := ownership.FindBlock(ctx, inc, group, p)
		if again == nil && (!after.Exists || !after.Persistent) {
			return nil // it was deleted
		}
		return err
	})
	if err != nil {
		err = operr.New(pkg, "release", p.String(), err)
	}
	return b, err
}

// RemoveTopic removes a topic from the group's set, as RemoveTopic of package consumer does: not while a member asks for it.
// It blocks, and returns errors, as that does.
func (in *Inspector) RemoveTopic(ctx context.Context, group, topic string) error {
	if in.zk == nil {
		return operr.New(pkg, "remove topic", topic, in.zkErr)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, largeGroup*in.from.Wait, errLate)
	defer cancel()
	a, err := allocator.New(in.zk, group, "kiel", allocator.Options{Logger: in.from.Session.Logger}) // it never runs, so it is no member
	if err == nil {
		err = a.RemoveTopic(ctx, topic)
	}
	if err != nil {
		return operr.New(pkg, "remove topic", topic, err)
	}
	return nil
}
