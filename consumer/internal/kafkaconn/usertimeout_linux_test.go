package kafkaconn

import (
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/kielgo/kiel/internal/testonly/assert"
	"github.com/kielgo/kiel/internal/testonly/conntest"
	"github.com/kielgo/kiel/internal/testonly/noerr"
)

func TestUnacknowledgedDataEndsAConnection(t *testing.T) {
	addr := conntest.Hole(t)
	for want, config := range map[time.Duration]time.Duration{2500 * time.Millisecond: 2500 * time.Millisecond, 0: 0} {
		d := NewDialer(t.Context(), conntest.Config(), config)
		c, err := d.Dial("tcp", addr)
		noerr.Must(t, err)
		raw, err := c.(*conn).Conn.(*net.TCPConn).SyscallConn()
		noerr.Must(t, err)
		var got int
		var getErr error
		if err := raw.Control(func(fd uintptr) { got, getErr = syscall.GetsockoptInt(int(fd), syscall.IPPROTO_TCP, tcpUserTimeout) }); err != nil || getErr != nil {
			t.Fatal(err, getErr)
		}
		assert.Equal(t, got, int(want.Milliseconds()), "TCP_USER_TIMEOUT in ms")
		noerr.Want(t, c.Close())
	}
}
