package sim_test

import (
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

var (
	flagSeed    = flag.Uint64("seed", 0, "replay the run of this seed alone")
	flagKeep    = flag.String("keep", "", "of that run, these steps alone, as a report names them: 3.0,3.4")
	flagTries   = flag.Int("tries", 1, "how often to replay it")
	flagFirst   = flag.Uint64("first", 1, "the first seed")
	flagDays    = flag.Float64("days", 20, "virtual group-days to run, one seed each")
	flagHours   = flag.Float64("hours", 24, "virtual hours of a run, at least")
	flagRandom  = flag.Float64("random", 0, "virtual group-days to run besides, of seeds that nobody knows before")
	flagGroup   = flag.Bool("group", false, "with -seed: members are Groups of package consumer")
	flagDrills  = flag.Bool("drills", false, "with -seed: each drill once, and nothing else")
	flagTopics  = flag.Bool("topics", false, "with -seed: drills with topic lists that differ, and nothing else")
	flagMembers = flag.Int("members", 3, "members at the start of a run, at least 3")
)

func planOf(seed uint64) *plan {
	return newPlan(seed, time.Duration(*flagHours*float64(time.Hour)), *flagMembers)
}

// total is what many runs came to.
type total struct {
	mu       sync.Mutex
	runs     int
	virtual  time.Duration
	faults   int
	overlaps int
	excused  int
	lost     int
	dups     int
	messages int64
	cov      coverage
	figures  map[string][]time.Duration
}

func newTotal() *total { return &total{cov: newCoverage(), figures: map[string][]time.Duration{}} }

func (s *total) add(r *result) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.runs++
	s.virtual += r.virtual
	s.faults += r.faults
	s.overlaps += r.overlaps
	s.excused += r.excused
	s.lost += r.lost
	s.dups += r.dups
	s.messages += r.messages
	s.cov.merge(r.cov)
	for name, all := range r.figures {
		s.figures[name] = append(s.figures[name], all...)
	}
}

func (s *total) days() float64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.virtual.Hours() / 24
}

// seeds hands out the plans of a run: each drill once, then the days of seeds that are always the same, then those of random
// ones.
type seeds struct {
	mu     sync.Mutex
	drills bool
	next   uint64 // fixed
	random uint64 // 0: none yet
	first  uint64 // of the random ones
}

// plan returns the next one; nil when there were days enough.
func (s *seeds) plan(days float64) *plan {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case !s.drills:
		s.drills = true
		return newDrills(s.next, *flagMembers)
	case days < *flagDays:
		s.next++
		return planOf(s.next - 1)
	case days < *flagDays+*flagRandom:
		s.random++
		return planOf(s.random - 1)
	}
	return nil
}

// newSeeds begins at -first, and tells where the random seeds begin.
func newSeeds(t *testing.T) *seeds {
	s := &seeds{next: *flagFirst, random: firstRandom(t)}
	s.first = s.random
	return s
}

// firstRandom draws a seed, and tells it.
func firstRandom(t *testing.T) uint64 {
	first := 1_000_000 + rand.Uint64N(1_000_000_000)
	if *flagRandom > 0 {
		t.Attr("first_random_seed", strconv.FormatUint(first, 10))
	}
	return first
}

// Groups live through virtual days of faults, and the invariants hold after every event. A day is a seed.
func TestDays(t *testing.T) {
	if *flagSeed != 0 {
		replay(t)
		return
	}
	began := time.Now()
	sum := newTotal()
	next := newSeeds(t)
	t.Run("runs", func(t *testing.T) {
		for i := range runtime.GOMAXPROCS(0) {
			t.Run(strconv.Itoa(i), func(t *testing.T) {
				t.Parallel()
				for !t.Failed() {
					p := next.plan(sum.days())
					if p == nil {
						return
					}
					res := simulate(t, p, manners{})
					sum.add(res)
					if len(res.violations) > 0 {
						report(t, res, manners{})
						next.tell(t)
					}
				}
			})
		}
	})
	took := time.Since(began)
	attr := func(key, format string, args ...any) { t.Attr(key, fmt.Sprintf(format, args...)) }
	attr("group_days", "%.1f", sum.days())
	attr("faults", "%d", sum.faults)
	attr("group_days_per_minute", "%.1f", sum.days()/took.Minutes())
	attr("faults_per_minute", "%.0f", float64(sum.faults)/took.Minutes())
	attr("overlaps", "%d", sum.overlaps)
	attr("overlaps_after_third_party", "%d", sum.excused)
	attr("messages", "%d", sum.messages)
	attr("lost", "%d", sum.lost)
	attr("processed_again", "%d", sum.dups)
	for _, name := range slices.Sorted(keys(sum.figures)) {
		all := sum.figures[name]
		slices.Sort(all)
		attr(strings.ReplaceAll(name, " ", "_"), "n %d, median %v, max %v", len(all), all[len(all)/2], all[len(all)-1])
	}
	if sum.overlaps > 0 || sum.lost > 0 {
		t.Errorf("%d overlaps, %d messages lost", sum.overlaps, sum.lost)
	}
	long := *flagDays+*flagRandom >= 20 && !t.Failed() // what fails ends early
	if long && sum.faults < leastFaults {
		t.Errorf("%d faults, not %d", sum.faults, leastFaults)
	}
	if bound := time.Duration(3 * sum.days() / 20 * float64(twentyDays)); long && *flagMembers <= 3 && took > bound {
		t.Errorf("%.1f group-days took %v, more than %v", sum.days(), took.Round(time.Second), bound.Round(time.Second))
	}
	reached := 0
	for _, what := range required() {
		if sum.cov.of(what) > 0 {
			reached++
		} else if long {
			t.Errorf("not reached: %s", what)
		}
	}
	attr("branches_reached", "%d of %d", reached, len(required()))
	if testing.Verbose() {
		t.Logf("reached:\n%v", sum.cov)
	}
}

// leastFaults is how many a run of 20 group-days must have injected.
const leastFaults = 2000

// twentyDays is what 20 group-days may take on two cores that have nothing else to do. The figure to look at is
// group_days_per_minute: others at work on the machine must not fail the test, so only three times as much does.
const twentyDays = 3 * time.Minute

// tell says where the random seeds began.
func (s *seeds) tell(t *testing.T) {
	t.Helper()
	if *flagRandom > 0 {
		t.Errorf("the random seeds of this run began at %d", s.first)
	}
}

// replay runs a seed again.
func replay(t *testing.T) {
	p := planOf(*flagSeed)
	if *flagDrills {
		p = newDrills(*flagSeed, *flagMembers)
	}
	if *flagTopics {
		p = newTopicDrills(*flagSeed, *flagMembers)
	}
	p.Group = *flagGroup
	if *flagKeep != "" {
		p = p.only(parseIDs(t, *flagKeep))
	}
	failed := 0
	for range *flagTries {
		began := time.Now()
		res := simulate(t, p, manners{})
		t.Logf("seed %d: %v virtual, %v real, %d faults, %d overlaps after a third party's deed, %d messages processed again",
			p.Seed, res.virtual, time.Since(began), res.faults, res.excused, res.dups)
		if len(res.violations) == 0 {
			continue
		}
		if failed++; failed == 1 {
			t.Errorf("%s\n%s", p.until(res.phase), res.tail)
			for _, v := range res.violations {
				t.Errorf("%v", v)
			}
		}
	}
	if *flagTries > 1 {
		t.Logf("%d of %d failed", failed, *flagTries)
	}
}

func parseIDs(t *testing.T, text string) []id {
	t.Helper()
	var ids []id
	for field := range strings.SplitSeq(text, ",") {
		var i id
		if _, err := fmt.Sscanf(field, "%d.%d", &i.phase, &i.step); err != nil {
			t.Fatalf("-keep %s: %v", text, err)
		}
		ids = append(ids, i)
	}
	return ids
}

// keys yields the keys of a map.
func keys[V any](m map[string]V) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

// groupHours is how long the plans of Groups are; see newPlan.
const groupHours = 5

// hectic returns the next n seeds with little calm and few partitions, since sarama takes long with many.
func hectic(seed uint64, n int) []uint64 {
	var list []uint64
	for ; len(list) < n; seed++ {
		if seed%3 == 0 && !crowded(seed) {
			list = append(list, seed)
		}
	}
	return list
}

// Groups of package consumer, with sarama in them, live through the same on kfake's virtual network. That costs much more, so
// they live for some hours only.
func TestGroups(t *testing.T) {
	began := time.Now()
	sum := newTotal()
	random := firstRandom(t)
	fixed, unknown := max(2, int(*flagDays/10)), int(math.Ceil(*flagRandom/10))
	plans := []*plan{newDrills(*flagFirst, *flagMembers)}
	for _, seed := range slices.Concat(hectic(*flagFirst, fixed), hectic(random, unknown)) {
		plans = append(plans, newPlan(seed, groupHours*time.Hour, *flagMembers))
	}
	for _, p := range plans {
		p.Group = true
		res := simulate(t, p, manners{})
		sum.add(res)
		if len(res.violations) > 0 {
			report(t, res, manners{})
			(&seeds{first: random}).tell(t)
		}
	}
	attr := func(key, format string, args ...any) { t.Attr(key, fmt.Sprintf(format, args...)) }
	attr("group_hours", "%.1f", sum.virtual.Hours())
	attr("faults", "%d", sum.faults)
	attr("faults_per_minute", "%.0f", float64(sum.faults)/time.Since(began).Minutes())
	attr("messages", "%d", sum.messages)
	attr("processed_again", "%d", sum.dups)
	for _, what := range []string{
		"group: opened", "group: message", "group: committed", "group: messages processed again",
		"event untrusted", "fault: kill session",
		saramaAPI.String(), plainMark.String(), plainDone.String(), "group: processed before an older message",
	} {
		if sum.cov.of(what) == 0 {
			t.Errorf("not reached: %s", what)
		}
	}
	if testing.Verbose() {
		t.Logf("reached:\n%v", sum.cov)
	}
}
