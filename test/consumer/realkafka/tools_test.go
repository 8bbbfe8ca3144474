package realkafka_test

import (
	"regexp"
	"strings"
	"testing"
	"time"
)

// groups runs kafka-consumer-groups.sh on the group, and checks that it succeeds and what it prints, with one space for many.
func (r *rig) groups(want []string, args ...string) {
	r.t.Helper()
	out := r.kafka.ConsumerGroups(append(args, "--group", r.group)...)
	said := regexp.MustCompile(`\s+`).ReplaceAllString(out, " ")
	for _, w := range want {
		if !strings.Contains(said, w) {
			r.t.Errorf("kafka-consumer-groups.sh %v does not print %q:\n%s", args, w, out)
		}
	}
}

// Kafka's own tool says of a group, and does to it, what docs/semantics.md says, while a member consumes.
func TestToolsOnALivingGroup(t *testing.T) {
	t.Parallel()
	longer(t, func(t *testing.T, version string) {
		r := sharedRig(t, version, 3)
		topic, at := r.topic, r.group+" "+r.topic
		var opened time.Time
		stored := func(want ...int64) {
			t.Helper()
			for p, w := range want {
				got := r.committed(int32(p))
				again := w == -1 && got >= 10 && time.Since(opened) > 55*time.Second // on a busy machine the next look restores it
				if got != w && !again {
					t.Errorf("%s:%d: committed %d, want %d", topic, p, got, w)
				}
			}
		}
		// next has a message of partition 0 read, and returns when its offset is stored, which is soon.
		next := func(want int64) {
			t.Helper()
			r.produce(1, 0)
			d := until(t, "the next mark is stored", func() bool { return r.committed(0) == want })
			t.Attr("stored_after", d.String())
		}
		r.produce(10, 0, 1, 2)
		a := r.member("a")
		until(t, "30 messages", func() bool { return a.count.Load() == 30 })
		opened = time.Now()
		until(t, "the first look at what is stored is over", func() bool { return time.Since(opened) > 4*time.Second })

		if *full { // a run of the tool takes 2 s
			r.groups([]string{"'" + r.group + "' has no active members", at + " 0 10 10 0 - - -", at + " 2 10 10 0 - - -"}, "--describe")
			r.groups([]string{"'" + r.group + "' has no active members"}, "--describe", "--members")
			r.groups([]string{"Empty 0"}, "--describe", "--state")
		}
		r.groups([]string{"Deletion of requested consumer groups ('" + r.group + "') was successful"}, "--delete")
		stored(-1, -1, -1)
		next(11) // where something is marked the offset is back
		stored(11, -1, -1)

		r.groups([]string{topic + " 0 Successful"}, "--delete-offsets", "--topic", topic+":0")
		stored(-1, -1, -1)
		next(12)

		r.groups([]string{at + " 0 0", at + " 1 0"}, "--reset-offsets", "--topic", topic+":0,1", "--to-earliest", "--execute")
		stored(0, 0, -1)
		next(13) // the reset is written over where something is marked; nobody reads from there
		stored(13, 0, -1)
		if n := a.count.Load(); n != 33 {
			t.Errorf("%d messages were read, want 33", n)
		}
		a.leave()
		stored(13, 0, 10) // what was deleted is restored, what was reset is left alone

		b := r.member("b")
		until(t, "the next owner reads again what was reset", func() bool { return b.count.Load() == 10 })
		b.leave()
		stored(13, 10, 10)
		if n := b.count.Load(); n != 10 {
			t.Errorf("%d messages were read again, want 10", n)
		}

		if !*full {
			return
		}
		r.groups([]string{at + " 0 0", at + " 1 0", at + " 2 0"}, "--reset-offsets", "--topic", topic, "--to-earliest", "--execute")
		c := r.member("c")
		until(t, "all is read again when the group was stopped before", func() bool { return c.count.Load() == 33 })
		c.leave()
		stored(13, 10, 10)
	})
}
