package differential_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel/consumer"
	"github.com/kielgo/kiel/session"
)

// partition is one of a topic.
type partition struct {
	topic string
	id    int32
}

// reading says what is read: by which configuration, and from which offsets; oldest is the first one that there is.
type reading struct {
	config *sarama.Config
	starts map[partition]int64
}

const oldest = sarama.OffsetOldest

// topics returns the topics, sorted.
func (r reading) topics() []string {
	var topics []string
	for p := range r.starts {
		topics = append(topics, p.topic)
	}
	slices.Sort(topics)
	return slices.Compact(topics)
}

// reader reads until ctx ends and hands each message to c; the order within a partition is that of its calls. It returns what
// went wrong.
type reader struct {
	name string
	read func(ctx context.Context, r *rig, what reading, c *collector) error
}

var (
	// reference is what the others are compared with.
	reference = reader{"PartitionConsumer", readPartitions}
	// readers are ours.
	readers = []reader{
		{"Consume", readConsume},
		{"Run", readRun},
	}
)

// collector gathers what a reader reads.
type collector struct {
	done chan struct{} // closed when the ends of all partitions have come

	mu       sync.Mutex
	messages map[partition][]*sarama.ConsumerMessage
	open     map[partition]bool // whose end has not come
	errs     []error
	gate     func(*sarama.ConsumerMessage) // when not nil, called before a message is taken; it may block
}

func newCollector(what reading) *collector {
	c := &collector{done: make(chan struct{}), messages: map[partition][]*sarama.ConsumerMessage{}, open: map[partition]bool{}}
	for p := range what.starts {
		c.open[p] = true
	}
	return c
}

// take adds a message.
func (c *collector) take(m *sarama.ConsumerMessage) {
	if c.gate != nil {
		c.gate(m)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	p := partition{m.Topic, m.Partition}
	c.messages[p] = append(c.messages[p], m)
	if c.open[p] && bytes.Equal(m.Key, endKey) {
		if delete(c.open, p); len(c.open) == 0 {
			close(c.done)
		}
	}
}

// report adds an error that did not end the reading.
func (c *collector) report(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.errs = append(c.errs, err)
}

// errors returns what was reported.
func (c *collector) errors() []error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.errs)
}

// count returns how many messages of p came.
func (c *collector) count(p partition) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.messages[p])
}

// total returns how many messages came.
func (c *collector) total() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := 0
	for _, ms := range c.messages {
		n += len(ms)
	}
	return n
}

// missing says which ends have not come.
func (c *collector) missing() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var lines []string
	for p := range c.open {
		last := int64(-1)
		if ms := c.messages[p]; len(ms) > 0 {
			last = ms[len(ms)-1].Offset
		}
		lines = append(lines, fmt.Sprintf("%s:%d stands after offset %d", p.topic, p.id, last))
	}
	slices.Sort(lines)
	return fmt.Sprintf("%q, errors %v", lines, c.errs)
}

// background is a reader at work.
type background struct {
	*collector
	t    *testing.T
	name string
	stop context.CancelFunc
	end  chan error
}

// start lets a reader read. The caller calls wait.
func (r *rig) start(t *testing.T, by reader, what reading, gate func(*sarama.ConsumerMessage)) *background {
	t.Helper()
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	b := &background{collector: newCollector(what), t: t, name: by.name, stop: stop, end: make(chan error, 1)}
	b.gate = gate
	go func() { b.end <- by.read(ctx, r, what, b.collector) }()
	t.Cleanup(stop)
	return b
}

// readLimit is how long a reading may take.
const readLimit = time.Minute

// wait returns what was read up to the ends.
func (b *background) wait() map[partition][]*sarama.ConsumerMessage {
	b.t.Helper()
	limit := time.NewTimer(readLimit)
	defer limit.Stop()
	select {
	case <-b.done:
	case <-limit.C:
		b.t.Errorf("%s did not reach the end within %v: %s", b.name, readLimit, b.missing())
	case err := <-b.end:
		b.t.Fatalf("%s ended: %v", b.name, err)
	}
	b.stop()
	if err := <-b.end; err != nil {
		b.t.Errorf("%s: %v", b.name, err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return maps.Clone(b.messages)
}

// readPartitions reads with sarama's PartitionConsumers.
func readPartitions(ctx context.Context, r *rig, what reading, c *collector) error {
	from, err := sarama.NewConsumer(r.brokers, what.config)
	if err != nil {
		return err
	}
	var pcs []sarama.PartitionConsumer
	var wg sync.WaitGroup
	for p, start := range what.starts {
		var pc sarama.PartitionConsumer
		for {
			pc, err = from.ConsumePartition(p.topic, p.id, start)
			if !errors.Is(err, sarama.ErrNotLeaderForPartition) || ctx.Err() != nil {
				break
			}
			time.Sleep(100 * time.Millisecond) // a leader moves
		}
		if err != nil {
			err = fmt.Errorf("%s:%d from %d: %w", p.topic, p.id, start, err)
			break
		}
		pcs = append(pcs, pc)
		wg.Go(func() {
			for m := range pc.Messages() {
				if ctx.Err() == nil {
					c.take(m)
				}
			}
		})
		wg.Go(func() {
			for err := range pc.Errors() {
				c.report(err)
			}
		})
	}
	if err == nil {
		<-ctx.Done()
	}
	for _, pc := range pcs {
		pc.AsyncClose()
	}
	wg.Wait()
	return errors.Join(err, from.Close())
}

// readConsume reads with a group of one member, by sarama's interface.
func readConsume(ctx context.Context, r *rig, what reading, c *collector) error {
	return r.inGroup(what, c, func(group *consumer.Group) (err error) {
		for err == nil && ctx.Err() == nil { // a call ends when reading of a partition has ended
			err = group.Consume(ctx, what.topics(), handler{c})
		}
		if errors.Is(err, context.Canceled) {
			err = nil // stopped before the call
		}
		return err
	})
}

// readRun reads with a group of one member, by the plain interface.
func readRun(ctx context.Context, r *rig, what reading, c *collector) error {
	return r.inGroup(what, c, func(group *consumer.Group) error {
		return group.Run(ctx, what.topics(), func(_ context.Context, p *consumer.Partition) error {
			for m := range p.Messages() {
				c.take(m)
				p.Mark(m)
			}
			return nil
		})
	})
}

// handler takes and marks every message.
type handler struct{ c *collector }

func (handler) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (handler) Cleanup(sarama.ConsumerGroupSession) error { return nil }
func (h handler) ConsumeClaim(s sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for m := range claim.Messages() {
		h.c.take(m)
		s.MarkMessage(m, "")
	}
	return nil
}

// inGroup calls consume with the only member of a new group, whose offsets are the starts. After it, the group's offsets must be
// behind the ends.
func (r *rig) inGroup(what reading, c *collector, consume func(*consumer.Group) error) error {
	name := fmt.Sprintf("g%d", r.groups.Add(1))
	if err := r.commitStarts(name, what); err != nil {
		return err
	}
	zk, err := session.New([]string{r.zk}, session.Options{Timeout: 3 * time.Second, MinSessionTimeout: 2 * time.Second})
	if err != nil {
		return err
	}
	group, err := consumer.New(zk, r.brokers, name, consumer.Options{Config: what.config, Name: "only"})
	if err != nil {
		return err
	}
	life, end := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	var ran error
	wg.Go(func() { ran = zk.Run(life) })
	wg.Go(func() {
		for err := range group.Errors() {
			c.report(err)
		}
	})
	consumed := consume(group)
	closed := group.Close()
	end()
	wg.Wait()
	if err := errors.Join(consumed, closed, ran); err != nil {
		return err
	}
	return r.checkCommitted(name, what, c)
}

// commitStarts stores the starts as the offsets of a group, but those that are oldest.
func (r *rig) commitStarts(group string, what reading) error {
	offsets := map[string]map[int32]sarama.OffsetAndMetadata{}
	for p, start := range what.starts {
		if start == oldest {
			continue
		}
		if offsets[p.topic] == nil {
			offsets[p.topic] = map[int32]sarama.OffsetAndMetadata{}
		}
		offsets[p.topic][p.id] = sarama.OffsetAndMetadata{Offset: start, LeaderEpoch: -1}
	}
	if len(offsets) == 0 {
		return nil
	}
	answer, err := r.admin.AlterConsumerGroupOffsets(group, offsets, nil)
	if err != nil {
		return fmt.Errorf("commit the starts: %w", err)
	}
	for topic, errs := range answer.Errors {
		for id, kerr := range errs {
			if kerr != sarama.ErrNoError {
				return fmt.Errorf("commit the start of %s:%d: %w", topic, id, kerr)
			}
		}
	}
	return nil
}

// checkCommitted returns an error unless the position behind the last message of each partition is stored: the offset after it,
// or one behind the control records that follow it.
func (r *rig) checkCommitted(group string, what reading, c *collector) error {
	ids := map[string][]int32{}
	newest := map[string]map[int32]int64{}
	for p := range what.starts {
		ids[p.topic] = append(ids[p.topic], p.id)
		if newest[p.topic] == nil {
			newest[p.topic] = map[int32]int64{}
		}
		newest[p.topic][p.id] = sarama.OffsetNewest
	}
	answer, err := r.admin.ListConsumerGroupOffsets(group, ids)
	if err != nil {
		return fmt.Errorf("read the group's offsets: %w", err)
	}
	ends, err := r.admin.ListOffsets(newest, nil)
	if err != nil {
		return fmt.Errorf("read the ends of the logs: %w", err)
	}
	var errs []error
	c.mu.Lock()
	defer c.mu.Unlock()
	for p := range what.starts {
		ms := c.messages[p]
		block, end := answer.GetBlock(p.topic, p.id), ends[p.topic][p.id]
		if len(ms) == 0 || block == nil || end == nil {
			continue // reported as missing, or as another error
		}
		if last := ms[len(ms)-1].Offset; block.Offset <= last || block.Offset > end.Offset {
			errs = append(errs, fmt.Errorf("%s:%d: committed %d after message %d, the log ends at %d", p.topic, p.id, block.Offset, last, end.Offset))
		}
	}
	return errors.Join(errs...)
}
