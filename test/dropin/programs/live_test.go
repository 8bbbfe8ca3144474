package programs_test

import (
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/kielgo/kiel/test/dropin/programs"
	"github.com/kielgo/kiel/zktest"
)

// TestLive lets each program live on groups of ours, in virtual time.
func TestLive(t *testing.T) {
	t.Parallel()
	for name, program := range programs.Programs() {
		for _, kind := range []programs.Kind{programs.Ours, programs.Incremental} {
			t.Run(name+"/"+string(kind), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					_, zknet := zktest.StartVirtual(t, zktest.Options{})
					b := newKafka(t)
					b.ZooKeeper, b.DialZooKeeper = []string{zktest.VirtualAddress}, zknet.Dial
					b.SessionTimeout, b.Pause = 6*time.Second, 5*time.Second
					programs.Live(t, b, kind, "t", program)
					time.Sleep(time.Second) // goroutines of sarama and kfake take a moment to end
				})
			})
		}
	}
}

// TestLiveOnSarama lets each program live on sarama's own groups. These wait for polls with a mutex held, so that virtual time
// would stand still. On sarama's cooperative groups they live on a real Kafka, with -full in realkafka: on kfake a second member
// has waited for minutes for its first partition.
func TestLiveOnSarama(t *testing.T) {
	t.Parallel()
	for name, program := range programs.Programs() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newKafka(t)
			b.SessionTimeout, b.Pause = time.Second, 200*time.Millisecond
			programs.Live(t, b, programs.Eager, "t", program)
		})
	}
}

// newKafka returns a fake Kafka on a network of its own.
func newKafka(t *testing.T) *programs.Backend {
	t.Helper()
	network := zktest.NewNetwork()
	kafka, err := kfake.NewCluster(
		kfake.NumBrokers(1), kfake.Ports(9092), kfake.GroupMinSessionTimeout(time.Second),
		kfake.ListenFn(func(_, address string) (net.Listener, error) { return network.Listen(address) }),
	)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(kafka.Close)
	return &programs.Backend{Brokers: kafka.ListenAddrs(), DialKafka: network.Dial}
}
