package fetch

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel/internal/testonly/assert"
)

// login answers the two requests of a login with SASL, whose session lasts for lifetime (KIP-368).
func (c *fakeCluster) login(conn net.Conn, b []byte) (bool, error) {
	correlation := binary.BigEndian.Uint32(b[4:])
	switch binary.BigEndian.Uint16(b) {
	case 17: // SaslHandshake
		return true, send(conn, correlation, []byte{0, 0, 0, 0, 0, 1, 0, 5, 'P', 'L', 'A', 'I', 'N'}, 0)
	case 36: // SaslAuthenticate, version 2
		c.mu.Lock()
		c.logins++
		lifetime := uint64(c.lifetime.Milliseconds())
		c.mu.Unlock()
		return true, send(conn, correlation, append(binary.BigEndian.AppendUint64([]byte{0, 0, 0, 0, 1}, lifetime), 0), 0)
	default:
		return false, nil
	}
}

// cutter ends a connection at one read or write of a run.
type cutter struct {
	*fakeCluster
	at  int  // the number of that read or write
	mid bool // it is done, a read of half of the bytes

	mu   sync.Mutex
	done int // reads and writes so far
}

func (c *cutter) Dial(network, address string) (net.Conn, error) {
	nc, err := c.fakeCluster.Dial(network, address)
	return &cutConn{nc, c}, err
}

func (c *cutter) isDue() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.done++
	return c.done == c.at
}

type cutConn struct {
	net.Conn
	of *cutter
}

var errCut = errors.New("cut")

func (c *cutConn) Write(b []byte) (int, error) {
	if !c.of.isDue() {
		return c.Conn.Write(b)
	}
	defer c.Close()
	if !c.of.mid {
		return 0, errCut
	}
	return c.Conn.Write(b)
}

func (c *cutConn) Read(b []byte) (int, error) {
	if !c.of.isDue() {
		return c.Conn.Read(b)
	}
	defer c.Close()
	if !c.of.mid {
		return 0, io.EOF
	}
	n, err := c.Conn.Read(b)
	return (n + 1) / 2, err
}

// Wherever a connection ends, in its login, while it authenticates again, in a request or in an answer, each message comes once.
// So it is when the partition is opened anew behind what has come.
func TestNothingComesTwice(t *testing.T) {
	logins := 0
	run := func(t *testing.T, at int, mid, reopen bool) (cut bool) {
		x := &cutter{at: at, mid: mid}
		change := func(o *Options) {
			x.fakeCluster, _ = o.Dialer.(*fakeCluster)
			x.lifetime = 100 * time.Millisecond
			o.Dialer = x
			o.Config.Consumer.MaxWaitTime = 50 * time.Millisecond
			sasl := &o.Config.Net.SASL
			sasl.Enable, sasl.User, sasl.Password, sasl.Mechanism, sasl.Version = true, "u", "p", sarama.SASLTypePlaintext, sarama.SASLHandshakeV1
		}
		inBubble(t, change, func(t *testing.T, k *fakeCluster, f *Fetcher) {
			const parts, rounds, each = 2, 6, 30
			values := vals(each)
			for i := range values {
				values[i] = strings.Repeat("v", 500)
			}
			for id := range int32(parts) {
				k.add(id, batch{values: values, gzip: id == 1})
			}
			var readers sync.WaitGroup
			for id := range int32(parts) {
				readers.Go(func() {
					ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
					defer cancel()
					p, at := open(t, f, id, 0, -1), int64(0)
					for at < rounds*each {
						b, err := p.Next(ctx)
						if err != nil {
							t.Errorf("partition %d at %d: %v", id, at, err)
							break
						}
						for i := range b.Messages {
							assert.Equal(t, b.Messages[i].Offset, at, "partition %d: offset", id)
							at++
						}
						if reopen {
							p.Close()
							p = open(t, f, id, at, b.LeaderEpoch)
						}
					}
					p.Close()
				})
			}
			for range rounds - 1 {
				time.Sleep(40 * time.Millisecond)
				for id := range int32(parts) {
					k.add(id, batch{values: values, gzip: id == 1})
				}
			}
			readers.Wait()
			k.change(func() { logins = max(logins, k.logins-k.dials) })
		})
		return x.done >= at
	}
	for name, mid := range map[string]bool{"before": false, "in the middle": true} {
		for _, reopen := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, reopen %t", name, reopen), func(t *testing.T) {
				n, step := 1, 1
				if reopen { // there are many places then
					n, step = 1+rand.IntN(4), 4
				}
				for run(t, n, mid, reopen) && !t.Failed() {
					n += step
				}
				t.Logf("%d places; %d authentications again in a run", n, logins)
			})
		}
	}
	if logins < 2 {
		t.Errorf("%d authentications again in a run", logins)
	}
}
