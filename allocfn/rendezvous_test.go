package allocfn_test

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/allocfn"
)

// Only what the joiner gets moves, which is what it loses when it leaves.
func TestRendezvousMovesNothingElse(t *testing.T) {
	s := subject{f: allocfn.Rendezvous()}
	rapid.Check(t, func(t *rapid.T) {
		names, ps := s.drawNames(t), drawTopics(t)
		if len(names) == 0 {
			return
		}
		with := groupOf(names, ps...)
		without := groupOf(names[1:], ps...)
		a, b := mustCall(t, s.f, with), mustCall(t, s.f, without)
		joiner := slices.IndexFunc(with.Members, func(m allocfn.Member) bool { return m.Name == names[0] })
		for i := range b {
			if was := without.Members[b[i]].Name; int(a[i]) != joiner && with.Members[a[i]].Name != was {
				t.Fatalf("%v goes from %q to %q when %q joins", ps[i], was, with.Members[a[i]].Name, names[0])
			}
		}
	})
}

// With so many partitions chance would have to go far astray.
func TestRendezvousSpreads(t *testing.T) {
	in := groupOf(numberedNames("host", 10), topicOf("t", 5000)...)
	in.Partitions = append(in.Partitions, topicOf("u", 5000)...)
	kiel.SortPartitions(in.Partitions)
	m := mustMeasure(t, allocfn.Rendezvous(), in, in)
	if l := m.Total.After; l.Least < 850 || l.Most > 1150 { // 5 standard deviations
		t.Errorf("10,000 partitions on 10 members: %+v", l)
	}
	for _, c := range m.Topics {
		if l := c.After; l.Least < 390 || l.Most > 610 {
			t.Errorf("5,000 partitions on 10 members: %+v", l)
		}
	}
}
