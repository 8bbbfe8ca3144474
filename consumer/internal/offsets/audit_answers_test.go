package offsets

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel"
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
	down := func(*sarama.OffsetFetchRequest) (*sarama.OffsetFetchResponse, error) { return nil, errors.New("connection refused") }
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
		for len(store.all()) < 3 {
			time.Sleep(time.Second)
		}
		synctest.Wait()
		if log.Len() > 0 {
			t.Errorf("two audits have failed: %s", log)
		}
		time.Sleep(time.Hour)
		stop()
		text := log.String()
		if n := strings.Count(text, "msg=failed kind=audit"); n != 1 || !strings.Contains(text, "level=WARN") || !strings.Contains(text, "3 times in a row") {
			t.Errorf("%d lines: %s", n, text)
		}
	})
}
