package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/kielgo/kiel/cmd/internal/connect"
	"github.com/kielgo/kiel/zktest"
)

// Run serves until it is told to stop.
func (c *serversCmd) Run(rc *runContext) error {
	if c.Partitions < 1 || c.Tick <= 0 {
		return connect.Usage(errors.New("--partitions and --tick must be positive"))
	}
	if err := errors.Join(checkAddress("zookeeper", c.ZooKeeper), checkAddress("kafka", c.Kafka)); err != nil {
		return connect.Usage(err)
	}
	if err := checkTopics(c.Topic); err != nil {
		return err
	}
	l, err := (&net.ListenConfig{}).Listen(rc, "tcp", c.ZooKeeper)
	if err != nil {
		return fmt.Errorf("can't serve ZooKeeper's protocol (another server there? choose --zookeeper): %w", err)
	}
	srv := zktest.NewServer(zktest.Options{TickTime: c.Tick})
	defer srv.Close() //nolint:errcheck // the process ends
	served := make(chan error, 1)
	go func() { served <- srv.Serve(l) }()

	kafka, err := startKafka(rc, c.Kafka, c.Partitions, c.Topic...)
	if err != nil {
		return err
	}
	defer kafka.Close()
	fmt.Fprintf(rc.out, "ZooKeeper at %s, Kafka at %s: in memory, gone when this process stops (Ctrl-C)\n", l.Addr(), kafka.ListenAddrs()[0])
	fmt.Fprintf(rc.out, "Now in other terminals:\n  demo-consumer consume --zookeeper %s --kafka %s --print value\n  demo-consumer produce --kafka %s --rate 10\n",
		l.Addr(), kafka.ListenAddrs()[0], kafka.ListenAddrs()[0])
	select {
	case <-rc.Done():
		return nil
	case err := <-served:
		return fmt.Errorf("ZooKeeper's protocol: %w", err)
	}
}

// startKafka starts one in-memory broker at address, "" for any free port.
func startKafka(ctx context.Context, address string, partitions int32, topics ...string) (*kfake.Cluster, error) {
	opts := []kfake.Opt{kfake.NumBrokers(1), kfake.SeedTopics(partitions, topics...), kfake.GroupMinSessionTimeout(time.Second)}
	if address != "" {
		host, port, err := net.SplitHostPort(address)
		if err != nil {
			return nil, connect.Usage(fmt.Errorf("--kafka %q: %w", address, err))
		}
		n, err := strconv.Atoi(port)
		if err != nil {
			return nil, connect.Usage(fmt.Errorf("--kafka %q: the port must be a number", address))
		}
		if n != 0 {
			opts = append(opts, kfake.Ports(n))
		}
		opts = append(opts, kfake.ListenFn(func(network, _ string) (net.Listener, error) {
			return (&net.ListenConfig{}).Listen(ctx, network, net.JoinHostPort(host, port))
		}))
	}
	c, err := kfake.NewCluster(opts...)
	if err != nil {
		return nil, fmt.Errorf("can't serve Kafka's protocol (another server there? choose --kafka): %w", err)
	}
	return c, nil
}
