package chaos_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/kielgo/kiel/allocator"
	"github.com/kielgo/kiel/internal/clocks"
	"github.com/kielgo/kiel/internal/eventlog"
	"github.com/kielgo/kiel/ownership"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/test/members"
	"github.com/kielgo/kiel/test/proxy"
	"github.com/kielgo/kiel/test/wait"
)

// crew is a group whose members live in this process, without Kafka: for what concerns ZooKeeper alone.
type crew struct {
	t       *testing.T
	group   string
	addrs   []string
	timeout time.Duration
	hands   []*hand
}

// hand is a member of a crew.
type hand struct {
	name  string
	links proxy.Links
	ses   *session.Session
	alloc *allocator.PartitionAllocator
	owner *ownership.Owner
	leave func() error
	clock clocks.Clock // nil is the machine's

	mu     sync.Mutex
	events []eventlog.Event
}

const crewTopic = "t"

// partitions returns the ids from one to another, the last excluded, of the crew's topic.
func partitions(from, to int32) map[string][]int32 {
	var ids []int32
	for id := from; id < to; id++ {
		ids = append(ids, id)
	}
	return map[string][]int32{crewTopic: ids}
}

// hire makes a member with links of its own. It does nothing before [hand.work].
func (c *crew) hire(name string, n int32) *hand {
	c.t.Helper()
	h := &hand{name: name, links: proxy.To(c.t, c.addrs)}
	var err error
	if h.ses, err = session.New(h.links.Addrs(), session.Options{Timeout: c.timeout}); err != nil {
		c.t.Fatal(err)
	}
	if h.alloc, err = allocator.New(h.ses, c.group, name, allocator.Options{Seed: partitions(0, n)}); err != nil {
		c.t.Fatal(err)
	}
	if h.owner, err = ownership.New(h.alloc, handle, ownership.Options{Observer: h.observe}); err != nil {
		c.t.Fatal(err)
	}
	c.hands = append(c.hands, h)
	return h
}

// handle holds a partition until it is told to let go.
func handle(ctx context.Context, _ *ownership.Claim) error {
	<-ctx.Done()
	return nil
}

// work runs a member until the test ends or leave is called.
func (h *hand) work(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	var running, connected sync.WaitGroup
	sesCtx, disconnect := context.WithCancel(context.Background())
	connected.Go(func() {
		if err := h.ses.Run(clocks.With(sesCtx, h.clock)); err != nil {
			t.Errorf("%s: session: %v", h.name, err)
		}
	})
	var err error
	running.Go(func() { err = h.owner.Run(ctx) })
	h.leave = sync.OnceValue(func() error {
		cancel()
		running.Wait()
		disconnect()
		connected.Wait()
		return err
	})
	t.Cleanup(func() {
		if err := h.leave(); err != nil {
			t.Errorf("%s: %v", h.name, err)
		}
	})
}

func (h *hand) observe(e ownership.Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := members.Monotonic()
	line := eventlog.Event{
		T: now, Member: h.name, Event: e.Kind.String(), Version: e.Version, Token: e.Token,
		Session: fmt.Sprintf("0x%x", uint64(e.Session)),
	}
	if e.Partition >= 0 {
		line.Topic, line.Partition = e.Topic, &e.Partition
	}
	if !e.Since.IsZero() && h.clock == nil {
		line.Since = now - time.Since(e.Since).Nanoseconds()
	}
	h.events = append(h.events, line)
}

// count returns how many events of a kind there were.
func (h *hand) count(kind string) (n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, e := range h.events {
		if e.Event == kind {
			n++
		}
	}
	return n
}

// owned waits until the members own n partitions, evenly, and returns how long that took.
func (c *crew) owned(n int, hands ...*hand) time.Duration {
	c.t.Helper()
	begin := time.Now()
	wait.Until(c.t, settleLimit, func() bool {
		total := 0
		for _, h := range hands {
			share := len(h.owner.Owned())
			if share < n/len(hands) || share > n/len(hands)+1 {
				return false
			}
			total += share
		}
		return total == n
	}, func() string {
		text := ""
		for _, h := range hands {
			text += fmt.Sprintf("%s owns %v (%s); ", h.name, h.owner.Owned(), h.ses.Stats().State)
		}
		return text
	})
	return time.Since(begin)
}

// verdict checks what all members have logged; they must have left.
func (c *crew) verdict() {
	c.t.Helper()
	var logs []eventlog.Log
	for _, h := range c.hands {
		h.mu.Lock()
		logs = append(logs, eventlog.Log{Name: h.name, Events: h.events})
		h.mu.Unlock()
	}
	report := eventlog.Check(logs, eventlog.Expect{})
	c.t.Log(report)
	if !report.OK() || report.Terms == 0 {
		c.t.Errorf("the promise was broken: %s", report)
	}
}
