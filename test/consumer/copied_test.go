package consumer_test

import (
	"encoding/base64"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel/consumer"
	"github.com/kielgo/kiel/internal/testonly/logtest"
)

// copyOffsets stores the group's offsets in the cluster of to, with their metadata, as a mirror does. change changes metadata;
// nil for none.
func (r *rig) copyOffsets(to *rig, change func(string) string) {
	r.t.Helper()
	for p, c := range r.kafka.GroupInfo(group).Commits[topic] {
		metadata := c.Metadata
		if change != nil {
			metadata = change(metadata)
		}
		to.commitAs(metadata, p, c.Offset)
	}
}

// earlier returns metadata as members of commit 762eed2 write them, whose ids are the topic's alone.
func earlier(metadata string) string {
	parts := strings.SplitN(metadata, ";", 3)
	ids, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil || len(ids) < 16 {
		panic(metadata)
	}
	parts[1] = base64.RawURLEncoding.EncodeToString(ids[:16])
	return strings.Join(parts, ";")
}

// away lets a group consume n messages of each of two partitions, and returns another cluster that has the same messages.
func (r *rig) away(n int, change func(*consumer.Options)) *rig {
	r.t.Helper()
	r.produce(n, 0, 1)
	first := 0 // from Latest
	if change == nil {
		first = 2 * n
	}
	a := r.member("a", change).start()
	until(r.t, "a has read what is to be read", func() bool { return len(a.owns()) == 2 && total(a) == first })
	r.produce(n, 0, 1)
	until(r.t, "a has read all", func() bool { return total(a) == first+2*n })
	quit(a)
	other := r.second("other")
	other.produce(2*n, 0, 1)
	return other
}

// TestCopiedOffsetsAreHonoured is red if a group that moved to another cluster, with its offsets, begins anew there, because the
// topic's id is another one; or if the topic's id counts no more after that.
func TestCopiedOffsetsAreHonoured(t *testing.T) {
	for name, change := range map[string]func(*consumer.Options){"from earliest": nil, "from latest": fromLatest} {
		t.Run(name, func(t *testing.T) {
			inRig(t, 2, func(t *testing.T, r *rig) {
				other := r.away(50, change)
				r.copyOffsets(other, nil)
				said := &logtest.Log{}
				b := other.member("b", func(o *consumer.Options) {
					if o.Logger = slog.New(slog.NewTextHandler(said, nil)); change != nil {
						change(o)
					}
				}).start()
				until(t, "b owns both", func() bool { return len(b.owns()) == 2 })
				other.produce(3, 0, 1)
				until(t, "b has what is new", func() bool { return total(b) >= 6 })
				time.Sleep(20 * time.Minute) // the repeats are over
				if n, at := total(b), b.h.offsets(topic, 0); n != 6 || at[0] != 100 {
					t.Errorf("b read %d messages, from %d on", n, at[0])
				}
				if n := said.Count("level=WARN", "committed in another Kafka cluster", "partitions=2", "t:0 at 100"); n != 1 || said.Count("level=WARN") != 1 {
					t.Errorf("%d lines:\n%s", n, said)
				}
				if n := said.Count("msg=opened", "offset=100", "origin=copied"); n != 2 {
					t.Errorf("%d openings at copied offsets:\n%s", n, said)
				}
				if errs := b.errors(); len(errs) > 0 {
					t.Errorf("reported %v", errs)
				}
				if at := other.committed(topic, 0); at != 103 {
					t.Errorf("committed %d", at)
				}

				b.leave()
				stored := other.kafka.GroupInfo(group).Commits[topic]
				if err := errors.Join(other.kafka.DeleteTopic(topic), other.kafka.CreateTopic(topic, 2, nil)); err != nil {
					t.Fatal(err)
				}
				other.prod.PurgeTopicsFromClient(topic)
				other.produce(200, 0, 1)
				for p, c := range stored { // kfake has deleted them
					other.commitAs(c.Metadata, p, c.Offset)
				}
				b.start()
				until(t, "b has all of the topic that was created again", func() bool { return total(b) == 406 })
				quit(b)
			})
		})
	}
}

// TestCopiedOffsetsOfEarlierVersions is red if the topic's id does not count in metadata that say nothing of the cluster: they
// may be of a topic that was deleted here and created again, and messages of the new one would be skipped.
func TestCopiedOffsetsOfEarlierVersions(t *testing.T) {
	for name, c := range map[string]struct {
		change func(string) string
		read   int
	}{
		"with the topic's id":         {earlier, 200},
		"without":                     {func(string) string { return "kiel1;;7/2;" }, 0},
		"stored by the tools instead": {func(string) string { return "" }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			inRig(t, 2, func(t *testing.T, r *rig) {
				other := r.away(50, nil)
				r.copyOffsets(other, c.change)
				b := other.member("b", nil).start()
				until(t, "b owns both", func() bool { return len(b.owns()) == 2 })
				time.Sleep(time.Minute)
				if n := total(b); n != c.read {
					t.Errorf("b read %d messages, want %d", n, c.read)
				}
				again := slices.ContainsFunc(b.errors(), func(err error) bool { return errors.Is(err, consumer.ErrRecreated) })
				if again != (c.read > 0) {
					t.Errorf("reported %v", b.errors())
				}
				quit(b)
			})
		})
	}
}

// TestNewPartitionsBesideCopiedOffsets is red if a partition of which no offset was copied is taken for one that the group has
// started on, and begins at its end: the group had started before, on fewer partitions.
func TestNewPartitionsBesideCopiedOffsets(t *testing.T) {
	inRig(t, 2, func(t *testing.T, r *rig) {
		other := r.away(50, fromLatest)
		r.copyOffsets(other, nil)
		other.grow(4)
		other.produce(10, 2, 3)
		b := other.member("b", fromLatest).start()
		until(t, "b owns all", func() bool { return len(b.owns()) == 4 })
		until(t, "b has read the new partitions", func() bool { return total(b) == 20 })
		b.leave()
		other.grow(5)
		other.produce(7, 4)
		b.start()
		until(t, "b has read what came later", func() bool { return total(b) == 27 })
		quit(b)
	})
}

// TestFewerPartitionsThanWhereOffsetsAreFrom is red if partitions that a topic gets after the group's move begin at their ends,
// since the topic had more of them in the cluster before.
func TestFewerPartitionsThanWhereOffsetsAreFrom(t *testing.T) {
	inRig(t, 2, func(t *testing.T, r *rig) {
		other := r.away(50, fromLatest)
		r.copyOffsets(other, func(metadata string) string { return strings.Replace(metadata, "/2;", "/12;", 1) })
		b := other.member("b", fromLatest).start()
		until(t, "b owns both", func() bool { return len(b.owns()) == 2 })
		b.leave()
		other.grow(3)
		other.produce(10, 2)
		b.start()
		until(t, "b has read the new partition", func() bool { return total(b) == 10 })
		quit(b)
	})
}

// TestMirrorBesideARunningGroup is red if an offset that a mirror copies while the group consumes here stays where nothing is
// marked: the next owner would skip what was handled in the other cluster alone. The token is of another tree, and says nothing.
func TestMirrorBesideARunningGroup(t *testing.T) {
	for name, offset := range map[string]int64{"behind": 30, "ahead": 90, "at the same offset": 60} {
		t.Run(name, func(t *testing.T) {
			inRig(t, 2, func(t *testing.T, r *rig) {
				other := r.away(30, nil)
				r.copyOffsets(other, nil)
				mirrored := strings.SplitN(r.kafka.GroupInfo(group).Commits[topic][0].Metadata, ";", 3)
				mirrored[2] = "9000000000000000000/2;"
				said := &logtest.Log{}
				b := other.member("b", func(o *consumer.Options) { o.Logger = slog.New(slog.NewTextHandler(said, nil)) })
				b.h.each = func(sarama.ConsumerGroupSession, sarama.ConsumerGroupClaim, *sarama.ConsumerMessage) error {
					return nil
				} // marks nothing
				b.start()
				other.produce(40, 0, 1)
				until(t, "b has all that is new", func() bool { return total(b) == 80 })
				other.commitAs(strings.Join(mirrored, ";"), 0, offset)
				time.Sleep(30 * time.Second) // the first repeat is over
				if at := other.committed(topic, 0); at != 60 {
					t.Errorf("%d is stored after the first repeat", at)
				}
				time.Sleep(10 * time.Minute) // the next one comes after hours
				other.commitAs(strings.Join(mirrored, ";"), 1, offset)
				time.Sleep(2 * time.Minute)
				if n := said.Count("level=WARN", "partition=t:1", "reason=other_cluster", "this member writes its own over it"); n != 1 {
					t.Errorf("%d lines about the mirror:\n%s", n, said)
				}
				b.leave()
				for p := range int32(2) {
					if at := other.committed(topic, p); at != 60 {
						t.Errorf("%d is stored for partition %d when b has left", at, p)
					}
				}
				b.close()
			})
		})
	}
}
