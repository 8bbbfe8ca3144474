package allocfn

import (
	"fmt"
	"testing"
)

// TestExtrasAreOfNow checks that who has one of the pool, and the last of these,
// is seen as it is, whatever was before.
func TestExtrasAreOfNow(t *testing.T) {
	in := Input{}
	for i := range 20 {
		in.Members = append(in.Members, Member{Name: fmt.Sprintf("m%02d", i)})
	}
	for id := range int32(110) {
		in.Partitions = append(in.Partitions, Partition{Topic: "t", ID: 1_000 + id})
	}
	var e Evaluator
	if _, err := e.Assign(in); err != nil {
		t.Fatal(err)
	}
	p := &e.plan
	p.prepare()
	was := p.drain
	if p.pool != 10 || p.used != 10 || was == never {
		t.Fatalf("%d of %d used, drain %x", p.used, p.pool, was)
	}
	for i, pair := range p.pairs {
		p.extras.push(^uint64(keyOf(codes-1, int32(i)))) // came later once
		if pair.key(int32(i)) > was {
			p.extras.push(^uint64(pair.key(int32(i)))) // was one of the pool
		}
	}
	if p.drained(); p.drain != was {
		t.Errorf("drain %x, want %x", p.drain, was)
	}
}

// TestLateIndicesKeepUp lets a group grow, so that pairs come earlier and earlier
// and none would be late any more.
func TestLateIndicesKeepUp(t *testing.T) {
	in := Input{}
	for id := range int32(20_000) {
		in.Partitions = append(in.Partitions, Partition{Topic: "t", ID: 10_000 + id})
	}
	var e Evaluator
	for i := range 1_000 {
		in.Members = append(in.Members, Member{Name: fmt.Sprintf("m%03d", i)})
		if i < 100 {
			continue
		}
		if _, err := e.Assign(in); err != nil {
			t.Fatal(err)
		}
		if i > 100 && !e.Repaired() {
			t.Fatalf("%d members: began anew", i)
		}
	}
	p := &e.plan
	p.indexLate()
	latest := 0
	for _, pair := range p.pairs {
		latest = max(latest, pair.code())
	}
	if n := p.late[0].used / probeSize; n < len(p.pairs)/firstLate/5 {
		t.Errorf("%d of %d partitions are late", n, len(p.pairs))
	}
	if p.latest < latest {
		t.Errorf("latest is %d, but there is %d", p.latest, latest)
	}
}
