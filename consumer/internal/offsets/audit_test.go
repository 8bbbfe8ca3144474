package offsets

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/internal/testonly/assert"
	"github.com/kielgo/kiel/internal/testonly/bubble"
	"github.com/kielgo/kiel/session"
)

var (
	here      = Place{Tree: ID{1}, Cluster: ID{9}}
	otherTree = Place{Tree: ID{2}, Cluster: ID{9}}
	mirrored  = Place{Tree: ID{2}, Cluster: ID{8}}
)

// auditedOn returns a running Committer with audits, and what they have found: one slice for each audit.
func auditedOn(t *testing.T, store Store, interval time.Duration) (cm *Committer, audits func() [][]Finding, stop func()) {
	t.Helper()
	var mu sync.Mutex
	var all [][]Finding
	opts := optionsOn(store, true)
	opts.Interval = interval
	opts.Place = func(*session.Incarnation) Place { return here }
	opts.Audited = func(found []Finding) {
		mu.Lock()
		defer mu.Unlock()
		all = append(all, found)
	}
	cm, stop = running(t, opts)
	return cm, func() [][]Finding {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(all)
	}, stop
}

func TestDiscords(t *testing.T) {
	ours := func(token int64, place Place) Stored {
		return Stored{Offset: 50, Ours: true, Token: token, Place: place}
	}
	foreign := func(offset int64) Stored { return Stored{Offset: offset} }
	for name, c := range map[string]struct {
		stored Stored
		place  Place
		do     func(*Tracker, *fakeClaim)
		want   Discord
	}{
		"own":                            {ours(7, here), here, nil, ""},
		"former owner":                   {ours(6, here), here, nil, ""},
		"later owner":                    {ours(8, here), here, nil, NewerOwner},
		"later owner, lost":              {ours(8, here), here, func(_ *Tracker, c *fakeClaim) { c.lose() }, ""},
		"later owner, closed":            {ours(8, here), here, func(tr *Tracker, _ *fakeClaim) { tr.close() }, ""},
		"other tree":                     {ours(6, otherTree), here, nil, OtherTree},
		"other tree, later":              {ours(8, otherTree), here, nil, OtherTree},
		"other tree, lost":               {ours(6, otherTree), here, func(_ *Tracker, c *fakeClaim) { c.lose() }, ""},
		"no cluster has an id":           {ours(6, Place{Tree: ID{2}}), Place{Tree: ID{1}}, nil, OtherTree},
		"mirror":                         {ours(8, mirrored), here, nil, OtherCluster},
		"mirror of the same tree":        {ours(8, Place{Tree: ID{1}, Cluster: ID{8}}), here, nil, OtherCluster},
		"earlier version":                {ours(8, Place{}), here, nil, ""},
		"tree unknown there":             {ours(8, Place{Cluster: ID{9}}), here, nil, ""},
		"tree unknown here":              {ours(8, otherTree), Place{Cluster: ID{9}}, nil, ""},
		"cluster unknown there":          {ours(8, Place{Tree: ID{2}}), here, nil, ""},
		"cluster unknown here":           {ours(8, otherTree), Place{Tree: ID{1}}, nil, ""},
		"another program, back":          {foreign(40), here, nil, OtherProgram},
		"another program, ahead":         {foreign(90), here, nil, OtherProgram},
		"another program, after a mark":  {foreign(55), here, func(tr *Tracker, _ *fakeClaim) { tr.Mark(60, "") }, OtherProgram},
		"transactions, after a Reset":    {foreign(55), here, func(tr *Tracker, _ *fakeClaim) { tr.Reset(50, "") }, ""},
		"transactions, later Reset":      {foreign(55), here, func(tr *Tracker, _ *fakeClaim) { tr.Reset(60, "") }, ""},
		"after a Reset that lowers":      {foreign(55), here, func(tr *Tracker, _ *fakeClaim) { tr.Reset(49, "") }, OtherProgram},
		"the user's transactions":        {foreign(55), here, nil, ""},
		"the user's transactions, first": {foreign(50), here, nil, ""},
		"the user's transactions, last":  {foreign(80), here, nil, ""},
		"another program, lost":          {foreign(40), here, func(_ *Tracker, c *fakeClaim) { c.lose() }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			claim := newClaim(t)
			tr := NewCommitter(Options{Auto: true}).Open(tp("t", 0), claim, sarama.Uuid{}, 50, "")
			tr.Delivered(manyMessages(50, 30, 1), 80)
			if c.do != nil {
				c.do(tr, claim)
			}
			f, found := tr.judge(c.stored, c.place)
			if f.Discord != c.want || found != (c.want != "") {
				t.Errorf("%q, %v, want %q", f.Discord, found, c.want)
			}
			if found && (f.Committed != 50 || f.Token != 7 || f.Stored != c.stored || f.Place != c.place) {
				t.Errorf("found %+v", f)
			}
		})
	}
}

// Without AutoCommit, marks that are never committed don't make an offset that a transaction has stored another program's.
func TestMarksThatNobodyCommits(t *testing.T) {
	cm := NewCommitter(optionsOn(new(MemoryStore), false))
	tr := cm.Open(tp("t", 0), newClaim(t), sarama.Uuid{}, 50, "")
	flush := func() { cm.flush(t.Context(), map[*Tracker]content{tr: marked}) }
	flush()
	tr.Delivered(manyMessages(50, 30, 1), 80)
	tr.Mark(60, "")
	cm.flush(t.Context(), map[*Tracker]content{tr: committed}) // a repeat
	if f, found := tr.judge(Stored{Offset: 70}, here); found {
		t.Errorf("no mark is committed: %+v", f)
	}
	flush()
	if _, found := tr.judge(Stored{Offset: 70}, here); !found {
		t.Error("a mark is committed, and nothing is found")
	}
}

// An offset of another program, or of a mirror, is found once; another offset is found again.
func TestEachForeignOffsetIsFoundOnce(t *testing.T) {
	tr := NewCommitter(Options{}).Open(tp("t", 0), newClaim(t), sarama.Uuid{}, 50, "")
	for _, stored := range []Stored{{}, {Ours: true, Place: mirrored}} {
		var got []bool
		for _, offset := range []int64{40, 40, 41, 41, 40} {
			stored.Offset = offset
			_, found := tr.judge(stored, here)
			got = append(got, found)
		}
		assert.Slices(t, got, []bool{true, false, true, false, true}, "found")
	}
}

// peekedStore is a MemoryStore that keeps what audits read, and when.
type peekedStore struct {
	MemoryStore
	mu    sync.Mutex
	peeks []peek
	hang  time.Duration
}

type peek struct {
	at         time.Time
	partitions int
}

func (s *peekedStore) Peek(ctx context.Context, ps []kiel.Partition) (map[kiel.Partition]Stored, error) {
	s.mu.Lock()
	s.peeks = append(s.peeks, peek{time.Now(), len(ps)})
	s.mu.Unlock()
	time.Sleep(s.hang)
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return s.MemoryStore.Peek(ctx, ps)
}

func (s *peekedStore) all() []peek {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.peeks)
}

// A member reads once a minute at most, all its partitions together, and at least once in two minutes, whether it commits seldom,
// often or without a pause, and whether reads are answered. It does not read while nothing is open.
func TestAuditsAreBounded(t *testing.T) {
	for name, c := range map[string]struct {
		every time.Duration // between two commits by the user; 0 is none
		hang  time.Duration
	}{"idle": {}, "marks": {every: time.Second}, "without a pause": {every: 20 * time.Millisecond}, "no answer": {hang: time.Minute}} {
		bubble.Run(t, name, func(t *testing.T) {
			store := &peekedStore{hang: c.hang}
			cm, audits, stop := auditedOn(t, store, time.Second)
			defer stop()
			time.Sleep(10 * time.Minute)
			if n := len(store.all()); n > 0 {
				t.Errorf("%d reads while nothing is open", n)
			}
			opened := time.Now()
			openAt(t, cm, tp("t", 0), 42)
			b := openAt(t, cm, tp("t", 1), 42)
			end := opened.Add(10 * time.Minute)
			for at := int64(43); time.Now().Before(end); at++ {
				if c.every == 0 {
					time.Sleep(time.Minute)
					continue
				}
				b.Mark(at, "")
				if c.every < time.Second {
					_ = cm.Commit(t.Context(), b)
				}
				time.Sleep(c.every)
			}
			before := opened
			for i, p := range store.all() {
				if gap := p.at.Sub(before); i > 0 && gap < time.Minute || gap > 2*time.Minute {
					t.Errorf("read %v after the last", gap)
				}
				assert.Equal(t, p.partitions, 2, "partitions in a request")
				before = p.at
			}
			if n := len(store.all()); n < 5 {
				t.Errorf("%d reads in 10 minutes", n)
			}
			for _, found := range audits() {
				if len(found) > 0 {
					t.Errorf("found %+v", found)
				}
			}
		})
	}
}

// Two members of two trees commit equally often, at any distance: one of them sees the other's commit at its first audit.
func TestOneOfTwoSeesTheOther(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	chance := rand.New(rand.NewPCG(seed, 0))
	for range 50 {
		synctest.Test(t, func(t *testing.T) {
			store := new(MemoryStore)
			a, auditsA, stopA := auditedOn(t, store, time.Second)
			defer stopA()
			time.Sleep(time.Duration(chance.Int64N(int64(time.Second))))
			b, auditsB, stopB := auditedOn(t, store, time.Second)
			defer stopB()
			b.options.Place = func(*session.Incarnation) Place { return otherTree }
			p := tp("t", 0)
			one, two := openAt(t, a, p, 0), openAt(t, b, p, 0)
			began := time.Now()
			seen := func(audits [][]Finding) bool {
				return slices.ContainsFunc(audits, func(found []Finding) bool { return len(found) == 1 && found[0].Discord == OtherTree })
			}
			for at := int64(1); !seen(auditsA()) && !seen(auditsB()); at++ {
				if time.Since(began) > 2*time.Minute {
					t.Fatalf("not seen within two minutes, in %d and %d audits", len(auditsA()), len(auditsB()))
				}
				one.Mark(at, "")
				two.Mark(at, "")
				time.Sleep(100 * time.Millisecond)
			}
		})
	}
}

// An audit has one attempt, and only a later one can find the coordinator that the group has now: Kafka is asked again after each
// Peek that failed, and after no other.
func TestPeekFindsTheCoordinatorThatHasMoved(t *testing.T) {
	both := func(a, b sarama.KError) onFetch {
		return fetched(sarama.OffsetFetchResponseBlock{Offset: 5, Err: a}, sarama.OffsetFetchResponseBlock{Offset: 5, Err: b})
	}
	down := func(*sarama.OffsetFetchRequest) (*sarama.OffsetFetchResponse, error) {
		return nil, errors.New("connection refused")
	}
	const moved = sarama.ErrNotCoordinatorForConsumer
	s := &script{fetch: []onFetch{
		both(0, 0), both(moved, moved), both(0, 0), both(0, 0), both(0, moved), down, both(0, sarama.ErrTopicAuthorizationFailed), both(0, 0),
	}}
	store := s.store()
	for range 8 {
		_, _ = store.Peek(t.Context(), []kiel.Partition{tp("t", 0), tp("t", 1)}) // some fail
	}
	assert.Slices(t, s.finds, []bool{false, false, true, false, false, true, true, false}, "coordinator asked for anew")
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
