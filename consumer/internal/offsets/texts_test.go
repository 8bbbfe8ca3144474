package offsets

import (
	"errors"
	"math"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/internal/testonly/assert"
	"github.com/kielgo/kiel/internal/testonly/noerr"
)

// texts are what a Committer has reported of texts.
type texts struct {
	lost, first, stored int
	err                 error
}

// limitTexts has the store refuse metadata that are longer than limit, and returns what is reported, and how often the store
// refused.
func limitTexts(cm *Committer, store *MemoryStore, limit int) (said *texts, refusals *int) {
	said, refusals = &texts{}, new(int)
	store.Refuse = func(c OffsetCommit) error {
		if len(metadataOf(c).String()) <= limit {
			return nil
		}
		*refusals++
		return ErrTooLarge
	}
	cm.options.Text = func(_ kiel.Partition, err error, first bool) {
		switch {
		case err == nil:
			said.stored++
		case first:
			said.first++
			fallthrough
		default:
			said.lost++
			said.err = err
		}
	}
	return said, refusals
}

// A text that Kafka does not take costs the text, not the offset, and a request once: the next one is not sent with its mark.
func TestTextThatKafkaRefuses(t *testing.T) {
	for name, limit := range map[string]int{"4,096": 4096, "a smaller limit": 1000} {
		committerTest(t, name, true, func(t *testing.T, cm *Committer, store *MemoryStore) {
			said, refusals := limitTexts(cm, store, limit)
			reported := 0
			cm.options.Report = func(error, kiel.Partition) { reported++ }
			p := tp("t", 0)
			tr := openAt(t, cm, p, 0)
			time.Sleep(500 * time.Millisecond) // from now on a mark falls between two commits
			long, short := strings.Repeat("x", limit), strings.Repeat("y", limit-96)
			for i := range int64(20) {
				tr.Mark(i+1, long)
				time.Sleep(time.Second)
			}
			time.Sleep(time.Second)
			synctest.Wait()
			if s := store.Get(p); s.Offset != 20 || s.Text != "" {
				t.Errorf("stored %+v", s)
			}
			if *refusals != 1 || said.first != 1 || said.lost != 20 || reported != 0 || !errors.Is(said.err, ErrTextLost) {
				t.Errorf("%d refusals, %d other reports, %+v", *refusals, reported, said)
			}
			tr.Mark(21, short)
			time.Sleep(2 * time.Second)
			synctest.Wait()
			if s := store.Get(p); s.Offset != 21 || s.Text != short || said.stored != 1 {
				t.Errorf("stored %d with %d characters, %+v", s.Offset, len(s.Text), said)
			}
			tr.Reset(10, long)
			began := time.Now()
			if err := cm.CommitLast(t.Context(), tr); err != nil || time.Since(began) > 0 {
				t.Errorf("committed after %v: %v", time.Since(began), err)
			}
			if s := store.Get(p); s.Offset != 10 || s.Text != "" || *refusals != 1 || said.first != 1 {
				t.Errorf("stored %+v, %+v", s, said)
			}
		})
	}
}

// A limit that was learned is not for ever: brokers may be given another one.
func TestLongTextsAreTriedAgain(t *testing.T) {
	withCommitter(t, true, func(t *testing.T, cm *Committer, store *MemoryStore) {
		said, refusals := limitTexts(cm, store, 4096)
		refuse, raised := store.Refuse, new(atomic.Bool)
		store.Refuse = func(c OffsetCommit) error {
			if raised.Load() {
				return nil
			}
			return refuse(c)
		}
		p := tp("t", 0)
		tr := openAt(t, cm, p, 0)
		long := strings.Repeat("x", 5000)
		mark := func(offset int64, want string) {
			t.Helper()
			tr.Mark(offset, long)
			time.Sleep(2 * time.Second)
			synctest.Wait()
			if s := store.Get(p); s.Offset != offset || s.Text != want {
				t.Errorf("stored %d with %d characters", s.Offset, len(s.Text))
			}
		}
		mark(1, "")
		time.Sleep(learnedFor)
		mark(2, "")
		if *refusals != 2 || said.lost != 2 {
			t.Errorf("%d refusals, %+v", *refusals, said)
		}
		raised.Store(true)
		mark(3, "")
		time.Sleep(learnedFor)
		mark(4, long)
	})
}

// The first text that is refused may be that of the last commit before a release.
func TestTextRefusedAtTheRelease(t *testing.T) {
	for name, auto := range map[string]bool{"AutoCommit": true, "without AutoCommit": false} {
		committerTest(t, name, auto, func(t *testing.T, cm *Committer, store *MemoryStore) {
			said, _ := limitTexts(cm, store, 4096)
			p := tp("t", 0)
			tr := openAt(t, cm, p, 0)
			tr.Mark(5, strings.Repeat("x", 4096))
			if !auto {
				noerr.Want(t, cm.Commit(t.Context(), tr))
			}
			began := time.Now()
			if err := cm.CommitLast(t.Context(), tr); err != nil || time.Since(began) > 0 {
				t.Errorf("committed after %v: %v", time.Since(began), err)
			}
			if s := store.Get(p); s.Offset != 5 || s.Text != "" || said.first != 1 {
				t.Errorf("stored %+v, %+v", s, said)
			}
		})
	}
}

// An offset that Kafka refuses for its size without a text, too, is committed again once a minute, and tried once at its release.
func TestOffsetRefusedForGood(t *testing.T) {
	withCommitter(t, true, func(t *testing.T, cm *Committer, store *MemoryStore) {
		p, q := tp("t", 0), tp("t", 1)
		tr, other := openAt(t, cm, p, 0), openAt(t, cm, q, 0)
		reported := 0
		cm.options.Report = func(error, kiel.Partition) { reported++ }
		store.Refuse = func(c OffsetCommit) error {
			if c.Partition == p {
				return ErrTooLarge
			}
			return nil
		}
		for i := range int64(150) {
			tr.Mark(i+1, "x")
			other.Mark(i+1, "x")
			time.Sleep(time.Second)
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if reported != 3 || store.Get(q).Offset != 150 || store.Get(p).Offset != 0 {
			t.Errorf("reported %d times in 152 s, want 3; stored %d and %d", reported, store.Get(p).Offset, store.Get(q).Offset)
		}
		if at := cm.Backlog().Oldest; time.Since(at) < 2*time.Minute {
			t.Errorf("the oldest mark that is not stored is said to be of %v ago", time.Since(at))
		}
		began := time.Now()
		if err := cm.CommitLast(t.Context(), tr); !errors.Is(err, ErrTooLarge) || time.Since(began) > 0 {
			t.Errorf("committed after %v: %v", time.Since(began), err)
		}
		assert.Equal(t, reported, 4, "reports")
	})
}

// Kafka counts UTF-16 code units. What its protocol can't carry is not sent, whatever brokers may take.
func TestLengthsOfTexts(t *testing.T) {
	for text, want := range map[string]int{"": 0, "abc": 3, "äöü": 3, "漢字": 2, "🐳x": 3, "\xff\xfe": 2} {
		assert.Equal(t, units(text), want, "units of %q", text)
	}
	var l textLimit
	wide, huge := strings.Repeat("漢", 2000), strings.Repeat("x", maxTextBytes+1)
	if !l.fits(wide) || !l.fits(huge[1:]) || l.fits(huge) {
		t.Error("at first what a string of the protocol may have fits")
	}
	l.refused(huge[:20_000])
	if !l.fits(wide) || !l.fits(huge[:MaxText]) || l.fits(huge[:MaxText+1]) {
		t.Error("after the first refusal MaxText fits")
	}
	l.refused(wide)
	if l.fits(wide) || !l.fits(wide[3:]) {
		t.Error("what was refused does not fit")
	}
	l.refused(huge[:MaxText])
	if !l.fits(wide[3:]) || l.fits(wide) {
		t.Error("a refusal of a longer text has changed the limit")
	}
	l = textLimit{}
	l.stored(huge[:9000])
	l.refused(huge[:12_000])
	if !l.fits(huge[:9000]) || l.fits(huge[:9001]) {
		t.Error("what was stored before a refusal fits, and nothing longer")
	}
	longest := commitMetadata{
		topicID: sarama.Uuid{1}, place: Place{Tree: ID{1}, Cluster: ID{1}}, token: math.MinInt64, partitions: math.MaxInt32, text: huge[:MaxText],
	}
	if n := len(longest.String()); n > 4096 {
		t.Errorf("%d characters with the longest text", n)
	}
	if len(longest.String())-MaxText+maxTextBytes > math.MaxInt16 {
		t.Error("the longest text is too long for a string of the protocol")
	}
}
