package offsets

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/internal/testonly/assert"
	"github.com/kielgo/kiel/internal/testonly/noerr"
	"github.com/kielgo/kiel/session"
)

// openAt returns a Tracker whose start position is stored.
func openAt(t *testing.T, cm *Committer, p kiel.Partition, offset int64) *Tracker {
	t.Helper()
	tr := cm.Open(p, newClaim(t), sarama.Uuid{1}, offset, "")
	noerr.Must(t, cm.Commit(t.Context(), tr))
	return tr
}

// A repeat never lowers an offset. It raises one that a member with an older token, or the group's own late commit, has lowered,
// and restores one that was deleted. It leaves an offset alone that another program has stored.
func TestRepeatOnlyRaises(t *testing.T) {
	id, other := sarama.Uuid{1}, sarama.Uuid{2}
	for name, c := range map[string]struct{ found, want Stored }{
		"lowered by an older token":        {Stored{Offset: 15, TopicID: id, Token: 6, Ours: true}, Stored{Offset: 42, Token: 7}},
		"lowered by our own token":         {Stored{Offset: 15, TopicID: id, Token: 7, Ours: true}, Stored{Offset: 42, Token: 7}},
		"lowered by a newer token":         {Stored{Offset: 15, TopicID: id, Token: 8, Ours: true}, Stored{Offset: 15, Token: 8}},
		"raised by an older token":         {Stored{Offset: 99, TopicID: id, Token: 6, Ours: true}, Stored{Offset: 99, Token: 6}},
		"lowered by somebody else":         {Stored{Offset: 15}, Stored{Offset: 15}},
		"raised by somebody else":          {Stored{Offset: 99, Text: "x"}, Stored{Offset: 99}},
		"deleted":                          {Stored{Offset: -1}, Stored{Offset: 42, Token: 7}},
		"of a deleted topic, above":        {Stored{Offset: 99, TopicID: other, Token: 6, Ours: true}, Stored{Offset: 42, Token: 7}},
		"lowered before ids were known":    {Stored{Offset: 15, Token: 6, Ours: true}, Stored{Offset: 42, Token: 7}},
		"of somebody else's token of ours": {Stored{Offset: 15, Token: 6, Text: "kiel"}, Stored{Offset: 15, Token: 6}},
		"lowered in another tree":          {Stored{Offset: 15, TopicID: id, Token: 8, Ours: true, Place: otherTree}, Stored{Offset: 42, Token: 7}},
		"raised in another tree":           {Stored{Offset: 99, TopicID: id, Token: 8, Ours: true, Place: otherTree}, Stored{Offset: 99, Token: 8}},
		"lowered by a mirror":              {Stored{Offset: 15, TopicID: other, Token: 8, Ours: true, Place: mirrored}, Stored{Offset: 42, Token: 7}},
		"raised by a mirror":               {Stored{Offset: 99, TopicID: other, Token: 8, Ours: true, Place: mirrored}, Stored{Offset: 42, Token: 7}},
		"raised by a mirror, one id":       {Stored{Offset: 99, TopicID: id, Token: 6, Ours: true, Place: mirrored}, Stored{Offset: 42, Token: 7}},
		"by a newer token of this tree":    {Stored{Offset: 15, TopicID: id, Token: 8, Ours: true, Place: here}, Stored{Offset: 15, Token: 8}},
	} {
		committerTest(t, name, true, func(t *testing.T, cm *Committer, store *MemoryStore) {
			cm.options.Place = func(*session.Incarnation) Place { return here }
			p := tp("t", 0)
			openAt(t, cm, p, 42)
			time.Sleep(2 * time.Second)
			store.Set(map[kiel.Partition]Stored{p: c.found})
			time.Sleep(7 * time.Hour)
			if got := store.Get(p); got.Offset != c.want.Offset || got.Token != c.want.Token && c.found.Ours && c.found.Offset < 42 {
				t.Errorf("stored %+v, want %+v", got, c.want)
			}
		})
	}
}

// Repeats leave another program's offset alone until a mark is committed. That is logged once per topic.
func TestOffsetsOfOthersAreLeftAlone(t *testing.T) {
	withCommitter(t, true, func(t *testing.T, cm *Committer, store *MemoryStore) {
		var log bytes.Buffer
		cm.options.Logger = slog.New(slog.NewTextHandler(&log, nil))
		p, q := tp("t", 0), tp("t", 1)
		tr := openAt(t, cm, p, 0)
		openAt(t, cm, q, 0)
		store.Set(map[kiel.Partition]Stored{p: {Offset: 50}, q: {Offset: 60}})
		time.Sleep(2 * time.Hour)
		store.Set(map[kiel.Partition]Stored{p: {Offset: -1}}) // deleted meanwhile
		n := len(store.Fetches())
		time.Sleep(24 * time.Hour)
		if got := store.Get(p).Offset; got != -1 || len(store.Fetches()) != n {
			t.Errorf("stored %d, read %d times", got, len(store.Fetches())-n)
		}
		synctest.Wait()
		if n := strings.Count(log.String(), "level=INFO"); n != 1 || !strings.Contains(log.String(), " partition=t:") {
			t.Errorf("%d lines:\n%s", n, log.String())
		}
		tr.Mark(70, "")
		time.Sleep(2 * time.Second)
		store.Set(map[kiel.Partition]Stored{p: {Offset: 20, TopicID: sarama.Uuid{1}, Token: 3, Ours: true}})
		time.Sleep(7 * time.Hour)
		assert.Equal(t, store.Get(p).Offset, 70, "stored after a mark was committed")
	})
}

// A repeat writes an unchanged offset only to keep it alive.
func TestRepeatsWriteSeldom(t *testing.T) {
	withCommitter(t, true, func(t *testing.T, cm *Committer, store *MemoryStore) {
		openAt(t, cm, tp("t", 0), 42)
		time.Sleep(time.Hour)
		if n, reads := len(store.Commits()), len(store.Fetches()); n != 1 || reads != 3 {
			t.Errorf("%d commits, %d reads in an hour, want the start alone and 3 reads", n, reads)
		}
		time.Sleep(12 * time.Hour)
		assert.Equal(t, len(store.Commits()), 3, "commits in 13 hours")
	})
}

// A start position that was found is committed with the first repeat, which finds what came late as any repeat does: until then
// nobody knows how old it is, and Kafka deletes old ones. A mark, and the release, make that unnecessary.
func TestFoundStartIsCommittedWithTheFirstRepeat(t *testing.T) {
	id := sarama.Uuid{1}
	for name, c := range map[string]struct {
		late Stored // arrives after the offset was found
		want int64
	}{
		"nothing":            {Stored{Offset: 42, TopicID: id, Token: 6, Ours: true}, 42},
		"a lower offset":     {Stored{Offset: 15, TopicID: id, Token: 6, Ours: true}, 42},
		"a higher offset":    {Stored{Offset: 50, TopicID: id, Token: 6, Ours: true}, 50},
		"it is deleted":      {Stored{Offset: -1}, 42},
		"of a deleted topic": {Stored{Offset: 99, TopicID: sarama.Uuid{2}, Token: 6, Ours: true}, 42},
	} {
		committerTest(t, name, true, func(t *testing.T, cm *Committer, store *MemoryStore) {
			p := tp("t", 0)
			store.Set(map[kiel.Partition]Stored{p: c.late})
			tr := cm.OpenFound(p, newClaim(t), id, 42, "")
			if _, _, dirty := tr.Marked(); dirty {
				t.Error("it is to be committed")
			}
			time.Sleep(sessionTimeout - time.Second)
			assert.Equal(t, len(store.Commits()), 0, "commits before the first repeat")
			time.Sleep(3 * time.Second)
			if got := store.Get(p); got.Offset != c.want || got.Token != 7 {
				t.Errorf("stored %+v, want %d under the new token", got, c.want)
			}
			time.Sleep(time.Hour)
			assert.Equal(t, len(store.Commits()), 1, "commits in an hour")
		})
	}
}

// An audit compares what it finds with a start position that was found, as with one that was committed.
func TestFoundStartIsAudited(t *testing.T) {
	withCommitter(t, true, func(t *testing.T, cm *Committer, _ *MemoryStore) {
		tr := cm.OpenFound(tp("t", 0), newClaim(t), sarama.Uuid{1}, 42, "")
		time.Sleep(time.Millisecond)
		if !tr.beganBefore(time.Now()) {
			t.Error("an audit does not look at it")
		}
	})
}

// A store that does not answer a repeat's question holds up no commit.
func TestSilentReadHoldsUpNoCommit(t *testing.T) {
	withCommitter(t, true, func(t *testing.T, cm *Committer, store *MemoryStore) {
		store.BlockFetch = make(chan struct{})
		p, q := tp("t", 0), tp("t", 1)
		openAt(t, cm, p, 0)
		tr := openAt(t, cm, q, 0)
		time.Sleep(sessionTimeout + 2*time.Second) // the repeats are due
		tr.Mark(5, "")
		time.Sleep(1500 * time.Millisecond)
		assert.Equal(t, store.Get(q).Offset, 5, "stored while a read is under way")
	})
}

// A partition in which nothing was marked is committed once more when it is released.
func TestReleaseRestoresAnUnmarkedPosition(t *testing.T) {
	id := sarama.Uuid{1}
	for name, c := range map[string]struct{ found, want Stored }{
		"deleted":                   {Stored{Offset: -1}, Stored{Offset: 42}},
		"lowered by an older token": {Stored{Offset: 15, TopicID: id, Token: 6, Ours: true}, Stored{Offset: 42}},
		"raised by an older token":  {Stored{Offset: 99, TopicID: id, Token: 6, Ours: true}, Stored{Offset: 99}},
		"of somebody else":          {Stored{Offset: 15}, Stored{Offset: 15}},
	} {
		t.Run(name, func(t *testing.T) {
			for _, auto := range []bool{true, false} {
				withCommitter(t, auto, func(t *testing.T, cm *Committer, store *MemoryStore) {
					p := tp("t", 0)
					tr := openAt(t, cm, p, 42)
					store.Set(map[kiel.Partition]Stored{p: c.found})
					noerr.Want(t, cm.CommitLast(t.Context(), tr))
					if got := store.Get(p); got.Offset != c.want.Offset {
						t.Errorf("auto commit %v: stored %+v, want %d", auto, got, c.want.Offset)
					}
				})
			}
		})
	}
}

func TestReleasesTravelTogether(t *testing.T) {
	withCommitter(t, true, func(t *testing.T, cm *Committer, store *MemoryStore) {
		store.Delay = time.Millisecond
		var trackers []*Tracker
		for i := range int32(50) {
			trackers = append(trackers, openAt(t, cm, tp("t", i), int64(i)))
		}
		store.Clear()
		commits := len(store.Commits())
		done := make(chan error)
		for _, tr := range trackers {
			go func() { done <- cm.CommitLast(t.Context(), tr) }()
		}
		for range trackers {
			noerr.Want(t, <-done)
		}
		if n, reads := len(store.Commits())-commits, len(store.Fetches()); n > 2 || reads > 2 {
			t.Errorf("50 releases took %d commits and %d reads", n, reads)
		}
		assert.Equal(t, store.Get(tp("t", 49)).Offset, 49, "stored")
	})
}

// A release waits for a second at most, also when the Committer is busy with another commit, and no error of the store fails it.
func TestReleaseGoesOnWithoutTheStore(t *testing.T) {
	for name, c := range map[string]struct {
		change func(s *MemoryStore, other *Tracker)
		takes  time.Duration
		aborts int // of connections, because what is on the wire may arrive later
	}{
		"no answer to the read":   {func(s *MemoryStore, _ *Tracker) { s.BlockFetch = make(chan struct{}) }, time.Second, 0},
		"no answer to the commit": {func(s *MemoryStore, _ *Tracker) { s.Slow = make(chan struct{}) }, time.Second, 1},
		"refused": {func(s *MemoryStore, _ *Tracker) {
			s.Refuse = func(OffsetCommit) error { return errors.New("no") }
		}, 0, 0},
		"busy": {func(s *MemoryStore, other *Tracker) {
			s.Slow = make(chan struct{})
			other.Mark(1, "")
			time.Sleep(2 * time.Second) // its commit is under way
		}, time.Second, 0},
	} {
		committerTest(t, name, true, func(t *testing.T, cm *Committer, store *MemoryStore) {
			aborts := 0
			cm.options.Abort = func() { aborts++ }
			log := logged(cm)
			tr, other := openAt(t, cm, tp("t", 0), 42), openAt(t, cm, tp("t", 1), 0)
			store.Clear()
			c.change(store, other)
			if store.Slow != nil {
				defer close(store.Slow)
			}
			start := time.Now()
			noerr.Want(t, cm.CommitLast(t.Context(), tr))
			assert.Equal(t, time.Since(start), c.takes, "the release takes")
			if n := strings.Count(log.String(), "\n"); n != 1 {
				t.Errorf("%d lines:\n%s", n, log.String())
			}
			if store.Refuse != nil && (len(store.Fetches()) != 1 || len(store.Commits()) != 3) {
				t.Errorf("%d reads and %d commits, want one try after the commits of the starts", len(store.Fetches()), len(store.Commits()))
			}
			assert.Equal(t, aborts, c.aborts, "how often connections were aborted")
		})
	}
}

// hangingStore does not answer its first n Fetches.
type hangingStore struct {
	*MemoryStore
	hangs atomic.Int64
}

func (s *hangingStore) Fetch(ctx context.Context, ps []kiel.Partition) (map[kiel.Partition]Stored, error) {
	if s.hangs.Add(-1) >= 0 {
		<-ctx.Done()
		return nil, context.Cause(ctx)
	}
	return s.MemoryStore.Fetch(ctx, ps)
}

// A release that the store does not answer does not use up the second of the next release.
func TestReleaseAfterASilentRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &hangingStore{MemoryStore: &MemoryStore{}}
		cm, stop := committerOn(t, store, true)
		defer stop()
		first, second := openAt(t, cm, tp("t", 0), 42), openAt(t, cm, tp("t", 1), 43)
		store.Clear()
		store.hangs.Store(1)
		released := make(chan error)
		go func() { released <- cm.CommitLast(t.Context(), first) }()
		time.Sleep(500 * time.Millisecond)
		noerr.Want(t, cm.CommitLast(t.Context(), second))
		noerr.Want(t, <-released)
		assert.Equal(t, store.Get(tp("t", 1)).Offset, 43, "stored for the second")
	})
}

func TestNothingIsRestoredForALostClaim(t *testing.T) {
	withCommitter(t, true, func(t *testing.T, cm *Committer, store *MemoryStore) {
		claim := newClaim(t)
		tr := cm.Open(tp("t", 0), claim, sarama.Uuid{}, 42, "")
		noerr.Must(t, cm.Commit(t.Context(), tr))
		store.Clear()
		claim.distrust.Store(true)
		noerr.Want(t, cm.CommitLast(t.Context(), tr))
		if len(store.Fetches()) > 0 || store.Get(tp("t", 0)).Offset != -1 {
			t.Errorf("read %v, stored %+v", store.Fetches(), store.Get(tp("t", 0)))
		}
	})
}

// A repeat that could not read what is stored is tried again every few seconds, and the log tells soon when that works. That is
// so also when nothing is to be repeated any more, because the partition was committed or given up meanwhile.
func TestRepeatIsTriedAgain(t *testing.T) {
	for name, change := range map[string]func(*Committer, *Tracker){
		"it is still due":     nil,
		"a mark is committed": func(_ *Committer, tr *Tracker) { tr.Mark(43, "") },
		"the partition is given up": func(cm *Committer, tr *Tracker) {
			tr.LeaveAlone() // so that the release need not ask
			if err := cm.CommitLast(context.Background(), tr); err != nil {
				panic(err)
			}
		},
	} {
		committerTest(t, name, true, func(t *testing.T, cm *Committer, store *MemoryStore) {
			store.BlockFetch = make(chan struct{})
			log := logged(cm)
			p := tp("t", 0)
			tr := openAt(t, cm, p, 42)
			if change == nil {
				store.Set(map[kiel.Partition]Stored{p: {Offset: 15, Token: 6, Ours: true}})
			}
			time.Sleep(20 * time.Minute) // no other repeat is due for hours
			synctest.Wait()
			if n, most := strings.Count(log.String(), "\n"), 6*20; n < most/2 || n > most {
				t.Errorf("%d lines in 20 minutes", n)
			}
			if change != nil {
				change(cm, tr)
				time.Sleep(time.Minute)
			}
			close(store.BlockFetch)
			time.Sleep(retryRead + LastCommitTimeout + 2*time.Second)
			synctest.Wait()
			if change == nil {
				assert.Equal(t, store.Get(p).Offset, 42, "stored when the store answers again")
			}
			assert.Equal(t, strings.Count(log.String(), "msg=recovered kind=offsets"), 1, "lines that tell that it works again: %s", log.String())
			reads := len(store.Fetches())
			time.Sleep(time.Minute)
			assert.Equal(t, len(store.Fetches()), reads, "reads when all is well")
		})
	}
}

// A repeat drops an answer that waited behind a slow commit: another program may have stored an offset meanwhile.
func TestRepeatForgetsWhatWasReadLongAgo(t *testing.T) {
	withCommitter(t, true, func(t *testing.T, cm *Committer, store *MemoryStore) {
		store.Delay = 500 * time.Millisecond
		var slow atomic.Bool
		cm.options.Count = func(kiel.Partition, error, time.Duration) {
			if slow.Load() {
				time.Sleep(10 * time.Second)
			}
		}
		p, q := tp("t", 0), tp("t", 1)
		openAt(t, cm, p, 42)
		busy := openAt(t, cm, q, 0)
		store.Clear()
		time.Sleep(sessionTimeout + 200*time.Millisecond) // the repeats are due: what is stored is being read
		slow.Store(true)
		busy.Mark(1, "")
		done := make(chan error)
		go func() { done <- cm.Commit(t.Context(), busy) }()
		time.Sleep(5 * time.Second)
		store.Set(map[kiel.Partition]Stored{p: {Offset: 99}})
		slow.Store(false)
		noerr.Want(t, <-done)
		time.Sleep(time.Hour)
		assert.Equal(t, store.Get(p).Offset, 99, "stored")
	})
}

// A repeat acts on an answer that is a second old, and on none that is older.
func TestRepeatWritesByAFreshAnswerOnly(t *testing.T) {
	for age, want := range map[time.Duration]int64{0: 42, time.Second: 42, 1001 * time.Millisecond: -1} {
		synctest.Test(t, func(t *testing.T) {
			store := &MemoryStore{}
			cm, stop := committerOn(t, store, true)
			stop() // the test does what Run would
			p := tp("t", 0)
			tr := cm.Open(p, newClaim(t), sarama.Uuid{1}, 42, "")
			time.Sleep(sessionTimeout)
			q := question{trackers: []*Tracker{tr}, found: map[kiel.Partition]Stored{p: store.Get(p)}, asked: time.Now(), answered: time.Now()}
			time.Sleep(age)
			cm.repeat(t.Context(), q)
			assert.Equal(t, store.Get(p).Offset, want, "stored by an answer %v old", age)
			if dropped := want < 0; tr.isDue(time.Now()) != dropped {
				t.Errorf("due again after an answer %v old: %v, want %v", age, !dropped, dropped)
			}
		})
	}
}
