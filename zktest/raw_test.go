package zktest_test

import (
	"context"
	"encoding/binary"
	"io"
	"net"

	"github.com/kielgo/kiel/zktest"
)

// raw is a connection that speaks just enough of the protocol to be cheap.
type raw struct{ net.Conn }

// dialRaw opens a session with a timeout of 6 s.
func dialRaw(ctx context.Context, nw *zktest.Network) (*raw, error) {
	c, err := nw.Dial(ctx, "tcp", zktest.VirtualAddress)
	if err != nil {
		return nil, err
	}
	r := &raw{c}
	hello := binary.BigEndian.AppendUint32(make([]byte, 12), 6000)
	r.send(append(hello, make([]byte, 8+4+1)...))
	_, err = r.receive()
	return r, err
}

func (r *raw) send(frame []byte) {
	_, _ = r.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(frame))), frame...))
}

func (r *raw) receive() ([]byte, error) {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, err
	}
	b := make([]byte, binary.BigEndian.Uint32(head[:]))
	_, err := io.ReadFull(r, b)
	return b, err
}

// join creates an ephemeral sequential znode.
func (r *raw) join(path string) {
	b := []byte{0, 0, 0, 1, 0, 0, 0, 1}
	b = append(binary.BigEndian.AppendUint32(b, uint32(len(path))), path...)
	b = append(b, 0xff, 0xff, 0xff, 0xff)
	b = append(b, "\x00\x00\x00\x01\x00\x00\x00\x1f\x00\x00\x00\x05world\x00\x00\x00\x06anyone\x00\x00\x00\x03"...)
	r.send(b)
	_, _ = r.receive()
}
