package allocator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/allocfn"
	"github.com/kielgo/kiel/internal/operr"
	"github.com/kielgo/kiel/internal/statuswrite"
	"github.com/kielgo/kiel/internal/topiclist"
	"github.com/kielgo/kiel/party"
	"github.com/kielgo/kiel/session"
)

// job is a computation that runs on a goroutine of its own, because the allocation function is user code.
type job struct {
	changes int                  // loop.changes when the job began
	inc     *session.Incarnation // the incarnation under which its inputs were read
	joined  bool                 // whether this member had joined
	hasSeed bool                 // whether the set had the seed
	since   time.Time            // when the first change came that the job acts on
	late    bool                 // whether the job has not returned within computeTimeout
	callers []chan error         // calls of Rebalance that wait for the job
}

// result is what a job returns: a mapping or an error, and errors in its inputs that it worked around.
type result struct {
	inputs  *inputs // nil if the job ended before it had them
	mapping *mapping
	err     error
	records error // bad records of members
	items   error // items that are allocated to nobody
	took    time.Duration
}

// inputs is what a job has parsed: the members' records and the set's items. The next job parses only what has changed. inputs
// never change.
type inputs struct {
	members []party.Member
	read    []member // the parsed records, one for each of members

	topics []string // the topics that members ask for, sorted; nil if all topics are divided

	setTopics []string                  // the topics of the set, sorted, if some member's record has patterns
	found     map[*topiclist.List]found // the topics that each list with patterns asks for

	items      []string
	partitions []kiel.Partition // the partitions of items
	places     []int32          // allocfn.Input.Places for partitions
	odd        []string         // items that are allocated to nobody
	bad        error            // the error about odd items

	wanted       []kiel.Partition // the partitions of topics that members ask for
	wantedPlaces []int32          // allocfn.Input.Places for wanted
	unwanted     []string         // the other topics in the set, sorted
}

// readInputs parses members and items, as far as known does not have them.
func readInputs(members []party.Member, items []string, pythonFunc string, known *inputs) *inputs {
	read, sameMembers := readMembers(members, pythonFunc, known)
	in := &inputs{members: members, read: read, topics: known.topics, setTopics: known.setTopics, found: known.found, items: items}
	sameItems := slices.Equal(items, known.items)
	if sameItems {
		in.partitions, in.places, in.odd, in.bad = known.partitions, known.places, known.odd, known.bad
	} else {
		in.partitions, in.places, in.odd = kiel.ParsePartitions(items)
		in.bad = badItems(in.odd)
	}
	patterns := in.findTopics(known, sameMembers && sameItems)
	if !sameMembers || patterns && !sameItems {
		in.topics = askedTopics(read)
	}
	if sameItems && slices.Equal(in.topics, known.topics) {
		in.wanted, in.wantedPlaces, in.unwanted = known.wanted, known.wantedPlaces, known.unwanted
	} else {
		in.leaveOutUnwanted()
	}
	return in
}

// allocation returns the input of the allocation function. Its members have topics only if all members have a record: a member
// without a record is one in Python, and computes with no topics at all.
func (in *inputs) allocation(zones map[kiel.Partition]string) allocfn.Input {
	members := make([]allocfn.Member, len(in.read))
	recorded := true
	for i := range in.read {
		members[i] = in.read[i].Member
		recorded = recorded && in.read[i].recorded()
	}
	for i := range members {
		if !recorded {
			members[i].Topics = nil
		}
	}
	return allocfn.Input{Members: members, Partitions: in.wanted, Places: in.wantedPlaces, Zones: zones}
}

// faults returns the errors of members' records, joined.
func (in *inputs) faults() error {
	var faults []error
	for i := range in.read {
		if err := in.read[i].fault; err != nil {
			faults = append(faults, err)
		}
	}
	return some(faults)
}

// compute starts a job on what was read last.
func (l *loop) compute(ctx context.Context) {
	now := time.Now()
	j := &job{
		changes: l.changes, inc: l.members.Incarnation, joined: l.members.Joined,
		hasSeed: l.set.Err == nil && l.seeder.done(l.set), since: l.coalescer.first, callers: l.calls.reread,
	}
	l.coalescer.acted(now)
	l.work.job, l.work.overdue, l.calls.reread = j, time.After(computeTimeout), nil
	l.metrics.coalesce.Observe(now.Sub(j.since).Seconds())

	members, items, zones, known, before := l.members.Members, l.set.Items, l.zones.Zones, l.work.inputs, l.good
	on := occasion{self: l.name, joined: j.joined, inc: j.inc, zones: l.zones.Version, manual: l.calls.fresh}
	l.calls.fresh = false
	l.running.Go("allocation function", func() {
		r := result{err: funcFailed("ended its goroutine")}
		defer func() { send(ctx, l.results, r) }()
		r = computeMapping(known, members, items, zones, l.opts)
		if r.mapping != nil {
			r.mapping.follow(before, on)
			r.mapping.hashes = hashesOf(r.mapping, before)
		}
	})
}

// computeMapping computes a mapping. It is pure, except that it calls the allocation function. known is what the job before has
// parsed.
func computeMapping(known *inputs, members []party.Member, items []string, zones map[kiel.Partition]string, o Options) result {
	start := time.Now()
	read := readInputs(members, items, o.PythonFunc, known)
	r := result{inputs: read, records: read.faults(), items: read.bad}

	in := read.allocation(zones)
	fn, err := chooseFunc(read.read, o.funcs())
	if err != nil {
		r.err = err
		return r
	}
	owner, err := allocfn.Call(fn, in)
	r.took = time.Since(start)
	if err != nil {
		r.err = funcFailedWith(err)
		return r
	}
	r.mapping = newMapping(in, fn.ID(), owner)
	r.mapping.inputs = read
	r.mapping.unwanted, r.mapping.leftOut = read.unwanted, len(read.partitions)-len(read.wanted)
	return r
}

// badItems returns the error about items that are allocated to nobody.
func badItems(bad []string) error {
	faults := make([]error, len(bad))
	for i, item := range bad {
		if _, err := kiel.ParsePartition(item); err != nil {
			faults[i] = err
		} else {
			faults[i] = operr.New("", "item", fmt.Sprintf("%.120q", item), fmt.Errorf("%w: another item names the same partition", kiel.ErrInvalidPartition))
		}
	}
	if err := some(faults); err != nil {
		return operr.New("", "items allocated to nobody", "", err)
	}
	return nil
}

// some joins the first errors and counts the rest.
func some(errs []error) error {
	if more := len(errs) - statuswrite.MaxNames; more > 0 {
		errs = append(slices.Clone(errs[:statuswrite.MaxNames]), fmt.Errorf("and %d more", more))
	}
	return errors.Join(errs...)
}

func (l *loop) onResult(r result) {
	j := l.work.job
	l.work.job, l.work.overdue = nil, nil
	if r.inputs != nil {
		l.work.inputs = r.inputs
	}
	if l.work.missed {
		l.change(true)
		l.work.missed = false
	}
	if j.changes != l.changes && (j.late || j.inc != l.members.Incarnation || j.joined != l.members.Joined) {
		// The result is stale. The changes since the job began are due, or will be soon.
		if len(j.callers) > 0 {
			l.calls.reread = append(j.callers, l.calls.reread...)
			l.calls.fresh = true
			l.change(true)
		}
		return
	}
	l.metrics.compute.Observe(r.took.Seconds())
	l.report(kindRecords, r.records)
	l.itemsErr = r.items
	if r.err != nil {
		l.fail(j, r.err)
	} else {
		l.good, l.computeErr = r.mapping, nil
		l.errs.OK(kindFunc, "")
		l.good.change.took = time.Since(j.since)
		l.metrics.gauges.applied.Store(time.Now().UnixMilli())
		l.metrics.rebalances.WithLabelValues(string(l.good.change.reason.Code.Cause())).Inc()
		l.metrics.total.Observe(l.good.change.took.Seconds())
		if j.joined {
			l.reportUnwanted(r.mapping.unwanted)
		}
		l.finish(publication{inc: j.inc, joined: j.joined, applied: true})
		l.logRebalance()
		l.remember(l.good.change)
		if j.hasSeed && l.last.Joined {
			l.wasReady = true
			l.ready()
		}
	}
	answer(j.callers, r.err)
}

// fail publishes that no mapping could be computed: the last good one stays in force.
func (l *loop) fail(j *job, err error) {
	if p, ok := errors.AsType[*allocfn.PanicError](err); ok {
		l.errs.FailedAt(kindFunc, "", p, func() string { return string(p.Stack) })
	}
	l.computeErr = err
	l.metrics.computeFailed.Inc()
	l.finish(publication{inc: j.inc, joined: j.joined})
}

func (l *loop) onOverdue() {
	j := l.work.job
	j.late, l.work.overdue = true, nil
	err := funcFailed("has not returned after %v", computeTimeout)
	answer(j.callers, err)
	j.callers = nil
	if j.inc == l.members.Incarnation && l.coherent() {
		j.joined = j.joined && l.members.Joined
		l.fail(j, err)
	} else {
		l.computeErr = err // passBy publishes it
		l.metrics.computeFailed.Inc()
	}
}

// passBy acts on changes that are due while a late job keeps another one from starting: the last good mapping stays in force, on
// the newest incarnation.
func (l *loop) passBy() {
	l.coalescer.acted(time.Now())
	l.work.missed = true
	l.finish(publication{inc: l.members.Incarnation, joined: l.members.Joined})
	answer(l.calls.reread, l.computeErr)
	l.calls.reread = nil
}
