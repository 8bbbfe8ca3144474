package bench_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/kielgo/kiel/test/servers"
	"github.com/kielgo/kiel/test/wait"
)

// startOfAProcess is how long a process takes until it is up, and joins.
const startOfAProcess = time.Second

// fleetKind is how the processes of a fleet are restarted.
type fleetKind struct {
	name   string
	static bool
	random bool // the new process has a name of its own
	surge  bool // the new process joins before the old one leaves
}

var fleetKinds = []fleetKind{
	{name: "Deployment, maxSurge 1", random: true, surge: true},
	{name: "Deployment, maxUnavailable 1", random: true},
	{name: "StatefulSet"},
	{name: "StatefulSet, static", static: true},
}

// restartFigures are those of the restarts of one kind of fleet, or of another change.
type restartFigures struct {
	moves, sessions []int           // of each restart: partitions that moved between other processes, or from one to another; sessions that others began
	own, others     []time.Duration // the gaps of the partitions of the process that restarts, and of the others
}

// TestRestarts measures what the restart of one process costs the others, by the kind of the fleet, and what a process costs that
// is added or removed: five members with eager sessions share 64 partitions.
func TestRestarts(t *testing.T) {
	zk := servers.StartZooKeeper(t, servers.ZooKeeperOptions{TickTime: tick})
	kafka := servers.StartKafka(t, servers.KafkaOptions{})
	kafka.CreateTopic(topic, partitions)
	produce(t, kafka.Brokers(), beat)
	var text strings.Builder
	table := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "\tpartitions that move\tsessions of others\tgap of the process's partitions\tgap of the others' partitions")
	row := func(name string, f *restartFigures) {
		own := "-"
		if len(f.own) > 0 {
			own = spread(f.own)
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\n", name, medianAndMost(f.moves), medianAndMost(f.sessions), own, spread(f.others))
	}
	for i, kind := range fleetKinds {
		r := newFleetRig(t, kind, zk.Addrs(), kafka.Brokers(), i)
		var f restartFigures
		for n := range *rounds {
			r.restart(&f, n%len(r.members))
		}
		r.end()
		row(kind.name, &f)
		if kind.static && slices.Max(f.moves)+slices.Max(f.sessions) > 0 {
			t.Errorf("%s: partitions of other processes moved: %v, sessions: %v", kind.name, f.moves, f.sessions)
		}
	}
	r := newFleetRig(t, fleetKinds[0], zk.Addrs(), kafka.Brokers(), len(fleetKinds))
	var added, removed restartFigures
	for range *rounds {
		r.scale(&added, &removed)
	}
	r.end()
	row("one process more", &added)
	row("one process less", &removed)
	if err := table.Flush(); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d partitions, a message each %v a partition, %v from the end of a process to the start of the next, one server of each kind; median and worst of %d:\n%s",
		partitions, beat, startOfAProcess, *rounds, &text)
}

// medianAndMost shows counts.
func medianAndMost(counts []int) string {
	s := slices.Sorted(slices.Values(counts))
	return fmt.Sprintf("%d, %d", s[len(s)/2], s[len(s)-1])
}

// fleetRig is a fleet of five processes. A place is what a process and its successors have in common.
type fleetRig struct {
	*sessionRig

	kind    fleetKind
	members []*sessionMember // by their places
	place   map[*sessionMember]int
	started int
	moves   int // since it was set to 0; guarded by mu
	name    string
}

func newFleetRig(t *testing.T, kind fleetKind, zookeeper, brokers []string, number int) *fleetRig {
	t.Helper()
	r := &fleetRig{kind: kind, place: map[*sessionMember]int{}, sessionRig: &sessionRig{
		t: t, kind: groupKinds[2], zookeeper: zookeeper, brokers: brokers, group: fmt.Sprintf("restarts-%d", number), static: kind.static,
	}}
	r.name = r.fresh()
	r.moved = func(from, to *sessionMember) {
		if r.place[from] != r.place[to] {
			r.moves++
		}
	}
	for i := range 5 {
		r.members = append(r.members, r.launch(i))
	}
	r.settle(r.members...)
	return r
}

// launch starts a process in a place.
func (r *fleetRig) launch(place int) *sessionMember {
	r.t.Helper()
	name := fmt.Sprint("m", place)
	if r.kind.random {
		r.started++
		name = fmt.Sprintf("m-%d", (r.started*7919)%10007) // in no order
	}
	r.mu.Lock()
	defer r.mu.Unlock() // the member opens nothing before its place is known
	m := r.member(r.name, name)
	r.place[m] = place
	return m
}

func (r *fleetRig) end() { end(r.members...) }

// watch measures what a change costs that do makes in a place.
func (r *fleetRig) watch(f *restartFigures, place int, do func()) {
	r.t.Helper()
	wait.Pass(r.t, 12*time.Second) // what sessions have ended may be remembered for a while
	r.mu.Lock()
	r.since, r.moves = time.Now().Add(-time.Second), 0 // a gap begins with the last message before the change
	own := map[int]bool{}
	for i := range r.parts {
		r.parts[i].gap = 0
		own[i] = r.place[r.parts[i].owner] == place
	}
	r.mu.Unlock()
	before := r.sessionsBut(place)
	do()
	r.settle(r.members...)
	wait.Pass(r.t, time.Second)
	f.sessions = append(f.sessions, r.sessionsBut(place)-before)
	r.mu.Lock()
	defer r.mu.Unlock()
	f.moves = append(f.moves, r.moves)
	for i := range r.parts {
		if own[i] {
			f.own = append(f.own, r.parts[i].gap)
		} else {
			f.others = append(f.others, r.parts[i].gap)
		}
	}
}

// sessionsBut counts the sessions that processes in other places have begun.
func (r *fleetRig) sessionsBut(place int) (n int) {
	for m, at := range r.place {
		if at != place {
			n += int(m.sessions.Load())
		}
	}
	return n
}

// restart restarts the process in a place.
func (r *fleetRig) restart(f *restartFigures, place int) {
	r.t.Helper()
	r.watch(f, place, func() {
		old := r.members[place]
		if r.kind.surge {
			r.members[place] = r.launch(place)
			r.settle(append(slices.Clone(r.members), old)...)
			end(old)
			return
		}
		end(old)
		wait.Pass(r.t, startOfAProcess)
		r.members[place] = r.launch(place)
	})
}

// scale adds a process, and removes it.
func (r *fleetRig) scale(added, removed *restartFigures) {
	r.t.Helper()
	place := len(r.members)
	r.watch(added, place, func() { r.members = append(r.members, r.launch(place)) })
	r.watch(removed, place, func() {
		end(r.members[place])
		r.members = r.members[:place]
	})
}
