package offsets

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/consumer/internal/kafkaconn"
	"github.com/kielgo/kiel/internal/testonly/conntest"
)

// script is a coordinator that answers as a test says.
type script struct {
	commit  []func(*sarama.OffsetCommitRequest) (*sarama.OffsetCommitResponse, error)
	fetch   []func(*sarama.OffsetFetchRequest) (*sarama.OffsetFetchResponse, error)
	commits []*sarama.OffsetCommitRequest
	fetches []*sarama.OffsetFetchRequest
	finds   []bool
	closed  int
}

func (s *script) CommitOffset(r *sarama.OffsetCommitRequest) (*sarama.OffsetCommitResponse, error) {
	s.commits = append(s.commits, r)
	next := s.commit[0]
	if len(s.commit) > 1 {
		s.commit = s.commit[1:]
	}
	return next(r)
}

func (s *script) FetchOffset(r *sarama.OffsetFetchRequest) (*sarama.OffsetFetchResponse, error) {
	s.fetches = append(s.fetches, r)
	next := s.fetch[0]
	if len(s.fetch) > 1 {
		s.fetch = s.fetch[1:]
	}
	return next(r)
}

func (s *script) Close() error {
	s.closed++
	return nil
}

func (s *script) store() *KafkaStore {
	return &KafkaStore{Group: "g", Config: conntest.Config(), Calls: &kafkaconn.Calls{}, Find: func(again bool) (Coordinator, error) {
		s.finds = append(s.finds, again)
		return s, nil
	}}
}

func answer(codes map[kiel.Partition]sarama.KError) func(*sarama.OffsetCommitRequest) (*sarama.OffsetCommitResponse, error) {
	return func(*sarama.OffsetCommitRequest) (*sarama.OffsetCommitResponse, error) {
		r := &sarama.OffsetCommitResponse{}
		for p, code := range codes {
			r.AddError(p.Topic, p.ID, code)
		}
		return r, nil
	}
}

func commits(n int32) []OffsetCommit {
	var es []OffsetCommit
	for i := range n {
		es = append(es, OffsetCommit{Partition: tp("t", i), Offset: 100 + int64(i), Text: "x", Authorize: func() error { return nil }})
	}
	return es
}

func all(n int32, code sarama.KError) map[kiel.Partition]sarama.KError {
	out := map[kiel.Partition]sarama.KError{}
	for i := range n {
		out[tp("t", i)] = code
	}
	return out
}

func TestCommitIsOneRequestOfNoMember(t *testing.T) {
	s := &script{commit: []func(*sarama.OffsetCommitRequest) (*sarama.OffsetCommitResponse, error){answer(all(3, 0))}}
	for p, err := range s.store().Commit(t.Context(), commits(3)) {
		if err != nil {
			t.Errorf("%s: %v", p, err)
		}
	}
	if len(s.commits) != 1 {
		t.Fatalf("%d requests", len(s.commits))
	}
	r := s.commits[0]
	if r.ConsumerGroup != "g" || r.ConsumerGroupGeneration != -1 || r.ConsumerID != "" || r.GroupInstanceId != nil {
		t.Errorf("sent as group %q generation %d member %q instance %v", r.ConsumerGroup, r.ConsumerGroupGeneration, r.ConsumerID, r.GroupInstanceId)
	}
	for i := range int32(3) {
		if o, meta, err := r.Offset("t", i); err != nil || o != 100+int64(i) || meta != "kiel1;;0;x" {
			t.Errorf("t:%d: %d %q %v", i, o, meta, err)
		}
	}
}

func TestCommitErrors(t *testing.T) {
	p0, p1 := tp("t", 0), tp("t", 1)
	reset := func(*sarama.OffsetCommitRequest) (*sarama.OffsetCommitResponse, error) {
		return nil, errors.New("connection reset")
	}
	for name, c := range map[string]struct {
		script   []func(*sarama.OffsetCommitRequest) (*sarama.OffsetCommitResponse, error)
		want     map[kiel.Partition]error // nil: stored
		requests int
		closed   int
	}{
		"coordinator moves": {
			script: []func(*sarama.OffsetCommitRequest) (*sarama.OffsetCommitResponse, error){
				answer(all(2, sarama.ErrNotCoordinatorForConsumer)), answer(all(2, sarama.ErrOffsetsLoadInProgress)),
				answer(all(2, sarama.ErrConsumerCoordinatorNotAvailable)), answer(all(2, 0)),
			},
			want: map[kiel.Partition]error{p0: nil, p1: nil}, requests: 4,
		},
		"only what failed is sent again": {
			script: []func(*sarama.OffsetCommitRequest) (*sarama.OffsetCommitResponse, error){
				answer(map[kiel.Partition]sarama.KError{p0: 0, p1: sarama.ErrOffsetsLoadInProgress}),
				answer(map[kiel.Partition]sarama.KError{p1: 0}),
			},
			want: map[kiel.Partition]error{p0: nil, p1: nil}, requests: 2,
		},
		"connection lost": {
			script: []func(*sarama.OffsetCommitRequest) (*sarama.OffsetCommitResponse, error){reset, answer(all(2, 0))},
			want:   map[kiel.Partition]error{p0: nil, p1: nil}, requests: 2, closed: 1,
		},
		"group has members": {
			script: []func(*sarama.OffsetCommitRequest) (*sarama.OffsetCommitResponse, error){answer(all(2, sarama.ErrUnknownMemberId))},
			want:   map[kiel.Partition]error{p0: ErrGroupInUse, p1: ErrGroupInUse}, requests: 1,
		},
		"group has members, as others say it": {
			script: []func(*sarama.OffsetCommitRequest) (*sarama.OffsetCommitResponse, error){answer(all(2, sarama.ErrIllegalGeneration))},
			want:   map[kiel.Partition]error{p0: ErrGroupInUse, p1: ErrGroupInUse}, requests: 1,
		},
		"a share group has the name": {
			script: []func(*sarama.OffsetCommitRequest) (*sarama.OffsetCommitResponse, error){answer(all(2, sarama.ErrGroupIDNotFound))},
			want:   map[kiel.Partition]error{p0: ErrGroupInUse, p1: sarama.ErrGroupIDNotFound}, requests: 1,
		},
		"one refused": {
			script: []func(*sarama.OffsetCommitRequest) (*sarama.OffsetCommitResponse, error){
				answer(map[kiel.Partition]sarama.KError{p0: 0, p1: sarama.ErrOffsetMetadataTooLarge}),
			},
			want: map[kiel.Partition]error{p0: nil, p1: sarama.ErrOffsetMetadataTooLarge}, requests: 1,
		},
		"one forgotten": {
			script: []func(*sarama.OffsetCommitRequest) (*sarama.OffsetCommitResponse, error){answer(map[kiel.Partition]sarama.KError{p0: 0})},
			want:   map[kiel.Partition]error{p0: nil, p1: sarama.ErrIncompleteResponse}, requests: 1,
		},
		"never": {
			script: []func(*sarama.OffsetCommitRequest) (*sarama.OffsetCommitResponse, error){answer(all(2, sarama.ErrNotCoordinatorForConsumer))},
			want:   map[kiel.Partition]error{p0: sarama.ErrNotCoordinatorForConsumer, p1: sarama.ErrNotCoordinatorForConsumer}, requests: storeAttempts,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, began := &script{commit: c.script}, time.Now()
				got := s.store().Commit(t.Context(), commits(2))
				if took := time.Since(began); c.requests == storeAttempts && took != 1550*time.Millisecond {
					t.Errorf("gave up after %v, and docs/sarama-config.md says 1.55s", took)
				}
				for p, want := range c.want {
					if !errors.Is(got[p], want) {
						t.Errorf("%s: %v, want %v", p, got[p], want)
					}
				}
				if len(s.commits) != c.requests || s.closed != c.closed {
					t.Errorf("%d requests, %d connections closed; want %d, %d", len(s.commits), s.closed, c.requests, c.closed)
				}
				for i, again := range s.finds {
					if again != (i > 0) {
						t.Errorf("attempt %d: coordinator asked for anew: %v", i, again)
					}
				}
			})
		})
	}
}

func TestCommitAsksBeforeEachAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{commit: []func(*sarama.OffsetCommitRequest) (*sarama.OffsetCommitResponse, error){answer(all(2, sarama.ErrOffsetsLoadInProgress))}}
		es := commits(2)
		asked := 0
		es[1].Authorize = func() error {
			if asked++; asked > 4 { // each attempt asks before and after it looked for the coordinator
				return ErrLost
			}
			return nil
		}
		got := s.store().Commit(t.Context(), es)
		if !errors.Is(got[tp("t", 1)], ErrLost) {
			t.Errorf("t:1: %v, want ErrLost", got[tp("t", 1)])
		}
		for i, r := range s.commits {
			_, _, err := r.Offset("t", 1)
			if sent := err == nil; sent != (i < 2) {
				t.Errorf("request %d carries t:1: %v", i, sent)
			}
		}
	})
}

func TestFetchedOffsets(t *testing.T) {
	respond := func(fill func(*sarama.OffsetFetchResponse)) func(*sarama.OffsetFetchRequest) (*sarama.OffsetFetchResponse, error) {
		return func(q *sarama.OffsetFetchRequest) (*sarama.OffsetFetchResponse, error) {
			r := &sarama.OffsetFetchResponse{Version: q.Version}
			fill(r)
			return r, nil
		}
	}
	block := func(offset int64, code sarama.KError) *sarama.OffsetFetchResponseBlock {
		return &sarama.OffsetFetchResponseBlock{Offset: offset, Err: code, Metadata: "m"}
	}
	synctest.Test(t, func(t *testing.T) {
		s := &script{fetch: []func(*sarama.OffsetFetchRequest) (*sarama.OffsetFetchResponse, error){
			respond(func(r *sarama.OffsetFetchResponse) {
				r.AddBlock("t", 0, block(5, 0))
				r.AddBlock("t", 1, block(-1, 0))
				r.AddBlock("t", 2, block(-1, sarama.ErrOffsetsLoadInProgress))
				r.AddBlock("t", 3, block(-1, sarama.ErrTopicAuthorizationFailed))
			}),
			respond(func(r *sarama.OffsetFetchResponse) { r.AddBlock("t", 2, block(7, 0)) }),
		}}
		got, err := s.store().Fetch(t.Context(), []kiel.Partition{tp("t", 0), tp("t", 1), tp("t", 2), tp("t", 3)})
		if err != nil {
			t.Fatal(err)
		}
		if got[tp("t", 0)].Offset != 5 || got[tp("t", 0)].Text != "m" || got[tp("t", 1)].Offset != -1 || got[tp("t", 2)].Offset != 7 {
			t.Errorf("got %v", got)
		}
		if err := got[tp("t", 3)].Err; !errors.Is(err, sarama.ErrTopicAuthorizationFailed) {
			t.Errorf("t:3: %v", err)
		}
		if len(s.fetches) != 2 {
			t.Errorf("%d requests", len(s.fetches))
		}

		unseen := &script{fetch: []func(*sarama.OffsetFetchRequest) (*sarama.OffsetFetchResponse, error){
			respond(func(r *sarama.OffsetFetchResponse) {
				r.Groups = []sarama.OffsetFetchResponseGroup{{GroupId: "g", Err: sarama.ErrGroupIDNotFound}}
			}),
		}}
		got, err = unseen.store().Fetch(t.Context(), []kiel.Partition{tp("t", 0)})
		if f := got[tp("t", 0)]; err != nil || f.Offset != -1 || f.Err != nil {
			t.Errorf("unseen group: %v, %v", f, err)
		}

		denied := &script{fetch: []func(*sarama.OffsetFetchRequest) (*sarama.OffsetFetchResponse, error){
			respond(func(r *sarama.OffsetFetchResponse) {
				r.Groups = []sarama.OffsetFetchResponseGroup{{GroupId: "g", Err: sarama.ErrNotCoordinatorForConsumer}}
			}),
		}}
		if _, err = denied.store().Fetch(t.Context(), []kiel.Partition{tp("t", 0)}); !errors.Is(err, sarama.ErrNotCoordinatorForConsumer) {
			t.Errorf("no coordinator: %v", err)
		}
	})
}

func TestMetadataIsReadAsWritten(t *testing.T) {
	for _, n := range []commitMetadata{
		{},
		{text: "user's; own; text"},
		{topicID: sarama.Uuid{1}, token: 9, partitions: 1<<31 - 1, text: "a/b"},
		{topicID: sarama.Uuid{1, 2, 3}, token: 1 << 40, text: ""},
		{topicID: sarama.Uuid{15: 9}, token: -1, text: "kiel1;;0;nested"},
	} {
		if got, ours := parseMetadata(n.String()); got != n || !ours {
			t.Errorf("%+v came back as %+v from %q", n, got, n.String())
		}
	}
	for _, foreign := range []string{"", "hello", "kiel1;", "kiel1;x", "kiel1;;x;y", "kiel1;!!;1;y", "kiel1;AAAA;1;y", "kiel2;;1;y", "kiel1;;1/;y", "kiel1;;1/0;y", "kiel1;;1/-1;y", "kiel1;;1/2147483648;y", "kiel1;;1/2/3;y", "kiel1;;/2;y"} {
		if got, ours := parseMetadata(foreign); ours || got != (commitMetadata{text: foreign}) {
			t.Errorf("%q was read as %+v", foreign, got)
		}
	}
}

// An offset is waited for that a transaction is about to store, whatever the isolation level, if Kafka knows how.
func TestStableReads(t *testing.T) {
	for version, want := range map[sarama.KafkaVersion]bool{sarama.V2_4_0_0: false, sarama.V2_5_0_0: true} {
		store := (&script{}).store()
		store.Config.Version = version
		if got := store.fetchRequest([]kiel.Partition{tp("t", 0)}).RequireStable; got != want {
			t.Errorf("Kafka %s: %v", version, got)
		}
	}
}
