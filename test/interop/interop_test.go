package interop_test

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

const maxMembers = 6

var givenSeed = flag.Uint64("seed", 0, "of the random steps; 0 draws one")

// After every one of many random steps all members, of both languages, hold the same mapping, and the right one.
func TestRandomSteps(t *testing.T) {
	const steps = 120
	seed := cmp.Or(*givenSeed, rand.Uint64())
	t.Attr("seed", fmt.Sprint(seed))
	t.Logf("the same steps again: go test -run %s ./test/interop -args -seed=%d", t.Name(), seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	g := newGroup(t, "random-steps", 2*time.Second) // crashes are cheap
	count := make(map[string]int)
	did := func(what string) {
		count[what]++
		t.Logf("%s: %d members, %d partitions", what, len(g.members), len(g.items))
		g.agree()
	}
	for range steps {
		did(g.randomStep(rng))
	}
	for _, kind := range []string{"join", "leave", "crash", "add", "remove"} {
		for _, language := range []string{"go", "python"} {
			if count[kind+" "+language] > 0 {
				continue
			}
			m := g.join(language, someItems(rng)...) // one of whom we know that it is there
			did("join " + language)
			if kind != "join" {
				did(g.step(rng, kind, m))
			}
			if count[kind+" "+language] == 0 {
				t.Errorf("never: %s %s", kind, language)
			}
		}
	}
	t.Attr("python-members-expired", fmt.Sprint(g.expired))
	var summary []string
	for _, key := range slices.Sorted(maps.Keys(count)) {
		summary = append(summary, fmt.Sprintf("%s %d", key, count[key]))
	}
	t.Attr("steps", strings.Join(summary, ", "))
	if joined := count["join python"]; g.expired > joined/4 {
		t.Errorf("%d of %d Python members were lost by themselves: too few of them took part", g.expired, joined)
	}
}

// randomStep does something and says what.
func (g *group) randomStep(rng *rand.Rand) string {
	g.t.Helper()
	kind := pick(rng, []string{"join", "join", "join", "leave", "leave", "crash", "add", "add", "add", "remove", "remove"})
	switch {
	case len(g.members) < 2:
		kind = "join"
	case len(g.members) == maxMembers && kind == "join":
		kind = "leave"
	case len(g.items) == 0 && kind == "remove":
		kind = "add"
	}
	if kind == "join" {
		language := pick(rng, []string{"python", "go"})
		g.join(language, someItems(rng)...)
		return "join " + language
	}
	return g.step(rng, kind, g.members[pick(rng, slices.Sorted(maps.Keys(g.members)))])
}

// step has a member do something, and says what was done, and in which language.
func (g *group) step(rng *rand.Rand, kind string, m *member) string {
	g.t.Helper()
	switch kind {
	case "leave":
		if !g.leave(m) {
			return "expire " + m.language
		}
	case "crash":
		g.crash(m)
	case "add":
		m = g.change(m, kind, someItems(rng))
	case "remove":
		items := slices.Sorted(maps.Keys(g.items))
		rng.Shuffle(len(items), func(i, j int) { items[i], items[j] = items[j], items[i] })
		m = g.change(m, kind, items[:1+rng.IntN(len(items))])
	}
	return kind + " " + m.language
}

// Members of both languages change the set at the same time, each its own items; nothing gets lost.
func TestConcurrentChanges(t *testing.T) {
	const (
		rounds = 25
		batch  = 4
	)
	g := newGroup(t, "concurrent-changes", 10*time.Second) // nobody crashes
	type job struct {
		member *member
		items  [][]string
	}
	var jobs []job
	for i, language := range []string{"python", "go", "python", "go"} {
		j := job{member: g.join(language)}
		for round := range rounds {
			var items []string
			for n := range batch {
				items = append(items, fmt.Sprintf("topic-%d:%d", i, round*batch+n))
			}
			j.items = append(j.items, items)
		}
		jobs = append(jobs, j)
	}
	done := make(chan error)
	for _, j := range jobs {
		go func() {
			var err error
			for _, items := range j.items {
				err = errors.Join(err, j.member.do("add", items...), j.member.do("remove", items[0]))
			}
			done <- err
		}()
	}
	for range jobs {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	for _, j := range jobs {
		for _, items := range j.items {
			for _, item := range items[1:] {
				g.items[item] = true
			}
		}
	}
	g.agree()
}

func pick[T any](rng *rand.Rand, from []T) T { return from[rng.IntN(len(from))] }

func someItems(rng *rand.Rand) []string {
	topic := pick(rng, []string{"orders", "pay-ments_1", "a.b"})
	first := rng.IntN(20)
	var items []string
	for i := range 1 + rng.IntN(8) {
		items = append(items, fmt.Sprintf("%s:%d", topic, first+i))
	}
	return items
}
