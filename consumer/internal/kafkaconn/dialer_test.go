package kafkaconn

import (
	"context"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"github.com/kielgo/kiel/internal/testonly/assert"
	"github.com/kielgo/kiel/internal/testonly/conntest"
	"github.com/kielgo/kiel/internal/testonly/noerr"
)

// A connection that sarama closes, as after a commit that was not answered in time, drops bytes that were written and not sent,
// too: no later Abort finds the connection.
func TestCloseThrowsAwayWhatWasNotSent(t *testing.T) {
	sinks := &conntest.Sinks{}
	d := NewDialer(t.Context(), sinks.Config(), 0)
	c, s := sinks.Dial(t, d)
	for range 2 {
		noerr.Want(t, c.Close())
	}
	if !s.Aborted() || len(d.conns) != 0 {
		t.Errorf("aborted %v, %d connections are left", s.Aborted(), len(d.conns))
	}
}

func TestDialerAbortsWithoutSendingTheRest(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	noerr.Must(t, err)
	defer l.Close()
	accepted := make(chan net.Conn, 1)
	go func() {
		c, err := l.Accept()
		if err == nil {
			accepted <- c
		}
	}()
	life, end := context.WithCancel(t.Context())
	defer end()
	d := NewDialer(life, conntest.Config(), time.Second)
	c, err := d.Dial("tcp", l.Addr().String())
	noerr.Must(t, err)
	far := <-accepted
	defer far.Close()
	d.Abort()
	if _, err := far.Read(make([]byte, 1)); err == nil || errors.Is(err, io.EOF) {
		t.Errorf("the far side reads %v, want a reset", err)
	}
	assert.Error(t, c.Close(), nil, "closing it again")
	assert.Equal(t, len(d.conns), 0, "connections that are kept")
	end()
	if _, err := d.Dial("tcp", l.Addr().String()); !errors.Is(err, net.ErrClosed) {
		t.Errorf("dialled after the end: %v", err)
	}
}

// sarama resolves names through the dialer, when Net.ResolveCanonicalBootstrapServers is set. Package net takes a connection for
// one that carries datagrams only if it is a net.PacketConn.
func TestDialerPassesDatagramsOn(t *testing.T) {
	l, err := net.ListenPacket("udp", "127.0.0.1:0")
	noerr.Must(t, err)
	defer l.Close()
	d := NewDialer(t.Context(), conntest.Config(), time.Second)
	c, err := d.Dial("udp", l.LocalAddr().String())
	noerr.Must(t, err)
	defer c.Close()
	if _, ok := c.(net.PacketConn); !ok {
		t.Errorf("%T is no net.PacketConn", c)
	}
}

func TestMain(m *testing.M) { conntest.Main(m) }
