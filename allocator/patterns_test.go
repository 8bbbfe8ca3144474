package allocator

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/kielgo/kiel/allocfn"
	"github.com/kielgo/kiel/internal/testonly/noerr"
	"github.com/kielgo/kiel/party"
)

// A member with patterns asks for the topics of the set that they find. A topic that comes into the set later is found, though no
// record has changed.
func TestPatternsFindTopicsOfTheSet(t *testing.T) {
	inRig(t, func(o *Options) { o.Func = allocfn.Balanced() }, func(r *rig) {
		data := func(m party.Member) party.Member {
			m.Data = []byte(strings.ReplaceAll(string(m.Data), "roundrobin/1", "balanced/1"))
			return m
		}
		us := data(asking("b", "u"))
		r.partitions("__t:0", "t-:0", "t-x:0", "t1:0", "t1:1", "u:0")
		r.membersAre(data(asking("a", "^t.*", "!^t-.*", "t-x")), us)
		r.divided("t-x:0 t1:0 t1:1 u:0", "__t", "t-")
		owns := func(member, want string) {
			r.Helper()
			if got := fmt.Sprint(r.Snapshot().Share(member)); got != want {
				r.Errorf("%s owns %s, want %s", member, got, want)
			}
		}
		owns("a", "map[t-x:[0] t1:[0 1]]")
		owns("b", "map[u:[0]]")
		r.failed()

		r.partitions("__t:0", "t-:0", "t-x:0", "t1:0", "t1:1", "t2:0", "t2:1", "u:0")
		r.divided("t-x:0 t1:0 t1:1 t2:0 t2:1 u:0", "__t", "t-")
		owns("a", "map[t-x:[0] t1:[0 1] t2:[0 1]]")
		owns("b", "map[u:[0]]")
		r.reported()
		r.partitions("t1:0", "u:0")
		r.divided("t1:0 u:0")
		owns("a", "map[t1:[0]]")
	})
}

// A member whose patterns find nothing gets nothing. It does not count as one that asks for all topics.
func TestPatternsThatFindNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, f := range []allocfn.Func{allocfn.RoundRobin(), allocfn.Balanced(), allocfn.TopicBalanced(), allocfn.Range()} {
			r := newRig(t, func(o *Options) { o.Func = f })
			r.run()
			as := func(name string, topics ...string) party.Member {
				m := asking(name, topics...)
				m.Data = []byte(strings.ReplaceAll(string(m.Data), "roundrobin/1", f.ID()))
				return m
			}
			r.partitions("t:0", "t:1", "u:0")
			us := as("b", "^v.*")
			r.membersAre(us)
			r.divided("", "t", "u")
			r.membersAre(as("a", "t"), us)
			r.divided("t:0 t:1", "u")
			if got := r.Snapshot().Share("a"); len(got["t"]) != 2 {
				t.Errorf("%s: a owns %v", f.Name, got)
			}
			r.membersAre(as("a"), us) // it asks for all
			r.divided("t:0 t:1 u:0")
			if got := r.Snapshot().Share("b"); len(got) > 0 {
				t.Errorf("%s: b owns %v", f.Name, got)
			}
			r.partitions("^v.*:0", "t:0") // anybody may have written that
			r.divided("^v.*:0 t:0")
			if got := r.Snapshot().Share("b"); len(got) > 0 {
				t.Errorf("%s: b owns %v", f.Name, got)
			}
			r.stop()
		}
	})
}

// Beside a member without a record patterns mean as little as names. A record whose pattern can't be read is one that can't be
// read.
func TestPatternsBesidePython(t *testing.T) {
	inRig(t, nil, func(r *rig) {
		r.partitions("t:0", "u:0", "v:0")
		us := asking("b", "^t.*")
		for what, other := range map[string]party.Member{
			"Python":            {Name: "a"},
			"no pattern":        asking("a", "^t("),
			"too large":         asking("a", "^t{1000}u{1000}v{1000}"),
			"an exclusion only": asking("a", "!^u"),
		} {
			r.membersAre(us)
			r.divided("t:0", "u", "v")
			r.failed()
			r.membersAre(other, us)
			r.divided("t:0 u:0 v:0")
			if err := r.failed(); errors.Is(err, ErrBadRecord) != (len(other.Data) > 0) {
				r.Errorf("%s: %v", what, err)
			}
		}
	})
}

// A job's earlier findings change nothing about what it finds next: members that have seen other members and sets agree.
func TestPatternsAreFoundAlike(t *testing.T) {
	o, err := Options{}.withDefaults()
	noerr.Must(t, err)
	entries := []string{"t0", "t1", "t5", "^t.*", "^t[0-4]", "^.*1", "!^t1", "!^.*5", "^u.*", "^nothing"}
	random := rand.New(rand.NewPCG(1, 2))
	pick := func(from []string, n int) (list []string) {
		for range n {
			list = append(list, from[random.IntN(len(from))])
		}
		return list
	}
	for range 50 {
		known := &inputs{}
		var ms []party.Member
		var set []string
		for range 30 {
			if random.IntN(2) == 0 {
				ms = nil
				for i := range 1 + random.IntN(4) {
					ms = append(ms, asking(fmt.Sprint(i), pick(entries, random.IntN(4))...))
				}
			}
			if random.IntN(2) == 0 {
				set = nil
				for range random.IntN(12) {
					set = append(set, fmt.Sprintf("%s%d:%d", pick([]string{"t", "u", "__t"}, 1)[0], random.IntN(7), random.IntN(2)))
				}
				slices.Sort(set)
				set = slices.Compact(set)
			}
			got := computeMapping(known, ms, set, nil, o)
			want := computeMapping(&inputs{}, ms, set, nil, o)
			if got.err != nil || want.err != nil {
				t.Fatal(got.err, want.err)
			}
			g, w := fmt.Sprint((&Snapshot{mapping: got.mapping}).Mapping(), got.mapping.unwanted), fmt.Sprint((&Snapshot{mapping: want.mapping}).Mapping(), want.mapping.unwanted)
			if g != w {
				t.Fatalf("%v of %q is divided as %s, anew as %s", ms, set, g, w)
			}
			known = got.inputs
		}
	}
}

// The findings of patterns are kept: when nothing has changed nothing is done, and members with the same list share what it
// finds.
func TestFoundTopicsAreKept(t *testing.T) {
	ms := []party.Member{asking("a", "^t.*", "!^tt"), asking("b", "u"), asking("c", "!^tt", "^t.*", "^t.*")}
	set := []string{"t:0", "tt:0", "u:0"}
	known := readInputs(ms, set, "roundrobin/1", &inputs{})
	if &known.read[0].Topics[0] != &known.read[2].Topics[0] || len(known.found) != 1 {
		t.Errorf("%d lists", len(known.found))
	}
	if n := testing.AllocsPerRun(10, func() { readInputs(ms, set, "roundrobin/1", known) }); n > 3 {
		t.Errorf("%.0f allocations when nothing has changed", n)
	}
	joined := readInputs(append(slices.Clone(ms), asking("d", "^t.*", "!^tt")), set, "roundrobin/1", known)
	if len(joined.found) != 1 || joined.read[3].patterns() != known.read[0].patterns() {
		t.Error("a list was parsed again")
	}
	if in := readInputs(ms[1:2], set, "roundrobin/1", joined); len(in.found) != 0 || in.setTopics != nil {
		t.Errorf("%d lists are kept that no member has", len(in.found))
	}
}
