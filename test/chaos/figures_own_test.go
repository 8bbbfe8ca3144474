package chaos_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kielgo/kiel/internal/eventlog"
	"github.com/kielgo/kiel/test/members"
)

// TestFigures shows that figures are right, and that a scenario without them fails: one that forgot them would look well.
func TestFigures(t *testing.T) {
	t.Parallel()
	const second = int64(time.Second)
	const base = second // as on a machine that was booted just before: no time may be negative, and 0 stands for none
	// Times are in seconds from base on. Of two partitions 0 is held by a and goes to b when a's trust ends at 13, which a says
	// at 14; 1 stays with b. Then a comes back, and b hands 0 over.
	ev := func(at float64, kind string, partition int32) eventlog.Event {
		e := eventlog.Event{T: base + int64(at*float64(second)), Event: kind}
		if partition >= 0 {
			e.Partition, e.Topic = &partition, "t"
		}
		return e
	}
	untrusted := ev(14, eventlog.Untrusted, -1)
	untrusted.Since = base + 13*second
	group := func(claimed float64) *fleet {
		f := &fleet{t: t, opts: options{partitions: 2}, added: map[int32]int64{}, ended: base + 100*second}
		for name, events := range map[string][]eventlog.Event{
			"a": {ev(1, eventlog.Claimed, 0), untrusted, ev(31, eventlog.Snapshot, -1), ev(33, eventlog.Claimed, 0)},
			"b": {
				ev(2, eventlog.Claimed, 1), ev(15, eventlog.Snapshot, -1), ev(claimed, eventlog.Claimed, 0), ev(31.5, eventlog.Snapshot, -1),
				ev(32, eventlog.Revoking, 0), ev(32.5, eventlog.Releasing, 0),
			},
		} {
			m := f.enlist(&members.Process{Name: name}, &hand{})
			for _, e := range events {
				m.take(e)
			}
		}
		return f
	}
	happened := func(f *fleet, at, settled float64, more func(i *incident)) {
		f.unsettled = false
		f.happens("something", base+int64(at*float64(second)))
		if f.last().settled = base + int64(settled*float64(second)); more != nil {
			more(f.last())
		}
	}
	for name, c := range map[string]struct {
		claimed float64 // when b claims what a has
		does    func(f *fleet)
		report  eventlog.Report
		want    []string
		wrong   string
	}{
		"noticed and owned": {
			claimed: 16, does: func(f *fleet) { happened(f, 10, 20, nil); happened(f, 30, 40, nil) },
			want: []string{"1s, 4s", "3s, 6s", "0", "0", "0", "a 1, b 2"},
		},
		"owned from the end of the fault on": {
			claimed: 16, does: func(f *fleet) { happened(f, 10, 20, func(i *incident) { i.healed = base + 15*second }) },
			want: []string{"4s", "1s", "0", "0", "0", "a 1, b 2"},
		},
		"noticed by what logs do not tell": {
			claimed: 16, does: func(f *fleet) { happened(f, 10, 20, func(i *incident) { i.noticed = base + 11*second }) },
			want: []string{"1s", "6s", "0", "0", "0", "a 1, b 2"},
		},
		"nothing has happened": {claimed: 16, does: func(*fleet) {}, wrong: "nothing has happened"},
		"nobody has noticed": {
			claimed: 16, does: func(f *fleet) { happened(f, 40, 50, nil) },
			want: []string{"-", "0s", "0", "0", "0", "a 0, b 0"}, wrong: "something: nobody has noticed",
		},
		"nobody had to notice": {
			claimed: 16, does: func(f *fleet) { happened(f, 40, 50, func(i *incident) { i.unseen = "why" }) },
			want: []string{"-", "0s", "0", "0", "0", "a 0, b 0"},
		},
		"not owned again": {
			claimed: 16, does: func(f *fleet) { happened(f, 10, 15, nil); f.last().until = base + 15*second },
			want: []string{"4s", "-", "0", "0", "0", "a 1, b 2"}, wrong: "something: not everything was owned again",
		},
		"two owners": {
			claimed: 12, does: func(f *fleet) { happened(f, 10, 20, nil) }, report: eventlog.Report{Overlaps: 1, Duplicates: 2, Lost: 3},
			want: []string{"4s", "2s", "1", "2", "3", "a 1, b 2"},
		},
		"two owners that nobody else has seen": {
			claimed: 12, does: func(f *fleet) { happened(f, 10, 20, nil) },
			want: []string{"4s", "2s", "0", "0", "0", "a 1, b 2"}, wrong: "a partition had two owners for 1s",
		},
	} {
		t.Run(nameOfTest.Replace(name), func(t *testing.T) {
			t.Parallel()
			f := group(c.claimed)
			c.does(f)
			row, _, wrong := f.sum(&c.report)
			if got := row.values[:]; c.want != nil && !slices.Equal(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
			if got := strings.Join(wrong, "; "); c.wrong == "" && got != "" || !strings.Contains(got, c.wrong) {
				t.Errorf("wrong: %q, want %q", got, c.wrong)
			}
		})
	}
}

func TestComplaints(t *testing.T) {
	t.Parallel()
	m := &member{hand: &hand{}}
	before := members.Monotonic()
	stamp := time.Now().UTC().Format("2006-01-02T15:04:05.000Z07:00")
	for _, line := range []string{
		"time=" + stamp + ` level=WARN msg="connection lost" server=127.0.0.1:1`,
		"time=" + stamp + ` level=INFO msg=claimed partition=t:0`,
		"time=" + stamp + ` level=WARN msg=failed component=allocator group=g member=a kind=set`,
		"time=" + stamp + ` level=ERROR msg="command failed" command=consume error="connection lost"`,
	} {
		_, _ = m.hand.Write([]byte(line + "\n"))
	}
	got := m.complaints()
	if len(got) != 2 {
		t.Fatalf("%d complaints, want 2", len(got))
	}
	if d := time.Duration(got[0] - before); d < 0 || d > time.Minute {
		t.Errorf("it is said to be %v after what came just before", d)
	}
}

func TestTable(t *testing.T) {
	t.Parallel()
	var some figureTable
	if got := some.missing(); !slices.Equal(got, numbers) {
		t.Errorf("of nothing %d are missing, want all, %d", got, numbers)
	}
	some.add(figures{scenario: numbers[1]})
	some.add(figures{scenario: numbers[1]})
	if got, want := some.missing(), slices.Delete(slices.Clone(numbers), 1, 2); !slices.Equal(got, want) {
		t.Errorf("missing are %d, want %d", got, want)
	}
}
