package consumer

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/consumer/internal/offsets"
	"github.com/kielgo/kiel/consumer/internal/reporting"
	"github.com/kielgo/kiel/internal/testonly/logtest"
)

// Options.StartAt says where a new group starts; without it a Config does, and without both it is the first message.
func TestPolicyOf(t *testing.T) {
	config := func(initial int64) *sarama.Config {
		c := sarama.NewConfig()
		c.Consumer.Offsets.Initial = initial
		return c
	}
	for name, c := range map[string]struct {
		opts Options
		want policy
	}{
		"nothing":             {Options{}, policy{from: Earliest, option: "default"}},
		"a Config":            {Options{Config: sarama.NewConfig()}, policy{from: Latest, option: "Config.Consumer.Offsets.Initial"}},
		"a Config, oldest":    {Options{Config: config(sarama.OffsetOldest)}, policy{from: Earliest, option: "Config.Consumer.Offsets.Initial"}},
		"From beside newest":  {Options{StartAt: Earliest, Config: sarama.NewConfig()}, policy{from: Earliest, option: "Options.StartAt"}},
		"From beside oldest":  {Options{StartAt: Latest, Config: config(sarama.OffsetOldest)}, policy{from: Latest, option: "Options.StartAt"}},
		"From, and no Config": {Options{StartAt: Latest}, policy{from: Latest, option: "Options.StartAt"}},
		"a time":              {Options{StartTime: time.Unix(7, 0), Config: config(sarama.OffsetOldest)}, policy{Latest, time.Unix(7, 0), "Options.StartTime"}},
	} {
		t.Run(name, func(t *testing.T) {
			set, err := newSettings([]string{"a:1"}, "g", c.opts)
			if err != nil || set.policy != c.want {
				t.Errorf("%+v, %v, want %+v", set.policy, err, c.want)
			}
		})
	}
	for _, opts := range []Options{{StartAt: -1}, {StartAt: 3}, {StartAt: Earliest, StartTime: time.Unix(7, 0)}} {
		if _, err := newSettings([]string{"a:1"}, "g", opts); err == nil {
			t.Errorf("From %v and StartTime %v are taken", opts.StartAt, opts.StartTime)
		}
	}
}

// In a group that starts at the end, a partition without an offset starts there only while the group begins on the topic. What
// the offsets of the topic's other partition say decides.
func TestBeginningAtTheEnd(t *testing.T) {
	p, other := tp("t", 0), tp("t", 1)
	id := sarama.Uuid{1}
	for name, c := range map[string]struct {
		other offsets.Stored // of the other partition
		age   time.Duration  // of the group's beginning in it
		at    int64          // the offset of the first message since then; 0 for none
		want  int64
		says  string
	}{
		"no offset":                         {other: offsets.Stored{Offset: -1}, want: 100, says: `level=WARN msg="new group starts behind messages that it skips" policy=latest option=Options.StartAt skipped=90 partitions=1`},
		"began now":                         {age: time.Second, want: 100, says: "skipped=90"},
		"began now, and a message has come": {age: time.Second, at: 70, want: 70, says: "skipped=60"},
		"began now, and one later":          {age: time.Second, at: 103, want: 100, says: "skipped=90"},
		"began by a clock that is ahead":    {age: -time.Second, at: 70, want: 70, says: "skipped=60"},
		"began long ago":                    {age: beginningFor, at: 70, want: 10, says: `level=WARN msg="partitions start where a policy says, not at a committed offset" cause=none policy=earliest partitions=1`},
		"began in the future":               {age: -beginningFor, at: 70, want: 10, says: "cause=none policy=earliest"},
		"by a program or an earlier member": {other: offsets.Stored{Offset: 7}, want: 10, says: "cause=none policy=earliest"},
		"of an earlier topic":               {other: offsets.Stored{Offset: 7, TopicID: sarama.Uuid{9}}, age: time.Second, want: 10, says: "cause=none policy=earliest"},
		"of one partition less":             {other: offsets.Stored{TopicID: id, FirstPartitions: 2}, age: time.Second, at: 70, want: 70, says: "skipped=60"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newMarkRig(t, func(o *Options) { o.StartAt = Latest })
				said := &logtest.Log{}
				r.logTo(slog.NewTextHandler(said, nil))
				r.fetch.first, r.fetch.last = 10, 100
				began := time.UnixMilli(time.Now().Add(-c.age).UnixMilli())
				if c.age != 0 {
					c.other.Began = began
				}
				if c.at > 0 {
					r.fetch.times = map[time.Time]int64{began: c.at}
				}
				r.store.Set(map[kiel.Partition]offsets.Stored{other: c.other})
				o := &opening{member: r.membership, claim: newHolder(t, p), tp: p, session: r.session.session}
				start, err := o.position(t.Context(), true)
				if err != nil || start != c.want {
					t.Errorf("starts at %d, %v, want %d", start, err, c.want)
				}
				time.Sleep(2 * reporting.StartsWithin)
				synctest.Wait()
				if said.Count(c.says) != 1 {
					t.Errorf("logged %s", said)
				}
				stored := r.store.Get(p)
				if isNew := c.want != 10; stored.Offset != c.want || stored.Began.IsZero() == isNew {
					t.Errorf("stored %+v", stored)
				}
				if c.age == 0 && c.want == 100 && time.Since(stored.Began) > 5*time.Second {
					t.Errorf("it began at %v, at %v", stored.Began, time.Now())
				}
			})
		})
	}
}

// The end is read before the offsets of the topic: another member that begins in between finds nothing that this one skips.
func TestTheEndIsReadBeforeTheOffsets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := tp("t", 0)
		r := newMarkRig(t, func(o *Options) { o.StartAt = Latest })
		r.fetch.last = 100
		r.store.BlockFetch = make(chan struct{})
		o := &opening{member: r.membership, claim: newHolder(t, p), tp: p, session: r.session.session}
		done := make(chan int64)
		go func() {
			s, err := o.begin(t.Context())
			if err != nil {
				t.Error(err)
			}
			done <- s.offset
		}()
		synctest.Wait()
		r.fetch.mu.Lock()
		r.fetch.last = 105 // messages that come while the offsets are read
		r.fetch.mu.Unlock()
		close(r.store.BlockFetch)
		if got := <-done; got != 100 {
			t.Errorf("starts at %d, want 100", got)
		}
	})
}

// The group begins before the end is read: what comes after that is skipped in no other partition, however long the offsets take.
func TestTheGroupBeginsBeforeTheEndIsRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := tp("t", 0)
		r := newMarkRig(t, func(o *Options) { o.StartAt = Latest })
		r.store.BlockFetch = make(chan struct{})
		o := &opening{member: r.membership, claim: newHolder(t, p), tp: p, session: r.session.session}
		time.AfterFunc(time.Second, func() { close(r.store.BlockFetch) })
		now := time.Now()
		s, err := o.begin(t.Context())
		if late := s.began.Sub(now); err != nil || late < 0 || late > time.Millisecond {
			t.Errorf("begins %v after the call, %v", late, err)
		}
	})
}

// The group's beginning stays in commits across a change of the owner, until it is old.
func TestBeginningOutlastsTheOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := tp("t", 0)
		r := newMarkRig(t, func(o *Options) { o.StartAt = Latest })
		for _, c := range []struct {
			sleep time.Duration
			old   bool
		}{{0, false}, {beginningFor / 2, false}, {beginningFor, true}} {
			time.Sleep(c.sleep)
			o := &opening{member: r.membership, claim: newHolder(t, p), tp: p, session: r.session.session}
			if _, err := o.position(t.Context(), true); err != nil {
				t.Fatal(err)
			}
			if got := r.store.Get(p).Began; got.IsZero() != c.old {
				t.Errorf("after %v: %v", c.sleep, got)
			}
			r.committer.Close(t.Context(), o.tracker)
		}
	})
}

// With Fence and Earliest the offsets of other partitions are not asked for: a transaction may hold one up.
func TestBeginningWithFence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := tp("t", 0)
		r := newMarkRig(t, func(o *Options) {
			o.StartAt, o.Fence = Earliest, func(context.Context, string, int32) error { return nil }
		})
		o := &opening{member: r.membership, claim: newHolder(t, p), tp: p, session: r.session.session}
		if _, err := o.position(t.Context(), true); err != nil {
			t.Fatal(err)
		}
		if got := r.store.Fetches(); len(got) != 1 {
			t.Errorf("read %v", got)
		}
	})
}

// A group that starts at a time starts at the first message of that time or later, or at the end. What is behind an offset beyond
// the end may all be new.
func TestStartAtATime(t *testing.T) {
	p, began := tp("t", 0), time.UnixMilli(9000)
	for name, c := range map[string]struct {
		at     int64 // the offset of the first message since then; 0 for none
		stored *offsets.Stored
		want   int64
		says   string
	}{
		"a message":      {at: 40, want: 40, says: `msg="new group starts behind messages that it skips" policy=1970-01-01T00:00:09Z option=Options.StartTime skipped=30`},
		"none":           {want: 100, says: "skipped=90"},
		"the first":      {at: 10, want: 10, says: `level=INFO msg="new group starts" policy=1970-01-01T00:00:09Z`},
		"beyond the end": {at: 40, stored: &offsets.Stored{Offset: 500}, want: 10, says: "cause=out_of_range policy=earliest"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newMarkRig(t, func(o *Options) { o.StartTime = began })
				said := &logtest.Log{}
				r.logTo(slog.NewTextHandler(said, nil))
				r.fetch.first, r.fetch.last = 10, 100
				if c.at > 0 {
					r.fetch.times = map[time.Time]int64{began: c.at}
				}
				if c.stored != nil {
					r.store.Set(map[kiel.Partition]offsets.Stored{p: *c.stored})
				}
				h := newHolder(t, p)
				done := r.owned(h)
				<-r.fetch.streams
				time.Sleep(2 * reporting.StartsWithin)
				synctest.Wait()
				if got := r.store.Get(p).Offset; got != c.want || said.Count(c.says) != 1 {
					t.Errorf("starts at %d, want %d:\n%s", got, c.want, said)
				}
				h.release(t, done)
			})
		})
	}
}
