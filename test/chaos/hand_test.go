package chaos_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel/consumer"
	"github.com/kielgo/kiel/internal/clocks"
	"github.com/kielgo/kiel/internal/eventlog"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/test/members"
)

// hand is a member that lives in this process: the same consumer as in others, with a log of events like theirs. It is for what
// nobody can do to a process from outside.
type hand struct {
	ses   *session.Session
	leave context.CancelFunc // asks it to
	done  chan struct{}      // closed when it has left
	err   error              // to be read after done

	mu  sync.Mutex
	log bytes.Buffer
}

// inside is what only a [hand] can be given.
type inside struct {
	clock   clocks.Clock  // nil is the machine's
	refresh time.Duration // how often it looks whether its topic has got partitions; 0 is the default
}

// clocked gives a member in this process another clock.
func clocked(c clocks.Clock) how { return func(s *start) { s.inside.clock = c } }

// refreshing has a member in this process look for new partitions every now and then.
func refreshing(every time.Duration) how { return func(s *start) { s.inside.refresh = every } }

// Write takes in what it logs.
func (h *hand) Write(b []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.log.Write(b)
}

// hire starts a member in this process.
func (f *fleet) hire(name string, hows ...how) *member {
	f.t.Helper()
	s, path := f.how(hows), f.log(name)
	file, err := os.Create(path)
	if err != nil {
		f.t.Fatal(err)
	}
	ctx, leave := context.WithCancel(context.Background())
	h := &hand{leave: leave, done: make(chan struct{})}
	logger := slog.New(slog.NewTextHandler(h, nil))
	servers := strings.Split(s.zookeeper, ",")
	if h.ses, err = session.New(servers, session.Options{Timeout: f.opts.timeout, Logger: logger}); err != nil {
		f.t.Fatal(err)
	}
	config := sarama.NewConfig()
	config.Version = sarama.V3_6_0_0
	config.Metadata.AllowAutoTopicCreation = false
	if s.inside.refresh != 0 {
		config.Metadata.RefreshFrequency = s.inside.refresh
	}
	events := eventlog.NewWriter(file)
	write := func(e eventlog.Event) {
		if err := events.Write(e, members.Monotonic); err != nil {
			f.t.Error(err)
		}
	}
	done := func(m *sarama.ConsumerMessage) {
		write(eventlog.Event{Member: name, Event: eventlog.Done, Topic: m.Topic, Partition: &m.Partition, Offset: &m.Offset})
	}
	group, err := consumer.New(h.ses, f.kafka.Brokers(), f.topic, consumer.Options{
		Name: name, Config: config, StartAt: consumer.Earliest, Logger: logger,
		Observer: func(e consumer.Event) { write(line(name, e, s.inside.clock == nil)) },
	})
	if err != nil {
		f.t.Fatal(err)
	}
	go func() {
		defer close(h.done)
		defer leave()
		connected, disconnect := context.WithCancel(context.Background())
		var running sync.WaitGroup
		var lost error
		running.Go(func() {
			lost = h.ses.Run(clocks.With(connected, s.inside.clock))
			leave()
		})
		err := errors.Join(consumeUntil(ctx, group, f.topic, marker{done}), group.Close())
		disconnect()
		running.Wait()
		h.err = errors.Join(err, lost, file.Close())
	}()
	f.t.Cleanup(func() { leave(); <-h.done })
	return f.enlist(&members.Process{Name: name, Events: path}, h)
}

// marker is a handler that is done with a message as soon as it has it. That is in the log of events before the mark.
type marker struct {
	done func(*sarama.ConsumerMessage)
}

func (marker) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (marker) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (h marker) ConsumeClaim(s sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for m := range claim.Messages() {
		h.done(m)
		s.MarkMessage(m, "")
	}
	return nil
}

// line turns what a consumer observed into a line of the log of events, as demo-consumer does. When trust ended by a clock that
// is wrong is nothing to go by: what counts then is when it was said, by a clock that is right.
func line(member string, e consumer.Event, right bool) eventlog.Event {
	l := eventlog.Event{Member: member, Event: string(e.Kind), Version: e.Version, Token: e.Token}
	if e.Session != 0 {
		l.Session = fmt.Sprintf("0x%x", uint64(e.Session))
	}
	if e.Partition >= 0 && e.Topic != "" {
		l.Topic, l.Partition = e.Topic, &e.Partition
	}
	if e.Offset >= 0 {
		l.Offset = &e.Offset
	}
	if !e.Since.IsZero() && (right || e.Kind == consumer.Committed) {
		l.Since = members.MonotonicOf(e.Since)
	}
	return l
}

// Done is closed when a member has gone.
func (m *member) Done() <-chan struct{} {
	if m.hand != nil {
		return m.hand.done
	}
	return m.Process.Done()
}

// Wait waits until a member has gone and returns how it ended.
func (m *member) Wait() error {
	if m.hand != nil {
		<-m.hand.done
		return m.hand.err
	}
	return m.Process.Wait()
}

// Log returns what a member has logged, apart from events.
func (m *member) Log() string {
	if m.hand != nil {
		m.hand.mu.Lock()
		defer m.hand.mu.Unlock()
		return m.hand.log.String()
	}
	return m.Process.Log()
}

// WaitLeft waits until a member that was asked to leave has left.
func (m *member) WaitLeft(t *testing.T) {
	t.Helper()
	if m.hand == nil {
		m.Process.WaitLeft(t)
		return
	}
	select {
	case <-m.hand.done:
		if m.hand.err != nil {
			t.Errorf("%s left with %v", m.Name, m.hand.err)
		}
	case <-time.After(settleLimit):
		t.Errorf("%s does not leave:\n%s", m.Name, m.Log())
	}
}

// consumeUntil calls Consume again and again, as programs do, until ctx ends or a call fails.
func consumeUntil(ctx context.Context, group *consumer.Group, topic string, h sarama.ConsumerGroupHandler) (err error) {
	for err == nil && ctx.Err() == nil {
		err = group.Consume(ctx, []string{topic}, h)
	}
	if errors.Is(err, context.Canceled) {
		return nil // it had ended before the call
	}
	return err
}
