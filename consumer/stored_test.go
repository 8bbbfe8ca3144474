package consumer

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/consumer/internal/offsets"
)

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
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
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
				done := r.owned(h)
				<-r.fetch.streams
				synctest.Wait()
				if got := len(r.store.Commits()) - before; got != c.commits {
					t.Errorf("%d commits before reading, want %d", got, c.commits)
				}
				h.release(t, done)
			})
		})
	}
}

// accept has an offset of another partition committed.
func (r *rig) accept(other *fakeHolder, offset int64) {
	tracker := r.committer.Open(other.p, other, sarama.Uuid{1}, offset, "")
	_ = r.committer.Commit(other.ctx, tracker)
	r.committer.Close(other.ctx, tracker)
}
