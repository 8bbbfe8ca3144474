package fetch

import (
	"fmt"
	"testing"
)

// BenchmarkUnpack decompresses batches of JSON.
func BenchmarkUnpack(b *testing.B) {
	for _, size := range []int{16 << 10, 1 << 20} {
		var data []byte
		for i := 0; len(data) < size; i++ {
			data = fmt.Appendf(data, `{"time":%d,"customer":%d,"level":"info","x":%x},`, i*7919, i*104729%99991, i*7907)
		}
		for _, codec := range codecs {
			packed := &recordBatch{attributes: int16(codec), records: compressed(codec, data)}
			b.Run(fmt.Sprintf("%v %d KB", codec, size>>10), func(b *testing.B) {
				u := newUnpacker(defaultMaxBatch)
				b.SetBytes(int64(len(data)))
				b.ReportAllocs()
				for b.Loop() {
					if _, err := u.unpack(packed); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
