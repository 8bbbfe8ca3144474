package consumer_test

import (
	"errors"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kielgo/kiel/consumer"
	"github.com/kielgo/kiel/status"
)

// under makes a member whose group is under a chroot, and what it logs and counts.
func (r *rig) under(chroot, name string) (*member, *journal, *prometheus.Registry) {
	r.t.Helper()
	log, reg := new(journal), prometheus.NewRegistry()
	return r.owning(name, func(o *consumer.Options) {
		o.Session.Chroot, o.Registerer, o.Logger = chroot, reg, slog.New(slog.NewTextHandler(log, nil))
	}), log, reg
}

// journal is a log that is read while it is written.
type journal struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *journal) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

// with returns the lines that have a text.
func (l *journal) with(text string) (found []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(l.text.String()) {
		if strings.Contains(line, text) {
			found = append(found, strings.TrimSpace(line))
		}
	}
	return found
}

// notices reports whether a member has an error, and a disagreement in its status.
func (m *member) notices(err error, kind status.DisagreementKind) bool {
	return slices.ContainsFunc(m.errors(), func(e error) bool { return errors.Is(e, err) }) &&
		slices.ContainsFunc(m.group.Status().Disagreements, func(d status.Disagreement) bool { return d.Kind == kind })
}

// offsetReads keeps the times of all requests for offsets.
func (r *rig) offsetReads() func() []time.Time {
	var mu sync.Mutex
	var at []time.Time
	r.kafka.ControlKey(int16(kmsg.OffsetFetch), func(kmsg.Request) (kmsg.Response, error, bool) {
		r.kafka.KeepControl()
		mu.Lock()
		defer mu.Unlock()
		at = append(at, time.Now())
		return nil, nil, false
	})
	return func() []time.Time {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(at)
	}
}

// flow produces to partitions for so long, a few messages a second.
func (r *rig) flow(d time.Duration, until func() bool, partitions ...int32) bool {
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(300 * time.Millisecond) {
		r.produceTo(topic, 1, partitions...)
		if until() {
			return true
		}
	}
	return until()
}

// Members on two chroots of one ensemble share no group, and both work on all partitions. One of them notices within two minutes,
// whenever they commit, because each looks in the second half of the time between its own commits.
func TestTwoTreesAreNoticed(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	chance := rand.New(rand.NewPCG(seed, 0))
	for range 4 {
		inRig(t, 3, func(t *testing.T, r *rig) {
			a, logA, regA := r.under("/production", "a")
			b, logB, regB := r.under("/staging", "b")
			a.start()
			until(t, "a owns all", func() bool { return len(a.owns()) == 3 })
			r.flow(10*time.Second+time.Duration(chance.Int64N(int64(time.Second))), func() bool { return false }, 0, 1, 2)
			b.start()
			until(t, "b owns all", func() bool { return len(b.owns()) == 3 })
			began := time.Now()
			noticed := r.flow(2*time.Minute, func() bool {
				return a.notices(consumer.ErrTwoTrees, status.TwoTrees) || b.notices(consumer.ErrTwoTrees, status.TwoTrees)
			}, 0, 1, 2)
			if !noticed {
				t.Fatalf("not noticed within two minutes:\n%v\n%v", a.errors(), b.errors())
			}
			t.Logf("noticed after %v", time.Since(began))
			counted := scrape(t, regA)["foreign_offsets_total{reason=other_tree}"] + scrape(t, regB)["foreign_offsets_total{reason=other_tree}"]
			warned := append(logA.with("kind=shared"), logB.with("kind=shared")...)
			if counted == 0 || len(warned) == 0 || !strings.Contains(warned[0], "level=WARN") {
				t.Errorf("counted %v, warned %q", counted, warned)
			}
			quit(a, b)
		})
	}
}

// While messages are marked, a member reads offsets for its audits alone: one request for all partitions, a minute apart at
// least. One that owns nothing reads none.
func TestAuditsAreRare(t *testing.T) {
	inRig(t, 4, func(t *testing.T, r *rig) {
		a, _, _ := r.under("/", "a")
		a.start()
		until(t, "a owns all", func() bool { return len(a.owns()) == 4 })
		r.flow(5*time.Second, func() bool { return false }, 0, 1, 2, 3)
		reads := r.offsetReads()
		r.flow(15*time.Minute, func() bool { return false }, 0, 1, 2, 3)
		at := reads()
		if len(at) < 7 || len(at) > 15 {
			t.Errorf("%d reads in 15 minutes", len(at))
		}
		for i := 1; i < len(at); i++ {
			if gap := at[i].Sub(at[i-1]); gap < time.Minute || gap > 2*time.Minute {
				t.Errorf("reads %v apart", gap)
			}
		}
		if errs := a.errors(); len(errs) > 0 {
			t.Errorf("errors %v", errs)
		}
		a.leave()
		before := len(reads())
		time.Sleep(5 * time.Minute)
		if n := len(reads()); n != before {
			t.Errorf("%d reads of a member that has left", n-before)
		}
		a.close()
	})
}

// A group that moves to another ensemble finds offsets of the old tree. The first commits of the new one replace them, and nobody
// warns.
func TestMoveToAnotherTreeIsNoFinding(t *testing.T) {
	inRig(t, 2, func(t *testing.T, r *rig) {
		a, _, _ := r.under("/old", "a")
		a.start()
		until(t, "a owns all", func() bool { return len(a.owns()) == 2 })
		r.flow(5*time.Second, func() bool { return false }, 0) // nothing is marked in the other
		quit(a)
		b, log, reg := r.under("/new", "b")
		b.start()
		until(t, "b owns all", func() bool { return len(b.owns()) == 2 })
		r.flow(15*time.Minute, func() bool { return false }, 0)
		if errs, n := b.errors(), scrape(t, reg)["foreign_offsets_total{reason=other_tree}"]; len(errs) > 0 || n > 0 {
			t.Errorf("errors %v, %v findings", errs, n)
		}
		if warned := log.with("level=WARN"); len(warned) > 0 && strings.Contains(strings.Join(warned, "\n"), "offset") {
			t.Errorf("warned %q", warned)
		}
		quit(b)
	})
}

// Kafka's tools have reset the offsets of a living group. The member warns of the partition in which nothing is marked, with both
// offsets, and leaves the stored one alone.
func TestOffsetsOfAnotherProgramAreNoticed(t *testing.T) {
	inRig(t, 2, func(t *testing.T, r *rig) {
		r.produce(100, 0, 1)
		a, log, reg := r.under("/", "a")
		a.start()
		until(t, "all are committed", func() bool { return r.committed(topic, 0) == 100 && r.committed(topic, 1) == 100 })
		time.Sleep(3 * time.Second)
		r.commitAs("", 1, 40)
		const what = "another program stored the offset"
		r.flow(2*time.Minute, func() bool { return len(log.with(what)) > 0 }, 0)
		found := log.with(what)
		if len(found) != 1 || !strings.Contains(found[0], "partition=t:1 offset=100 stored=40") || !strings.Contains(found[0], "the next owner starts there") {
			t.Errorf("logged %q", found)
		}
		r.flow(10*time.Minute, func() bool { return false }, 0)
		if found := log.with(what); len(found) != 1 {
			t.Errorf("logged again: %q", found)
		}
		if n := scrape(t, reg)["foreign_offsets_total{reason=other_program}"]; n != 1 {
			t.Errorf("%v are counted", n)
		}
		if got := r.committed(topic, 1); got != 40 {
			t.Errorf("stored %d, want the other program's 40", got)
		}
		if len(a.errors()) > 0 || len(a.group.Status().Disagreements) > 0 {
			t.Errorf("errors %v", a.errors())
		}
		quit(a)
	})
}
