package topics

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/IBM/sarama"
	"pgregory.net/rapid"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/internal/testonly/assert"
	"github.com/kielgo/kiel/internal/testonly/noerr"
)

// The zone of a partition is the rack of its first replica, whichever broker leads. It is unknown while Kafka does not name that
// broker.
func TestPreferredRacks(t *testing.T) {
	topic := &sarama.TopicMetadata{Name: "t", Partitions: []*sarama.PartitionMetadata{
		{ID: 0, Leader: 2, Replicas: []int32{1, 2}},
		{ID: 1, Leader: 1, Replicas: []int32{2, 1}},
		{ID: 2, Leader: 1, Replicas: []int32{3, 1}}, // 3 is down
		{ID: 3, Leader: 4, Replicas: []int32{4}},    // has no rack
		{ID: 4, Leader: -1},
	}}
	if got, want := preferredRacks(topic, map[int32]string{1: "a", 2: "b"}), map[int32]string{0: "a", 1: "b"}; !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if got := preferredRacks(topic, nil); len(got) != 0 {
		t.Errorf("without racks: %v", got)
	}
}

func at(topic string, id int32) kiel.Partition { return kiel.Partition{Topic: topic, ID: id} }

// zonesOf makes zones of the names given for partitions 0, 1, … of topic t; "" is none.
func zonesOf(names ...string) map[kiel.Partition]string {
	all := make(map[kiel.Partition]string)
	for id, zone := range names {
		if zone != "" {
			all[at("t", int32(id))] = zone
		}
	}
	return all
}

// zoneRig is the zones of a group, and the members that keep them.
type zoneRig struct {
	has    map[kiel.Partition]string
	writes int
	fail   error
}

func (r *zoneRig) writer(kafka *map[kiel.Partition]string) *ZoneWriter {
	return &ZoneWriter{
		Kafka: func() map[kiel.Partition]string { return maps.Clone(*kafka) },
		Group: func() map[kiel.Partition]string { return maps.Clone(r.has) },
		Update: func(_ context.Context, changes map[kiel.Partition]string) error {
			if r.fail != nil {
				return r.fail
			}
			before := maps.Clone(r.has)
			if r.has == nil {
				r.has = map[kiel.Partition]string{}
			}
			maps.Copy(r.has, changes)
			if !maps.Equal(before, r.has) {
				r.writes++
			}
			return nil
		},
	}
}

func TestZoneWriter(t *testing.T) {
	r := &zoneRig{has: map[kiel.Partition]string{at("u", 0): "x", at("t", 1): "old"}}
	var kafka map[kiel.Partition]string
	k := r.writer(&kafka)
	steps := []struct {
		name  string
		kafka map[kiel.Partition]string
		other map[kiel.Partition]string // what others write meanwhile
		want  map[kiel.Partition]string // of t
	}{
		{"no racks", nil, nil, zonesOf("", "old")},
		{"the first look", zonesOf("a", "b"), nil, zonesOf("a", "b")},
		{"nothing new", zonesOf("a", "b"), nil, zonesOf("a", "b")},
		{"another says something else", zonesOf("a", "b"), zonesOf("c"), zonesOf("c", "b")},
		{"a broker is down", zonesOf("", "b"), nil, zonesOf("c", "b")},
		{"it is back", zonesOf("a", "b"), nil, zonesOf("c", "b")},
		{"it has moved", zonesOf("b", "b"), nil, zonesOf("b", "b")},
		{"a new partition", zonesOf("b", "b", "a"), nil, zonesOf("b", "b", "a")},
	}
	for _, s := range steps {
		kafka = s.kafka
		maps.Copy(r.has, s.other)
		before := r.writes
		assert.Error(t, k.look(t.Context()), nil, "%s", s.name)
		want := maps.Clone(s.want)
		want[at("u", 0)] = "x" // other topics are not ours
		if !maps.Equal(r.has, want) {
			t.Errorf("%s: got %v, want %v", s.name, r.has, want)
		}
		if strings.HasPrefix(s.name, "nothing") && r.writes != before {
			t.Errorf("%s: written", s.name)
		}
	}
	// Removed by somebody: told again.
	clear(r.has)
	if err := k.look(t.Context()); err != nil || !maps.Equal(r.has, kafka) {
		t.Errorf("after all was removed: %v, %v", r.has, err)
	}
	// Writes that fail are tried again.
	r.fail, kafka = errors.New("no connection"), zonesOf("a")
	assert.Error(t, k.look(t.Context()), r.fail, "got")
	r.fail = nil
	if err := k.look(t.Context()); err != nil || r.has[at("t", 0)] != "a" {
		t.Errorf("again: %v, %v", r.has, err)
	}
	// A rack that can be no zone is an error, and the others count.
	kafka = map[kiel.Partition]string{at("t", 0): "a\n", at("t", 1): "c", at("t", 2): "a\n"}
	if err := k.look(t.Context()); err == nil || strings.Count(err.Error(), "printed") != 1 {
		t.Errorf("got %v", err)
	}
	if r.has[at("t", 0)] != "a" || r.has[at("t", 1)] != "c" {
		t.Errorf("got %v", r.has)
	}
}

// Members to which Kafka gives different answers, for a while or for ever, stop writing zones.
func TestZoneWritersDoNotFight(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		said := rapid.SliceOfN(rapid.SliceOfN(rapid.SampledFrom([]string{"", "a", "b", "c"}), 4, 4), 2, 5)
		r := &zoneRig{}
		now := make([]map[kiel.Partition]string, 5)
		var writers []*ZoneWriter
		changes := 0
		for range rapid.IntRange(1, 5).Draw(t, "times") {
			for i, names := range said.Draw(t, "said") {
				if i == len(writers) {
					writers = append(writers, r.writer(&now[i]))
				}
				if !maps.Equal(now[i], zonesOf(names...)) {
					now[i] = zonesOf(names...)
					changes++
				}
			}
			order := rapid.SliceOfN(rapid.IntRange(0, len(writers)-1), 1, 40).Draw(t, "order")
			for _, i := range order {
				noerr.Must(t, writers[i].look(context.Background()))
			}
		}
		for range 2 * len(writers) {
			for _, w := range writers {
				noerr.Must(t, w.look(context.Background()))
			}
		}
		if r.writes > changes {
			t.Fatalf("%d writes for %d changes", r.writes, changes)
		}
		before := r.writes
		for _, w := range writers {
			noerr.Must(t, w.look(context.Background()))
		}
		if r.writes != before {
			t.Fatalf("still writing: %v", r.has)
		}
	})
}

// An error is reported once until it changes, and its end is reported once.
func TestZoneWriterReports(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, kafka, asked := &zoneRig{}, zonesOf("a"), make(chan struct{})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var said []string
		k := r.writer(&kafka)
		r.fail = errors.New("first")
		go k.Run(ctx, asked, func(err error) { said = append(said, fmt.Sprint(err)) })
		for _, what := range []string{"first", "first", "second", "", "second"} {
			synctest.Wait()
			r.fail = nil
			if what != "" {
				r.fail = errors.New(what)
			} else {
				clear(k.written) // there is something to write again
			}
			kafka = zonesOf("a")
			if what == "second" {
				clear(k.written)
			}
			asked <- struct{}{}
		}
		synctest.Wait()
		if got := fmt.Sprint(said); got != "[consumer: first consumer: second <nil> consumer: second]" {
			t.Error(got)
		}
		// Its end is no error.
		k.Update = func(ctx context.Context, _ map[kiel.Partition]string) error { <-ctx.Done(); return ctx.Err() }
		clear(k.written)
		asked <- struct{}{}
		synctest.Wait()
		cancel()
		synctest.Wait()
		if len(said) != 4 {
			t.Error(said)
		}
	})
}
