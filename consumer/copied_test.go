package consumer

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/consumer/internal/offsets"
	"github.com/kielgo/kiel/consumer/internal/reporting"
	"github.com/kielgo/kiel/internal/testonly/logtest"
)

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
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newMarkRig(t, func(o *Options) {
					o.StartAt = Latest
					if c.fence {
						o.Fence = func(context.Context, string, int32) error { return nil }
					}
				})
				said := &logtest.Log{}
				r.logTo(slog.NewTextHandler(said, nil))
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
