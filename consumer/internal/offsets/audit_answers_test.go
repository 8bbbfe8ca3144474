package offsets

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/session"
)

// An audit has one attempt, and only a later one can find the coordinator that the group has now: Kafka is asked again after each
// Peek that failed, and after no other.
func TestPeekFindsTheCoordinatorThatHasMoved(t *testing.T) {
	ps := []kiel.Partition{tp("t", 0), tp("t", 1)}
	fetched := func(codes ...sarama.KError) func(*sarama.OffsetFetchRequest) (*sarama.OffsetFetchResponse, error) {
		return func(q *sarama.OffsetFetchRequest) (*sarama.OffsetFetchResponse, error) {
			r := &sarama.OffsetFetchResponse{Version: q.Version}
			for i, code := range codes {
				r.AddBlock("t", int32(i), &sarama.OffsetFetchResponseBlock{Offset: 5, Err: code})
			}
			return r, nil
		}
	}
	down := func(*sarama.OffsetFetchRequest) (*sarama.OffsetFetchResponse, error) {
		return nil, errors.New("connection refused")
	}
	const moved = sarama.ErrNotCoordinatorForConsumer
	s := &script{fetch: []func(*sarama.OffsetFetchRequest) (*sarama.OffsetFetchResponse, error){
		fetched(0, 0), fetched(moved, moved), fetched(0, 0), fetched(0, 0), fetched(0, moved), down, fetched(0, sarama.ErrTopicAuthorizationFailed), fetched(0, 0),
	}}
	store := s.store()
	for range 8 {
		_, _ = store.Peek(t.Context(), ps) // some fail
	}
	if want := []bool{false, false, true, false, false, true, true, false}; !slices.Equal(s.finds, want) {
		t.Errorf("coordinator asked for anew: %v, want %v", s.finds, want)
	}
}

// The third audit in a row that fails is logged.
func TestAuditsThatFailAreLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &peekedStore{hang: time.Minute}
		cm, _, stop := auditedOn(t, store, time.Second)
		log := logged(cm)
		openAt(t, cm, tp("t", 0), 42)
		time.Sleep(time.Hour)
		stop()
		text := log.String()
		if n := strings.Count(text, "msg=failed kind=audit"); n != 1 || !strings.Contains(text, "level=WARN") || !strings.Contains(text, "3 times in a row") {
			t.Errorf("%d lines: %s", n, text)
		}
	})
}

// While no broker answers, audits that fail are no trouble of their own, which would be told beside the outage and outlast it.
func TestAuditsWithoutKafkaAreNotLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &peekedStore{hang: time.Minute}
		cm, _, stop := auditedOn(t, store, time.Second)
		cm.options.Reachable = func() bool { return false }
		log := logged(cm)
		openAt(t, cm, tp("t", 0), 42)
		time.Sleep(time.Hour)
		stop()
		if text := log.String(); strings.Contains(text, "kind=audit") {
			t.Errorf("an audit during an outage is logged: %s", text)
		}
	})
}

// An audit waits for a quiet moment, and so long at most that it comes within two minutes of the last.
func TestAuditIsPostponedForALimitedTime(t *testing.T) {
	now := time.Now()
	for range 1000 {
		a := audit{due: now.Add(-9 * time.Second), last: now, gap: time.Hour}
		if wait := a.quiet(now); wait <= 0 || wait > time.Second {
			t.Fatalf("%v more after 9s", wait)
		}
	}
}

// heldStore is a MemoryStore whose commits wait.
type heldStore struct {
	peekedStore
	commitsTake time.Duration
}

func (s *heldStore) Commit(ctx context.Context, cs []OffsetCommit) map[kiel.Partition]error {
	time.Sleep(s.commitsTake)
	return s.MemoryStore.Commit(ctx, cs)
}

// answeredLate is a store whose reads are answered late, with what was stored when they began.
type answeredLate struct{ heldStore }

func (s *answeredLate) Peek(ctx context.Context, ps []kiel.Partition) (map[kiel.Partition]Stored, error) {
	found, err := s.peekedStore.Peek(ctx, ps)
	time.Sleep(3 * time.Second)
	return found, err
}

// At a start the store has what a former tree, or a backup, has left. An audit that begins before the start position is stored
// reads that, and judges nothing. An offset that comes afterwards is judged, although the member commits while the audit waits.
func TestAuditJudgesNothingOlderThanTheStart(t *testing.T) {
	p := tp("t", 0)
	left := OffsetCommit{Partition: p, Offset: 40, Token: 99, Authorize: func() error { return nil }}
	judged := func(t *testing.T, stored Place, commits bool) []Finding {
		t.Helper()
		store := &answeredLate{heldStore{commitsTake: time.Second}}
		cm := NewCommitter(optionsOn(store, true))
		var all []Finding
		cm.options.Place = func(*session.Incarnation) Place { return here }
		cm.options.Audited = func(found []Finding) { all = append(all, found...) }
		tr := cm.Open(p, newClaim(t), sarama.Uuid{1}, 42, "")
		commit := func() { cm.flush(t.Context(), map[*Tracker]content{tr: marked}) }
		if commits {
			commit()
			time.Sleep(time.Second)
		}
		left.Place = stored
		store.MemoryStore.Commit(t.Context(), []OffsetCommit{left})
		cm.audit.due = time.Now().Add(-maxPostponed)
		cm.askAudit(t.Context(), time.Now())
		commit() // while the audit waits for its answer
		cm.judge(t.Context(), <-cm.audit.answers)
		return all
	}
	for name, stored := range map[string]Place{"former tree": otherTree, "backup of this tree": here} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				if found := judged(t, stored, false); len(found) > 0 {
					t.Errorf("older than the start: %+v", found)
				}
			})
			synctest.Test(t, func(t *testing.T) {
				if found := judged(t, stored, true); len(found) != 1 {
					t.Errorf("stored after the start: %+v", found)
				}
			})
		})
	}
}
