package allocfn

import (
	"fmt"
	"slices"
	"testing"
)

// group returns a group of members m000, m001 and so on.
func group(members, partitions int) Input {
	in := Input{}
	for i := range members {
		in.Members = append(in.Members, Member{Name: fmt.Sprintf("m%03d", i)})
	}
	for i := range partitions {
		in.Partitions = append(in.Partitions, Partition{Topic: "t", ID: 10_000 + int32(i)})
	}
	return in
}

// planOf returns a plan of in that is ready to be repaired.
func planOf(t *testing.T, in Input) *plan {
	t.Helper()
	var e Evaluator
	if _, err := e.Assign(in); err != nil {
		t.Fatal(err)
	}
	e.plan.prepare()
	return &e.plan
}

// TestExtrasAreOfNow checks that who has one of the pool, and the last of these,
// is seen as it is, whatever was before.
func TestExtrasAreOfNow(t *testing.T) {
	p := planOf(t, group(20, 110))
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
	in := group(1_000, 20_000)
	members := in.Members
	var e Evaluator
	for n := 101; n <= len(members); n++ {
		in.Members = members[:n]
		if _, err := e.Assign(in); err != nil {
			t.Fatal(err)
		}
		if n > 101 && !e.Repaired() {
			t.Fatalf("%d members: began anew", n)
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

// TestVicinityHasAllPairs compares vicinities, made in two steps, with all
// probes and points.
func TestVicinityHasAllPairs(t *testing.T) {
	in := group(40, 300)
	for i := range in.Members {
		in.Members[i].Weight = i % 4
	}
	p := planOf(t, in)
	for m := range int32(40) {
		for _, from := range []int{0, 100, 140, 170, codes - 20} {
			near := &p.chairs[m].near
			near.from, near.to, near.keys = from, from, nil
			to := min(from+40, codes)
			p.extend(m, from+7)
			p.extend(m, to)
			if near.to != to || !slices.IsSorted(near.keys) {
				t.Fatalf("member %d, codes %d to %d: %d, sorted %v", m, from, to, near.to, slices.IsSorted(near.keys))
			}
			all := make(map[key]bool)
			for i := range in.Partitions {
				first, least := never, ringSize
				for _, z := range probe(p.keys[i]) {
					for _, x := range p.chairs[m].points[1 : p.chairs[m].points.size()+1] {
						d := min((x-z)&(ringSize-1), (z-x)&(ringSize-1)) >> 32
						k := keyOf(codeOf(d), int32(i))
						all[k] = true
						first, least = min(first, k), min(least, d)
					}
				}
				if n := len(p.appendKeys(nil, m, least, least+1)); n == 0 {
					t.Fatalf("member %d: nothing at distance %d", m, least)
				}
				_, found := slices.BinarySearch(near.keys, first)
				if want := from <= first.code() && first.code() < to; found != want {
					t.Fatalf("member %d, codes %d to %d: pair %x found: %v, want %v", m, from, to, first, found, want)
				}
			}
			for _, k := range near.keys {
				if !all[k] {
					t.Fatalf("member %d, codes %d to %d: %x is of no probe and point", m, from, to, k)
				}
			}
		}
	}
}

// TestVicinitiesAreBounded lets a group shrink and grow again, so that members
// know the vicinity of a member of a small group.
func TestVicinitiesAreBounded(t *testing.T) {
	in := group(600, 5_000)
	members := in.Members
	var e Evaluator
	most := 0
	for _, step := range []int{-1, 1, -1, 1} {
		for n := range 530 {
			in.Members = members[:70+n]
			if step < 0 {
				in.Members = members[:600-n]
			}
			if _, err := e.Assign(in); err != nil {
				t.Fatal(err)
			}
			room := 0
			for _, c := range e.plan.chairs {
				room += cap(c.near.keys)
			}
			if room != e.plan.nearRoom {
				t.Fatalf("%d members: room for %d keys, counted %d", len(in.Members), room, e.plan.nearRoom)
			}
			most = max(most, room)
		}
	}
	if most > (maxNear+3)*len(in.Partitions) {
		t.Errorf("room for %d keys of %d partitions", most, len(in.Partitions))
	}
}
