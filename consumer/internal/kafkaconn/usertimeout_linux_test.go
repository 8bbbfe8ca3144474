package kafkaconn

import (
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/kielgo/kiel/internal/testonly/conntest"
)

func TestUnacknowledgedDataEndsAConnection(t *testing.T) {
	addr := conntest.Hole(t)
	for want, config := range map[time.Duration]time.Duration{2500 * time.Millisecond: 2500 * time.Millisecond, 0: 0} {
		d := NewDialer(t.Context(), conntest.Config(), config)
		c, err := d.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		raw, err := c.(*conn).Conn.(*net.TCPConn).SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		var got int
		var getErr error
		if err := raw.Control(func(fd uintptr) { got, getErr = syscall.GetsockoptInt(int(fd), syscall.IPPROTO_TCP, tcpUserTimeout) }); err != nil || getErr != nil {
			t.Fatal(err, getErr)
		}
		if got != int(want.Milliseconds()) {
			t.Errorf("TCP_USER_TIMEOUT is %d ms, want %v", got, want)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
}
