package consumer

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel/consumer/internal/kafkaconn"
	"github.com/kielgo/kiel/internal/pause"
)

// askPause is the least time between two requests to the user's client to look for brokers.
const askPause = 5 * time.Second

// bootstrap has the addresses with which the clients of a Group begin, and to which they return when no broker that they know
// answers. Addresses that the user gave stay. The brokers of a client that the user gave may all move, so that client is asked
// again: it knows the addresses that it was given itself, which no method of it returns.
type bootstrap struct {
	group  string        // the group's name
	client sarama.Client // the user's client; nil if the user gave addresses

	mu        sync.Mutex
	addresses []string      // the addresses that the user gave, or those that the user's client had last
	asked     time.Time     // when the user's client was asked last
	asking    chan struct{} // closed when the user's client has answered; nil while it is not asked
}

// list returns the addresses of now. It does not block.
func (b *bootstrap) list() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.client != nil {
		if now := addressesOf(b.client); len(now) > 0 { // a closed client has none
			b.addresses = now
		}
	}
	return slices.Clone(b.addresses)
}

// isClosed reports whether the user's client was closed.
func (b *bootstrap) isClosed() bool { return b.client != nil && b.client.Closed() }

// clientPause is how often a member looks whether the user's client was closed. That is no request.
const clientPause = time.Second

// watchClient makes the member leave when the user's client is closed, until ctx ends.
func (m *membership) watchClient(ctx context.Context) {
	for m.group.brokers.client != nil && pause.Sleep(ctx, clientPause) == nil {
		if m.group.brokers.isClosed() {
			m.leave(errClientClosed)
			return
		}
	}
}

// errClientClosed says that the user has closed the client of NewFromClient. It ends the call.
var errClientClosed = failure("", "", sarama.ErrClosedClient)

// renew returns addresses that are not those of last, or nil if there are none. It has the user's client look for brokers first,
// unless that was done just now. It waits for the client's answer until life ends, for kafkaconn.MaxControlWait at most.
func (b *bootstrap) renew(life context.Context, last []string) []string {
	if b.client == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(life, kafkaconn.MaxControlWait)
	defer cancel()
	kafkaconn.Await(ctx, b.ask())
	now := b.list()
	if isSubset(now, last) {
		return nil
	}
	return now
}

// ask has the user's client look for brokers. It returns a channel that is closed when the client has answered, nil if it was
// asked less than askPause ago. The client's timeouts bound the goroutine that asks. The group's coordinator is what it is asked
// for, because that changes nothing of what the client knows of topics: if none of its brokers answers, it goes back to the
// addresses that it was given.
func (b *bootstrap) ask() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.asking != nil || time.Since(b.asked) < askPause {
		return b.asking
	}
	done := make(chan struct{})
	b.asking = done
	go func() {
		_ = b.client.RefreshCoordinator(b.group) // list returns what it has found
		b.mu.Lock()
		defer b.mu.Unlock()
		b.asked, b.asking = time.Now(), nil
		close(done)
	}()
	return done
}

// end waits for the answer of the user's client if it is asked, for closingGrace at most: nothing ends that call earlier.
func (b *bootstrap) end() {
	b.mu.Lock()
	asking := b.asking
	b.mu.Unlock()
	if asking == nil {
		return
	}
	select {
	case <-asking:
	case <-time.After(closingGrace):
	}
}

// isSubset reports whether all of some are among all.
func isSubset(some, all []string) bool {
	return !slices.ContainsFunc(some, func(s string) bool { return !slices.Contains(all, s) })
}

// connect makes a client that finds brokers again when all of them have moved, as long as life lasts.
func (b *bootstrap) connect(life context.Context, config *sarama.Config) (sarama.Client, error) {
	seeds := b.list()
	client, err := sarama.NewClient(seeds, config)
	if errors.Is(err, sarama.ErrOutOfBrokers) {
		if others := b.renew(life, seeds); others != nil {
			seeds = others
			client, err = sarama.NewClient(seeds, config)
		}
	}
	if err != nil {
		return nil, err
	}
	return &seeded{Client: client, of: b, life: life, seeds: seeds}, nil
}

// seeded is a client that takes new addresses from its bootstrap when no broker that it knows answers.
type seeded struct {
	sarama.Client

	of   *bootstrap
	life context.Context //nolint:containedctx // bounds the wait of calls that take no context

	mu    sync.Mutex
	seeds []string // the addresses to which Client returns when it knows no broker
}

// RefreshMetadata asks Kafka for metadata. It asks again if no broker has answered and there are new addresses.
func (s *seeded) RefreshMetadata(topics ...string) error {
	err := s.Client.RefreshMetadata(topics...)
	if !errors.Is(err, sarama.ErrOutOfBrokers) || !s.reseed() {
		return err
	}
	return s.Client.RefreshMetadata(topics...)
}

// reseed gives Client new addresses. It returns false if there are none.
func (s *seeded) reseed() bool {
	s.mu.Lock()
	last := s.seeds
	s.mu.Unlock()
	now := s.of.renew(s.life, last)
	if now == nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if isSubset(now, s.seeds) {
		return true // another goroutine has given them
	}
	s.seeds = now
	return s.RefreshBrokers(now) == nil
}
