package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/kielgo/kiel/allocator"
	"github.com/kielgo/kiel/cmd/internal/connect"
	"github.com/kielgo/kiel/consumer"
	"github.com/kielgo/kiel/consumer/inspect"
	"github.com/kielgo/kiel/consumer/page"
	"github.com/kielgo/kiel/internal/eventlog"
	"github.com/kielgo/kiel/internal/pause"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/zktest"
)

const (
	demoTopic      = "orders"
	demoGroup      = "demo"
	demoPartitions = 12
	demoAdded      = 6
	demoRate       = 200 // messages a second
	demoTimeout    = 3 * time.Second
	demoTick       = 500 * time.Millisecond
	demoPatience   = 15 * time.Second        // for a step until everything is owned
	demoWatch      = 1500 * time.Millisecond // how long each step is left to consume
	zkAddress      = "zookeeper:2181"        // on the virtual network
)

// errVerdict ends the demo with exit code 1.
var errVerdict = errors.New("the promise was broken: see the summary")

// scenario is the running demo: the embedded servers, the members, the record.
type scenario struct {
	console
	ui      ui
	log     *slog.Logger
	zk      *zktest.Network
	kafka   *kfake.Cluster
	client  sarama.Client // of the producer and of the operator
	rec     *recorder
	members map[string]*member
	started time.Time
}

// member is one consuming process in miniature: a session, a group, and a link to ZooKeeper of its own.
type member struct {
	link *zktest.Client
	zk   *session.Session
	stop context.CancelFunc
	done chan error
}

// Run plays the scenario.
func (c *demoCmd) Run(rc *runContext) (err error) {
	logger := slog.New(slog.DiscardHandler)
	if c.Verbose {
		logger = newLogger(rc.console, true)
	}
	s := &scenario{console: rc.console, ui: newUI(rc.out), log: logger, rec: newRecorder(), members: map[string]*member{}, started: time.Now()}
	closeServers, err := s.startServers(rc)
	if err != nil {
		return err
	}
	defer closeServers()
	ctx, cancel := context.WithCancel(rc)
	defer cancel()
	defer func() {
		for name := range s.members {
			err = errors.Join(err, s.leave(name))
		}
	}()
	stopProducer, err := s.startProducer(ctx)
	if err != nil {
		return err
	}
	defer stopProducer()
	address, stopPage, err := c.servePage(ctx, s)
	if err != nil {
		return err
	}
	defer stopPage()
	if err := s.play(ctx, address); err != nil {
		return err
	}
	if err := s.summary(ctx, stopProducer); err != nil {
		return err
	}
	if !c.Keep {
		s.ui.say("Look at such a group in your browser: the same again with --keep.")
		return nil
	}
	return s.keep(ctx, address)
}

// servePage serves the group's page, with --keep. It returns its address.
func (c *demoCmd) servePage(ctx context.Context, s *scenario) (address string, stop func(), err error) {
	if !c.Keep {
		return "", func() {}, nil
	}
	mux, serving := http.NewServeMux(), &server{ctx: ctx, logger: s.log}
	sources := inspect.Sources{
		Servers: []string{zkAddress}, Session: session.Options{Timeout: demoTimeout, MinSessionTimeout: demoTimeout, Dial: s.zk.Client("page").Dial, Logger: s.log},
		Brokers: s.kafka.ListenAddrs(), Config: connect.KafkaConfig("kiel-demo"),
	}
	if err := serving.page(mux, "/", demoGroup, sources, page.Options{Refresh: time.Second}); err != nil {
		return "", nil, err
	}
	base, err := serving.serve("--page", c.Page, mux)
	if err != nil {
		return "", nil, err
	}
	return base + "/", serving.stop, nil
}

// keep runs the group again, with nobody recording, until ctx ends.
func (s *scenario) keep(ctx context.Context, address string) (err error) {
	s.rec = nil
	stopProducer, err := s.startProducer(ctx)
	if err != nil {
		return err
	}
	defer stopProducer()
	for _, name := range []string{"alice", "bob", "dave"} {
		if err := s.join(ctx, name); err != nil {
			return err
		}
	}
	s.ui.say("")
	s.ui.say("alice, bob and dave go on. The group as a page: %s", address)
	s.ui.say("Ctrl-C ends it.")
	<-ctx.Done()
	return nil
}

// play is the scenario itself. address is that of the page, if it is served.
func (s *scenario) play(ctx context.Context, address string) error {
	s.ui.say("%d partitions of %q, %d messages a second, session timeout %v.", demoPartitions, demoTopic, demoRate, demoTimeout)
	s.ui.say("ZooKeeper and Kafka are embedded in this process.")
	if address != "" {
		s.ui.say("The group as a page: %s", address)
	}

	all := demoPartitions
	steps := []struct {
		title, why string
		do         func() error
		owners     []string
	}{
		{
			"alice starts, alone", "The group is empty: she takes everything.",
			func() error { return s.join(ctx, "alice") },
			[]string{"alice"},
		},
		{
			"bob and carol join", "Each partition that moves is drained, committed and released before it is claimed again.",
			func() error { return errors.Join(s.join(ctx, "bob"), s.join(ctx, "carol")) },
			[]string{"alice", "bob", "carol"},
		},
		{
			"carol crashes: she falls silent", "Her link swallows everything. She stops by herself once she can't prove her session alive; ZooKeeper frees her partitions when the session expires.",
			func() error { s.members["carol"].link.BlackHole(zktest.Both); return nil },
			[]string{"alice", "bob"},
		},
		{
			"bob leaves in order", "He drains, commits and releases; nothing has to expire.",
			func() error { return s.leave("bob") },
			[]string{"alice"},
		},
		{
			fmt.Sprintf("%d partitions are added", demoAdded), "The operator adds them in Kafka and to the group's set.",
			func() error { all += demoAdded; return s.addPartitions(ctx) },
			[]string{"alice"},
		},
	}
	for i, step := range steps {
		s.ui.step(i+1, step.title, step.why)
		begin := time.Now()
		if err := step.do(); err != nil {
			return fmt.Errorf("%s: %w", step.title, err)
		}
		if err := s.owned(ctx, all, step.owners); err != nil {
			return fmt.Errorf("%s: %w", step.title, err)
		}
		took := time.Since(begin)
		if pause.Sleep(ctx, demoWatch) != nil {
			return context.Cause(ctx)
		}
		s.ui.table(s.rec.state(), step.owners, all, took)
	}
	return nil
}

// owned waits until the given members own all partitions evenly.
func (s *scenario) owned(ctx context.Context, all int, owners []string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, demoPatience, fmt.Errorf("not all partitions were owned within %v", demoPatience))
	defer cancel()
	for {
		st := s.rec.state()
		count := map[string]int{}
		for _, owner := range st.owners {
			count[owner]++
		}
		even := len(st.owners) == all && len(count) == len(owners)
		for _, name := range owners {
			even = even && count[name] >= all/len(owners) && count[name] <= (all+len(owners)-1)/len(owners)
		}
		if even {
			return nil
		}
		select {
		case <-st.changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (s *scenario) startServers(ctx context.Context) (closeAll func(), err error) {
	s.zk = zktest.NewNetwork()
	l, err := s.zk.Listen(zkAddress)
	if err != nil {
		return nil, err
	}
	srv := zktest.NewServer(zktest.Options{TickTime: demoTick})
	var serving sync.WaitGroup
	serving.Go(func() {
		if err := srv.Serve(l); err != nil && !errors.Is(err, net.ErrClosed) {
			s.log.ErrorContext(ctx, "embedded ZooKeeper failed", "error", err)
		}
	})
	closeZK := func() { _ = srv.Close(); serving.Wait() }
	if s.kafka, err = startKafka(ctx, "", demoPartitions, demoTopic); err != nil {
		closeZK()
		return nil, err
	}
	config := connect.KafkaConfig("kiel-demo")
	config.Producer.Return.Successes = true
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Producer.Flush.Frequency = 10 * time.Millisecond
	if s.client, err = sarama.NewClient(s.kafka.ListenAddrs(), config); err != nil {
		s.kafka.Close()
		closeZK()
		return nil, err
	}
	return func() { _ = s.client.Close(); s.kafka.Close(); closeZK() }, nil
}

// startProducer produces steadily until stop is called, which returns when all was acknowledged.
func (s *scenario) startProducer(ctx context.Context) (stop func(), err error) {
	producer, err := sarama.NewAsyncProducerFromClient(s.client)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	var parts sync.WaitGroup
	sent := make(chan int64, 1)
	parts.Go(func() {
		cmd := produceCmd{Topic: []string{demoTopic}, Rate: demoRate}
		sent <- cmd.feedOrders(ctx, producer.Input())
	})
	parts.Go(func() { watchProducer(producer, sent, slog.New(slog.DiscardHandler), demoTopic) })
	return sync.OnceFunc(func() { cancel(); parts.Wait() }), nil
}

func (s *scenario) join(ctx context.Context, name string) error {
	m := &member{link: s.zk.Client(name), done: make(chan error, 1)}
	logger := s.log.With("member", name)
	var err error
	m.zk, err = session.New([]string{zkAddress}, session.Options{
		Timeout: demoTimeout, MinSessionTimeout: demoTimeout, Dial: m.link.Dial, StopTimeout: time.Second, Logger: logger,
	})
	if err != nil {
		return err
	}
	config := connect.KafkaConfig("kiel-demo")
	config.Consumer.Return.Errors = true
	group, err := consumer.New(m.zk, s.kafka.ListenAddrs(), demoGroup, consumer.Options{
		Name: name, Config: config, StartAt: consumer.Earliest, CommitInterval: 200 * time.Millisecond, StopTimeout: 2 * time.Second,
		Observer: s.rec.observer(name), Logger: s.log,
	})
	if err != nil {
		return err
	}
	ctx, m.stop = context.WithCancel(ctx)
	go func() {
		var parts sync.WaitGroup
		parts.Go(func() {
			for err := range group.Errors() {
				logger.WarnContext(ctx, "consumer group error", "error", err)
			}
		})
		var zkErr error
		parts.Go(func() { zkErr = m.zk.Run(ctx) })
		var err error
		for err == nil && ctx.Err() == nil { // a call ends when the member's partitions change
			err = group.Consume(ctx, []string{demoTopic}, &handler{out: &printer{format: "none"}, done: s.rec.done(name)})
		}
		if errors.Is(err, context.Canceled) {
			err = nil // stopped before the call
		}
		err = errors.Join(err, group.Close())
		m.stop()
		parts.Wait()
		m.done <- errors.Join(err, zkErr)
	}()
	s.members[name] = m
	return nil
}

// leave stops a member and waits until it has left. A member that was cut off can't leave in order; that is no fault of the demo.
func (s *scenario) leave(name string) error {
	m := s.members[name]
	delete(s.members, name)
	m.stop()
	err := <-m.done
	if name == "carol" {
		return nil
	}
	return err
}

func (s *scenario) addPartitions(ctx context.Context) error {
	admin, err := sarama.NewClusterAdminFromClient(s.client)
	if err != nil {
		return err
	}
	if err := admin.CreatePartitions(demoTopic, demoPartitions+demoAdded, nil, false); err != nil {
		return err
	}
	if err := s.client.RefreshMetadata(demoTopic); err != nil {
		return err
	}
	operator, err := allocator.New(s.members["alice"].zk, demoGroup, "operator", allocator.Options{Logger: s.log})
	if err != nil {
		return err
	}
	added := make([]int32, demoAdded)
	for i := range added {
		added[i] = demoPartitions + int32(i)
	}
	return operator.AddPartitions(ctx, map[string][]int32{demoTopic: added})
}

// summary stops the producer, lets the rest be read, and gives the verdict.
func (s *scenario) summary(ctx context.Context, stopProducer func()) error {
	stopProducer()
	ends := map[eventlog.Partition]int64{}
	produced := 0
	for _, p := range s.kafka.PartitionInfos(demoTopic) {
		ends[eventlog.Partition{Topic: demoTopic, ID: p.Partition}] = p.HighWatermark
		produced += int(p.HighWatermark)
	}
	drain, cancel := context.WithTimeout(ctx, demoPatience)
	defer cancel()
	for st := s.rec.state(); st.messages < produced && drain.Err() == nil; st = s.rec.state() {
		select {
		case <-st.changed:
		case <-drain.Done():
		}
	}
	var err error
	for name := range s.members {
		err = errors.Join(err, s.leave(name))
	}
	report := s.rec.check(ends)
	s.ui.verdict(report, produced, time.Since(s.started))
	if !report.OK() {
		return errors.Join(errVerdict, err)
	}
	return err
}

// wrap breaks text into indented lines of at most width columns.
func wrap(text string, width int, indent string) string {
	var b strings.Builder
	line := 0
	for i, word := range strings.Fields(text) {
		switch {
		case i == 0:
			b.WriteString(indent)
			line = len(indent)
		case line+1+len(word) > width:
			b.WriteString("\n" + indent)
			line = len(indent)
		default:
			b.WriteByte(' ')
			line++
		}
		b.WriteString(word)
		line += len(word)
	}
	return b.String()
}
