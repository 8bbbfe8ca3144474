package consumer

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel/allocfn"
)

// sink is a connection that notes what is done with it.
type sink struct {
	net.Conn
	mu      sync.Mutex
	written bytes.Buffer
	closed  bool
	linger  []int
}

// connOn returns a connection of d, and what is behind it.
func connOn(d *dialer) (net.Conn, *sink) {
	s := &sink{}
	c := &conn{Conn: s, of: d}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.conns[c] = struct{}{}
	return c, s
}

func (s *sink) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return 0, net.ErrClosed
	}
	return s.written.Write(b)
}

func (s *sink) SetLinger(sec int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return net.ErrClosed
	}
	s.linger = append(s.linger, sec)
	return nil
}

func (s *sink) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	return nil
}

func (s *sink) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.written.String()
}

const keyOffsetCommit = 8

// requests reads requests from a connection, answers none, and tells the API key
// of each.
func requests(c net.Conn, keys chan<- int16) {
	defer c.Close()
	var head [6]byte
	for {
		if _, err := io.ReadFull(c, head[:]); err != nil {
			return
		}
		keys <- int16(binary.BigEndian.Uint16(head[4:]))
		if _, err := io.CopyN(io.Discard, c, int64(binary.BigEndian.Uint32(head[:]))-2); err != nil {
			return
		}
	}
}

// TestNoCommitIsWrittenWithoutTrust: while the coordinator's connection is being
// dialled trust ends, and nobody says so, or distrust comes too early to find the
// connection. It runs in real time, because sarama holds a mutex while it dials.
func TestNoCommitIsWrittenWithoutTrust(t *testing.T) {
	for name, c := range map[string]struct{ lose, abort bool }{
		"trusted":                {},
		"lost while dialling":    {lose: true},
		"aborted while dialling": {lose: true, abort: true},
	} {
		t.Run(name, func(t *testing.T) {
			keys, dialling, gate := make(chan int16, 10), make(chan struct{}, 10), make(chan struct{})
			life, end := context.WithCancel(t.Context())
			d := newDialer(life, testConfig(), 0)
			d.dial = func(context.Context, string, string) (net.Conn, error) {
				dialling <- struct{}{}
				<-gate
				near, far := net.Pipe()
				go requests(far, keys)
				return near, nil
			}
			config := testConfig()
			config.ApiVersionsRequest = false
			config = controlConfig(*config, d)
			b := sarama.NewBroker("kafka:9092")
			store := &kafkaOffsets{group: "g", config: config, do: &calls{}, guard: d.guard, find: func(bool) (coordinator, error) {
				_ = b.Open(config) // connects in the background, as sarama's client does
				return b, nil
			}}
			var lost atomic.Bool
			es := entries(2)[1:]
			es[0].allowed = func() error {
				if lost.Load() {
					return errLost
				}
				return nil
			}
			ctx, cancel := context.WithCancel(t.Context())
			result := make(chan map[allocfn.Partition]error, 1)
			go func() { result <- store.commit(ctx, es) }()
			<-dialling
			lost.Store(c.lose)
			if c.abort {
				d.abort()
			}
			close(gate)
			if c.lose {
				if err := (<-result)[tp("t", 1)]; !errors.Is(err, errLost) {
					t.Errorf("commit: %v", err)
				}
			} else if key := <-keys; key != keyOffsetCommit {
				t.Errorf("request %d was sent, want a commit", key)
			}
			cancel()
			end()
			d.abort()
			store.do.wait()
			_ = b.Close()
			if c.lose {
				select {
				case key := <-keys:
					t.Errorf("request %d was sent without trust", key)
				default:
				}
			}
			if len(d.guards) != 0 {
				t.Errorf("%d guards are left", len(d.guards))
			}
		})
	}
}

// A connection that is closed without abort, as after a commit that was not answered in time, throws away what was written
// and not sent too: nothing finds the connection later.
func TestCloseThrowsAwayWhatWasNotSent(t *testing.T) {
	d := newDialer(t.Context(), testConfig(), 0)
	c, s := connOn(d)
	for range 2 {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
	if !s.closed || !slices.Equal(s.linger, []int{0}) || len(d.conns) != 0 {
		t.Errorf("closed %v, linger %v, %d connections are left", s.closed, s.linger, len(d.conns))
	}
}
