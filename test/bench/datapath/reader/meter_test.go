package main

import (
	"encoding/binary"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// value is what package datapath produces for an offset.
func value(offset int64) []byte {
	return binary.BigEndian.AppendUint64(nil, uint64(offset))
}

// TestMeter fails when the meter is content with messages that are not those of the topic, each once and in order.
func TestMeter(t *testing.T) {
	const end = 200
	for name, c := range map[string]struct {
		offset func(i int64) int64
		value  func(offset int64) []byte
		n      int64
		want   string // in the error; "" is none
	}{
		"all":         {n: end},
		"too few":     {n: end - 1, want: "read 199 messages, want 200"},
		"too many":    {n: end + 1, want: "read 201 messages, want 200"},
		"one twice":   {n: end, offset: func(i int64) int64 { return i - i/100 }, want: "got offset 99 with 8 bytes, want offset 100 with 8"},
		"a gap":       {n: end, offset: func(i int64) int64 { return i + i/100 }, want: "got offset 101"},
		"other value": {n: end, value: func(int64) []byte { return value(7) }, want: "partition 0: got offset 0"},
		"other size":  {n: end, value: func(offset int64) []byte { return append(value(offset), 0) }, want: "with 9 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			finished := false
			m := newMeter(2, end, 8, "", func() { finished = true })
			for id := range int32(2) {
				for i := range c.n {
					offset, v := i, value
					if c.offset != nil {
						offset = c.offset(i)
					}
					if c.value != nil {
						v = c.value
					}
					m.part(id).take(offset, v(offset))
				}
			}
			sample, err := m.result()
			tenth := int64(2 * end / 10)
			sampled := sample.CPU > 0 && sample.Counted <= 9*tenth && sample.Counted > 9*tenth-stride
			if c.want == "" && (err != nil || !finished || !sampled) {
				t.Errorf("%+v, error %v, finished %v", sample, err, finished)
			}
			if c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("error %v, want %q in it", err, c.want)
			}
		})
	}
}

func TestProfile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "cpu")
	m := newMeter(1, 100, 8, file, func() {})
	for i := range int64(100) {
		m.part(0).take(i, value(i))
	}
	if _, err := m.result(); err != nil {
		t.Error(err)
	}
	if found, _ := filepath.Glob(file + "*"); len(found) != 2 {
		t.Errorf("profiles %v, want 2", found)
	}
	if err := run([]string{"-client=none"}); err == nil || !strings.Contains(err.Error(), `no client "none"`) {
		t.Errorf("error %v", err)
	}
}
