package consumer_test

import (
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kielgo/kiel/consumer"
)

const members = "/kiel/groups/g/members"

// second returns a rig with another Kafka, of another cluster id, and the same ZooKeeper.
func (r *rig) second(id string) *rig {
	r.t.Helper()
	cluster, err := kfake.NewCluster(
		kfake.NumBrokers(2), kfake.Ports(9094, 9095), kfake.ListenFn(r.knet.Listen), kfake.SeedTopics(2, topic), kfake.ClusterID(id),
	)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(cluster.Close)
	other := &rig{t: r.t, zk: r.zk, zknet: r.zknet, kafka: cluster, knet: r.knet, sent: map[partition]int64{}}
	other.prod, err = kgo.NewClient(
		kgo.SeedBrokers(cluster.ListenAddrs()...), kgo.Dialer(r.knet.DialContext), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(0),
	)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(other.prod.Close)
	return other
}

// ended waits for the end of the call, and returns its error.
func (m *member) ended() error {
	m.t.Helper()
	select {
	case err := <-m.done:
		return err
	case <-time.After(5 * time.Minute):
		m.t.Fatalf("the call of %s goes on; it has %v", m.name, m.owns())
		return nil
	}
}

// TestOtherClusterEndsTheCall is red if members of two Kafka clusters consume as one group.
func TestOtherClusterEndsTheCall(t *testing.T) {
	inRig(t, 2, func(t *testing.T, r *rig) {
		r.produce(10, 0, 1)
		a := r.member("a", nil).start()
		until(t, "a owns both", func() bool { return len(a.owns()) == 2 })
		other := r.second("other")
		b := other.member("b", nil).start()
		_, before, _ := r.zk.Get(members)
		err := b.ended()
		if !errors.Is(err, consumer.ErrOtherCluster) {
			t.Fatalf("the call of b ended with %v", err)
		}
		for _, part := range []string{members, `"a"`, `"kfake"`, `"other"`} {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("the error does not have %s: %v", part, err)
			}
		}
		if _, after, _ := r.zk.Get(members); after.Cversion != before.Cversion {
			t.Error("b joined")
		}
		began := time.Now()
		b.start()
		if err := b.ended(); !errors.Is(err, consumer.ErrOtherCluster) || time.Since(began) < 4*time.Second {
			t.Errorf("the second call ended after %v with %v", time.Since(began), err)
		}
		if len(b.h.called()) > 0 || len(a.owns()) != 2 {
			t.Errorf("b's handler was called: %v; a has %v", b.h.called(), a.owns())
		}
		if c := a.group.Status().Members[0].Cluster; c != "kfake" {
			t.Errorf("the status has the cluster %q", c)
		}
		quit(a)
		b.start()
		until(t, "b owns both", func() bool { return len(b.owns()) == 2 })
		quit(b)
	})
}

// moved is a dialer of which the broker's names lead to another cluster since it has moved.
type moved struct {
	dialer
	yes *atomic.Bool
}

func (m moved) Dial(network, addr string) (net.Conn, error) {
	if m.yes.Load() {
		addr = strings.NewReplacer(":9092", ":9094", ":9093", ":9095").Replace(addr)
	}
	return m.dialer.Dial(network, addr)
}

// TestClusterThatChanges is red if a member goes on, or keeps its record, when the brokers' names lead to another cluster.
func TestClusterThatChanges(t *testing.T) {
	inRig(t, 2, func(t *testing.T, r *rig) {
		r.produce(10, 0, 1)
		var yes atomic.Bool
		a := r.member("a", func(o *consumer.Options) { o.Config.Net.Proxy.Dialer = moved{dialer{r.knet}, &yes} }).start()
		until(t, "a owns both", func() bool { return len(a.owns()) == 2 })
		r.second("other")
		yes.Store(true)
		r.kafka.Close()
		began := time.Now()
		err := a.ended()
		if !errors.Is(err, consumer.ErrOtherCluster) || errors.Is(err, sarama.ErrOutOfBrokers) || time.Since(began) > 2*time.Minute {
			t.Fatalf("after %v: %v", time.Since(began), err)
		}
		for _, part := range []string{`"kfake"`, `"other"`} {
			if strings.Count(err.Error(), part) != 1 {
				t.Errorf("the error has %s %d times: %v", part, strings.Count(err.Error(), part), err)
			}
		}
		a.start()
		until(t, "a owns both again", func() bool {
			ms := a.group.Status().Members
			return len(ms) == 1 && ms[0].Cluster == "other" && len(a.owns()) == 2
		})
		quit(a)
	})
}

// TestNothingGoesToAnotherCluster is red if a member whose brokers' names lead to another cluster commits there what it has
// marked, or reads on there for long. The next call reads the other cluster's messages from the first on. Without topic ids
// nothing else tells the clusters apart.
func TestNothingGoesToAnotherCluster(t *testing.T) {
	for name, version := range map[string]sarama.KafkaVersion{"with topic ids": sarama.V3_6_0_0, "without": sarama.V2_5_0_0} {
		t.Run(name, func(t *testing.T) {
			inRig(t, 2, func(t *testing.T, r *rig) {
				r.produce(3, 0, 1)
				var yes atomic.Bool
				a := r.member("a", func(o *consumer.Options) {
					o.Config.Version, o.Config.Net.Proxy.Dialer = version, moved{dialer{r.knet}, &yes}
				}).start()
				until(t, "a has handled all", func() bool { return total(a) == 6 && r.committed(topic, 0) == 3 && r.committed(topic, 1) == 3 })
				other := r.second("other")
				other.produce(5, 0, 1)
				yes.Store(true)
				r.kafka.Close()
				if err := a.ended(); !errors.Is(err, consumer.ErrOtherCluster) {
					t.Fatal(err)
				}
				for p := range int32(2) {
					if at := other.committed(topic, p); at != -1 {
						t.Errorf("%d of partition %d is stored in the other cluster", at, p)
					}
				}
				a.start()
				until(t, "all messages of the other cluster", func() bool { return other.handledAll(a) })
				quit(a)
			})
		})
	}
}
