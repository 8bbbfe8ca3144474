package consumer_test

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kielgo/kiel/allocator"
	"github.com/kielgo/kiel/consumer"
	"github.com/kielgo/kiel/zktest"
)

// setPath is the znode of the group's set.
const setPath = "/kiel/groups/" + group + "/partitions"

func (r *rig) set() string {
	data, _, _ := r.zk.Get(setPath)
	return string(data)
}

// removePartitions removes partitions from the group's set, by no member, on a's session.
func (m *member) removePartitions(partitions map[string][]int32) {
	m.t.Helper()
	op, err := allocator.New(m.zk, group, "operator", allocator.Options{})
	if err == nil {
		err = op.RemovePartitions(m.t.Context(), partitions)
	}
	if err != nil {
		m.t.Fatal(err)
	}
}

// TestRemovedPartitionsComeBack: what somebody removes from the set is added again by a living consumer that asks for it, when it
// looks at its topics next, in one write for all; what no consumer asks for stays removed.
func TestRemovedPartitionsComeBack(t *testing.T) {
	inRig(t, 3, func(t *testing.T, r *rig) {
		r.createTopic("s", 1)
		a := r.member("a", nil).start(topic, "s")
		b := r.member("b", nil).start(topic, "s")
		until(t, "all is open", func() bool { return len(a.owns())+len(b.owns()) == 4 })
		if err := r.zk.Set(setPath, []byte(`["old:0", "old:1", "s:0", "t:0", "t:1", "t:2"]`)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Minute)
		a.removePartitions(map[string][]int32{topic: {0, 2}, "s": {0}, "old": {0, 1}})
		if got := r.set(); got != `["t:1"]` {
			t.Fatal(got)
		}
		var writes atomic.Int32
		r.zk.SetHook(func(q *zktest.Request) zktest.Action {
			if q.Op == zktest.OpMulti && slices.ContainsFunc(q.Ops, func(o zktest.Request) bool { return o.Path == setPath }) {
				writes.Add(1)
			}
			return zktest.Action{}
		})
		d := until(t, "they are back", func() bool { return r.set() == `["s:0", "t:0", "t:1", "t:2"]` })
		t.Logf("back after %v", d)
		if d > time.Minute {
			t.Errorf("they came back after %v", d)
		}
		until(t, "all is open", func() bool { return len(a.owns())+len(b.owns()) == 4 })
		time.Sleep(10 * time.Minute)
		if n := writes.Load(); n != 1 {
			t.Errorf("%d writes of the set", n)
		}
		for _, err := range append(a.errors(), b.errors()...) {
			t.Error(err)
		}
		a.leave()
		b.leave()
	})
}

// TestUnwantedTopicIsOneLine: a topic in the set that no member asks for is one line in the log, and no error of a member that
// consumes what it asks for.
func TestUnwantedTopicIsOneLine(t *testing.T) {
	for _, read := range []bool{false, true} {
		t.Run(fmt.Sprintf("errors are read %t", read), func(t *testing.T) {
			inRig(t, 1, func(t *testing.T, r *rig) {
				var out lines
				a := r.member("a", func(o *consumer.Options) {
					logTo(&out, o)
					o.Config.Consumer.Return.Errors = read
				}).start()
				until(t, "all is open", func() bool { return len(a.owns()) == 1 })
				time.Sleep(time.Second) // a start by policy is logged
				out.take()
				if err := r.zk.Set(setPath, []byte(`["old:0", "old:1", "t:0"]`)); err != nil {
					t.Fatal(err)
				}
				time.Sleep(10 * time.Minute)
				if said := out.take(); len(said) != 1 || !strings.Contains(said[0], "RemoveTopic") {
					t.Errorf("%d lines in the log: %s", len(said), said)
				}
				if errs := a.errors(); len(errs) > 0 {
					t.Errorf("errors: %v", errs)
				}
				a.leave()
			})
		})
	}
}

// TestLookCostsNoRequest: a look at the topics at which the set lacks nothing sends nothing to ZooKeeper.
func TestLookCostsNoRequest(t *testing.T) {
	inRig(t, 3, func(t *testing.T, r *rig) {
		a := r.member("a", func(o *consumer.Options) { o.Config.Metadata.RefreshFrequency = time.Second }).start()
		until(t, "all is open", func() bool { return len(a.owns()) == 3 })
		time.Sleep(time.Minute)
		var requests atomic.Int32
		r.zk.SetHook(func(q *zktest.Request) zktest.Action {
			if strings.HasPrefix(q.Path, setPath) && q.Op != zktest.OpExists { // by which its watch is renewed
				requests.Add(1)
			}
			return zktest.Action{}
		})
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if n := requests.Load(); n != 0 {
			t.Errorf("%d requests about the set in 10 minutes", n)
		}
		a.leave()
	})
}

// TestMembersLookAtDifferentTimes: members that have joined at once look at their topics at different times, within a minute.
func TestMembersLookAtDifferentTimes(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const members = 8
		r := newRig(t, members)
		var ms []*member
		for i := range members {
			ms = append(ms, r.member(strconv.Itoa(i), nil).start())
		}
		until(t, "all is open", func() bool {
			return !slices.ContainsFunc(ms, func(m *member) bool { return len(m.owns()) != 1 })
		})
		var mu sync.Mutex
		var looks []time.Duration
		start := time.Now()
		r.kafka.ControlKey(int16(kmsg.Metadata), func(request kmsg.Request) (kmsg.Response, error, bool) {
			mu.Lock()
			defer mu.Unlock()
			r.kafka.KeepControl()
			topics := request.(*kmsg.MetadataRequest).Topics
			if len(topics) == 1 && *topics[0].Topic == "__consumer_offsets" {
				return nil, nil, false // looks for the coordinator
			}
			looks = append(looks, time.Since(start))
			return nil, nil, false
		})
		time.Sleep(time.Minute)
		mu.Lock()
		slices.Sort(looks)
		looks = slices.Compact(looks) // a look is two requests
		mu.Unlock()
		if len(looks) != members || looks[members-1]-looks[0] < 2*time.Second {
			t.Errorf("looked after %v", looks)
		}
		for _, m := range ms {
			m.leave()
		}
	})
}

// TestRemoveTopic: a consumer's group gets rid of a topic when no member asks for it any more, with and without a running
// Consume.
func TestRemoveTopic(t *testing.T) {
	inRig(t, 2, func(t *testing.T, r *rig) {
		r.createTopic("s", 1)
		a := r.member("a", nil).start(topic, "s")
		until(t, "all is open", func() bool { return len(a.owns()) == 3 })
		b := r.member("b", nil)
		err := b.group.RemoveTopic(t.Context(), topic)
		if !errors.Is(err, consumer.ErrTopicInUse) || !strings.Contains(err.Error(), `"a" asks for it`) {
			t.Error(err)
		}
		a.leave()
		a.start("s")
		until(t, "s is open", func() bool { return slices.Equal(a.owns(), []string{"s:0"}) })
		if err := a.group.RemoveTopic(t.Context(), topic); err != nil {
			t.Error(err)
		}
		if err := b.group.RemoveTopic(t.Context(), topic); !errors.Is(err, consumer.ErrTopicNotInSet) {
			t.Error(err)
		}
		if err := a.group.RemoveTopic(t.Context(), "s"); !errors.Is(err, consumer.ErrTopicInUse) {
			t.Error(err)
		}
		time.Sleep(5 * time.Minute)
		if got := r.set(); got != `["s:0"]` {
			t.Error(got)
		}
		a.leave()
		b.start()
		until(t, "the topic is open again", func() bool { return len(b.owns()) == 2 })
		b.leave()
		if err := errors.Join(a.group.RemoveTopic(t.Context(), topic), a.group.RemoveTopic(t.Context(), "s")); err != nil {
			t.Error(err)
		}
		if got := r.set(); got != `[]` {
			t.Error(got)
		}
	})
}
