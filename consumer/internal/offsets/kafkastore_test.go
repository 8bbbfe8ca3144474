package offsets

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/consumer/internal/kafkaconn"
	"github.com/kielgo/kiel/internal/testonly/assert"
	"github.com/kielgo/kiel/internal/testonly/bubble"
	"github.com/kielgo/kiel/internal/testonly/conntest"
	"github.com/kielgo/kiel/internal/testonly/noerr"
)

// These answer a request to a coordinator.
type (
	onCommit = func(*sarama.OffsetCommitRequest) (*sarama.OffsetCommitResponse, error)
	onFetch  = func(*sarama.OffsetFetchRequest) (*sarama.OffsetFetchResponse, error)
)

// script is a coordinator that answers as a test says, the last answer again and again.
type script struct {
	commit  []onCommit
	fetch   []onFetch
	commits []*sarama.OffsetCommitRequest
	fetches []*sarama.OffsetFetchRequest
	finds   []bool
	closed  int
}

func (s *script) CommitOffset(r *sarama.OffsetCommitRequest) (*sarama.OffsetCommitResponse, error) {
	s.commits = append(s.commits, r)
	return s.commit[min(len(s.commits), len(s.commit))-1](r)
}

func (s *script) FetchOffset(r *sarama.OffsetFetchRequest) (*sarama.OffsetFetchResponse, error) {
	s.fetches = append(s.fetches, r)
	return s.fetch[min(len(s.fetches), len(s.fetch))-1](r)
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

func answer(codes map[kiel.Partition]sarama.KError) onCommit {
	return func(*sarama.OffsetCommitRequest) (*sarama.OffsetCommitResponse, error) {
		r := &sarama.OffsetCommitResponse{}
		for p, code := range codes {
			r.AddError(p.Topic, p.ID, code)
		}
		return r, nil
	}
}

// fetched is an answer about partitions 0, 1, … of t.
func fetched(blocks ...sarama.OffsetFetchResponseBlock) onFetch {
	return func(q *sarama.OffsetFetchRequest) (*sarama.OffsetFetchResponse, error) {
		r := &sarama.OffsetFetchResponse{Version: q.Version}
		for i := range blocks {
			r.AddBlock("t", int32(i), &blocks[i])
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
	s := &script{commit: []onCommit{answer(all(3, 0))}}
	for p, err := range s.store().Commit(t.Context(), commits(3)) {
		assert.Error(t, err, nil, "%s", p)
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
	type (
		codes = map[kiel.Partition]sarama.KError
		errs  = map[kiel.Partition]error
	)
	reset := func(*sarama.OffsetCommitRequest) (*sarama.OffsetCommitResponse, error) {
		return nil, errors.New("connection reset")
	}
	both := func(codes ...sarama.KError) (out []onCommit) {
		for _, code := range codes {
			out = append(out, answer(all(2, code)))
		}
		return out
	}
	const moved, loads, none = sarama.ErrNotCoordinatorForConsumer, sarama.ErrOffsetsLoadInProgress, sarama.ErrConsumerCoordinatorNotAvailable
	for name, c := range map[string]struct {
		script   []onCommit
		want     errs // nil: stored
		requests int
		closed   int
	}{
		"coordinator moves":                   {both(moved, loads, none, 0), errs{p0: nil, p1: nil}, 4, 0},
		"only what failed is sent again":      {[]onCommit{answer(codes{p0: 0, p1: loads}), answer(codes{p1: 0})}, errs{p0: nil, p1: nil}, 2, 0},
		"connection lost":                     {[]onCommit{reset, answer(all(2, 0))}, errs{p0: nil, p1: nil}, 2, 1},
		"group has members":                   {both(sarama.ErrUnknownMemberId), errs{p0: ErrGroupInUse, p1: ErrGroupInUse}, 1, 0},
		"group has members, as others say it": {both(sarama.ErrIllegalGeneration), errs{p0: ErrGroupInUse, p1: ErrGroupInUse}, 1, 0},
		"a share group has the name":          {both(sarama.ErrGroupIDNotFound), errs{p0: ErrGroupInUse, p1: sarama.ErrGroupIDNotFound}, 1, 0},
		"one refused":                         {[]onCommit{answer(codes{p0: 0, p1: sarama.ErrOffsetMetadataTooLarge})}, errs{p0: nil, p1: sarama.ErrOffsetMetadataTooLarge}, 1, 0},
		"one forgotten":                       {[]onCommit{answer(codes{p0: 0})}, errs{p0: nil, p1: sarama.ErrIncompleteResponse}, 1, 0},
		"never":                               {both(moved), errs{p0: moved, p1: moved}, storeAttempts, 0},
	} {
		bubble.Run(t, name, func(t *testing.T) {
			s, began := &script{commit: c.script}, time.Now()
			got := s.store().Commit(t.Context(), commits(2))
			if took := time.Since(began); c.requests == storeAttempts && took != 1550*time.Millisecond {
				t.Errorf("gave up after %v, and docs/sarama-config.md says 1.55s", took)
			}
			for p, want := range c.want {
				assert.Error(t, got[p], want, "%s", p)
			}
			if len(s.commits) != c.requests || s.closed != c.closed {
				t.Errorf("%d requests, %d connections closed; want %d, %d", len(s.commits), s.closed, c.requests, c.closed)
			}
			for i, again := range s.finds {
				assert.Equal(t, again, i > 0, "attempt %d: coordinator asked for anew", i)
			}
		})
	}
}

func TestCommitAsksBeforeEachAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{commit: []onCommit{answer(all(2, sarama.ErrOffsetsLoadInProgress))}}
		es := commits(2)
		asked := 0
		es[1].Authorize = func() error {
			if asked++; asked > 4 { // each attempt asks before and after it looked for the coordinator
				return ErrLost
			}
			return nil
		}
		got := s.store().Commit(t.Context(), es)
		assert.Error(t, got[tp("t", 1)], ErrLost, "t:1")
		for i, r := range s.commits {
			_, _, err := r.Offset("t", 1)
			if sent := err == nil; sent != (i < 2) {
				t.Errorf("request %d carries t:1: %v", i, sent)
			}
		}
	})
}

func TestFetchedOffsets(t *testing.T) {
	block := func(offset int64, code sarama.KError) sarama.OffsetFetchResponseBlock {
		return sarama.OffsetFetchResponseBlock{Offset: offset, Err: code, Metadata: "m"}
	}
	group := func(code sarama.KError) onFetch {
		return func(q *sarama.OffsetFetchRequest) (*sarama.OffsetFetchResponse, error) {
			return &sarama.OffsetFetchResponse{Version: q.Version, Groups: []sarama.OffsetFetchResponseGroup{{GroupId: "g", Err: code}}}, nil
		}
	}
	synctest.Test(t, func(t *testing.T) {
		s := &script{fetch: []onFetch{
			fetched(block(5, 0), block(-1, 0), block(-1, sarama.ErrOffsetsLoadInProgress), block(-1, sarama.ErrTopicAuthorizationFailed)),
			fetched(block(6, 0), block(6, 0), block(7, 0)),
		}}
		got, err := s.store().Fetch(t.Context(), []kiel.Partition{tp("t", 0), tp("t", 1), tp("t", 2), tp("t", 3)})
		noerr.Must(t, err)
		if got[tp("t", 0)].Offset != 5 || got[tp("t", 0)].Text != "m" || got[tp("t", 1)].Offset != -1 || got[tp("t", 2)].Offset != 7 {
			t.Errorf("got %v", got)
		}
		assert.Error(t, got[tp("t", 3)].Err, sarama.ErrTopicAuthorizationFailed, "t:3")
		assert.Equal(t, len(s.fetches), 2, "requests")

		unseen := &script{fetch: []onFetch{group(sarama.ErrGroupIDNotFound)}}
		got, err = unseen.store().Fetch(t.Context(), []kiel.Partition{tp("t", 0)})
		if f := got[tp("t", 0)]; err != nil || f.Offset != -1 || f.Err != nil {
			t.Errorf("unseen group: %v, %v", f, err)
		}
		denied := &script{fetch: []onFetch{group(sarama.ErrNotCoordinatorForConsumer)}}
		_, err = denied.store().Fetch(t.Context(), []kiel.Partition{tp("t", 0)})
		assert.Error(t, err, sarama.ErrNotCoordinatorForConsumer, "a Fetch from what is no coordinator")
	})
}

// Metadata that no version has written are another program's.
func TestForeignMetadata(t *testing.T) {
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
		assert.Equal(t, store.fetchRequest([]kiel.Partition{tp("t", 0)}).RequireStable, want, "Kafka %s", version)
	}
}

// limited is a coordinator that refuses requests whose offsets take more than limit bytes, as Kafka stores them, with code.
func limited(stored map[kiel.Partition]int64, limit int, code sarama.KError) *script {
	return &script{commit: []onCommit{func(r *sarama.OffsetCommitRequest) (*sarama.OffsetCommitResponse, error) {
		size, offsets := 0, map[kiel.Partition]int64{}
		for id := range int32(1000) {
			if offset, metadata, err := r.Offset("t", id); err == nil {
				offsets[tp("t", id)] = offset
				size += 63 + len(r.ConsumerGroup) + 1 + len(metadata)
			}
		}
		resp := &sarama.OffsetCommitResponse{}
		for p, offset := range offsets {
			if size > limit {
				resp.AddError(p.Topic, p.ID, code)
				continue
			}
			stored[p] = offset
			resp.AddError(p.Topic, p.ID, sarama.ErrNoError)
		}
		return resp, nil
	}}}
}

func withText(n int32, text string) []OffsetCommit {
	es := commits(n)
	for i := range es {
		es[i].Text = text
	}
	return es
}

// A commit that Kafka would refuse as one request is sent as several. Brokers may be configured to take less: then a refused
// request is halved, and later ones are no larger.
func TestLargeCommitsAreDivided(t *testing.T) {
	const mib = 1 << 20
	for name, c := range map[string]struct {
		limit, text   int
		code          sarama.KError
		first, second int // requests of the first commit, and of the second
	}{
		"small":                      {mib, 100, sarama.ErrInvalidCommitOffsetSize, 1, 1},
		"texts of 4,000 characters":  {mib, 4000, sarama.ErrInvalidCommitOffsetSize, 3, 3},
		"brokers that take less":     {200_000, 4000, sarama.ErrInvalidCommitOffsetSize, 12, 10},
		"they don't say why":         {200_000, 4000, sarama.ErrUnknown, 12, 10},
		"brokers that take far less": {5_000, 1000, sarama.ErrMessageSetSizeTooLarge, 6 + 75, 75},
	} {
		bubble.Run(t, name, func(t *testing.T) {
			stored := map[kiel.Partition]int64{}
			s := limited(stored, c.limit, c.code)
			store := s.store()
			for i, want := range []int{c.first, c.second, c.second, c.first} {
				clear(stored)
				before := len(s.commits)
				for p, err := range store.Commit(t.Context(), withText(300, strings.Repeat("x", c.text))) {
					assert.Error(t, err, nil, "%s", p)
				}
				if n := len(s.commits) - before; n != want || len(stored) != 300 {
					t.Errorf("commit %d: %d requests, want %d; %d offsets are stored", i+1, n, want, len(stored))
				}
				time.Sleep(4 * time.Minute) // the fourth tries larger ones again
			}
		})
	}
}

// An unknown error that has nothing to do with the size costs a few requests, and is the error of each offset.
func TestUnknownErrorOfManyOffsets(t *testing.T) {
	s := limited(map[kiel.Partition]int64{}, 0, sarama.ErrUnknown)
	got := s.store().Commit(t.Context(), commits(300))
	for p, err := range got {
		if !errors.Is(err, sarama.ErrUnknown) || errors.Is(err, ErrTooLarge) {
			t.Errorf("%s: %v", p, err)
		}
	}
	if len(got) != 300 || len(s.commits) > 6 {
		t.Errorf("%d requests, %d answers", len(s.commits), len(got))
	}
}

// An offset that is too large alone is refused once, whatever else is committed.
func TestOffsetThatIsTooLargeAlone(t *testing.T) {
	for _, code := range []sarama.KError{sarama.ErrInvalidCommitOffsetSize, sarama.ErrOffsetMetadataTooLarge} {
		stored := map[kiel.Partition]int64{}
		s := limited(stored, 2000, code)
		if code == sarama.ErrOffsetMetadataTooLarge { // which is judged alone
			small := s.commit[0]
			s.commit[0] = func(r *sarama.OffsetCommitRequest) (*sarama.OffsetCommitResponse, error) {
				resp, err := small(r)
				for id := range resp.Errors["t"] {
					if resp.Errors["t"][id] = sarama.ErrNoError; id == 3 {
						resp.Errors["t"][id] = code
					}
				}
				return resp, err
			}
		}
		es := commits(10)
		es[3].Text = strings.Repeat("x", 3000)
		for p, err := range s.store().Commit(t.Context(), es) {
			if large := errors.Is(err, ErrTooLarge) && errors.Is(err, code) && refused(err); large != (p.ID == 3) || !large && err != nil {
				t.Errorf("%s: %v", p, err)
			}
		}
	}
}

// If no request is answered, or each answer says to ask again, the offsets of the others are not tried one after the other,
// whatever offsets may not be sent any more.
func TestDividedCommitWithoutACoordinator(t *testing.T) {
	for _, fault := range []error{errors.New("connection reset"), sarama.ErrOffsetsLoadInProgress} {
		bubble.Run(t, fault.Error(), func(t *testing.T) {
			s := &script{commit: []onCommit{
				func(*sarama.OffsetCommitRequest) (*sarama.OffsetCommitResponse, error) {
					kerr, answers := errors.AsType[sarama.KError](fault)
					if !answers {
						return nil, fault
					}
					resp := &sarama.OffsetCommitResponse{}
					for id := range int32(300) {
						resp.AddError("t", id, kerr)
					}
					return resp, nil
				},
			}}
			es, began := withText(300, strings.Repeat("x", 4000)), time.Now()
			for i := 49; i < 300; i += 50 {
				es[i].Authorize = func() error { return ErrLost }
			}
			got := s.store().Commit(t.Context(), es)
			if took := time.Since(began); took > 2*time.Second || len(s.commits) != storeAttempts {
				t.Errorf("%d requests in %v", len(s.commits), took)
			}
			for i := range int32(300) {
				err := got[tp("t", i)]
				if lost := i%50 == 49; errors.Is(err, ErrLost) != lost || errors.Is(err, fault) == lost {
					t.Errorf("t:%d: %v", i, err)
				}
			}
		})
	}
}
