package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/IBM/sarama"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/kielgo/kiel/allocfn"
	"github.com/kielgo/kiel/consumer"
	"github.com/kielgo/kiel/health"
	"github.com/kielgo/kiel/internal/eventlog"
	"github.com/kielgo/kiel/internal/pause"
	"github.com/kielgo/kiel/session"
)

// topicWait is how long consume waits before it asks again for a topic.
const topicWait = time.Second

// Run consumes until it is told to stop or something fatal happens.
func (c *consumeCmd) Run(rc *runContext) error {
	servers, root, err := splitZooKeeper(c.ZooKeeper)
	if err := errors.Join(err, checkTopics(c.Topic)); err != nil {
		return err
	}
	logger := newLogger(rc.console, c.Verbose)
	registry := prometheus.NewRegistry()
	observe, done, closeEvents, err := c.openEvents(logger)
	if err != nil {
		return err
	}
	defer closeEvents()
	opts := session.Options{Timeout: c.SessionTimeout, MaxSessionTimeout: c.MaxTimeout, Chroot: root, Logger: logger}
	config := kafkaConfig()
	if err := errors.Join(c.zooKeeperFlags.secure(&opts), c.kafkaFlags.secure(config, rc.console)); err != nil {
		return err
	}
	zk, err := session.New(servers, opts)
	if err != nil {
		return &usageError{err}
	}
	config.Consumer.Return.Errors = true
	config.RackID = c.Zone
	functions := functionsNamed(c.Function)
	if len(functions) == 0 {
		return &usageError{errors.New("--function: at least one is needed")}
	}
	if c.Metrics != "" {
		if err := checkAddress("metrics", c.Metrics); err != nil {
			return err
		}
	}
	group, err := consumer.New(zk, c.Kafka, c.Group, consumer.Options{
		Name:       c.memberName(),
		Config:     config,
		From:       startOf(c.From),
		Func:       functions[0],
		AlsoFuncs:  functions[1:],
		Weight:     c.Weight,
		Observer:   observe,
		Logger:     logger,
		Registerer: registry,
	})
	if err != nil {
		return &usageError{err}
	}

	stopServing, err := c.serveHTTP(rc, registry, group, logger)
	if err != nil {
		return err
	}
	defer stopServing()

	ctx, cancel := context.WithCancelCause(rc)
	defer cancel(nil)
	var parts sync.WaitGroup
	parts.Go(func() {
		if err := zk.Run(ctx); err != nil {
			cancel(fmt.Errorf("ZooKeeper: %w", err))
		}
	})
	parts.Go(func() {
		for err := range group.Errors() {
			logger.Debug("error of the group", "error", err) // the group logs them itself: each kind at once, then with a count
		}
	})
	reading, unread := context.WithCancel(ctx)
	defer unread()
	out := &printer{format: c.Print, w: bufio.NewWriter(rc.out), unread: unread}
	err = c.consume(reading, rc, group, &handler{work: c.Work, failOn: []byte(c.FailOn), hangOn: []byte(c.HangOn), out: out, done: done})
	err = errors.Join(err, group.Close())
	if reading.Err() != nil && ctx.Err() == nil {
		fmt.Fprintln(rc.err, "nobody reads the output any more: left the group")
	}
	fatal := context.Cause(ctx)
	cancel(nil)
	parts.Wait()
	if rc.Err() == nil && ctx.Err() != nil && err == nil {
		err = fatal
	}
	return errors.Join(err, out.flush())
}

// consume consumes until ctx ends, again after a handler has failed. Topics that do not exist yet are waited for.
func (c *consumeCmd) consume(ctx context.Context, rc *runContext, group *consumer.Group, h sarama.ConsumerGroupHandler) error {
	for said := false; ; {
		err := group.Consume(ctx, c.Topic, h)
		if err == nil && ctx.Err() == nil {
			continue
		}
		if !errors.Is(err, sarama.ErrUnknownTopicOrPartition) {
			return err
		}
		if !said {
			fmt.Fprintf(rc.err, "waiting for topics that Kafka does not know: %v\n", err)
			said = true
		}
		if _ = pause.Sleep(ctx, topicWait); ctx.Err() != nil {
			return nil //nolint:nilerr // told to stop
		}
	}
}

func (c *consumeCmd) memberName() string {
	if c.Name != "" {
		return c.Name
	}
	host, err := os.Hostname()
	if err != nil {
		host = "localhost"
	}
	return fmt.Sprintf("%s:%d", host, os.Getpid())
}

// openEvents opens the event log, to which observe writes what a consumer tells, and
// done what a handler has done; they flush nothing, as every line is one write.
func (c *consumeCmd) openEvents(
	logger *slog.Logger,
) (observe func(consumer.Event), done func(*sarama.ConsumerMessage), closeFile func(), err error) {
	if c.Events == "" {
		return nil, func(*sarama.ConsumerMessage) {}, func() {}, nil
	}
	f, err := os.OpenFile(c.Events, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, nil, nil, &usageError{fmt.Errorf("--events: %w", err)}
	}
	if info, err := f.Stat(); err == nil && info.Mode().IsRegular() && info.Size() > 0 {
		return nil, nil, nil, errors.Join(&usageError{fmt.Errorf("--events %s has the log of another process; give each process a file of its own", c.Events)}, f.Close())
	}
	w, member := eventlog.NewWriter(f), c.memberName()
	write := func(e eventlog.Event) {
		if err := w.Write(e, monotonic); err != nil {
			logger.Error("event log", "err", err)
		}
	}
	observe = func(e consumer.Event) { write(logEvent(member, e)) }
	done = func(m *sarama.ConsumerMessage) { write(logDone(member, m)) }
	return observe, done, func() {
		if err := f.Close(); err != nil {
			logger.Error("event log", "err", err)
		}
	}, nil
}

// serveHTTP serves metrics, health and status, until stop is called.
func (c *consumeCmd) serveHTTP(rc *runContext, reg *prometheus.Registry, group health.Source, logger *slog.Logger) (stop func(), err error) {
	if c.Metrics == "" {
		return func() {}, nil
	}
	l, err := (&net.ListenConfig{}).Listen(rc, "tcp", c.Metrics)
	if err != nil {
		return nil, &usageError{fmt.Errorf("--metrics: %w", err)}
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(reg, promhttp.HandlerOpts{}))
	mux.Handle("/", health.Handler(group))
	srv := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: 30 * time.Second}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			logger.Error("http server", "err", err)
		}
	}()
	fmt.Fprintf(rc.err, "metrics at http://%s/metrics; also /healthz, /readyz, and /status?pretty for the group\n", l.Addr())
	return func() {
		if err := srv.Close(); err != nil {
			logger.Error("http server", "err", err)
		}
		<-done
	}, nil
}

func startOf(from string) consumer.From {
	if from == "latest" {
		return consumer.Latest
	}
	return consumer.Earliest
}

// functionsNamed returns the functions of these names, which the flag's enum
// has checked.
func functionsNamed(names []string) []allocfn.Func {
	var named []allocfn.Func
	for _, name := range names {
		for _, f := range []allocfn.Func{
			allocfn.Balanced(), allocfn.TopicBalanced(), allocfn.CoPartitioned(), allocfn.Ordinal(),
			allocfn.Rendezvous(), allocfn.Range(), allocfn.RoundRobin(),
		} {
			if f.Name == name {
				named = append(named, f)
			}
		}
	}
	return named
}

func newLogger(c console, verbose bool) *slog.Logger {
	level := slog.LevelInfo
	if verbose {
		level = slog.LevelDebug
	}
	return slog.New(slog.NewTextHandler(c.err, &slog.HandlerOptions{Level: level}))
}

// handler is an ordinary sarama handler: it knows nothing of kiel.
type handler struct {
	work           time.Duration
	failOn, hangOn []byte // what messages contain at which it fails, or hangs; empty for never
	out            *printer
	done           func(*sarama.ConsumerMessage) // for the event log; called before the mark
}

func (h *handler) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (h *handler) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (h *handler) ConsumeClaim(s sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for m := range claim.Messages() {
		if h.work > 0 {
			time.Sleep(h.work)
		}
		if len(h.hangOn) > 0 && bytes.Contains(m.Value, h.hangOn) {
			select {}
		}
		if len(h.failOn) > 0 && bytes.Contains(m.Value, h.failOn) {
			return fmt.Errorf("handle %s:%d offset %d: it contains %q (--fail-on)", m.Topic, m.Partition, m.Offset, h.failOn)
		}
		switch err := h.out.print(m); {
		case errors.Is(err, errUnread):
			return nil // the process is about to leave
		case err != nil:
			return fmt.Errorf("print %s:%d offset %d: %w", m.Topic, m.Partition, m.Offset, err)
		}
		h.done(m)
		s.MarkMessage(m, "")
	}
	return h.out.flush()
}

// printer prints messages; several partitions share it.
type printer struct {
	format string
	unread context.CancelFunc // called when the reader of our output has gone
	mu     sync.Mutex
	w      *bufio.Writer
	closed bool // nobody reads what w gets
}

// printed is a message as --print json shows it.
type printed struct {
	Topic     string    `json:"topic"`
	Partition int32     `json:"partition"`
	Offset    int64     `json:"offset"`
	Timestamp time.Time `json:"timestamp"`
	Key       *string   `json:"key"`
	Value     *string   `json:"value"`
}

func (p *printer) print(m *sarama.ConsumerMessage) error {
	if p.format == "none" {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return errUnread
	}
	line := m.Value
	if p.format == "json" {
		var err error
		line, err = json.Marshal(printed{m.Topic, m.Partition, m.Offset, m.Timestamp, textOf(m.Key), textOf(m.Value)})
		if err != nil {
			return err
		}
	}
	if _, err := p.w.Write(append(line, '\n')); err != nil {
		return p.failed(err)
	}
	return p.failed(p.w.Flush())
}

// errUnread ends a handler without marking the message that nobody has read.
var errUnread = errors.New("nobody reads the output any more")

// failed has the process leave the group when its reader has gone, as in a pipe to head.
func (p *printer) failed(err error) error {
	if !errors.Is(err, syscall.EPIPE) {
		return err
	}
	p.closed = true
	p.unread()
	return errUnread
}

func (p *printer) flush() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil
	}
	return p.failed(p.w.Flush())
}

func textOf(b []byte) *string {
	if b == nil {
		return nil
	}
	return new(string(b))
}
