package fetch

import (
	"bytes"
	"errors"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel/internal/errlog"
	"github.com/kielgo/kiel/internal/testonly/assert"
	"github.com/kielgo/kiel/internal/testonly/noerr"
)

// A broker that answers late, because it reads from slow storage, is read, as fast as it answers. Once its answers are in time,
// it has as little time again as any other.
func TestSlowBroker(t *testing.T) {
	for late, dials := range map[time.Duration]int{7 * time.Second: 2, 18 * time.Second: 3} {
		var log bytes.Buffer
		logged := func(o *Options) { o.Errors = errlog.New(slog.New(slog.NewTextHandler(&log, nil))) }
		subtest(t, late.String(), logged, func(t *testing.T, k *fakeCluster, x *Fetcher) {
			k.add(0, batch{values: vals(3)})
			k.late = late
			p := open(t, x, 0, 0, -1)
			if err := p.Opened(t.Context()); late < 2*silence && err != nil { // the second request has enough time
				t.Errorf("opened: %v", err)
			}
			for n := range int64(5) {
				began := time.Now()
				same(t, offsets(t, p, 3*n+3), seq(3*n, 3*n+3))
				if took := time.Since(began); n > 0 && took > late+time.Second {
					t.Errorf("read after %v", took)
				}
				k.add(0, batch{values: vals(3)})
			}
			assert.Equal(t, k.dialled(), dials, "connections")
			synctest.Wait() // for lines about what has happened
			if !strings.Contains(log.String(), "the broker has sent no byte for 5s while an answer was due") {
				t.Errorf("logged:\n%s", log.String())
			}
			k.change(func() { k.late = 0 })
			for range 10 {
				k.add(0, batch{values: vals(1)})
				time.Sleep(10 * time.Second)
			}
			k.change(func() { k.silent[1] = true })
			time.Sleep(time.Second) // the poll in flight has ended, and the next one has no answer
			k.change(func() { k.log(0).leader, k.log(0).epoch = 2, 1 })
			k.add(0, batch{values: vals(1)})
			began := time.Now()
			offsets(t, p, 29)
			if took := time.Since(began); took > 6*time.Second {
				t.Errorf("a silent broker was left after %v", took)
			}
		})
	}
}

// A broker that hangs counts as slow if nothing must be answered while a connection is opened. A partition that has moved away
// from it is read all the same, while its request goes on.
func TestMoveFromASlowBroker(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, k *fakeCluster, x *Fetcher) {
		p := begun(t, k, x, 3)
		k.change(func() { k.silent[1] = true })
		time.Sleep(18 * time.Second) // the third request is in flight, and may be silent for 20 s
		k.change(func() { k.log(0).leader, k.log(0).epoch = 2, 1 })
		k.add(0, batch{values: vals(1)})
		began := time.Now()
		same(t, offsets(t, p, 4), seq(3, 4))
		if took := time.Since(began); took > 2*watchInterval {
			t.Errorf("the new leader was read %v after the move", took)
		}
	})
}

// Net.ReadTimeout bounds how long a broker may be silent, but it has 5 s at least.
func TestReadTimeoutBoundsSlowBrokers(t *testing.T) {
	for limit, want := range map[time.Duration]time.Duration{time.Second: silence, 8 * time.Second: 8 * time.Second} {
		subtest(t, limit.String(), func(o *Options) { o.Config.Net.ReadTimeout = limit }, func(t *testing.T, k *fakeCluster, x *Fetcher) {
			k.add(0, batch{values: vals(3)})
			k.silent[1] = true
			open(t, x, 0, 0, -1)
			time.Sleep(5 * time.Minute)
			all := k.requests()
			if n := len(all); n < 10 {
				t.Fatalf("%d requests", n)
			}
			for i := 2; i < len(all); i++ {
				if took := all[i].at.Sub(all[i-1].at); took < want || took > want+maxBackoff+2*time.Second {
					t.Errorf("request %d after %v, the connection may be silent for %v", i, took, want)
				}
			}
		})
	}
}

// hungDialer is a dialer of connections on which nothing comes in time from the second one on. That takes no time, because sarama
// holds a mutex in the handshake, and in a bubble time stands still while a goroutine waits for one.
type hungDialer struct {
	*fakeCluster
	dialed atomic.Int32
	writes atomic.Int32 // after a read has failed
}

func (d *hungDialer) Dial(network, address string) (net.Conn, error) {
	c, err := d.fakeCluster.Dial(network, address)
	if err != nil || d.dialed.Add(1) == 1 {
		return c, err
	}
	return &hungConn{Conn: c, of: d}, nil
}

type hungConn struct {
	net.Conn
	of     *hungDialer
	failed atomic.Bool
}

func (c *hungConn) Read([]byte) (int, error) {
	c.failed.Store(true)
	return 0, os.ErrDeadlineExceeded
}

func (c *hungConn) Write(b []byte) (int, error) {
	if c.failed.Load() {
		c.of.writes.Add(1)
	}
	return len(b), nil
}

// A broker that does not answer while a connection is opened hangs, and is not slow: it gets no more time, however often it is
// tried. Nothing is sent after the answer that did not come.
func TestHungBrokerIsNotSlow(t *testing.T) {
	var d *hungDialer
	inBubble(t, func(o *Options) {
		d = &hungDialer{fakeCluster: o.Dialer.(*fakeCluster)}
		o.Dialer, o.Config.ApiVersionsRequest = d, true
	}, func(t *testing.T, k *fakeCluster, x *Fetcher) {
		begun(t, k, x, 1)
		k.change(func() { k.silent[1] = true })
		time.Sleep(20 * time.Second)
		x.mu.Lock()
		defer x.mu.Unlock()
		for _, n := range x.nodes {
			assert.Equal(t, n.silence, 2*silence, "how long the broker may be silent after one answer that did not come")
		}
		if dialed, writes := d.dialed.Load(), d.writes.Load(); dialed < 5 || writes > 0 {
			t.Errorf("%d connections, %d writes after a read has failed", dialed, writes)
		}
	})
}

// The watchdog does not end an answer that takes long, because another request would begin the same answer anew.
func TestWatchdogLeavesLongAnswers(t *testing.T) {
	for name, long := range map[string]func(k *fakeCluster){
		"bytes come slowly":  func(k *fakeCluster) { k.slow = time.Second },
		"the broker is slow": func(k *fakeCluster) { k.late = 90 * time.Second },
	} {
		var resets atomic.Int32
		change := func(o *Options) {
			o.Config.Net.ReadTimeout = 2 * time.Minute
			o.Config.Consumer.Fetch.Default = minFetch
			o.OnReset = func(string, int32) { resets.Add(1) }
		}
		subtest(t, name, change, func(t *testing.T, k *fakeCluster, x *Fetcher) {
			p := begun(t, k, x, 1)
			k.change(func() { long(k) })
			big := batch{values: wide(1, 100<<10)}
			k.add(0, big, big) // the answer with the first says that there is another
			for at := int64(1); at < 3; {
				b, err := next(t, p, 10*time.Minute)
				noerr.Must(t, err)
				at = b.Next
			}
			assert.Equal(t, resets.Load(), 0, "resets")
		})
	}
}

// An error of a connection that was silent is still one of a broker that can't be reached.
func TestSilenceIsUnreachable(t *testing.T) {
	if err := error(&silentError{after: silence, err: sarama.ErrNotConnected}); ReasonOf(err) != Unreachable || !heals(err) || !errors.Is(err, sarama.ErrNotConnected) {
		t.Errorf("%v: %s", err, ReasonOf(err))
	}
}
