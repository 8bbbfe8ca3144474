package zktest_test

import (
	"encoding/binary"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kielgo/kiel/internal/testonly/noerr"
	"github.com/kielgo/kiel/zktest"
)

// FuzzServer lets a hostile client say anything: first a connect request's body, then frames, all as they come. The server must
// neither crash nor hang, and must go on serving others.
func FuzzServer(f *testing.F) {
	hello := binary.BigEndian.AppendUint32(make([]byte, 12), 10_000)
	hello = append(hello, make([]byte, 8)...)
	hello = append(binary.BigEndian.AppendUint32(hello, 16), make([]byte, 17)...)
	frame := func(op int32, body string) []byte {
		b := binary.BigEndian.AppendUint32(nil, uint32(8+len(body)))
		b = binary.BigEndian.AppendUint32(b, 1)
		return append(binary.BigEndian.AppendUint32(b, uint32(op)), body...)
	}
	path := "\x00\x00\x00\x02/x"
	acl := "\x00\x00\x00\x01\x00\x00\x00\x1f\x00\x00\x00\x05world\x00\x00\x00\x06anyone"
	for _, body := range [][]byte{
		frame(1, path+"\xff\xff\xff\xff"+acl+"\x00\x00\x00\x03"),
		frame(14, "\x00\x00\x00\x01\x00\xff\xff\xff\xff"+path+"\xff\xff\xff\xff"+acl+"\x00\x00\x00\x00\xff\xff\xff\xff\x01\xff\xff\xff\xff"),
		frame(2, path+"\xff\xff\xff\xff"),
		frame(4, path+"\x01"),
		frame(12, path+"\x01"),
		frame(7, path+acl+"\xff\xff\xff\xff"),
		frame(100, "\x00\x00\x00\x00\x00\x00\x00\x06digest\x00\x00\x00\x03u:p"),
		frame(101, "\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01"+path+"\x00\x00\x00\x00\x00\x00\x00\x00"),
		frame(105, "\x00\x00\x00\x00\x00\x00\x00\x00\x7f\xff\xff\xff"),
		frame(106, path+"\x00\x00\x00\x01"),
		frame(22, "\x00\x00\x00\x04\x00\xff\xff\xff\xff"+path+"\x00\xff\xff\xff\xff\x01\xff\xff\xff\xff"),
		frame(-11, ""),
		frame(-10, ""),
		frame(11, ""),
	} {
		f.Add(hello, append(body, frame(11, "")...))
	}
	f.Fuzz(func(t *testing.T, hello, rest []byte) {
		srv, nw := zktest.StartVirtual(t, zktest.Options{JuteMaxBuffer: 1 << 12})
		c, err := nw.Dial(t.Context(), "tcp", zktest.VirtualAddress)
		noerr.Must(t, err)
		talk(t, c, binary.BigEndian.AppendUint32(nil, uint32(len(hello))), hello, rest)
		c, err = nw.Dial(t.Context(), "tcp", zktest.VirtualAddress)
		noerr.Must(t, err)
		checkServes(t, c)
		_ = srv.Dump()
	})
}

// FuzzFirstBytes lets a hostile client begin with anything, in two parts: a four-letter word, a piece of one, or neither. The
// server must answer a word, close or wait; and it must go on serving others.
func FuzzFirstBytes(f *testing.F) {
	for _, word := range []string{"ruok", "envi", "srvr", "stat", "mntr", "conf", "isro", "cons", "zzzz", "RUOK", "ruo", "", "\x00\x00\x00\x00"} {
		f.Add([]byte(word), []byte("\n"))
		f.Add([]byte(word[:len(word)/2]), []byte(word[len(word)/2:]))
	}
	f.Fuzz(func(t *testing.T, first, rest []byte) {
		synctest.Test(t, func(t *testing.T) {
			_, nw := zktest.StartVirtual(t, zktest.Options{JuteMaxBuffer: 1 << 12})
			c, err := nw.Dial(t.Context(), "tcp", zktest.VirtualAddress)
			must(t, err)
			n := talk(t, c, first, rest)
			if all := string(first) + string(rest); strings.HasPrefix(all, "ruok") && n != len("imok") {
				t.Errorf("%q: %d bytes came back", all, n)
			}
			c, err = nw.Dial(t.Context(), "tcp", zktest.VirtualAddress)
			must(t, err)
			checkServes(t, c)
		})
	})
}

// checkServes opens a session.
func checkServes(t *testing.T, c net.Conn) {
	t.Helper()
	good := binary.BigEndian.AppendUint32(make([]byte, 15), 10_000)[3:] // version 0, zxid 0 (12 bytes), timeout
	good = append(good, make([]byte, 8+4)...)                           // no session, no password
	if n := talk(t, c, binary.BigEndian.AppendUint32(nil, uint32(len(good))), good); n == 0 {
		t.Error("the server does not serve any more")
	}
}

// talk says something, hangs up, and returns how many bytes came back.
func talk(t *testing.T, c net.Conn, parts ...[]byte) int {
	t.Helper()
	for _, p := range parts {
		if _, err := c.Write(p); err != nil {
			break
		}
	}
	_ = c.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	n, _ := c.Read(make([]byte, 4096))
	_ = c.Close()
	return n
}
