package realkafka_test

import (
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel/consumer"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/test/servers"
)

// byName is an address that leads to a broker wherever it is.
const byName = "kafka.example.com:9092"

// nameDialer dials with names resolved: byName is the address that is stored in it.
type nameDialer struct{ now atomic.Pointer[string] }

func (d *nameDialer) Dial(network, address string) (net.Conn, error) {
	if address == byName {
		address = *d.now.Load()
	}
	return (&net.Dialer{Timeout: 10 * time.Second}).Dial(network, address)
}

// Members that were made from a client, and others, read again when all brokers have moved to other addresses.
func TestAllBrokersMove(t *testing.T) {
	const n = 4
	r := newRig(t, servers.KafkaOptions{}, n)
	r.produce(100, ids(n)...)
	names := &nameDialer{}
	names.now.Store(&r.brokers[0])
	config := func() *sarama.Config {
		c := memberConfig()
		c.Net.Proxy.Enable, c.Net.Proxy.Dialer = true, names
		return c
	}
	client, err := sarama.NewClient([]string{byName}, config())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	r.construct = func(zk *session.Session, opts consumer.Options) (*consumer.Group, error) {
		if opts.Name == "of-a-client" {
			opts.Config = nil
			return consumer.NewFromClient(zk, client, r.group, opts)
		}
		opts.Config = config()
		return consumer.New(zk, []string{byName}, r.group, opts)
	}
	a, b := r.member("of-a-client"), r.member("of-addresses")
	until(t, "the messages before", func() bool { return total(a, b) == 100*n && shared(n, a, b) })
	s := *a.sess.Load()
	s.Commit()
	(*b.sess.Load()).Commit()
	r.kafka.Move()
	r.brokers = r.kafka.Brokers()
	names.now.Store(&r.brokers[0])
	moved := time.Now()
	r.produce(100, ids(n)...)
	until(t, "the messages after", func() bool { return total(a, b) >= 200*n })
	t.Logf("read again %v after the move", time.Since(moved).Round(time.Millisecond))
	if got := total(a, b); got != 200*n {
		t.Errorf("%d messages, want %d", got, 200*n)
	}
	a.leave()
	b.leave()
}
