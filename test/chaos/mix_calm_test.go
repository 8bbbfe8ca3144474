package chaos_test

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/kielgo/kiel/internal/eventlog"
	"github.com/kielgo/kiel/test/members"
)

// unrest lists what members did after a time though nothing happened: who lost his trust or a claim, was asked to hand over, or
// claimed something. Excused is only who lost his trust in a moment in which the machine stood still, and with him what came
// after: he claims again, and if his session has ended the others take what he had, and give it back.
func unrest(all []*member, since int64, excused func(eventlog.Event) bool) (wrong []string) {
	from := int64(math.MaxInt64) // since which something may happen
	for _, m := range all {
		for _, e := range m.events {
			if e.T <= since || e.Event != eventlog.Untrusted {
				continue
			}
			if excused(e) {
				from = min(from, cmp.Or(e.Since, e.T))
			} else {
				wrong = append(wrong, fmt.Sprintf("%s: %s", m.Name, e.Event))
			}
		}
	}
	for _, m := range all {
		for _, e := range m.events {
			if e.T > since && e.T < from && slices.Contains([]string{eventlog.Lost, eventlog.Revoking, eventlog.Claimed}, e.Event) {
				wrong = append(wrong, fmt.Sprintf("%s: %s %d", m.Name, e.Event, *e.Partition))
			}
		}
	}
	return wrong
}

func TestUnrest(t *testing.T) {
	t.Parallel()
	ev := func(at float64, kind string) eventlog.Event {
		return eventlog.Event{T: int64(at * float64(time.Second)), Event: kind, Partition: new(int32)}
	}
	untrusted := ev(14, eventlog.Untrusted)
	untrusted.Partition, untrusted.Since = nil, int64(13*time.Second)
	for name, c := range map[string]struct {
		a, b    []eventlog.Event
		excused bool
		want    []string
	}{
		"nothing":                {a: []eventlog.Event{ev(9, eventlog.Claimed), ev(12, eventlog.Message), ev(12, eventlog.Committed)}},
		"a move":                 {a: []eventlog.Event{ev(11, eventlog.Revoking)}, b: []eventlog.Event{ev(12, eventlog.Claimed)}, want: []string{"a: revoking 0", "b: claimed 0"}},
		"a claim lost":           {a: []eventlog.Event{ev(11, eventlog.Lost)}, excused: true, want: []string{"a: lost 0"}},
		"trust lost":             {a: []eventlog.Event{untrusted}, want: []string{"a: untrusted"}},
		"trust lost and excused": {a: []eventlog.Event{untrusted, ev(15, eventlog.Claimed)}, b: []eventlog.Event{ev(13.5, eventlog.Claimed)}, excused: true},
		"a move before that":     {a: []eventlog.Event{untrusted}, b: []eventlog.Event{ev(12.9, eventlog.Claimed)}, excused: true, want: []string{"b: claimed 0"}},
		"a move after what is no excuse": {
			a: []eventlog.Event{untrusted}, b: []eventlog.Event{ev(14, eventlog.Claimed)},
			want: []string{"a: untrusted", "b: claimed 0"},
		},
	} {
		f := &fleet{t: t}
		var all []*member
		for _, of := range []struct {
			name   string
			events []eventlog.Event
		}{{"a", c.a}, {"b", c.b}} {
			m := f.enlist(&members.Process{Name: of.name}, &hand{})
			m.events = of.events
			all = append(all, m)
		}
		got := unrest(all, int64(10*time.Second), func(eventlog.Event) bool { return c.excused })
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
