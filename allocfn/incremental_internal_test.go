package allocfn

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
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
	if p.quotas.pool != 10 || p.used != 10 || was == never {
		t.Fatalf("%d of %d used, drain %x", p.used, p.quotas.pool, was)
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
	for l, x := range p.late {
		n, known := 0, make(map[int32]bool)
		for _, i := range x.partitions {
			if known[i] {
				t.Errorf("index %d has partition %d twice", l, i)
			}
			known[i] = true
		}
		for i, pair := range p.pairs {
			if pair.code() >= x.from {
				n++
				if !known[int32(i)] {
					t.Errorf("index %d does not know partition %d", l, i)
				}
			}
		}
		if n != x.late || l == 0 && n < len(p.pairs)/firstLate/5 || len(known) > maxLate*x.made+16 {
			t.Errorf("index %d has %d partitions, %d at first; %d of %d are late, counted %d", l, len(known), x.made, n, len(p.pairs), x.late)
		}
	}
	if p.latest < latest {
		t.Errorf("latest is %d, but there is %d", p.latest, latest)
	}
}

// TestVicinityHasAllPairs compares vicinities, of all partitions and of those of
// late indices, made in two steps and told of partitions in between, with all
// probes and points.
func TestVicinityHasAllPairs(t *testing.T) {
	in := group(40, 300)
	for i := range in.Members {
		in.Members[i].Weight = i % 4
	}
	p := planOf(t, in)
	if len(p.late) == 0 {
		t.Fatal("there is no late index")
	}
	next := int32(0)
	for m := range int32(40) {
		for level := range len(p.late) + 1 {
			for _, from := range []int{0, 100, 140, 170, codes - 20} {
				p.chairs[m].near = nil
				to := min(from+40, codes)
				p.extend(p.vicinity(m, level, from), m, level, from+7)
				for range 3 { // some come in between, to what there is and to what there will be
					p.relate(next, 0, codes-1)
					p.relate(next, codes-1, 0)
					next = (next + 1) % 300
				}
				near := p.vicinity(m, level, from)
				if n := len(near.keys); len(p.vicinity(m, level, from).keys) != n {
					t.Fatalf("member %d, level %d: told of the same partitions twice", m, level)
				}
				p.extend(near, m, level, to)
				if near.to != to || !slices.IsSorted(near.keys) {
					t.Fatalf("member %d, level %d, codes %d to %d: %d, sorted %v", m, level, from, to, near.to, slices.IsSorted(near.keys))
				}
				checkVicinity(t, p, m, level, near)
			}
		}
	}
	if len(p.late[0].since) == 1 {
		t.Error("none came to the late indices")
	}
}

func checkVicinity(t *testing.T, p *plan, m int32, level int, near *vicinity) {
	t.Helper()
	all := make(map[key]bool)
	for i := range int32(len(p.pairs)) {
		first, least := never, ringSize
		for _, z := range probe(p.keys[i]) {
			for _, x := range p.chairs[m].points.points[1 : p.chairs[m].points.size()+1] {
				d := min((x-z)&(ringSize-1), (z-x)&(ringSize-1)) >> 32
				k := keyOf(codeOf(d), i)
				all[k] = true
				first, least = min(first, k), min(least, d)
			}
		}
		if n := len(p.appendKeys(nil, m, 0, least, least+1)); n == 0 {
			t.Fatalf("member %d: nothing at distance %d", m, least)
		}
		_, found := slices.BinarySearch(near.keys, first)
		has := level == 0 || slices.Contains(p.late[level-1].partitions, i)
		if want := has && near.from <= first.code() && first.code() < near.to; found != want {
			t.Fatalf("member %d, level %d, codes %d to %d: pair %x found: %v, want %v", m, level, near.from, near.to, first, found, want)
		}
	}
	for _, k := range near.keys {
		if !all[k] {
			t.Fatalf("member %d, level %d, codes %d to %d: %x is of no probe and point", m, level, near.from, near.to, k)
		}
	}
}

// TestVicinitiesAreBounded lets a group shrink and grow again, so that members
// know the vicinity of a member of a small group.
func TestVicinitiesAreBounded(t *testing.T) {
	in := group(400, 1_000)
	members := in.Members
	var e Evaluator
	most := 0
	for _, step := range []int{-1, 1, -1, 1} {
		for n := range 353 {
			in.Members = members[:47+n]
			if step < 0 {
				in.Members = members[:400-n]
			}
			if _, err := e.Assign(in); err != nil {
				t.Fatal(err)
			}
			room := 0
			for _, c := range e.plan.chairs {
				for _, near := range c.near {
					room += cap(near.keys)
				}
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

// TestCircle puts points in and takes others out, and looks for places.
func TestCircle(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		parts := rapid.SampledFrom([]int64{1, 4, 1 << ringBits}).Draw(t, "parts") // of which some are used only
		place := rapid.Int64Range(0, 1<<ringBits/parts-1)
		point := rapid.Custom(func(t *rapid.T) int64 {
			return place.Draw(t, "place")<<32 | rapid.Int64Range(0, 9).Draw(t, "chair")
		})
		model := rapid.SliceOfN(point, 1, 40).Draw(t, "points") // a member may have two at one place
		c := newCircle(slices.Clone(model))
		slices.Sort(model)
		for range rapid.IntRange(0, 8).Draw(t, "steps") {
			if rapid.Bool().Draw(t, "insert") {
				in := rapid.SliceOfN(point, 1, 60).Draw(t, "in")
				slices.Sort(in)
				c.insert(in)
				model = append(model, in...)
				slices.Sort(model)
			} else {
				var out, left []int64
				for _, x := range model {
					if rapid.IntRange(0, 2).Draw(t, "out") > 0 {
						left = append(left, x)
					} else {
						out = append(out, x)
					}
				}
				if len(out) > 0 && len(left) > 0 {
					c.remove(out)
					model = left
				}
			}
			checkCircle(t, &c, model, place)
		}
	})
}

func checkCircle(t *rapid.T, c *circle, model []int64, place *rapid.Generator[int64]) {
	if n := c.size(); !slices.Equal(c.points[1:n+1], model) {
		t.Fatalf("points %x, want %x", c.points[1:n+1], model)
	}
	if last := model[len(model)-1]; c.points[0] != last-ringSize {
		t.Fatalf("before the first: %x", c.points[0])
	}
	for _, x := range c.points[c.size()+1:] {
		if x != model[0]+ringSize {
			t.Fatalf("behind the last: %x", x)
		}
	}
	var zs [probeSize]int64
	for v := range zs {
		zs[v] = place.Draw(t, "probe") << 32
	}
	var at [probeSize]int
	c.firsts(&zs, &at)
	least := rapid.Int64Range(0, 1<<ringBits-1).Draw(t, "least")
	var after, before [probeSize]path
	c.depart(&zs, least, &after, &before)
	for v, z := range zs {
		if i, _ := slices.BinarySearch(model, z); at[v] != 1+i {
			t.Fatalf("first at %x: %d, want %d", z, at[v], 1+i)
		}
		var want, got, wantBefore, gotBefore []int64 // distances of once round, from least on
		for _, x := range model {
			for round := range int64(3) {
				if d := (x - z + round*ringSize) >> 32; d >= least && d < least+1<<ringBits {
					want = append(want, d)
				}
				if d := (z - x&^math.MaxUint32 + round*ringSize) >> 32; d >= max(least, 1) && d < max(least, 1)+1<<ringBits {
					wantBefore = append(wantBefore, d)
				}
			}
		}
		for range model {
			got = append(got, (c.points[after[v].at]-after[v].from)>>32)
			c.follow(&after[v])
			gotBefore = append(gotBefore, (before[v].from-c.points[before[v].at])>>32)
			c.precede(&before[v])
		}
		slices.Sort(want)
		slices.Sort(wantBefore)
		if !slices.Equal(got, want) || !slices.Equal(gotBefore, wantBefore) {
			t.Fatalf("from %x, distance %d: %d and %d, want %d and %d", z, least, got, gotBefore, want, wantBefore)
		}
	}
}

// TestChairsWait lets a member come back, as in a restart: it finds its chair as
// it was, whoever came and went meanwhile, unless its weight is another or many
// went after it.
func TestChairsWait(t *testing.T) {
	in := group(40, 200)
	all := in.Members
	var e Evaluator
	began := false
	here := make(map[int]Member)
	chairs := make(map[int]int32)
	assign := func() {
		t.Helper()
		in.Members = nil
		for i := range all {
			if m, ok := here[i]; ok {
				in.Members = append(in.Members, m)
			}
		}
		want, err := Call(Balanced(), in)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := e.Assign(in); err != nil || !slices.Equal(got, want) {
			t.Fatalf("%v, or another result than Balanced's", err)
		}
		if began && !e.Repaired() {
			t.Fatal("began anew")
		}
		began = true
		for i := range here {
			at, _ := slices.BinarySearchFunc(in.Members, all[i], func(a, b Member) int { return strings.Compare(a.Name, b.Name) })
			chairs[i] = e.plan.seats[at].chair
		}
	}
	come := func(m Member, i int) { here[i] = m; assign() }
	leave := func(i int) { delete(here, i); assign() }
	for i := range 30 {
		here[i] = all[i]
	}
	assign()
	leave(7)
	come(all[7], 7)
	was := chairs[7]
	known := e.plan.chairs[was].near[0].keys
	if len(known) == 0 {
		t.Fatal("it knows nothing of its vicinity")
	}
	leave(7)
	leave(20)
	come(all[35], 35)
	come(all[7], 7)
	if keys := e.plan.chairs[was].near[0].keys; chairs[7] != was || len(keys) == 0 || &keys[0] != &known[0] {
		t.Errorf("it has chair %d, had %d; of its vicinity it knows %d keys, knew %d", chairs[7], was, len(keys), len(known))
	}

	leave(7)
	heavier := all[7]
	heavier.Weight = 2
	come(heavier, 7)
	if n := e.plan.chairs[chairs[7]].points.size(); n != 2*pointSize {
		t.Errorf("it has %d points", n)
	}

	leave(7)
	was = chairs[7]
	for i := 8; i < 8+recent; i++ {
		leave(i)
	}
	come(heavier, 7)
	if chairs[7] == was {
		t.Error("it has its chair after many have left")
	}
	for i := 30; i < 30+recent/2; i++ {
		come(all[i], i) // the chairs of who went first
	}
	last := 8 + recent - 1
	was = chairs[last]
	come(all[last], last)
	if chairs[last] != was {
		t.Errorf("it has chair %d, had %d", chairs[last], was)
	}
}

// TestWeightsAreKept goes to and fro over the largest weight that is not halved
// for points, in a group in which few partitions move by that.
func TestWeightsAreKept(t *testing.T) {
	in := group(999, 300)
	for i := range in.Members {
		in.Members[i].Weight = 1
	}
	var e Evaluator
	repaired := 0
	for _, step := range [][2]int{{66, 4}, {66, 5}, {64, 2}, {64, 4}, {66, 4}, {66, 8}, {64, 4}, {64, 8}, {66, 9}, {65, 9}, {64, 9}, {64, 4}, {65, 5}} {
		in.Members = slices.Clone(in.Members)
		in.Members[3].Weight, in.Members[7].Weight = step[0], step[1]
		want, err := Call(Balanced(), in)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := e.Assign(in); err != nil || !slices.Equal(got, want) {
			t.Fatalf("weights %d: %v, or another result than Balanced's", step, err)
		}
		if e.Repaired() {
			repaired++
		}
	}
	if repaired < 6 {
		t.Errorf("repaired %d times", repaired)
	}
}
