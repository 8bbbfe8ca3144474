package zktest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"unicode/utf8"
)

// errMalformed is the error of a packet that is shorter than its lengths say, or has an impossible length.
var errMalformed = errors.New("zktest: malformed packet")

// decoder decodes jute, ZooKeeper's encoding, from one packet. After the first error all values are zero. It allocates no more
// than the packet's size, whatever lengths the packet has.
type decoder struct {
	b   []byte // the rest of the packet
	err error
}

// take returns the next n bytes.
func (d *decoder) take(n int) []byte {
	if d.err != nil || n < 0 || n > len(d.b) {
		d.fail()
		return nil
	}
	b := d.b[:n:n]
	d.b = d.b[n:]
	return b
}

func (d *decoder) fail() {
	if d.err == nil {
		d.err = errMalformed
	}
	d.b = nil
}

func (d *decoder) bool() bool {
	b := d.take(1)
	return b != nil && b[0] != 0
}

func (d *decoder) int32() int32 {
	b := d.take(4)
	if b == nil {
		return 0
	}
	return int32(binary.BigEndian.Uint32(b))
}

func (d *decoder) int64() int64 {
	b := d.take(8)
	if b == nil {
		return 0
	}
	return int64(binary.BigEndian.Uint64(b))
}

// bytes decodes a buffer. The encoding distinguishes nil from empty.
func (d *decoder) bytes() []byte {
	n := d.int32()
	if n == -1 || d.err != nil {
		return nil
	}
	b := d.take(int(n))
	if d.err != nil {
		return nil
	}
	return append(make([]byte, 0, len(b)), b...)
}

func (d *decoder) string() string {
	n := d.int32()
	if n == -1 || d.err != nil {
		return ""
	}
	s := string(d.take(int(n)))
	if !utf8.ValidString(s) {
		s = string([]rune(s)) // bytes that are not UTF-8 are replaced, as in Java
	}
	return s
}

// vector decodes a vector's length. least is the size of its smallest element: a length beyond the rest of the packet is an
// error.
func (d *decoder) vector(least int) int {
	n := int(d.int32())
	if d.err != nil || n <= 0 {
		return 0
	}
	if n > len(d.b)/least {
		d.fail()
		return 0
	}
	return n
}

// strings decodes a list, nil if it is null.
func (d *decoder) strings() []string {
	null := bytes.HasPrefix(d.b, []byte{0xff, 0xff, 0xff, 0xff})
	n := d.vector(4)
	if null {
		return nil
	}
	list := []string{}
	for range n {
		list = append(list, d.string())
	}
	return list
}

func (d *decoder) acls() []ACL {
	n := d.vector(12)
	var list []ACL
	for range n {
		list = append(list, ACL{Perms: d.int32(), Scheme: d.string(), ID: d.string()})
	}
	return list
}

// encoder encodes one packet, which begins with its length.
type encoder struct{ b []byte }

func newEncoder() *encoder { return &encoder{b: make([]byte, 4, 128)} }

// frame sets the length, and returns the packet.
func (e *encoder) frame() []byte {
	binary.BigEndian.PutUint32(e.b, uint32(len(e.b)-4))
	return e.b
}

func (e *encoder) bool(v bool) {
	if v {
		e.b = append(e.b, 1)
	} else {
		e.b = append(e.b, 0)
	}
}

func (e *encoder) int32(v int32) { e.b = binary.BigEndian.AppendUint32(e.b, uint32(v)) }
func (e *encoder) int64(v int64) { e.b = binary.BigEndian.AppendUint64(e.b, uint64(v)) }

func (e *encoder) bytes(v []byte) {
	if v == nil {
		e.int32(-1)
		return
	}
	e.int32(int32(len(v)))
	e.b = append(e.b, v...)
}

func (e *encoder) string(v string) {
	e.int32(int32(len(v)))
	e.b = append(e.b, v...)
}

func (e *encoder) strings(list []string) {
	e.int32(int32(len(list)))
	for _, v := range list {
		e.string(v)
	}
}

func (e *encoder) acls(list []ACL) {
	e.int32(int32(len(list)))
	for _, a := range list {
		e.int32(a.Perms)
		e.string(a.Scheme)
		e.string(a.ID)
	}
}

func (e *encoder) stat(s Stat) {
	e.int64(s.Czxid)
	e.int64(s.Mzxid)
	e.int64(s.Ctime)
	e.int64(s.Mtime)
	e.int32(s.Version)
	e.int32(s.Cversion)
	e.int32(s.Aversion)
	e.int64(s.EphemeralOwner)
	e.int32(s.DataLength)
	e.int32(s.NumChildren)
	e.int64(s.Pzxid)
}

// readFrame reads one packet. For a length below zero or above limit it returns an error, and allocates nothing.
func readFrame(r io.Reader, limit int) ([]byte, error) {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, err
	}
	n := int32(binary.BigEndian.Uint32(head[:]))
	if n < 0 || int(n) > limit {
		return nil, errMalformed
	}
	frame := make([]byte, n)
	if _, err := io.ReadFull(r, frame); err != nil {
		return nil, err
	}
	return frame, nil
}
