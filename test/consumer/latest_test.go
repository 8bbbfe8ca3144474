package consumer_test

import (
	"strings"
	"testing"
	"time"

	"github.com/kielgo/kiel/consumer"
)

func fromLatest(o *consumer.Options) { o.From = consumer.Latest }

// A group that starts from Latest reads nothing old, whichever of its members opens which partition first.
func TestFirstStartFromLatestReadsNothingOld(t *testing.T) {
	inRig(t, 8, func(t *testing.T, r *rig) {
		r.produce(10, 0, 1, 2, 3, 4, 5, 6, 7)
		a, b := r.member("a", fromLatest).start(), r.member("b", fromLatest).start()
		until(t, "all partitions are open", func() bool { return len(a.owns())+len(b.owns()) == 8 && len(b.owns()) == 4 })
		time.Sleep(time.Minute)
		if n := total(a, b); n != 0 {
			t.Errorf("%d old messages were read", n)
		}
		r.produce(1, 0, 1, 2, 3, 4, 5, 6, 7)
		until(t, "what is new", func() bool { return total(a, b) == 8 })
		quit(a, b)
	})
}

// A partition that the topic got after the group had started on it is read from its first message, also when the group was away
// meanwhile, and when the topic grew before; metadata of an older version, without the number of partitions, are read.
func TestNewPartitionsFromLatestStartAtTheirFirstMessage(t *testing.T) {
	for name, away := range map[string]bool{"while the group consumes": false, "while the group is away": true} {
		t.Run(name, func(t *testing.T) {
			inRig(t, 2, func(t *testing.T, r *rig) {
				r.produce(10, 0, 1)
				a := r.member("a", fromLatest).start()
				until(t, "both partitions are open", func() bool { return len(a.owns()) == 2 })
				time.Sleep(time.Second)
				for i, to := range []int32{3, 5} {
					if away {
						a.leave()
					}
					r.grow(to)
					if i == 0 {
						r.produce(10, 2)
					} else {
						r.produce(10, 3, 4)
					}
					if away {
						a.start()
					}
					until(t, "all of the new partitions", func() bool { return total(a) == []int{10, 30}[i] })
					r.commitAs("kiel1;;1;", 0, 10) // as an older version would
				}
				a.leave()
				for p, c := range r.kafka.GroupInfo(group).Commits[topic] {
					if p > 0 && !strings.Contains(c.Metadata, "/2;") {
						t.Errorf("%s:%d: metadata %q do not say that the group started on 2 partitions", topic, p, c.Metadata)
					}
				}
				a.close()
			})
		})
	}
}
