package offsets

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"sync/atomic"
	"testing"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/consumer/internal/kafkaconn"
	"github.com/kielgo/kiel/internal/testonly/assert"
	"github.com/kielgo/kiel/internal/testonly/conntest"
)

const keyOffsetCommit = 8

// requests reads requests from a connection, answers none, and tells the API key of each.
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

// TestNoCommitIsWrittenWithoutTrust ends trust while the coordinator's connection is being dialled: without an abort, or with one
// that comes too early to find the connection. It runs in real time, because sarama holds a mutex while it dials.
func TestNoCommitIsWrittenWithoutTrust(t *testing.T) {
	for name, c := range map[string]struct{ lose, abort bool }{
		"trusted":                {},
		"lost while dialling":    {lose: true},
		"aborted while dialling": {lose: true, abort: true},
	} {
		t.Run(name, func(t *testing.T) {
			keys, dialling, gate := make(chan int16, 10), make(chan struct{}, 10), make(chan struct{})
			life, end := context.WithCancel(t.Context())
			config := conntest.ConfigOn(func(string, string) (net.Conn, error) {
				dialling <- struct{}{}
				<-gate
				near, far := net.Pipe()
				go requests(far, keys)
				return near, nil
			})
			config.ApiVersionsRequest = false
			d := kafkaconn.NewDialer(life, config, 0)
			config = kafkaconn.ControlConfig(*config, d)
			b := sarama.NewBroker("kafka:9092")
			gates := atomic.Int32{}
			gated := func(beforeWrite func() error) func() {
				gates.Add(1)
				release := d.Gate(beforeWrite)
				return func() {
					release()
					gates.Add(-1)
				}
			}
			store := &KafkaStore{Group: "g", Config: config, Calls: &kafkaconn.Calls{}, Gate: gated, Find: func(bool) (Coordinator, error) {
				_ = b.Open(config) // connects in the background, as sarama's client does
				return b, nil
			}}
			var lost atomic.Bool
			es := commits(2)[1:]
			es[0].Authorize = func() error {
				if lost.Load() {
					return ErrLost
				}
				return nil
			}
			ctx, cancel := context.WithCancel(t.Context())
			result := make(chan map[kiel.Partition]error, 1)
			go func() { result <- store.Commit(ctx, es) }()
			<-dialling
			lost.Store(c.lose)
			if c.abort {
				d.Abort()
			}
			close(gate)
			if c.lose {
				assert.Error(t, (<-result)[tp("t", 1)], ErrLost, "commit")
			} else if key := <-keys; key != keyOffsetCommit {
				t.Errorf("request %d was sent, want a commit", key)
			}
			cancel()
			end()
			d.Abort()
			store.Calls.Wait()
			_ = b.Close()
			if c.lose {
				select {
				case key := <-keys:
					t.Errorf("request %d was sent without trust", key)
				default:
				}
			}
			assert.Equal(t, gates.Load(), 0, "gates that are left")
		})
	}
}
