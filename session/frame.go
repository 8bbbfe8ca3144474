package session

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"
)

// ZooKeeper's wire format, as far as this package reads it: a frame is a length of 4 bytes and that many bytes. Requests begin
// with xid and operation, replies with xid, zxid and error code. Numbers are big-endian.

const (
	opCreate     = 1
	opDelete     = 2
	opExists     = 3
	opGetData    = 4
	opSetData    = 5
	opGetACL     = 6
	opSync       = 9
	opChildren2  = 12
	opCheck      = 13
	opMulti      = 14
	opAuth       = 100
	opSetWatches = 101
	opClose      = -11
	opError      = -1

	xidEvent      = -1
	xidPing       = -2
	xidAuth       = -4
	xidSetWatches = -8

	headerSize = 16
	statSize   = 68

	minConnectReply = 36
	maxConnectReply = 256
	incredible      = 1 << 30 // no answer is longer
	smallReply      = 4 << 10 // of replies without data, lists and paths
	passwordSize    = 16

	minGranted = 10 * time.Millisecond // go-zookeeper divides the timeout to get the period of a ticker
	maxGranted = 24 * time.Hour
)

var errFrame = errors.New("malformed frame")

// malformed returns an error that wraps errFrame.
func malformed(format string, args ...any) error {
	return fmt.Errorf("%w: %s", errFrame, fmt.Sprintf(format, args...))
}

// readFrame reads one frame into buf, growing buf only as bytes arrive, and returns the frame with its length in front.
func readFrame(r io.Reader, buf []byte, smallest, largest int) ([]byte, error) {
	const step = 64 << 10
	buf = slices.Grow(buf[:0], 4)[:4]
	if _, err := io.ReadFull(r, buf); err != nil {
		return buf[:0], err
	}
	length := binary.BigEndian.Uint32(buf)
	if int64(length) < int64(smallest) || int64(length) > int64(largest) {
		return buf[:0], malformed("length %d, allowed are %d to %d", int32(length), smallest, largest)
	}
	total := 4 + int(length)
	for len(buf) < total {
		n := min(total-len(buf), max(step, len(buf)))
		buf = slices.Grow(buf, n)
		have := len(buf)
		buf = buf[:have+n]
		if _, err := io.ReadFull(r, buf[have:]); err != nil {
			return buf[:0], err
		}
	}
	return buf, nil
}

// connectReply is a server's answer to a connect request.
type connectReply struct {
	timeout time.Duration
	id      int64
}

// expired reports whether the reply says that the session is over.
func (r connectReply) expired() bool { return r.timeout <= 0 || r.id == 0 }

// parseConnectReply parses a connect reply that is given without its length.
func parseConnectReply(body []byte) (connectReply, error) {
	p := parser{rest: body}
	p.int32() // protocol version
	timeout := time.Duration(p.int32()) * time.Millisecond
	id := p.int64()
	password := p.bytes()
	if p.failed || len(password) != passwordSize {
		return connectReply{}, malformed("connect reply of %d bytes", len(body))
	}
	reply := connectReply{timeout: timeout, id: id}
	if !reply.expired() && (timeout < minGranted || timeout > maxGranted) {
		return connectReply{}, malformed("connect reply with a timeout of %v", timeout)
	}
	return reply, nil
}

// Offsets of the client's last zxid and of the timeout in the frame of a connect request.
const (
	connectRequestLastZxid = 4 + 4
	connectRequestTimeout  = connectRequestLastZxid + 8
)

// connectRequestSize is the size of go-zookeeper's connect request with its length.
const connectRequestSize = connectRequestTimeout + 4 + 8 + 4 + passwordSize

// checkReply returns an error unless the body of a reply, after its header, can be decoded as the answer to op. go-zookeeper
// trusts the lengths in replies: a wrong one makes it allocate gigabytes, or panic.
func checkReply(op int32, body []byte) error {
	p := parser{rest: body}
	switch op {
	case opCreate, opSync:
		p.text()
	case opExists, opSetData:
		p.skip(statSize)
	case opGetData:
		p.bytes()
		p.skip(statSize)
	case opGetACL:
		for range p.count(12) {
			p.int32()
			p.text()
			p.text()
		}
		p.skip(statSize)
	case opChildren2:
		for range p.count(4) {
			p.text()
		}
		p.skip(statSize)
	case opMulti:
		p.multi()
	}
	if p.failed {
		return malformed("reply to operation %d of %d bytes", op, len(body))
	}
	return nil
}

// checkEvent returns an error unless the body of a watch event can be decoded.
func checkEvent(body []byte) error {
	p := parser{rest: body}
	p.int32() // type
	p.int32() // state
	p.text()  // path
	if p.failed {
		return malformed("watch event of %d bytes", len(body))
	}
	return nil
}

// parser reads values from rest. After the first value that is not there it has failed, and returns zeros.
type parser struct {
	rest   []byte
	failed bool
}

// skip returns the next n bytes, without copying them.
func (p *parser) skip(n int) []byte {
	if p.failed || n < 0 || n > len(p.rest) {
		p.failed, p.rest = true, nil
		return nil
	}
	skipped := p.rest[:n]
	p.rest = p.rest[n:]
	return skipped
}

func (p *parser) int32() int32 {
	if b := p.skip(4); b != nil {
		return int32(binary.BigEndian.Uint32(b))
	}
	return 0
}

func (p *parser) int64() int64 {
	if b := p.skip(8); b != nil {
		return int64(binary.BigEndian.Uint64(b))
	}
	return 0
}

// bytes reads a buffer; a length of -1 means null.
func (p *parser) bytes() []byte {
	n := p.int32()
	if n == -1 {
		return nil
	}
	return p.skip(int(n))
}

// text skips a string, which must not be null: go-zookeeper reads every length but that of buffers as unsigned.
func (p *parser) text() { p.skip(int(p.int32())) }

// count reads the length of a vector whose elements have at least size bytes. The vector must not be null either: go-zookeeper
// would make one of 2^32-1 elements.
func (p *parser) count(size int) int {
	n := int(p.int32())
	if n < 0 || n > len(p.rest)/size {
		p.failed = true
		return 0
	}
	return n
}

// multi skips the results of a multi.
func (p *parser) multi() {
	for n := 0; !p.failed; n++ {
		op := p.int32()
		done := p.skip(1)
		p.int32() // error, also in the result
		if p.failed {
			return
		}
		if done[0] != 0 {
			p.failed = n == 0 // every multi has an operation, and a reply without results would be taken for a proof
			return
		}
		switch op {
		case opError:
			p.int32()
		case opCreate:
			p.text()
		case opSetData:
			p.skip(statSize)
		case opCheck, opDelete:
		default:
			p.failed = true
		}
	}
}

// appendAuth appends the frame of an auth request.
func appendAuth(b []byte, a Auth) []byte {
	length := 4 + 4 + 4 + 4 + len(a.Scheme) + 4 + len(a.Credential)
	b = binary.BigEndian.AppendUint32(b, uint32(length))
	xid := int32(xidAuth)
	b = binary.BigEndian.AppendUint32(b, uint32(xid))
	b = binary.BigEndian.AppendUint32(b, opAuth)
	b = binary.BigEndian.AppendUint32(b, 0) // type
	b = binary.BigEndian.AppendUint32(b, uint32(len(a.Scheme)))
	b = append(b, a.Scheme...)
	b = binary.BigEndian.AppendUint32(b, uint32(len(a.Credential)))
	return append(b, a.Credential...)
}
