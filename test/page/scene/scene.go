// Package scene plays a group in which something is wrong, on embedded servers, for the page of package page to show: to look at
// in a browser, and as a picture.
package scene

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/kielgo/kiel/consumer"
	"github.com/kielgo/kiel/consumer/inspect"
	"github.com/kielgo/kiel/consumer/page"
	"github.com/kielgo/kiel/health"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/zktest"
)

// Group is the group's name.
const Group = "billing"

const (
	zkAddress = "zookeeper:2181" // on the virtual network
	timeout   = 3 * time.Second
	tick      = 500 * time.Millisecond
	poison    = "poison"
	rate      = 50 * time.Millisecond // between rounds of one message for each partition
	patience  = time.Minute
)

// topics of the group, with their partitions.
var topics = map[string]int32{"orders": 12, "audit": 4}

// Scene is a group at work, and its page.
type Scene struct {
	URL string // of the page, with a slash at the end

	Page *page.Handler

	zk      *zktest.Server
	network *zktest.Network
	kafka   *kfake.Cluster
	client  sarama.Client
	silent  *slog.Logger
	members map[string]*member
	ends    []func()
	serving sync.WaitGroup // servers
	running sync.WaitGroup // all that needs them
}

type member struct {
	link  *zktest.Client
	group *consumer.Group
}

// Start starts servers, members and the page. Close must be called.
func Start(ctx context.Context, opts page.Options) (s *Scene, err error) {
	s = &Scene{network: zktest.NewNetwork(), silent: slog.New(slog.DiscardHandler), members: map[string]*member{}}
	defer func() {
		if err != nil {
			s.Close()
		}
	}()
	if err = s.startServers(); err != nil {
		return s, err
	}
	life, cancel := context.WithCancel(context.WithoutCancel(ctx))
	s.ends = append(s.ends, func() { cancel(); s.running.Wait() })
	for _, m := range []struct{ name, topic string }{{"c1", "orders"}, {"c2", "orders"}, {"c3", "orders"}, {"c4", "orders"}, {"billing-7", "audit"}} {
		if err = s.join(life, m.name, m.topic); err != nil {
			return s, err
		}
	}
	if err = s.await(ctx, func() bool { return s.owned() == 16 }); err != nil {
		return s, err
	}
	if err = s.produce(life); err != nil {
		return s, err
	}
	return s, s.servePage(life, opts)
}

func (s *Scene) startServers() error {
	l, err := s.network.Listen(zkAddress)
	if err != nil {
		return err
	}
	s.zk = zktest.NewServer(zktest.Options{TickTime: tick})
	s.serving.Go(func() { _ = s.zk.Serve(l) })
	s.ends = append(s.ends, func() { _ = s.zk.Close() })
	opts := []kfake.Opt{kfake.NumBrokers(1)}
	for topic, n := range topics {
		opts = append(opts, kfake.SeedTopics(n, topic))
	}
	if s.kafka, err = kfake.NewCluster(opts...); err != nil {
		return err
	}
	s.ends = append(s.ends, s.kafka.Close)
	config := kafkaConfig()
	config.Producer.Return.Successes = true
	config.Producer.Partitioner = sarama.NewManualPartitioner
	if s.client, err = sarama.NewClient(s.kafka.ListenAddrs(), config); err != nil {
		return err
	}
	s.ends = append(s.ends, func() { _ = s.client.Close() })
	return nil
}

func kafkaConfig() *sarama.Config {
	config := sarama.NewConfig()
	config.Version = sarama.V3_6_0_0
	return config
}

// serve serves a handler at a free port, and returns its address.
func (s *Scene) serve(h http.Handler) (string, error) {
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	srv := &http.Server{Handler: h, ReadHeaderTimeout: 5 * time.Second}
	s.serving.Go(func() { _ = srv.Serve(l) })
	s.ends = append(s.ends, func() { _ = srv.Close() })
	return "http://" + l.Addr().String(), nil
}

func (s *Scene) session(link *zktest.Client) session.Options {
	return session.Options{Timeout: timeout, MinSessionTimeout: timeout, Dial: link.Dial, StopTimeout: time.Second, Logger: s.silent}
}

// join starts a member.
func (s *Scene) join(ctx context.Context, name, topic string) error {
	m := &member{link: s.network.Client(name)}
	ready := make(chan struct{})
	addr, err := s.serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		<-ready
		health.Handler(m.group).ServeHTTP(w, r)
	}))
	if err != nil {
		return err
	}
	m.group, err = consumer.NewGroup([]string{zkAddress}, s.kafka.ListenAddrs(), Group, consumer.Options{
		Name: name, Config: kafkaConfig(), StartAt: consumer.Earliest, CommitInterval: 200 * time.Millisecond, StopTimeout: time.Second, Session: s.session(m.link),
		StatusAddr: addr, Logger: s.silent,
	})
	if err != nil {
		return err
	}
	close(ready)
	s.members[name] = m
	s.running.Go(func() {
		_ = m.group.Run(ctx, []string{topic}, func(_ context.Context, p *consumer.Partition) error {
			for msg := range p.Messages() {
				if bytes.Equal(msg.Value, []byte(poison)) {
					<-ctx.Done() // hangs until the scene ends
				}
				p.Mark(msg)
			}
			return nil
		})
		_ = m.group.Close()
	})
	return nil
}

// owned returns how many partitions have an owner.
func (s *Scene) owned() int { return len(s.zk.Children("/kiel/groups/" + Group + "/owners")) }

func (s *Scene) await(ctx context.Context, ok func() bool) error {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, errors.New("the scene does not come about"))
	defer cancel()
	for ticker := time.NewTicker(tick / 10); !ok(); {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// produce writes to all partitions until ctx ends.
func (s *Scene) produce(ctx context.Context) error {
	producer, err := sarama.NewSyncProducerFromClient(s.client)
	if err != nil {
		return err
	}
	s.running.Go(func() {
		defer func() { _ = producer.Close() }()
		ticker := time.NewTicker(rate)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
			case <-ctx.Done():
				return
			}
			var batch []*sarama.ProducerMessage
			for topic, n := range topics {
				for p := range n {
					batch = append(batch, &sarama.ProducerMessage{Topic: topic, Partition: p, Value: sarama.StringEncoder("order")})
				}
			}
			_ = producer.SendMessages(batch)
		}
	})
	return nil
}

func (s *Scene) servePage(ctx context.Context, opts page.Options) error {
	sources := inspect.Sources{
		Servers: []string{zkAddress}, Session: s.session(s.network.Client("page")), Brokers: s.kafka.ListenAddrs(), Config: kafkaConfig(), Members: true, Local: true,
	}
	opts.Self = s.members["c1"].group
	var err error
	if s.Page, err = page.New(Group, sources, opts); err != nil {
		return err
	}
	s.running.Go(func() { _ = s.Page.Run(ctx) })
	mux := http.NewServeMux()
	mux.Handle("/group/", s.Page)
	base, err := s.serve(mux)
	s.URL = base + "/group/"
	return err
}

// Incident has a member die, a handler hang, and a claim be replaced by a znode of nobody's. It returns when the others have
// taken over.
func (s *Scene) Incident(ctx context.Context) error {
	s.members["c3"].link.BlackHole(zktest.Both) // as a machine that has lost its power
	err := s.await(ctx, func() bool {
		return !slices.Contains(s.zk.Children("/kiel/groups/"+Group+"/members"), "c3") && s.owned() == 16
	})
	if err != nil {
		return err
	}
	producer, err := sarama.NewSyncProducerFromClient(s.client)
	if err != nil {
		return err
	}
	defer func() { _ = producer.Close() }()
	if _, _, err := producer.SendMessage(&sarama.ProducerMessage{Topic: "orders", Partition: 0, Value: sarama.StringEncoder(poison)}); err != nil {
		return err
	}
	const claim = "/kiel/groups/" + Group + "/owners/orders:2"
	if err := s.zk.Delete(claim); err != nil {
		return err
	}
	if err := s.zk.Create(claim, []byte(`{"owner":"c9"}`)); err != nil { // before its member claims it again, mostly
		return fmt.Errorf("in the claim's place: %w", err)
	}
	return nil
}

// Close ends all of it.
func (s *Scene) Close() {
	for _, m := range s.members {
		m.link.Heal()
	}
	for _, end := range slices.Backward(s.ends) {
		end()
	}
	s.serving.Wait()
}
