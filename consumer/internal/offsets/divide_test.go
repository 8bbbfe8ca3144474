package offsets

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel"
)

// limited is a coordinator that refuses requests whose offsets take more than limit bytes, as Kafka stores them, with code.
func limited(stored map[kiel.Partition]int64, limit int, code sarama.KError) *script {
	s := &script{}
	s.commit = append(s.commit, func(r *sarama.OffsetCommitRequest) (*sarama.OffsetCommitResponse, error) {
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
	})
	return s
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
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				stored := map[kiel.Partition]int64{}
				s := limited(stored, c.limit, c.code)
				store := s.store()
				for i, want := range []int{c.first, c.second, c.second, c.first} {
					clear(stored)
					before := len(s.commits)
					for p, err := range store.Commit(t.Context(), withText(300, strings.Repeat("x", c.text))) {
						if err != nil {
							t.Errorf("%s: %v", p, err)
						}
					}
					if n := len(s.commits) - before; n != want || len(stored) != 300 {
						t.Errorf("commit %d: %d requests, want %d; %d offsets are stored", i+1, n, want, len(stored))
					}
					time.Sleep(4 * time.Minute) // the fourth tries larger ones again
				}
			})
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
		t.Run(fault.Error(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &script{commit: []func(*sarama.OffsetCommitRequest) (*sarama.OffsetCommitResponse, error){
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
		})
	}
}
