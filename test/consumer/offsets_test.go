package consumer_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/kielgo/kiel/allocfn"
	"github.com/kielgo/kiel/consumer"
	"github.com/kielgo/kiel/ownership"
	"github.com/kielgo/kiel/zktest"
)

func eventPartition(p int32) string { return fmt.Sprintf("%s:%d", topic, p) }

func isStuck(err error) bool { return errors.Is(err, ownership.ErrStuck) }

func TestLatestIsDecidedOnce(t *testing.T) {
	inRig(t, 1, func(t *testing.T, r *rig) {
		r.produce(100, 0)
		latest := func(o *consumer.Options) { o.StartAt = consumer.Latest }
		a := r.member("a", latest)
		a.h.each = func(sarama.ConsumerGroupSession, sarama.ConsumerGroupClaim, *sarama.ConsumerMessage) error {
			return nil
		} // marks nothing
		a.start()
		until(t, "a is open", func() bool { return len(a.owns()) == 1 })
		r.produce(5, 0)
		until(t, "5 messages", func() bool { return total(a) == 5 })
		a.net.Freeze() // crashes, with nothing marked
		r.produce(5, 0)
		b := r.member("b", latest).start()
		until(t, "b has all that a had not marked", func() bool { return total(b) == 10 })
		if got := b.h.offsets(topic, 0); got[0] != 100 {
			t.Errorf("b started at %d, want 100", got[0])
		}
		a.net.Heal()
		quit(a, b)
	})
}

func TestManualCommit(t *testing.T) {
	inRig(t, 1, func(t *testing.T, r *rig) {
		r.produce(10, 0)
		manual := func(o *consumer.Options) { o.Config.Consumer.Offsets.AutoCommit.Enable = false }
		a := r.member("a", manual)
		a.h.each = func(s sarama.ConsumerGroupSession, _ sarama.ConsumerGroupClaim, m *sarama.ConsumerMessage) error {
			s.MarkMessage(m, "")
			if m.Offset == 5 {
				s.Commit()
				if got := r.committed(topic, 0); got != 6 {
					t.Errorf("committed %d right after Commit, want 6", got)
				}
			}
			return nil
		}
		a.start()
		until(t, "10 messages", func() bool { return total(a) == 10 })
		time.Sleep(15 * time.Minute) // the position is committed again, the marks are not
		if got := r.committed(topic, 0); got != 6 {
			t.Errorf("committed %d, want 6", got)
		}
		a.leave()
		if got := r.committed(topic, 0); got != 6 {
			t.Errorf("committed %d at the end, want 6: sarama drops what was not committed", got)
		}
		a.close()
	})
}

func TestOffsetsThatKafkaDoesNotHave(t *testing.T) {
	inRig(t, 1, func(t *testing.T, r *rig) {
		r.produce(100, 0)
		a := r.member("a", nil)
		a.start()
		until(t, "100 messages", func() bool { return total(a) == 100 })
		time.Sleep(2 * time.Second)
		a.leave()

		// deleted under a member that is away
		r.produce(100, 0)
		if err := r.kafka.DeleteRecords(topic, 0, 150); err != nil {
			t.Fatal(err)
		}
		a.start()
		until(t, "50 messages more", func() bool { return total(a) == 150 })
		if got := a.h.offsets(topic, 0)[100]; got != 150 {
			t.Errorf("continued at %d, want 150", got)
		}
		if !slices.ContainsFunc(a.errors(), func(err error) bool { return errors.Is(err, consumer.ErrOffsetReset) }) {
			t.Errorf("errors: %v", a.errors())
		}

		// deleted under a member that is paused
		reports := len(a.errors())
		a.group.PauseAll()
		time.Sleep(time.Second)
		r.produce(100, 0)
		if err := r.kafka.DeleteRecords(topic, 0, 250); err != nil {
			t.Fatal(err)
		}
		a.group.ResumeAll()
		until(t, "50 messages more", func() bool { return total(a) == 200 })
		if got := a.h.offsets(topic, 0)[150]; got != 250 {
			t.Errorf("continued at %d, want 250", got)
		}
		if !slices.ContainsFunc(a.errors()[reports:], func(err error) bool { return errors.Is(err, sarama.ErrOffsetOutOfRange) }) {
			t.Errorf("errors: %v", a.errors()[reports:])
		}
		until(t, "committed", func() bool { return r.committed(topic, 0) == 300 })
		quit(a)
	})
}

func TestRecreatedTopicIsAnotherTopic(t *testing.T) {
	inRig(t, 1, func(t *testing.T, r *rig) {
		r.produce(100, 0)
		a := r.member("a", nil).start()
		until(t, "100 messages", func() bool { return total(a) == 100 })
		time.Sleep(2 * time.Second)
		r.recreate()
		r.produce(200, 0)
		d := until(t, "all of the new topic", func() bool {
			got := a.h.offsets(topic, 0)
			for o := range int64(200) {
				if !slices.Contains(got[100:], o) {
					return false
				}
			}
			return true
		})
		t.Logf("all messages of the new topic after %v", d)
		until(t, "committed", func() bool { return r.committed(topic, 0) == 200 })
		a.leave()
		b := r.member("b", nil).start()
		until(t, "b is open", func() bool { return len(b.owns()) == 1 })
		r.produce(10, 0)
		until(t, "b goes on where a was", func() bool { return total(b) == 10 })
		b.leave()
		a.close()
		b.close()
		if !slices.ContainsFunc(a.errors(), func(err error) bool { return errors.Is(err, consumer.ErrRecreated) }) {
			t.Errorf("errors: %v", a.errors())
		}
	})
}

func TestRecreatedWhileNobodyConsumes(t *testing.T) {
	inRig(t, 1, func(t *testing.T, r *rig) {
		r.produce(100, 0)
		a := r.member("a", nil).start()
		until(t, "100 messages", func() bool { return total(a) == 100 })
		a.leave()
		r.recreate()
		r.produce(150, 0)
		a.start()
		until(t, "all of the new topic", func() bool { return total(a) == 250 })
		quit(a)
	})
}

func TestNewPartitionsAreFound(t *testing.T) {
	inRig(t, 1, func(t *testing.T, r *rig) {
		r.produce(10, 0)
		a := r.member("a", nil).start()
		until(t, "10 messages", func() bool { return total(a) == 10 })
		r.grow(3)
		r.produce(10, 1, 2)
		d := until(t, "30 messages", func() bool { return total(a) == 30 })
		t.Logf("messages of new partitions after %v", d)
		quit(a)
		r.check(false)
	})
}

// TestNewPartitionsSurviveABackup: partitions that the topic got after ZooKeeper's backup are consumed again after a restore.
func TestNewPartitionsSurviveABackup(t *testing.T) {
	for _, opts := range []zktest.RestoreOptions{{}, {Elect: true}, {ForgetSessions: true}} {
		inRig(t, 1, func(t *testing.T, r *rig) {
			r.produce(10, 0)
			a := r.member("a", nil).start()
			until(t, "10 messages", func() bool { return total(a) == 10 })
			backup := r.zk.Backup()
			r.grow(3)
			r.produce(10, 1, 2)
			until(t, "30 messages", func() bool { return total(a) == 30 })
			r.zk.Restore(backup, opts)
			time.Sleep(2 * time.Minute) // the member finds out, and its session may have to be made anew
			r.produce(10, 1, 2)
			until(t, "50 messages", func() bool { return total(a) >= 50 })
			a.leave()
			a.close() // without a check: tokens come again after a restore
		})
	}
}

func TestPartitionsOfOtherTopicsAreRefused(t *testing.T) {
	inRig(t, 2, func(t *testing.T, r *rig) {
		if err := r.kafka.CreateTopic("u", 2, nil); err != nil {
			t.Fatal(err)
		}
		r.produce(10, 0, 1)
		r.produceTo("u", 10, 0, 1)
		reg := prometheus.NewRegistry()
		byTurns := allocfn.Func{Name: "by-turns", Assign: func(in allocfn.Input) (allocfn.Assignment, error) {
			a := make(allocfn.Assignment, len(in.Partitions)) // whatever members ask for
			for i := range a {
				a[i] = int32(i % len(in.Members))
			}
			return a, nil
		}}
		a := r.member("a", func(o *consumer.Options) { o.Func, o.Registerer = byTurns, reg }).start(topic)
		until(t, "20 messages", func() bool { return total(a) == 20 })
		b := r.member("b", func(o *consumer.Options) { o.Func = byTurns }).start("u", topic)
		until(t, "a refuses", func() bool {
			return slices.ContainsFunc(a.errors(), func(err error) bool { return errors.Is(err, consumer.ErrTopicMismatch) })
		})
		if n := len(a.h.offsets("u", 0)) + len(a.h.offsets("u", 1)); n != 0 {
			t.Errorf("a was given %d messages of u", n)
		}
		text := `
# HELP kiel_consumer_topic_mismatches_total Partitions assigned to this member and not claimed, because it does not consume their topic.
# TYPE kiel_consumer_topic_mismatches_total counter
kiel_consumer_topic_mismatches_total{group="g"} 1
`
		if err := testutil.GatherAndCompare(reg, strings.NewReader(text), "kiel_consumer_topic_mismatches_total"); err != nil {
			t.Error(err)
		}
		a.leave() // then b gets everything
		until(t, "b has all of u", func() bool { return len(b.h.offsets("u", 0))+len(b.h.offsets("u", 1)) == 20 })
		b.leave()
		a.close()
		b.close()
	})
}

// A share group of the same name takes no offsets: a member says so, opens nothing, and goes on when that group is deleted.
func TestShareGroupOfTheSameName(t *testing.T) {
	inRig(t, 1, func(t *testing.T, r *rig) {
		r.produce(10, 0)
		remove := r.joinShareGroup()
		a := r.member("a", nil).start()
		if took := until(t, "a says so", func() bool { return len(a.errors()) > 0 }); took > 10*time.Second {
			t.Errorf("said after %v", took)
		}
		err := a.errors()[0]
		if !errors.Is(err, consumer.ErrGroupInUse) || !strings.Contains(err.Error(), "Kafka has a share group of this name") {
			t.Errorf("says %v", err)
		}
		time.Sleep(time.Minute)
		if n := len(a.errors()); total(a) != 0 || n < 2 || n > 60 {
			t.Errorf("consumed %d messages of a share group's topic; %d errors in a minute", total(a), n)
		}
		remove()
		until(t, "a consumes", func() bool { return total(a) == 10 })
		quit(a)
	})
}

func TestCoordinatorMoves(t *testing.T) {
	inRig(t, 2, func(t *testing.T, r *rig) {
		a := r.member("a", nil).start()
		for i := range 10 {
			r.produce(10, 0, 1)
			until(t, "messages", func() bool { return total(a) == 20*(i+1) })
			r.kafka.RehashCoordinators()
			r.kafka.ShufflePartitionLeaders()
		}
		until(t, "committed", func() bool { return r.committed(topic, 0) == 100 && r.committed(topic, 1) == 100 })
		quit(a)
		r.check(false)
	})
}

func TestMetrics(t *testing.T) {
	inRig(t, 2, func(t *testing.T, r *rig) {
		r.produce(10, 0, 1)
		reg := prometheus.NewRegistry()
		a := r.member("a", func(o *consumer.Options) { o.Registerer = reg }).start()
		until(t, "20 messages", func() bool { return total(a) == 20 })
		a.leave()
		text := `
# HELP kiel_consumer_bytes_total Bytes of keys and values that handlers have received.
# TYPE kiel_consumer_bytes_total counter
kiel_consumer_bytes_total{group="g",topic="t"} 100
# HELP kiel_consumer_commits_total Offsets committed, one per partition, by result; fenced ones were not sent because the claim was lost.
# TYPE kiel_consumer_commits_total counter
kiel_consumer_commits_total{group="g",result="error"} 0
kiel_consumer_commits_total{group="g",result="fenced"} 0
kiel_consumer_commits_total{group="g",result="ok"} 4
# HELP kiel_consumer_messages_total Messages that handlers have received; what stands in the channel of sarama's API does not count.
# TYPE kiel_consumer_messages_total counter
kiel_consumer_messages_total{group="g",topic="t"} 20
# HELP kiel_consumer_offset_resets_total Start positions that came from a policy, by reason.
# TYPE kiel_consumer_offset_resets_total counter
kiel_consumer_offset_resets_total{group="g",reason="none",topic="t"} 2
`
		if err := testutil.GatherAndCompare(reg, strings.NewReader(text),
			"kiel_consumer_bytes_total", "kiel_consumer_commits_total", "kiel_consumer_messages_total", "kiel_consumer_offset_resets_total"); err != nil {
			t.Error(err)
		}
		problems, err := testutil.GatherAndLint(reg)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range problems {
			t.Errorf("%s: %s", p.Metric, p.Text)
		}
		a.start() // the same collectors again
		r.produce(10, 0)
		until(t, "30 messages", func() bool { return total(a) == 30 })
		a.leave()
		if n, err := testutil.GatherAndCount(reg, "kiel_consumer_commit_duration_seconds"); err != nil || n == 0 {
			t.Errorf("commit durations: %d, %v", n, err)
		}
		a.close()
	})
}

func TestMemberNameTaken(t *testing.T) {
	inRig(t, 2, func(t *testing.T, r *rig) {
		a := r.member("a", nil).start()
		until(t, "a consumes", func() bool { return len(a.owns()) == 2 })
		twin := r.member("twin", func(o *consumer.Options) { o.Name = "a" }).start()
		if err := <-twin.done; err == nil {
			t.Error("a second member of the same name consumed")
		} else {
			t.Logf("the second: %v", err)
		}
		if len(a.owns()) != 2 {
			t.Errorf("the first was disturbed: %v", a.owns())
		}
		twin.close()
		quit(a)
	})
}
