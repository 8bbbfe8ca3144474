package inspect

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/consumer/internal/offsets"
	"github.com/kielgo/kiel/internal/statuswrite"
	"github.com/kielgo/kiel/internal/testonly/assert"
	"github.com/kielgo/kiel/internal/testonly/bubble"
	"github.com/kielgo/kiel/internal/testonly/noerr"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/status"
	"github.com/kielgo/kiel/zktest"
)

// seriesOf makes a Series for a group on a virtual server.
func seriesOf(t *testing.T, opts SeriesOptions) (*Series, *zktest.Server) {
	t.Helper()
	zk, network := zktest.StartVirtual(t, zktest.Options{})
	s, err := NewSeries(Sources{
		Servers: []string{zktest.VirtualAddress}, Session: session.Options{Dial: network.Client("series").Dial, Logger: slog.New(slog.DiscardHandler)},
	}, "g", opts)
	noerr.Must(t, err)
	return s, zk
}

func (s *Series) mustLook(t *testing.T) *Report {
	t.Helper()
	r, err := s.Look(t.Context())
	noerr.Must(t, err)
	return r
}

func mustCreate(t *testing.T, zk *zktest.Server, path, data string) {
	t.Helper()
	noerr.Must(t, zk.Create(path, []byte(data)))
}

// A look reads the znodes only if something has changed, or for long they were not; it says what has changed.
func TestSeriesReadsWhatHasChanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, zk := seriesOf(t, SeriesOptions{})
		defer s.Close(context.WithoutCancel(t.Context()))
		mustCreate(t, zk, "/kiel/groups/g/members/c1", "")
		mustCreate(t, zk, "/kiel/groups/g/partitions", `["t:0","t:1"]`)
		mustCreate(t, zk, "/kiel/groups/g/owners/t:0", `{"owner":"c1"}`)
		changes := func() (kinds string) {
			for _, c := range s.mustLook(t).Changes {
				kinds += string(c.Kind) + " " + c.Member + c.Partition + ";"
			}
			return kinds
		}
		assert.Equal(t, changes(), "joined c1;blocked t:0;", "the first look")
		reads := func() int { return zk.Stats().Requests[zktest.OpGetData] }
		before := reads()
		for range 10 {
			time.Sleep(2 * time.Second)
			assert.Equal(t, changes(), "", "changes when nothing has changed")
		}
		if got := reads(); got != before {
			t.Errorf("%d reads though nothing has changed", got-before)
		}
		time.Sleep(readAgain)
		if changes(); reads() == before {
			t.Error("nothing is read again, however long")
		}
		for _, change := range []struct {
			do   func() error
			want string
		}{
			{func() error { return zk.Delete("/kiel/groups/g/owners/t:0") }, "freed t:0;"},
			{func() error { return zk.Create("/kiel/groups/g/members/c2", nil) }, "joined c2;"},
			{func() error { return zk.Delete("/kiel/groups/g/members/c1") }, "gone c1;"},
			{func() error { return zk.Set("/kiel/groups/g/partitions", []byte(`["t:0"]`)) }, ""},
		} {
			noerr.Must(t, change.do())
			if got := changes(); got != change.want {
				t.Errorf("%q, want %q", got, change.want)
			}
		}
		assert.Equal(t, len(s.mustLook(t).Partitions), 1, "partitions after one was removed")
	})
}

// A finding whose since no source knows has begun when it was first found, and begins anew when it comes again.
func TestSeriesRemembersSince(t *testing.T) {
	s, began := &Series{}, time.Now()
	look := func(after time.Duration, kinds ...Kind) (since []string) {
		r := &Report{At: began.Add(after)}
		for _, k := range kinds {
			r.Findings = append(r.Findings, Finding{Kind: k})
		}
		s.remember(r)
		for _, f := range r.Findings {
			if f.Since == nil {
				since = append(since, "?")
				continue
			}
			since = append(since, f.Since.Sub(began).String())
		}
		return since
	}
	for _, tc := range []struct {
		after time.Duration
		kinds []Kind
		want  []string
	}{
		{0, []Kind{NoOwner}, []string{"?"}},
		{time.Second, []Kind{NoOwner, NoMembers}, []string{"?", "1s"}},
		{time.Minute, []Kind{NoOwner, NoMembers}, []string{"?", "1s"}},
		{time.Hour, nil, nil},
		{2 * time.Hour, []Kind{NoMembers, NoOwner}, []string{"2h0m0s", "2h0m0s"}},
	} {
		assert.Slices(t, look(tc.after, tc.kinds...), tc.want, "after %v: since", tc.after)
	}
}

// While ZooKeeper is away, a Series says since when, and it goes on when ZooKeeper is back.
func TestSeriesOutlastsZooKeeper(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, zk := seriesOf(t, SeriesOptions{})
		s.from.Wait = time.Second
		defer s.Close(context.WithoutCancel(t.Context()))
		mustCreate(t, zk, "/kiel/groups/g/members/c1", "")
		s.mustLook(t)
		for range 2 {
			zk.Down()
			began := time.Now()
			for range 3 {
				r := s.mustLook(t)
				if len(r.Findings) != 1 || r.Findings[0].Kind != ZooKeeperUnreachable || r.Findings[0].Since == nil || r.Findings[0].Since.After(began) {
					t.Errorf("down at %v: %+v", began, r.Findings)
				}
				time.Sleep(time.Minute)
			}
			zk.Restart(false)
			time.Sleep(time.Minute)
			if r := s.mustLook(t); r.ZooKeeper.State != OK {
				t.Errorf("%+v", r.ZooKeeper)
			}
		}
	})
}

// A series that ZooKeeper did not answer at first looks when it does.
func TestSeriesBeginsWithoutZooKeeper(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, zk := seriesOf(t, SeriesOptions{})
		defer s.Close(context.WithoutCancel(t.Context()))
		zk.Down()
		if r := s.mustLook(t); r.ZooKeeper.State != Failed {
			t.Errorf("%+v", r.ZooKeeper)
		}
		zk.Restart(false)
		if r := s.mustLook(t); r.ZooKeeper.State != OK || r.Findings[0].Kind != NoGroup {
			t.Errorf("%+v", r)
		}
	})
}

// A look is compared with the youngest that is as old as the window.
func TestSeriesCompares(t *testing.T) {
	s, now := &Series{opts: SeriesOptions{Window: 10 * time.Second}}, time.Now()
	for i, want := range []float64{0, 0, 0, 12, 12, 12} { // every 4 s
		l := newLook(&Inspector{}, "g", Options{})
		l.report.ZooKeeper.State = OK
		l.report.Partitions = []Partition{{Partition: status.Partition{Topic: "t", Token: int64(i)}}}
		s.compareWith(l, now.Add(time.Duration(i)*4*time.Second))
		assert.Equal(t, l.opts.Window.Seconds(), want, "seconds over which look %d is compared", i)
		if want > 0 && l.first[kiel.Partition{Topic: "t"}].token != int64(i-3) {
			t.Errorf("look %d is compared with %+v", i, l.first)
		}
	}
	if len(s.past) > 4 {
		t.Errorf("%d looks are kept", len(s.past))
	}
}

// A partition that has always lagged stands still since it was seen to go on last, not since its first waiting message was
// written.
func TestSinceItWentOnLast(t *testing.T) {
	tp, began := kiel.Partition{Topic: "t"}, time.Now()
	s, prior := &Series{}, &glance{}
	for i, offset := range []int64{3, 4, 5, 5, 5} {
		g := &glance{at: began.Add(time.Duration(i) * time.Minute), stored: map[kiel.Partition]offsets.Stored{tp: {Offset: offset}}}
		s.goOn(prior, g)
		prior = g
	}
	is := status.Partition{State: status.Owned, Owner: "c2", Token: 7}
	old := began.Add(-time.Hour)
	for kind, want := range map[Kind]time.Time{StandsStill: began.Add(time.Minute), FallsBehind: old} {
		l := seen(is, is, [2]int64{5, 5}, [2]int64{800, 900})
		l.went, l.report.Partitions[0].Kafka.Oldest = s.went, &old
		if at := l.since(kind, l.report.Partitions[0]); !at.Equal(want) {
			t.Errorf("%s since %v, want %v", kind, at.Sub(began), want.Sub(began))
		}
	}
	if s.goOn(prior, &glance{}); len(s.went) > 0 {
		t.Error("partitions that are gone are kept")
	}
}

// A Series hears what its own member says without asking anybody.
func TestSeriesHearsItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		said := statuswrite.Group("g", status.SourceMember, time.Now())
		said.Self = &status.Self{Name: "c1"}
		said.Troubles = []status.Trouble{{Kind: "handler", Since: time.Now(), Last: "poison", About: []string{"t:0"}}}
		s, zk := seriesOf(t, SeriesOptions{Self: func() *status.Group { return said }})
		defer s.Close(context.WithoutCancel(t.Context()))
		mustCreate(t, zk, "/kiel/groups/g/members/c1", "")
		mustCreate(t, zk, "/kiel/groups/g/members/c2", "")
		heard := func() bool {
			for _, f := range s.mustLook(t).Findings {
				if f.Kind == HandlerFailing && f.Member == "c1" {
					return true
				}
			}
			return false
		}
		if !heard() {
			t.Error("it is not heard")
		}
		said.Troubles = make([]status.Trouble, 5000)
		l := newLook(s.in, "g", Options{})
		l.report.Members = []status.Member{{Name: "c1"}}
		if s.hearMembers(t.Context(), l); len(l.said[0].Troubles) != maxTroubles {
			t.Error("all that it says is kept")
		}
		said.Self.Name = "c9" // no member, as a process that has not joined
		if heard() {
			t.Error("it is heard though it is no member")
		}
	})
}

// Many chroots behind a slow ZooKeeper are looked at within the time, and if that is not enough, what was found is said, and that
// more may be there.
func TestManyChroots(t *testing.T) {
	for delay, want := range map[time.Duration]string{100 * time.Millisecond: "", 450 * time.Millisecond: "for want of time"} {
		bubble.Run(t, delay.String(), func(t *testing.T) {
			zk, network := zktest.StartVirtual(t, zktest.Options{})
			for i := range 300 {
				mustCreate(t, zk, fmt.Sprintf("/app%03d/kiel", i), "")
			}
			mustCreate(t, zk, "/app007/kiel/groups/g/members/m", "")
			in, err := Open(t.Context(), Sources{
				Servers: []string{zktest.VirtualAddress}, Session: session.Options{Dial: network.Client("looker").Dial, Logger: slog.New(slog.DiscardHandler)},
			})
			noerr.Must(t, err)
			defer in.Close(context.WithoutCancel(t.Context()))
			network.Delay(delay)
			defer network.Heal()
			began := time.Now()
			found, unseen, err := in.siblings(t.Context(), "g")
			if err != nil || len(found) != 1 || found[0].chroot != "/app007" || found[0].since.IsZero() {
				t.Errorf("%v: %+v", err, found)
			}
			if text := strings.Join(unseen, ", "); text != "" && want == "" || !strings.Contains(text, want) {
				t.Errorf("unseen: %s", text)
			}
			if took := time.Since(began); took > patience+time.Second {
				t.Errorf("it took %v", took)
			}
		})
	}
}
