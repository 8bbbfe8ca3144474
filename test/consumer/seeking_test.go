package consumer_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kielgo/kiel/consumer"
	"github.com/kielgo/kiel/internal/testonly/logtest"
)

// A Seek back when reading has ended, while a batch waits: that batch is not handed out.
func TestSeekWhenReadingHasEnded(t *testing.T) {
	inRig(t, 1, func(t *testing.T, r *rig) {
		r.produce(50, 0)
		a := r.member("a", nil)
		done := make(chan struct{})
		a.runWith(func(ctx context.Context, p *consumer.Partition) error {
			ms, err := p.Poll(ctx, 10)
			if err != nil {
				t.Log(err)
				return nil
			}
			p.Mark(&ms[9])
			time.Sleep(2 * time.Second)
			r.produce(50, 0)
			time.Sleep(2 * time.Second)
			f := r.refuseTopic([]kmsg.Key{kmsg.Fetch}) // for the next fetch
			time.Sleep(1200 * time.Millisecond)
			t.Logf("context: %v", ctx.Err())
			err = p.Seek(ctx, 5)
			t.Logf("Seek(5): %v", err)
			ms, err = p.Poll(ctx, 10)
			if err != nil || ms[0].Offset != 5 {
				if err == nil {
					t.Errorf("after Seek(5): %d, %v", ms[0].Offset, err)
					p.Mark(&ms[0])
					t.Logf("Commit: %v", p.Commit(ctx))
				} else {
					t.Log(err)
				}
			}
			t.Logf("committed %d", r.committed(topic, 0))
			f.Remove()
			close(done)
			<-ctx.Done()
			return nil
		})
		<-done
		quit(a)
	})
}

// A Seek finds what was produced just now, also while the partition is paused.
func TestSeekToTheEndOfAPausedPartition(t *testing.T) {
	inRig(t, 1, func(t *testing.T, r *rig) {
		r.produce(10, 0)
		a := r.member("a", nil)
		done := make(chan struct{})
		a.runWith(func(ctx context.Context, p *consumer.Partition) error {
			polled(ctx, t, p, 10, 0)
			p.Pause()
			time.Sleep(20 * time.Second)
			r.produce(5, 0)
			if err := p.Seek(ctx, 12); err != nil {
				t.Errorf("first: %v", err)
			}
			r.produce(5, 0)
			if err := p.Seek(ctx, 18); err != nil {
				t.Errorf("second: %v", err)
			}
			p.Resume()
			close(done)
			<-ctx.Done()
			return nil
		})
		<-done
		quit(a)
	})
}

// A topic that a pattern has found, and that was deleted, is not created when a later call names it.
func TestTopicFoundByAPatternIsNotCreated(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, 1, kfake.AllowAutoTopicCreation(), kfake.DefaultNumPartitions(1))
		a := r.member("a", nil)
		a.start(topic, "^ma.*")
		time.Sleep(5 * time.Second)
		r.createTopic("made", 1)
		until(t, "all is open", func() bool { return len(a.owns()) == 2 })
		a.leave()
		r.deleteTopic("made")
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		err := a.group.Consume(ctx, []string{topic, "made"}, a.h)
		if !errors.Is(err, sarama.ErrUnknownTopicOrPartition) || r.kafka.TopicInfo("made") != nil {
			t.Errorf("created: %v %v", err, r.kafka.TopicInfo("made") != nil)
		}
		a.close()
	})
}

// The call ends when the client is closed while the member waits for a broker, to join again.
func TestClientIsClosedWhileCutOff(t *testing.T) {
	inRig(t, 4, func(t *testing.T, r *rig) {
		net := &outage{dialer: dialer{r.knet}}
		config := r.config()
		config.Net.Proxy.Enable, config.Net.Proxy.Dialer = true, net
		g, client, end := r.ofClient(r.kafka.ListenAddrs(), config, consumer.Options{LeaveWithoutKafkaAfter: 30 * time.Second})
		h := &recorder{done: func(*sarama.ConsumerMessage) {}}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- g.Consume(ctx, []string{topic}, h) }()
		r.produce(5, 0)
		until(t, "5 messages", func() bool { return h.count() == 5 })
		b := r.member("b", nil).start()
		defer quit(b)
		until(t, "b has some", func() bool { return len(b.owns()) == 2 })
		net.begin()
		until(t, "it has left", func() bool { return len(r.zk.Children(membersPath)) == 1 })
		time.Sleep(10 * time.Second)
		_ = client.Close()
		select {
		case err := <-done:
			if !errors.Is(err, sarama.ErrClosedClient) {
				t.Error(err)
			}
		case <-time.After(10 * time.Minute):
			t.Error("Consume goes on 10 minutes after the client was closed")
		}
		cancel()
		_ = end()
	})
}

// A Seek finds what was produced just now while messages come.
func TestSeekToWhatWasJustProduced(t *testing.T) {
	inRig(t, 1, func(t *testing.T, r *rig) {
		r.produce(10, 0)
		a := r.member("a", nil)
		done := make(chan struct{})
		a.runWith(func(ctx context.Context, p *consumer.Partition) error {
			polled(ctx, t, p, 10, 0)
			for n := int64(15); n < 200; n += 5 {
				r.produce(5, 0)
				if err := p.Seek(ctx, n); err != nil {
					t.Errorf("%v", err)
				}
			}
			close(done)
			<-ctx.Done()
			return nil
		})
		<-done
		quit(a)
	})
}

// A position without messages, whose commit is under way, is not stored after what the program has committed of messages that it
// has gone back to.
func TestSeekAwaitsThePassedPosition(t *testing.T) {
	inRig(t, 1, func(t *testing.T, r *rig) {
		r.produce(100, 0)
		r.commitAs("", 0, 100)
		a := r.member("a", func(o *consumer.Options) { o.Config.Consumer.IsolationLevel = sarama.ReadCommitted })
		done := make(chan struct{})
		a.runWith(func(ctx context.Context, p *consumer.Partition) error {
			held := make(chan struct{})
			r.kafka.ControlKey(int16(kmsg.OffsetCommit), func(kmsg.Request) (kmsg.Response, error, bool) {
				r.kafka.SleepControl(func() { close(held); time.Sleep(1500 * time.Millisecond) })
				return nil, nil, false
			})
			r.abort(1, 5)
			c, end := context.WithTimeout(ctx, 10*time.Second)
			defer end()
			go func() { <-held; end() }()
			if ms, err := p.Poll(c, 1); err == nil {
				t.Errorf("polled %v", ms)
			}
			<-held
			if err := p.Seek(ctx, 50); err != nil {
				t.Error(err)
			}
			polled(ctx, t, p, 1, 50)
			r.commitInTransaction(51)()
			t.Logf("committed %d", r.committed(topic, 0))
			time.Sleep(10 * time.Second)
			if got := r.committed(topic, 0); got != 51 {
				t.Errorf("committed %d, want 51", got)
			}
			close(done)
			<-ctx.Done()
			return nil
		})
		<-done
		quit(a)
	})
}

// Short Polls under a full window lead to one warning, as one long wait does.
func TestPollsOfAFullWindowWarn(t *testing.T) {
	inRig(t, 1, func(t *testing.T, r *rig) {
		r.produce(100, 0)
		said := &logtest.Log{}
		a := r.member("a", func(o *consumer.Options) { o.MaxUnmarked = 10; o.Logger = slog.New(slog.NewTextHandler(said, nil)) })
		done := make(chan struct{})
		a.runWith(func(ctx context.Context, p *consumer.Partition) error {
			ms := polled(ctx, t, p, 5, 0)
			p.Done(&ms[1])
			for until := time.Now().Add(5 * time.Minute); time.Now().Before(until); {
				c, end := context.WithTimeout(ctx, time.Second)
				_, _ = p.Poll(c, 100)
				end()
			}
			close(done)
			<-ctx.Done()
			return nil
		})
		<-done
		quit(a)
		if n := said.Count("messages are held back"); n != 1 {
			t.Errorf("%d warnings in 5 minutes", n)
		}
	})
}
