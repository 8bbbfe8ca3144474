package consumer_test

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kielgo/kiel/consumer"
	"github.com/kielgo/kiel/internal/testonly/logtest"
)

// A topic that does not exist is created as a call begins, if the Config and the brokers allow it, and if this Group has never
// found it: not while a call goes on, and not in a later call of that Group. Another Group creates it.
func TestTopicsAreCreatedOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, 1, kfake.AllowAutoTopicCreation(), kfake.DefaultNumPartitions(2))
		said := &logtest.Log{}
		a := r.member("a", func(o *consumer.Options) { o.Logger = slog.New(slog.NewTextHandler(said, nil)) }).start(topic, "made")
		until(t, "all is open", func() bool { return len(a.owns()) == 3 })
		if n := said.Count("level=INFO", `msg="topics did not exist, and Kafka has created them"`, "topics=[made]"); n != 1 {
			t.Errorf("%d lines: %s", n, said)
		}
		r.deleteTopic("made")
		until(t, "it is closed", func() bool { return len(a.owns()) == 1 })
		time.Sleep(10 * time.Minute)
		if r.kafka.TopicInfo("made") != nil {
			t.Error("a running member has created it again")
		}
		a.leave()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := a.group.Consume(ctx, []string{topic, "made"}, a.h); !errors.Is(err, sarama.ErrUnknownTopicOrPartition) || r.kafka.TopicInfo("made") != nil {
			t.Errorf("the next call: %v", err)
		}
		b := r.member("b", nil).start(topic, "made")
		until(t, "b has created it", func() bool { return len(b.owns()) == 3 })
		quit(b)
		a.close()
	})
}

// Topics are not created if the Config does not allow it, or the brokers do not.
func TestTopicsAreNotCreated(t *testing.T) {
	for name, change := range map[string]func(*consumer.Options){
		"the Config does not allow it": func(o *consumer.Options) { o.Config.Metadata.AllowAutoTopicCreation = false },
		"brokers do not":               nil,
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				var opts []kfake.Opt
				if change != nil {
					opts = append(opts, kfake.AllowAutoTopicCreation())
				}
				r := newRig(t, 1, opts...)
				var asked atomic.Int32
				r.kafka.ControlKey(int16(kmsg.Metadata), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
					r.kafka.KeepControl()
					if kreq.(*kmsg.MetadataRequest).AllowAutoTopicCreation && len(kreq.(*kmsg.MetadataRequest).Topics) > 0 {
						asked.Add(1)
					}
					return nil, nil, false
				})
				a := r.member("a", change)
				if err := a.group.Consume(t.Context(), []string{topic, "none"}, a.h); !errors.Is(err, sarama.ErrUnknownTopicOrPartition) {
					t.Error(err)
				}
				if r.kafka.TopicInfo("none") != nil || asked.Load() > 1 || change != nil && asked.Load() > 0 {
					t.Errorf("asked %d times, created %v", asked.Load(), r.kafka.TopicInfo("none") != nil)
				}
				a.close()
			})
		})
	}
}

// A call that fails because one topic does not exist has found the others: they are not created again when they have been
// deleted.
func TestTopicsFoundByACallThatFailedAreNotCreated(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, 1, kfake.AllowAutoTopicCreation())
		r.kafka.ControlKey(int16(kmsg.Metadata), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
			r.kafka.KeepControl()
			for _, asked := range kreq.(*kmsg.MetadataRequest).Topics {
				if asked.Topic != nil && *asked.Topic == "none" { // no broker creates it
					kreq.(*kmsg.MetadataRequest).AllowAutoTopicCreation = false
				}
			}
			return nil, nil, false
		})
		a := r.member("a", nil)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		for _, names := range [][]string{{topic, "none"}, {topic}} {
			if err := a.group.Consume(ctx, names, a.h); !errors.Is(err, sarama.ErrUnknownTopicOrPartition) {
				t.Errorf("%s: %v", names, err)
			}
			if len(names) > 1 {
				r.deleteTopic(topic)
			}
		}
		if r.kafka.TopicInfo(topic) != nil {
			t.Error("a deleted topic was created")
		}
		a.close()
	})
}
