package consumer_test

import (
	"context"
	"strings"
	"sync"
	"testing"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel/consumer"
)

// texts are the texts that were stored with the start positions of partitions.
type texts struct {
	mu  sync.Mutex
	all map[int32]string
}

func (s *texts) add(p int32, text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == nil {
		s.all = map[int32]string{}
	}
	s.all[p] = text
}

// check waits for as many partitions as want has, and compares their texts.
func (s *texts) check(t *testing.T, want map[int32]string) {
	t.Helper()
	until(t, "all are open", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.all) == len(want)
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	for p := range want {
		if s.all[p] != want[p] {
			t.Errorf("the text of %d is %.40q, want %.40q", p, s.all[p], want[p])
		}
	}
}

// A claim has the text that was stored with its start position, whoever has stored it, and no other.
func TestInitialMetadata(t *testing.T) {
	const last = `{"sum":12};x`
	inRig(t, 7, func(t *testing.T, r *rig) {
		r.produce(10, 0, 1, 2, 3, 4, 5, 6)
		r.commitAs("kiel1;;1;of a member", 0, 2)
		r.commitAs("of another program; kiel1;", 1, 2)
		r.commitAs("", 2, 2)
		r.commitAs("kiel1;;1;beyond the end", 4, 1000)
		r.commitAs("kiel1;;1;before Setup", 5, 2)
		r.commitAs("kiel1;;1;"+strings.Repeat("ö", 1500), 6, 2)
		want := map[int32]string{0: "of a member", 1: "of another program; kiel1;", 2: "", 3: "", 4: "", 5: "of Setup", 6: strings.Repeat("ö", 1500)}
		var found texts
		marked := make(chan struct{})
		a := r.member("a", nil).startWith(funcs{
			setup: func(s sarama.ConsumerGroupSession) error {
				s.MarkOffset(topic, 5, 4, "of Setup")
				return nil
			},
			claim: func(s sarama.ConsumerGroupSession, c sarama.ConsumerGroupClaim) error {
				before := c.(consumer.Claim).InitialMetadata()
				if c.Partition() == 0 {
					s.MarkMessage(<-c.Messages(), last)
					close(marked)
				}
				if after := c.(consumer.Claim).InitialMetadata(); after != before {
					t.Errorf("%d: %q became %q", c.Partition(), before, after)
				}
				found.add(c.Partition(), before)
				<-s.Context().Done()
				return nil
			},
		}, topic)
		found.check(t, want)
		<-marked
		a.leave()
		if stored := r.kafka.GroupInfo(group).Commits[topic][0]; stored.Offset != 3 || consumer.MetadataText(stored.Metadata) != last {
			t.Errorf("stored %+v", stored)
		}

		want[0] = last
		var next texts
		b := r.member("b", nil).runWith(func(ctx context.Context, p *consumer.Partition) error {
			next.add(p.ID(), p.InitialMetadata())
			<-ctx.Done()
			return nil
		}, topic)
		next.check(t, want)
		b.leave()
	})
}
