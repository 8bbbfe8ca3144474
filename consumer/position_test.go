package consumer

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/consumer/internal/offsets"
	"github.com/kielgo/kiel/consumer/internal/reporting"
	"github.com/kielgo/kiel/internal/testonly/assert"
	"github.com/kielgo/kiel/internal/testonly/bubble"
	"github.com/kielgo/kiel/session"
)

// A partition starts at the committed offset, or where the policy says, which is a warning once.
func TestStartPositions(t *testing.T) {
	p := tp("t", 0)
	id, other := sarama.Uuid{1}, sarama.Uuid{2}
	for name, c := range map[string]struct {
		stored      *offsets.Stored
		from        StartAt
		newest      bool // Config's Initial
		first, last int64
		want        int64
		reports     error
		warns       string // the reason why it starts where the policy says
	}{
		"committed":                       {stored: &offsets.Stored{Offset: 7}, last: 100, want: 7},
		"committed by us":                 {stored: &offsets.Stored{Offset: 7, TopicID: id, Token: 3}, last: 100, want: 7},
		"nothing, earliest":               {first: 5, last: 100, want: 5, warns: reasonNone},
		"nothing, latest":                 {from: Latest, first: 5, last: 100, want: 100, warns: reasonNone},
		"of another topic":                {stored: &offsets.Stored{Offset: 7, TopicID: other}, first: 1, last: 100, want: 1, reports: ErrRecreated, warns: reasonRecreated},
		"of another topic, latest":        {stored: &offsets.Stored{Offset: 7, TopicID: other}, from: Latest, first: 1, last: 100, want: 1, reports: ErrRecreated, warns: reasonRecreated},
		"deleted by retention":            {stored: &offsets.Stored{Offset: 7}, first: 20, last: 100, want: 20, reports: ErrOffsetReset, warns: reasonOutOfRange},
		"deleted by retention, latest":    {stored: &offsets.Stored{Offset: 7}, from: Latest, first: 20, last: 100, want: 20, reports: ErrOffsetReset, warns: reasonOutOfRange},
		"beyond the end":                  {stored: &offsets.Stored{Offset: 500}, first: 20, last: 100, want: 20, reports: ErrOffsetReset, warns: reasonOutOfRange},
		"beyond the end, latest":          {stored: &offsets.Stored{Offset: 500}, from: Latest, first: 20, last: 100, want: 100, reports: ErrOffsetReset, warns: reasonOutOfRange},
		"beyond the end, newest":          {stored: &offsets.Stored{Offset: 500}, newest: true, first: 20, last: 100, want: 20, reports: ErrOffsetReset, warns: reasonOutOfRange},
		"at the end":                      {stored: &offsets.Stored{Offset: 100}, first: 20, last: 100, want: 100},
		"no offset of Kafka's, -3":        {stored: &offsets.Stored{Offset: -3}, first: 5, last: 100, want: 5, warns: reasonNone},
		"no offset of Kafka's, least":     {stored: &offsets.Stored{Offset: math.MinInt64}, from: Latest, first: 5, last: 100, want: 100, warns: reasonNone},
		"beyond all":                      {stored: &offsets.Stored{Offset: math.MaxInt64}, first: 5, last: 100, want: 5, reports: ErrOffsetReset, warns: reasonOutOfRange},
		"with another client's metadata":  {stored: &offsets.Stored{Offset: 7, Text: "whatever"}, last: 100, want: 7},
		"committed before ids were known": {stored: &offsets.Stored{Offset: 7, Token: 3}, last: 100, want: 7},
	} {
		bubble.Run(t, name, func(t *testing.T) {
			r := newMarkRig(t, func(o *Options) {
				if o.StartAt = c.from; c.newest {
					o.Config.Consumer.Offsets.Initial = sarama.OffsetNewest
				}
			})
			said := r.logged()
			r.fetch.first, r.fetch.last = c.first, c.last
			no := errors.New("no coordinator")
			r.refuse.Store(&no)
			time.AfterFunc(time.Second, func() { r.refuse.Store(nil) }) // the start takes more than one try
			if c.stored != nil {
				r.store.Set(map[kiel.Partition]offsets.Stored{p: *c.stored})
			}
			h := newHolder(t, p)
			h.previous = "m2" // as the line "claimed" has it
			_, done := r.opened(h)
			synctest.Wait()
			assert.Equal(t, r.store.Get(p).Offset, c.want, "committed before the first message")
			log := r.log.all()
			if log[len(log)-1] != line("open", p, c.want) || log[len(log)-2] != line("commit", p, c.want) {
				t.Errorf("%v does not end with the commit and the opening of %d", log, c.want)
			}
			if n := r.store.Get(p); n.TopicID != id || n.Token != h.token {
				t.Errorf("metadata says %+v", n)
			}
			warned := 0
			if c.warns != "" {
				warned = 1
			}
			time.Sleep(reporting.StartsWithin)
			synctest.Wait()
			first, why := fmt.Sprintf("\"t:0 at %d\"\n", c.want), "cause="+c.warns
			switch {
			case c.warns == reasonNone && c.from == Latest:
				why = "new group starts behind messages that it skips"
			case c.warns == reasonNone:
				if warned = 0; said.Count("level=INFO", `msg="new group starts" policy=earliest option=Config.Consumer.Offsets.Initial`, first) != 1 {
					t.Errorf("the start is not logged:\n%s", said)
				}
			}
			if all, n := said.Count("level=WARN"), said.Count("level=WARN", why, first); all != warned || n != warned {
				t.Errorf("%d warnings, %d of them of the start, want %d with reason %q:\n%s", all, n, warned, c.warns, said)
			}
			from := "committed"
			switch c.warns {
			case reasonNone, reasonRecreated:
				from = "policy"
			case reasonOutOfRange, reasonTruncated:
				from = "reset"
			}
			if n := said.Count("level=INFO", "msg=opened", "partition=t:0", fmt.Sprintf("offset=%d origin=%s reason=session-lost previous=m2\n", c.want, from)); n != 1 {
				t.Errorf("the opening was logged %d times:\n%s", n, said)
			}
			errs := slices.DeleteFunc(r.errors(), func(err error) bool { return errors.Is(err, no) })
			if c.reports == nil && len(errs) > 0 || c.reports != nil && (len(errs) != 1 || !errors.Is(errs[0], c.reports)) {
				t.Errorf("reported %v, want %v", errs, c.reports)
			}
			h.release(t, done)
		})
	}
}

// inCluster has the member consume a cluster of that id.
func (r *rig) inCluster(id string) {
	r.cluster, r.kafka = id, &kafka{}
	r.kafka.cluster.answered(&id)
}

// An offset counts whatever the topic's id in another cluster is. Its leader epoch means nothing here.
func TestStartsAtCopiedOffsets(t *testing.T) {
	p, id, other := tp("t", 0), sarama.Uuid{1}, sarama.Uuid{2}
	here, there := offsets.ClusterID("here"), offsets.ClusterID("there")
	for name, c := range map[string]struct {
		topic   sarama.Uuid
		cluster offsets.ID // of the commit
		fence   bool
		want    int64
		from    reporting.Origin
		epoch   int32
	}{
		"copied":                           {topic: other, cluster: there, want: 7, from: reporting.FromCopied, epoch: -1},
		"copied, with Fence":               {topic: other, cluster: there, fence: true, want: 7, from: reporting.FromCopied, epoch: -1},
		"copied, and one id by chance":     {topic: id, cluster: there, want: 7, from: reporting.FromCopied, epoch: -1},
		"of this cluster":                  {topic: id, cluster: here, want: 7, from: reporting.FromCommitted, epoch: 9},
		"of this cluster, another topic":   {topic: other, cluster: here, want: 1, from: reporting.FromPolicy, epoch: -1},
		"of an unknown one, another topic": {topic: other, want: 1, from: reporting.FromPolicy, epoch: -1},
		"of an unknown one":                {topic: id, want: 7, from: reporting.FromCommitted, epoch: 9},
	} {
		bubble.Run(t, name, func(t *testing.T) {
			r := newMarkRig(t, func(o *Options) {
				o.StartAt = Latest
				if c.fence {
					o.Fence = func(context.Context, string, int32) error { return nil }
				}
			})
			said := r.logged()
			r.inCluster("here")
			r.fetch.first, r.fetch.last = 1, 100
			r.store.Set(map[kiel.Partition]offsets.Stored{p: {
				Offset: 7, TopicID: c.topic, Token: 1 << 60, Ours: true, LeaderEpoch: 9, Text: "x", Place: offsets.Place{Cluster: c.cluster},
			}})
			h := newHolder(t, p)
			o := &opening{member: r.membership, claim: h, tp: p, session: r.session.session, prevTopicID: id}
			start, err := o.position(t.Context(), true)
			if err != nil || start != c.want || o.origin != c.from || o.leaderEpoch != c.epoch {
				t.Errorf("starts at %d, %v, from %s with epoch %d", start, err, o.origin, o.leaderEpoch)
			}
			if got := r.store.Get(p); !c.fence && got.Offset != c.want {
				t.Errorf("stored %+v", got)
			}
			if _, text, _ := o.tracker.Marked(); (text == "x") != (c.want == 7) {
				t.Errorf("the text is %q", text)
			}
			time.Sleep(2 * reporting.StartsWithin)
			synctest.Wait()
			want := 0
			if c.from == reporting.FromCopied {
				want = 1
			}
			if n := said.Count("committed in another Kafka cluster", `first="t:0 at 7"`); n != want {
				t.Errorf("%d lines:\n%s", n, said)
			}
		})
	}
}

// An offset that was copied does not count for a topic that was created again while this member had it.
func TestCopiedOffsetOfARecreatedTopic(t *testing.T) {
	r := newMarkRig(t, nil)
	r.inCluster("here")
	o := opening{member: r.membership, prevTopicID: sarama.Uuid{1}, topicID: sarama.Uuid{2}}
	copied := offsets.Stored{Offset: 7, TopicID: sarama.Uuid{3}, Ours: true, Place: offsets.Place{Cluster: offsets.ClusterID("there")}}
	if got := o.reason(copied); got != reasonRecreated {
		t.Errorf("%q", got)
	}
	o.topicID = o.prevTopicID
	if got := o.reason(copied); got != "" {
		t.Errorf("%q", got)
	}
}

// placed has the members of a rig know in which tree and cluster they are.
func placed(r *rig) offsets.Place {
	r.kafka = &kafka{}
	r.kafka.cluster.answered(new("cluster"))
	r.cluster = "cluster"
	r.tree.store(nil, offsets.ID{7})
	return offsets.Place{Tree: offsets.ID{7}, Cluster: offsets.ClusterID("cluster")}
}

// A start position that is stored as this member would store it is not committed again. In all other cases it is.
func TestStartThatIsStoredIsNotCommitted(t *testing.T) {
	began := time.UnixMilli(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC).UnixMilli()) // synctest's clock begins there
	for name, c := range map[string]struct {
		change  func(r *rig, s *offsets.Stored)
		options func(*Options)
		refused bool // Kafka has refused the newest commit
		commits int
	}{
		"all is the same":               {},
		"an older token":                {change: func(_ *rig, s *offsets.Stored) { s.Token = 2 }},
		"a text":                        {change: func(_ *rig, s *offsets.Stored) { s.Text = "x" }},
		"beginning":                     {change: func(_ *rig, s *offsets.Stored) { s.Began = began }},
		"of another program":            {change: func(_ *rig, s *offsets.Stored) { s.Ours = false }, commits: 1},
		"another topic":                 {change: func(_ *rig, s *offsets.Stored) { s.TopicID = sarama.Uuid{9} }, commits: 1},
		"no topic":                      {change: func(_ *rig, s *offsets.Stored) { s.TopicID = sarama.Uuid{} }, commits: 1},
		"no topic is known":             {change: func(r *rig, s *offsets.Stored) { r.setID("t", 0); s.TopicID = sarama.Uuid{} }, commits: 1},
		"another tree":                  {change: func(_ *rig, s *offsets.Stored) { s.Place.Tree = offsets.ID{8} }, commits: 1},
		"no tree":                       {change: func(_ *rig, s *offsets.Stored) { s.Place.Tree = offsets.ID{} }, commits: 1},
		"no tree is known":              {change: func(r *rig, s *offsets.Stored) { r.tree.store(nil, offsets.ID{}); s.Place.Tree = offsets.ID{} }, commits: 1},
		"another cluster":               {change: func(_ *rig, s *offsets.Stored) { s.Place.Cluster = offsets.ID{8} }, commits: 1},
		"no cluster":                    {change: func(_ *rig, s *offsets.Stored) { s.Place.Cluster = offsets.ID{} }, commits: 1},
		"other partitions":              {change: func(_ *rig, s *offsets.Stored) { s.FirstPartitions = 0 }, commits: 1},
		"began long ago":                {change: func(_ *rig, s *offsets.Stored) { s.Began = began.Add(-time.Hour) }, commits: 1},
		"nothing":                       {change: func(_ *rig, s *offsets.Stored) { *s = offsets.Stored{Offset: -1} }, commits: 1},
		"Fence":                         {options: func(o *Options) { o.Fence = func(_ context.Context, _ string, _ int32) error { return nil } }},
		"nothing was stored for long":   {change: func(*rig, *offsets.Stored) { time.Sleep(time.Minute + time.Second/2) }, commits: 1},
		"the newest commit was refused": {refused: true, commits: 1},
	} {
		bubble.Run(t, name, func(t *testing.T) {
			p, h := tp("t", 0), newHolder(t, tp("t", 0))
			r := newMarkRig(t, c.options)
			place := placed(r)
			s := offsets.Stored{Offset: 40, Ours: true, TopicID: sarama.Uuid{1}, Token: h.token, FirstPartitions: 2, Place: place, LeaderEpoch: -1}
			other := newHolder(t, tp("t", 1))
			r.accept(other, 1)
			if c.change != nil {
				c.change(r, &s)
			}
			if c.refused {
				fail := errors.New("no")
				r.refuse.Store(&fail)
				r.accept(other, 2)
				r.refuse.Store(nil)
			}
			r.store.Set(map[kiel.Partition]offsets.Stored{p: s})
			before := len(r.store.Commits())
			_, done := r.opened(h)
			synctest.Wait()
			assert.Equal(t, len(r.store.Commits())-before, c.commits, "commits before reading")
			h.release(t, done)
		})
	}
}

// accept has an offset of another partition committed.
func (r *rig) accept(other *fakeHolder, offset int64) {
	tracker := r.committer.Open(other.p, other, sarama.Uuid{1}, offset, "")
	_ = r.committer.Commit(other.ctx, tracker)
	r.committer.Close(other.ctx, tracker)
}

// The group's znode was created again: a member's own commits, which have the former ID, are of its tree. An offset of a tree
// that it never was in, and a newer token in its own, stay findings. In another session a former ID says nothing.
func TestFormerIDsOfTheTreeAreOwn(t *testing.T) {
	var tr tree
	inc, next := new(session.Incarnation), new(session.Incarnation)
	one, two, three, other := offsets.ID{1}, offsets.ID{2}, offsets.ID{3}, offsets.ID{9}
	for _, id := range []offsets.ID{one, two, two, three} {
		tr.store(inc, id)
	}
	at := func(id offsets.ID, token int64) offsets.Finding {
		return offsets.Finding{
			Discord: offsets.OtherTree, Stored: offsets.Stored{Token: token, Place: offsets.Place{Tree: id}}, Token: 7, Place: offsets.Place{Tree: three},
		}
	}
	judge := func(inc *session.Incarnation) (discords []offsets.Discord) {
		had := func(id offsets.ID) bool { return tr.had(inc, id) }
		for _, f := range inOneTree([]offsets.Finding{at(one, 7), at(two, 6), at(one, 8), at(other, 6)}, had) {
			discords = append(discords, f.Discord)
		}
		return discords
	}
	if got, want := judge(inc), []offsets.Discord{offsets.NewerOwner, offsets.OtherTree}; !slices.Equal(got, want) {
		t.Errorf("found %q, want %q", got, want)
	}
	tr.store(next, three)
	if got := judge(next); len(got) != 4 || slices.Contains(got, offsets.NewerOwner) {
		t.Errorf("in another session: %q", got)
	}
}
