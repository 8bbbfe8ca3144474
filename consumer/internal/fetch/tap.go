package fetch

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/binary"
	"io"
	"net"
	"time"

	"github.com/IBM/sarama"
)

const (
	apiFetch     = 1  // the API key of fetch requests
	flexibleFrom = 12 // the version from which on fetch requests and their answers are flexible (KIP-482)
	// rarelyFull is after how many answers that need less than a quarter of it a connection gives up the memory for answers.
	rarelyFull = 8
)

// tap is a connection, above TLS, that keeps the answers to fetch requests. In place of each it gives sarama an empty answer. So
// sarama writes the requests, authenticates, also again, and bounds the size of answers, but decodes no records. What writes and
// what reads take turns: sarama's Broker hands each request on to the goroutine that reads its answer.
type tap struct {
	net.Conn
	in          *bufio.Reader
	keeps       bool   // the answer to a fetch request that is written now is kept
	due         bool   // the answer that comes next is kept
	version     int16  // of the request before it
	correlation uint32 // of that request

	out    []byte // bytes that sarama has not read yet
	left   int    // bytes behind out of the frame that sarama reads itself
	head   [32]byte
	memory []byte // is reused for each answer
	small  int    // how many answers in a row needed less than a quarter of memory
	kept   *keptAnswer
}

// keptAnswer is an answer to a fetch request, as it came.
type keptAnswer struct {
	version int16
	body    []byte // behind the correlation id; valid until the next request is written
}

func newTap(c net.Conn) *tap { return &tap{Conn: c, in: bufio.NewReaderSize(c, 16<<10)} }

// begin has the answer to the next fetch request kept.
func (t *tap) begin() { t.keeps, t.kept = true, nil }

// take returns the answer to the request after begin; nil if none was kept.
func (t *tap) take() *keptAnswer {
	kept := t.kept
	t.keeps, t.kept = false, nil
	return kept
}

// Write notes a fetch request. sarama writes each request with one call.
func (t *tap) Write(b []byte) (int, error) {
	t.due = t.keeps && len(b) >= 12 && int64(binary.BigEndian.Uint32(b)) == int64(len(b)-4) && binary.BigEndian.Uint16(b[4:]) == apiFetch
	if t.due {
		t.version, t.correlation = int16(binary.BigEndian.Uint16(b[6:])), binary.BigEndian.Uint32(b[8:])
	}
	return t.Conn.Write(b)
}

// Read gives sarama the bytes of one frame at a time: its buffer must not have the beginning of the next, which may be kept.
func (t *tap) Read(b []byte) (int, error) {
	if len(t.out) == 0 && t.left == 0 {
		if err := t.next(); err != nil {
			return 0, err
		}
	}
	if len(t.out) > 0 {
		n := copy(b, t.out)
		t.out = t.out[n:]
		return n, nil
	}
	n, err := t.in.Read(b[:min(len(b), t.left)])
	t.left -= n
	return n, err
}

// next reads the beginning of a frame that sarama reads itself, or the whole of one that is kept. A frame whose size or
// correlation id sarama does not accept is sarama's, which says what is wrong with it.
func (t *tap) next() error {
	head := t.head[:8]
	if _, err := io.ReadFull(t.in, head[:4]); err != nil {
		return err
	}
	size := int32(binary.BigEndian.Uint32(head))
	if !t.due || size <= 4 || size > sarama.MaxResponseSize {
		t.out, t.left = head[:4], int(max(size, 0))
		return nil
	}
	if _, err := io.ReadFull(t.in, head[4:]); err != nil {
		return err
	}
	if binary.BigEndian.Uint32(head[4:]) != t.correlation {
		t.out, t.left = head, int(size)-4
		return nil
	}
	body := t.room(int(size) - 4)
	if _, err := io.ReadFull(t.in, body); err != nil {
		return err
	}
	t.due, t.kept = false, &keptAnswer{version: t.version, body: body}
	t.out = emptyAnswer(head, t.version)
	return nil
}

// room returns memory for an answer. Memory that one large answer has needed is not kept for many small ones.
func (t *tap) room(size int) []byte {
	if t.small++; size >= cap(t.memory)/4 {
		t.small = 0
	}
	if size > cap(t.memory) || t.small >= rarelyFull {
		t.memory, t.small = make([]byte, size), 0
	}
	return t.memory[:size]
}

// emptyAnswer completes an answer that says: not throttled, no error, no session, no topic, no tags. head has the correlation id.
func emptyAnswer(head []byte, version int16) []byte {
	switch {
	case version >= flexibleFrom:
		head = append(head, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0)
	case version >= 7:
		head = append(head, make([]byte, 14)...)
	default:
		head = append(head, make([]byte, 8)...)
	}
	binary.BigEndian.PutUint32(head, uint32(len(head)-4))
	return head
}

// secure puts TLS on a connection, as sarama does. The handshake ends with life, and after timeout.
func secure(life context.Context, nc net.Conn, address string, config *tls.Config, timeout time.Duration) (net.Conn, error) {
	if config == nil {
		config = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	if config.ServerName == "" {
		config = config.Clone()
		config.ServerName, _, _ = net.SplitHostPort(address)
	}
	c := tls.Client(nc, config)
	ctx, cancel := context.WithTimeout(life, timeout)
	defer cancel()
	return c, c.HandshakeContext(ctx)
}
