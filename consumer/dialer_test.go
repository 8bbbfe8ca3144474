package consumer

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync/atomic"
	"testing"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel/allocfn"
)

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
