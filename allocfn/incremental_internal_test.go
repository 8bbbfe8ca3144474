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
