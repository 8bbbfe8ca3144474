package consumer_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/kielgo/kiel/consumer"
)

// A topic that the last member which consumed it has left behind is nobody's, and no error. Beside a member in Python, which gets
// its part of all that is in the set, what falls to a member that does not consume the topic is not claimed.
func TestTopicThatNobodyConsumes(t *testing.T) {
	inRig(t, 2, func(t *testing.T, r *rig) {
		if err := r.kafka.CreateTopic("u", 2, nil); err != nil {
			t.Fatal(err)
		}
		r.produce(10, 0, 1)
		r.produceTo("u", 10, 0, 1)
		b := r.member("b", nil).start("u", topic)
		until(t, "40 messages", func() bool { return total(b) == 40 })
		quit(b)

		reg := prometheus.NewRegistry()
		a := r.member("a", func(o *consumer.Options) { o.Registerer = reg }).start(topic)
		reported := 0
		// expect fails unless a owns what it says, and has reported so much more since the last time.
		expect := func(what string, unwanted, refused int, owned, errs string) {
			t.Helper()
			time.Sleep(5 * time.Minute) // a looks at its topics meanwhile
			text := fmt.Sprintf(`
# HELP kiel_owned_partitions Partitions that this member owns.
# TYPE kiel_owned_partitions gauge
%s
# HELP kiel_unclaimable_partitions Partitions that were allocated to this member and that it does not claim, by reason.
# TYPE kiel_unclaimable_partitions gauge
kiel_unclaimable_partitions{group="g",reason="budget"} 0
kiel_unclaimable_partitions{group="g",reason="foreign"} 0
kiel_unclaimable_partitions{group="g",reason="name"} 0
kiel_unclaimable_partitions{group="g",reason="persistent"} 0
kiel_unclaimable_partitions{group="g",reason="refused"} %d
kiel_unclaimable_partitions{group="g",reason="stuck"} 0
# HELP kiel_unwanted_partitions Partitions of topics that no member asks for, which the mapping leaves out.
# TYPE kiel_unwanted_partitions gauge
kiel_unwanted_partitions{group="g"} %d
`, owned, refused, unwanted)
			if err := testutil.GatherAndCompare(reg, strings.NewReader(text), "kiel_owned_partitions", "kiel_unclaimable_partitions", "kiel_unwanted_partitions"); err != nil {
				t.Errorf("%s: %v", what, err)
			}
			var got []string
			all := a.errors()
			for _, err := range all[reported:] {
				switch {
				case errors.Is(err, consumer.ErrTopicMismatch) && strings.Contains(err.Error(), "u:0"):
					got = append(got, "refused")
				default:
					got = append(got, err.Error())
				}
			}
			reported = len(all)
			if strings.Join(got, " ") != errs {
				t.Errorf("%s: reported %q, want %q", what, got, errs)
			}
			for p := range 2 {
				if owner, _, ok := r.zk.Get(fmt.Sprintf("/kiel/groups/%s/owners/u:%d", group, p)); ok {
					t.Errorf("%s: u:%d is owned: %s", what, p, owner)
				}
			}
		}
		expect("alone", 2, 0, `kiel_owned_partitions{group="g",topic="t"} 2`, "")
		python := "/kiel/groups/" + group + "/members/python"
		if err := r.zk.Create(python, nil); err != nil {
			t.Fatal(err)
		}
		expect("beside Python", 0, 1, `kiel_owned_partitions{group="g",topic="t"} 1`, "refused")
		if err := r.zk.Delete(python); err != nil {
			t.Fatal(err)
		}
		expect("alone again", 2, 0, `kiel_owned_partitions{group="g",topic="t"} 2`, "")
		r.produce(10, 0, 1)
		until(t, "20 messages", func() bool { return total(a) == 20 })
		quit(a)
	})
}
