package zktest

import (
	"bytes"
	"encoding/binary"
	"runtime"
	"testing"
)

// FuzzDecodeRequest: whatever a packet says, decoding it neither panics nor takes more memory than a multiple of its size.
func FuzzDecodeRequest(f *testing.F) {
	for _, op := range []Op{OpCreate, OpMulti, OpSetWatches2, OpSetACL, OpAuth, OpGetData, OpCreateTTL} {
		b := binary.BigEndian.AppendUint32([]byte{0, 0, 0, 1}, uint32(op))
		f.Add(append(b, bytes.Repeat([]byte{0, 0, 0, 1}, 20)...))
		f.Add(append(b, 0x7f, 0xff, 0xff, 0xff))
		f.Add(append(b, 0, 0, 0, 0, 0, 0, 0, 0, 0x7f, 0xff, 0xff, 0xff))
	}
	f.Fuzz(func(t *testing.T, frame []byte) {
		before := allocated()
		r, err := decodeRequest(frame)
		if grown := allocated() - before; grown > uint64(64*len(frame)+1<<16) {
			t.Errorf("a packet of %d bytes took %d", len(frame), grown)
		}
		if err == nil && !r.bad && r.Op == OpMulti {
			for _, op := range r.Ops {
				if !allowedIn(OpMulti, op.Op) {
					t.Errorf("%v in a multi", op.Op)
				}
			}
		}
		_, _ = decodeConnect(frame)
	})
}

func allocated() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.TotalAlloc
}

// TestDecodeBounds: lengths that a packet can't hold are refused before anything is allocated for them.
func TestDecodeBounds(t *testing.T) {
	huge := []byte{0x7f, 0xff, 0xff, 0xff}
	for name, body := range map[string][]byte{
		"path":              huge,
		"negative path":     {0x80, 0, 0, 0},
		"data":              append([]byte{0, 0, 0, 1, '/'}, huge...),
		"acl":               append([]byte{0, 0, 0, 1, '/', 0xff, 0xff, 0xff, 0xff}, huge...),
		"acl of one byte":   {0, 0, 0, 1, '/', 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 1, 0},
		"nothing":           {},
		"flags cut in half": {0, 0, 0, 1, '/', 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 0},
	} {
		frame := append([]byte{0, 0, 0, 1, 0, 0, 0, byte(OpCreate)}, body...)
		before := allocated()
		r, err := decodeRequest(frame)
		if err != nil || !r.bad {
			t.Errorf("%s: %+v, %v; want a bad request", name, r, err)
		}
		if grown := allocated() - before; grown > 1<<20 {
			t.Errorf("%s: took %d bytes", name, grown)
		}
	}
	if _, err := decodeRequest(make([]byte, 7)); err == nil {
		t.Error("half a header was taken")
	}
	if _, err := decodeConnect(make([]byte, 27)); err == nil {
		t.Error("half a connect request was taken")
	}
	for _, length := range [][]byte{{0xff, 0xff, 0xff, 0xff}, {0, 0, 0, 11, 1, 2, 3}, {0, 0, 0, 2, 1}, {0, 0}} {
		if frame, err := readFrame(bytes.NewReader(length), 10); err == nil {
			t.Errorf("length %v gave a frame of %d bytes", length, len(frame))
		}
	}
}

func TestStrings(t *testing.T) {
	for op := Op(-20); op < 120; op++ {
		if op.String() == "" {
			t.Errorf("no name for %d", int32(op))
		}
	}
	for e := Error(-130); e <= 0; e++ {
		if e.Error() == "zktest: " {
			t.Errorf("no text for %d", int32(e))
		}
	}
}
