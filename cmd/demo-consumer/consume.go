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
	"net/http/pprof"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/IBM/sarama"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/kielgo/kiel/allocfn"
	"github.com/kielgo/kiel/cmd/internal/connect"
	"github.com/kielgo/kiel/consumer"
	"github.com/kielgo/kiel/consumer/inspect"
	"github.com/kielgo/kiel/consumer/page"
	"github.com/kielgo/kiel/health"
	"github.com/kielgo/kiel/internal/eventlog"
	"github.com/kielgo/kiel/internal/pause"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/status"
)

// topicWait is how long consume waits before it asks again for a topic.
const topicWait = time.Second

// Run consumes until it is told to stop or a fatal error occurs.
func (c *consumeCmd) Run(rc *runContext) error {
	servers, root, err := connect.SplitZooKeeper(c.ZooKeeper)
	if err := errors.Join(err, checkTopics(c.Topic)); err != nil {
		return err
	}
	logger := newLogger(rc.console, c.Verbose)
	observe, done, closeEvents, err := c.openEvents(logger)
	if err != nil {
		return err
	}
	defer closeEvents()
	opts := session.Options{Timeout: c.SessionTimeout, MaxSessionTimeout: c.MaxTimeout, Chroot: root, Logger: logger}
	config := connect.KafkaConfig("kiel-demo")
	if err := errors.Join(c.ZooKeeperFlags.Secure(&opts), c.KafkaFlags.Secure(config, warning(logger))); err != nil {
		return err
	}
	registry := prometheus.NewRegistry()
	group, zk, err := c.newGroup(servers, config, consumer.Options{Session: opts, Observer: observe, Logger: logger, Registerer: registry})
	if err != nil {
		return err
	}
	sources := inspect.Sources{
		Servers: servers, Session: opts, Brokers: c.Kafka, Config: config, Members: c.AskMembers != "none", Local: c.AskMembers == "local",
	}
	stopServing, err := c.serveHTTP(rc, registry, group, sources, logger)
	if err != nil {
		return err
	}
	defer stopServing()
	if err = c.runGroup(rc, zk, group, done, logger); errors.Is(err, sarama.ErrOutOfBrokers) {
		err = kafkaError(c.Kafka, err)
	}
	return err
}

// newGroup makes the group, and its session; for a static member that is nil, since its group runs it. The flags set the options
// that opts does not have.
func (c *consumeCmd) newGroup(servers []string, config *sarama.Config, opts consumer.Options) (*consumer.Group, *session.Session, error) {
	config.Consumer.Return.Errors = true
	config.RackID = c.Zone
	functions := functionsNamed(c.Function)
	if len(functions) == 0 {
		return nil, nil, connect.Usage(errors.New("--function: at least one is needed"))
	}
	if c.Metrics != "" {
		if err := checkAddress("metrics", c.Metrics); err != nil {
			return nil, nil, err
		}
	}
	opts.StatusAddr = statusAddr(c.Metrics)
	opts.Name, opts.Config, opts.StartAt, opts.Weight = c.memberName(), config, startOf(c.From), c.Weight
	opts.Func, opts.AlsoFuncs = functions[0], functions[1:]
	if opts.Static = c.Static; opts.Static {
		if c.Name == "" {
			return nil, nil, connect.Usage(errors.New("--static: give a --name that stays the same"))
		}
		group, err := consumer.NewGroup(servers, c.Kafka, c.Group, opts)
		return group, nil, err
	}
	zk, err := session.New(servers, opts.Session)
	if err != nil {
		return nil, nil, connect.Usage(err)
	}
	group, err := consumer.New(zk, c.Kafka, c.Group, opts)
	if err != nil {
		return nil, nil, connect.Usage(err)
	}
	return group, zk, nil
}

// statusAddr returns where others reach the address that serves metrics and the status; "" if that can't be said in short.
func statusAddr(metrics string) string {
	host, port, err := net.SplitHostPort(metrics)
	if err != nil {
		return ""
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		if host, err = os.Hostname(); err != nil {
			return ""
		}
	}
	addr := "http://" + net.JoinHostPort(host, port)
	if status.CheckAddr(addr) != nil {
		return ""
	}
	return addr
}

// runGroup runs the session, unless it is nil, and consumes until rc ends, the session fails for good, or nobody reads the output
// any more.
func (c *consumeCmd) runGroup(
	rc *runContext, zk *session.Session, group *consumer.Group, done func(*sarama.ConsumerMessage), logger *slog.Logger,
) error {
	ctx, cancel := context.WithCancelCause(rc)
	defer cancel(nil)
	var parts sync.WaitGroup
	if zk != nil {
		parts.Go(func() {
			if err := zk.Run(ctx); err != nil {
				cancel(fmt.Errorf("ZooKeeper: %w", err))
			}
		})
	}
	parts.Go(func() {
		for err := range group.Errors() {
			logger.Debug("error of the group", "error", err) // the group logs its errors itself: each kind at once, then with a count
		}
	})
	reading, unread := context.WithCancel(ctx)
	defer unread()
	out := &printer{format: c.Print, w: bufio.NewWriter(rc.out), unread: unread}
	err := c.consume(reading, group, logger, &handler{work: c.Work, failOn: []byte(c.FailOn), hangOn: []byte(c.HangOn), out: out, done: done})
	err = errors.Join(err, group.Close())
	if reading.Err() != nil && ctx.Err() == nil {
		logger.WarnContext(ctx, "nobody reads the output any more: left the group")
	}
	fatal := context.Cause(ctx)
	cancel(nil)
	parts.Wait()
	if rc.Err() == nil && ctx.Err() != nil && err == nil {
		err = fatal
	}
	return errors.Join(err, out.flush())
}

// consume calls Consume until ctx ends or a call fails. It waits for topics that do not exist yet.
func (c *consumeCmd) consume(ctx context.Context, group *consumer.Group, logger *slog.Logger, h sarama.ConsumerGroupHandler) error {
	for logged := false; ; {
		err := group.Consume(ctx, c.Topic, h)
		if ctx.Err() == nil && err == nil {
			continue
		}
		if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
			return nil // told to stop before the call
		}
		if !errors.Is(err, sarama.ErrUnknownTopicOrPartition) {
			return err
		}
		if !logged {
			logger.WarnContext(ctx, "waiting for topics that Kafka does not know", "error", err)
			logged = true
		}
		if _ = pause.Sleep(ctx, topicWait); ctx.Err() != nil {
			return nil //nolint:nilerr // told to stop
		}
	}
}

// memberName returns the name of the flag, or host and process id.
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

// openEvents opens the event log. observe writes the consumer's events to it, and done the messages that a handler has processed.
// Each line is one write, so closeFile flushes nothing.
func (c *consumeCmd) openEvents(
	logger *slog.Logger,
) (observe func(consumer.Event), done func(*sarama.ConsumerMessage), closeFile func(), err error) {
	if c.Events == "" {
		return nil, func(*sarama.ConsumerMessage) {}, func() {}, nil
	}
	f, err := os.OpenFile(c.Events, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644) //nolint:gosec // others may read it: it has no secrets
	if err != nil {
		return nil, nil, nil, connect.Usage(fmt.Errorf("--events: %w", err))
	}
	if info, err := f.Stat(); err == nil && info.Mode().IsRegular() && info.Size() > 0 {
		return nil, nil, nil, errors.Join(connect.Usage(fmt.Errorf("--events %s has the log of another process; give each process a file of its own", c.Events)), f.Close())
	}
	w, member := eventlog.NewWriter(f), c.memberName()
	write := func(e eventlog.Event) {
		if err := w.Write(e, monotonic); err != nil {
			logger.Error("event log not written", "error", err)
		}
	}
	observe = func(e consumer.Event) { write(logEvent(member, e)) }
	done = func(m *sarama.ConsumerMessage) { write(logDone(member, m)) }
	return observe, done, func() {
		if err := f.Close(); err != nil {
			logger.Error("event log not closed", "error", err)
		}
	}, nil
}

// serveHTTP serves the page, metrics, health and status, until stop is called.
func (c *consumeCmd) serveHTTP(rc *runContext, reg *prometheus.Registry, group *consumer.Group, sources inspect.Sources, logger *slog.Logger) (stop func(), err error) {
	if c.Metrics == "" {
		return func() {}, nil
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(reg, promhttp.HandlerOpts{}))
	mux.Handle("/", health.Handler(group))
	if c.HangOn != "" { // the runbook of a handler that hangs begins with a dump
		mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	}
	s := &server{ctx: rc, logger: logger}
	if err := s.page(mux, "/page/", c.Group, sources, page.Options{Self: group}); err != nil {
		return nil, connect.Usage(err)
	}
	base, err := s.serve("--metrics", c.Metrics, mux)
	if err != nil {
		return nil, err
	}
	logger.InfoContext(rc, "serving", "page", base+"/page/", "metrics", base+"/metrics", "status", base+"/status?pretty", "probes", "/healthz, /readyz")
	return s.stop, nil
}

func startOf(from string) consumer.StartAt {
	if from == "latest" {
		return consumer.Latest
	}
	return consumer.Earliest
}

func everyFunction(allocfn.Builtin) bool { return true }

func weighted(f allocfn.Builtin) bool { return f.Weights }

// names returns the names of the allocation functions that has is true of, for the help.
func names(has func(allocfn.Builtin) bool) string {
	var all []string
	for _, f := range allocfn.All() {
		if has(f) {
			all = append(all, f.Name)
		}
	}
	return strings.Join(all, ", ")
}

// functionsNamed returns the functions of these names, which the flag's enum has checked.
func functionsNamed(names []string) []allocfn.Func {
	var named []allocfn.Func
	for _, name := range names {
		for _, f := range allocfn.All() {
			if f.Name == name {
				named = append(named, f.Func)
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

// handler is an ordinary sarama handler, which uses no API of kiel.
type handler struct {
	work           time.Duration // how long it works on each message
	failOn, hangOn []byte        // it fails, or hangs, at a message that contains this; empty is never
	out            *printer
	done           func(*sarama.ConsumerMessage) // writes to the event log; called before the mark
}

func (h *handler) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (h *handler) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (h *handler) ConsumeClaim(s sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for m := range claim.Messages() {
		if s.Context().Err() != nil { // what is left in the channel is the next owner's
			break
		}
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
	format string             // none, value or json
	unread context.CancelFunc // called when nobody reads the output any more
	mu     sync.Mutex
	w      *bufio.Writer
	closed bool // whether unread was called
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

// failed returns err. If err says that nobody reads the output any more, as with a pipe to head, it makes the process leave.
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
