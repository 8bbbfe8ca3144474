package allocator

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/allocfn"
	"github.com/kielgo/kiel/internal/testonly/noerr"
	"github.com/kielgo/kiel/party"
)

// groupOf returns what a job of a test reads: members that all have a record, and a set.
func groupOf(tb testing.TB, members, partitions int) (ms []party.Member, set []string, o Options) {
	tb.Helper()
	o, err := Options{}.withDefaults()
	noerr.Must(tb, err)
	data, err := newRecord(o).encode()
	noerr.Must(tb, err)
	for i := range members {
		ms = append(ms, party.Member{Name: fmt.Sprintf("member-%04d", i), Czxid: int64(i), Data: data})
	}
	seed := make(map[string][]int32)
	for i := range partitions {
		topic := fmt.Sprintf("topic-%d", i/64)
		seed[topic] = append(seed[topic], int32(i%64))
	}
	if set, err = items(seed); err != nil {
		tb.Fatal(err)
	}
	return ms, set, o
}

// A join costs the parsing of one record: what did not change is not parsed again.
func TestJoinParsesOneRecord(t *testing.T) {
	ms, set, o := groupOf(t, 1001, 20_000)
	known := computeMapping(&inputs{}, ms[:1000], set, nil, o).inputs
	if n := testing.AllocsPerRun(5, func() { computeMapping(known, ms, set, nil, o) }); n > 100 {
		t.Errorf("%.0f allocations for a join", n)
	}
	if in := readInputs(ms, slices.Clone(set), o.PythonFunc, known); &in.partitions[0] != &known.partitions[0] {
		t.Error("the set was parsed again")
	}
}

// describe returns all that was read, as text.
func describe(in *inputs) string {
	var b strings.Builder
	for i, m := range in.read {
		fmt.Fprintf(&b, "%s: %+v runs %q, %s\n", in.members[i].Name, m.Member, m.runs, text(m.fault))
	}
	fmt.Fprintf(&b, "%q: %v at %v, %s; faults: %s\n", in.items, in.partitions, in.places, text(in.bad), text(in.faults()))
	fmt.Fprintf(&b, "%q asked for: %v at %v, without %q", in.topics, in.wanted, in.wantedPlaces, in.unwanted)
	return b.String()
}

// Parts taken from the job before equal those that would be parsed anew, whatever came, went or changed.
func TestInputsAreAsParsedAnew(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	records := [][]byte{ // the first can be read
		[]byte(`{"v":1,"functions":["range/1"],"topics":["t"]}`), []byte(`{"v":1,"functions":["range/1"],"topics":["u","s"]}`),
		[]byte(`{"v":1,"functions":["range/1"],"topics":["t","^s.*","!^t"]}`), []byte(`{"v":1,"functions":["range/1"],"topics":["^[su]","^v"]}`),
		nil, []byte("garbage"), []byte(`{"v":1,"functions":["roundrobin/1","range/1"],"weight":3}`),
	}
	sets := [][]string{nil, {"t:0", "t:1"}, {"t:0", "t:2"}, {"t", "t:01", "t:1"}, {"t:0", "t:1"}, {"s:0", "t:+1", "t:-1", "t:1", "u:0"}}
	known := &inputs{}
	someWanted := 0
	for range 1000 {
		ms := slices.Clone(known.members)
		kinds := 4 // of members
		if rng.IntN(2) == 0 {
			kinds = 3 // all can be read
		}
		if rng.IntN(3) > 0 {
			ms = nil
		}
		for i := range 6 {
			m := party.Member{Name: fmt.Sprintf("m%d", i), Czxid: 1, Data: records[rng.IntN(len(records))]}
			if kinds == 3 {
				m.Data = records[rng.IntN(4)]
			}
			switch rng.IntN(kinds) {
			case 0:
				continue
			case 3:
				m.Data, m.Err = nil, errors.New("unreadable")
			}
			if !slices.ContainsFunc(ms, func(o party.Member) bool { return o.Name >= m.Name }) {
				ms = append(ms, m)
			}
		}
		set := sets[rng.IntN(len(sets))]
		before := describe(known)
		next, anew := readInputs(ms, set, "roundrobin/1", known), readInputs(ms, set, "roundrobin/1", &inputs{})
		if describe(next) != describe(anew) {
			t.Fatalf("%s\nparsed anew\n%s", describe(next), describe(anew))
		}
		if now := describe(known); now != before {
			t.Fatalf("what was known has changed from\n%s\nto\n%s", before, now)
		}
		known = next
		if len(next.unwanted) > 0 && len(next.wanted) > 0 {
			someWanted++
		}
	}
	if someWanted == 0 {
		t.Error("there was no group with both topics that are asked for and others")
	}
}

// A record that is changed in place, in the znode that was read before, is parsed again.
func TestRecordChangedInPlaceIsParsed(t *testing.T) {
	ms, set, o := groupOf(t, 3, 6)
	known := readInputs(ms, set, o.PythonFunc, &inputs{})
	changed := slices.Clone(ms)
	changed[1].Data = []byte(`{"v":1,"functions":["range/1"],"weight":7}`)
	if m := readInputs(changed, set, o.PythonFunc, known).read[1]; m.Weight != 7 || !slices.Equal(m.runs, []string{"range/1"}) {
		t.Errorf("%+v", m)
	}
}

// Owner, Share and Mapping of one mapping may be called at once, and what they return is the caller's.
func TestSnapshotOfOneView(t *testing.T) {
	ms, set, o := groupOf(t, 7, 1000)
	r := computeMapping(&inputs{}, ms, set, nil, o)
	want := allocfn.Mapping(r.mapping.in, r.mapping.owner)
	s := &Snapshot{mapping: r.mapping}
	var callers sync.WaitGroup
	for i := range 8 {
		callers.Go(func() {
			name := ms[i%len(ms)].Name
			share := s.Share(name)
			if !maps.EqualFunc(share, want[name], slices.Equal) {
				t.Errorf("%s has %v, want %v", name, share, want[name])
			}
			for topic, ids := range share {
				for k, id := range ids {
					if owner, ok := s.Planned(kiel.Partition{Topic: topic, ID: id}); !ok || owner != name {
						t.Errorf("%s:%d is owned by %q, want %s", topic, id, owner, name)
					}
					ids[k] = -1
				}
				delete(share, topic)
			}
			all := s.Mapping()
			if !reflect.DeepEqual(all, want) {
				t.Error("the mapping differs")
			}
			clear(all[name])
			delete(all, name)
		})
	}
	callers.Wait()
	if !reflect.DeepEqual(s.Mapping(), want) {
		t.Error("the mapping differs after its callers changed what they had")
	}
	for _, p := range []kiel.Partition{{Topic: "topic-0", ID: 64}, {Topic: "topic", ID: 0}, {}} {
		if owner, ok := s.Planned(p); ok || owner != "" {
			t.Errorf("%v, which is not in the set, is owned by %q", p, owner)
		}
	}
	if share := s.Share("nobody"); share == nil || len(share) > 0 {
		t.Errorf("a stranger's share is %v", share)
	}
}

// A mapping without members or without partitions gives nothing to anybody.
func TestSnapshotOfNothing(t *testing.T) {
	ms, set, o := groupOf(t, 1, 1)
	for name, r := range map[string]result{
		"no members":    computeMapping(&inputs{}, nil, set, nil, o),
		"no partitions": computeMapping(&inputs{}, ms, nil, nil, o),
		"nothing":       {mapping: newMapping(allocfn.Input{}, "", nil)},
	} {
		s := &Snapshot{mapping: r.mapping}
		owner, ok := s.Planned(kiel.Partition{Topic: "topic-0"})
		if ok || owner != "" || len(s.Share(ms[0].Name)) > 0 || len(s.Mapping()) > 0 {
			t.Errorf("%s: owner %q, share %v, mapping %v", name, owner, s.Share(ms[0].Name), s.Mapping())
		}
	}
}

// A group whose members have the same record costs the parsing of one, and their lists are in memory once.
func TestEqualRecordsAreParsedOnce(t *testing.T) {
	var ms []party.Member
	for i := range 1000 {
		ms = append(ms, asking(fmt.Sprintf("m%04d", i), "t", "u"))
	}
	var read []member
	if n := testing.AllocsPerRun(5, func() { read, _ = readMembers(ms, "roundrobin/1", &inputs{}) }); n > 100 {
		t.Errorf("%.0f allocations", n)
	}
	for i, m := range read {
		if m.Name != ms[i].Name || !m.recorded() || &m.Topics[0] != &read[0].Topics[0] {
			t.Fatalf("member %d is %+v", i, m)
		}
	}
	for _, m := range ms[:2] { // a bad one is reported under each name
		m.Data = []byte(`{"v":2}`)
		ms = append(ms, m)
	}
	read, _ = readMembers(ms[1000:], "roundrobin/1", &inputs{})
	for _, m := range read {
		if m.recorded() || !strings.Contains(text(m.fault), m.Name) {
			t.Errorf("%s: %v", m.Name, m.fault)
		}
	}
}
