package offsets

import (
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/internal/testonly/assert"
	"github.com/kielgo/kiel/internal/testonly/noerr"
)

// wantEpoch checks the leader epoch that is committed with the marked position.
func wantEpoch(t *testing.T, when string, tr *Tracker, offset int64, leaderEpoch int32) {
	t.Helper()
	p := tr.prepare(NewCommitter(Options{}), marked)
	if c := p.offsetCommit(); c.Offset != offset || c.LeaderEpoch != leaderEpoch {
		t.Errorf("%s: position %d with epoch %d, want %d with %d", when, c.Offset, c.LeaderEpoch, offset, leaderEpoch)
	}
}

// A position is committed with the leader epoch of the record batch before it.
func TestCommitHasTheLeaderEpoch(t *testing.T) {
	tr := trackerAt(t, 10, 0)
	wantEpoch(t, "nothing is known", tr, 10, -1)
	tr.SetStartLeaderEpoch(4)
	wantEpoch(t, "the start's is known", tr, 10, 4)
	tr.SetLeaderEpoch(10, 5)
	tr.Delivered(messages(10, 11, 12, 13), 20)
	wantEpoch(t, "delivered and not marked", tr, 10, 4)
	tr.Mark(11, "")
	wantEpoch(t, "one is marked", tr, 11, 5)
	tr.SetLeaderEpoch(24, 7)
	tr.Delivered(messages(20, 21, 24, 25), 26)
	tr.Mark(13, "")
	wantEpoch(t, "of an answer before", tr, 13, 5)
	tr.Mark(14, "")
	wantEpoch(t, "of an answer before, its last message", tr, 14, 5)
	tr.Mark(22, "")
	wantEpoch(t, "before a change of leader within an answer", tr, 22, -1)
	tr.Mark(25, "")
	wantEpoch(t, "after the change", tr, 25, 7)
	tr.Mark(26, "")
	wantEpoch(t, "all are marked", tr, 26, 7)
	tr.Mark(40, "")
	wantEpoch(t, "above what was delivered", tr, 40, -1)
	tr.Reset(9, "")
	wantEpoch(t, "below what was delivered", tr, 9, -1)
	tr.Move(3)
	wantEpoch(t, "moved", tr, 3, -1)
}

// A Tracker remembers the newest changes of leader. For offsets before these it knows no epoch.
func TestEpochsAreBounded(t *testing.T) {
	tr := trackerAt(t, 0, 0)
	for i := range int64(3 * maxLeaderEpochs) {
		tr.SetLeaderEpoch(i, int32(i))
		tr.Delivered(messages(i), i+1)
	}
	assert.Equal(t, len(tr.leaderEpochs), maxLeaderEpochs, "leader epochs that are kept")
	tr.Mark(5, "")
	wantEpoch(t, "forgotten", tr, 5, -1)
	tr.Mark(2*maxLeaderEpochs+2, "")
	wantEpoch(t, "remembered", tr, 2*maxLeaderEpochs+2, 2*maxLeaderEpochs+1)
	tr.SetLeaderEpoch(3*maxLeaderEpochs, 1000)
	tr.Delivered(messages(3*maxLeaderEpochs), 3*maxLeaderEpochs+1)
	assert.Equal(t, len(tr.leaderEpochs), maxLeaderEpochs, "leader epochs that are kept")
	tr.Mark(3*maxLeaderEpochs+1, "")
	wantEpoch(t, "the newest", tr, 3*maxLeaderEpochs+1, 1000)
	tr.SetLeaderEpoch(3*maxLeaderEpochs+1, 1001)
	assert.Equal(t, len(tr.leaderEpochs), 2, "leader epochs that are kept when all is marked")
}

// The leader epoch goes to Kafka and comes back, if the versions of the requests have it.
func TestStoredLeaderEpoch(t *testing.T) {
	s := &script{
		commit: []onCommit{answer(all(1, 0))},
		fetch: []onFetch{
			func(q *sarama.OffsetFetchRequest) (*sarama.OffsetFetchResponse, error) {
				r := &sarama.OffsetFetchResponse{Version: q.Version}
				r.AddBlock("t", 0, &sarama.OffsetFetchResponseBlock{Offset: 100, LeaderEpoch: 6, Metadata: "kiel1;;0;x"})
				return r, nil
			},
		},
	}
	store := s.store()
	c := commits(1)
	c[0].LeaderEpoch = 6
	noerr.Must(t, store.Commit(t.Context(), c)[c[0].Partition])
	want := sarama.NewOffsetCommitRequest(store.Config, "g")
	want.AddBlockWithLeaderEpoch("t", 0, 100, 6, 0, "kiel1;;0;x")
	if got := s.commits[0]; !reflect.DeepEqual(got, want) {
		t.Errorf("sent %+v, want %+v", got, want)
	}
	got, err := store.Fetch(t.Context(), []kiel.Partition{tp("t", 0)})
	if f := got[tp("t", 0)]; err != nil || f.LeaderEpoch != 6 || !f.Ours {
		t.Errorf("read %+v, %v", f, err)
	}
}

// A MemoryStore keeps the leader epoch, and a repeat keeps the one that it finds.
func TestRepeatKeepsTheLeaderEpoch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, p := &MemoryStore{}, tp("t", 0)
		cm, stop := committerOn(t, store, true)
		defer stop()
		tr := openAt(t, cm, p, 42)
		tr.SetLeaderEpoch(42, 5)
		tr.Delivered(messages(42), 43)
		tr.Mark(43, "")
		noerr.Must(t, cm.Commit(t.Context(), tr))
		if s := store.Get(p); s.LeaderEpoch != 5 {
			t.Errorf("stored %+v", s)
		}
		store.Set(map[kiel.Partition]Stored{p: {Offset: 99, TopicID: sarama.Uuid{1}, Token: 6, Ours: true, LeaderEpoch: 4}})
		time.Sleep(7 * time.Hour)
		if s := store.Get(p); s.Offset != 99 || s.Token != 7 || s.LeaderEpoch != 4 {
			t.Errorf("repeated %+v", s)
		}
	})
}
