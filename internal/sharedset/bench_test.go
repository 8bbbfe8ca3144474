package sharedset_test

import (
	"fmt"
	"testing"

	"github.com/kielgo/kiel/internal/sharedset"
	"github.com/kielgo/kiel/internal/testonly/noerr"
	"github.com/kielgo/kiel/internal/testonly/recipetest"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/zktest"
)

func manyItems(n int) []string {
	items := make([]string, n)
	for i := range items {
		items[i] = fmt.Sprintf("a-topic-of-some-length:%d", i)
	}
	return items
}

func BenchmarkCodec(b *testing.B) {
	for _, n := range []int{100, 10_000, 30_000} {
		items := manyItems(n)
		data := sharedset.Encode(items)
		b.Run(fmt.Sprintf("decode/items=%d", n), func(b *testing.B) {
			b.SetBytes(int64(len(data)))
			b.ReportAllocs()
			for b.Loop() {
				noerr.Last(b)(sharedset.Decode(data))
			}
		})
		b.Run(fmt.Sprintf("encode/items=%d", n), func(b *testing.B) {
			b.SetBytes(int64(len(data)))
			b.ReportAllocs()
			for b.Loop() {
				sharedset.Encode(items)
			}
		})
	}
}

// BenchmarkAddRemove changes a set of the given size on zktest over TCP: two changes under the lock.
func BenchmarkAddRemove(b *testing.B) {
	for _, n := range []int{100, 10_000} {
		b.Run(fmt.Sprintf("items=%d", n), func(b *testing.B) {
			_, address := zktest.Start(b, zktest.Options{})
			s, err := session.New([]string{address}, session.Options{})
			noerr.Must(b, err)
			recipetest.Run(b, s)
			ctx := b.Context()
			set, err := sharedset.New(s, path, sharedset.Options{})
			noerr.Must(b, err)
			noerr.Last(b)(set.Add(ctx, manyItems(n)...))
			for b.Loop() {
				if n, err := set.Add(ctx, "new:0"); err != nil || n != 1 {
					b.Fatal(n, err)
				}
				if n, err := set.Remove(ctx, "new:0"); err != nil || n != 1 {
					b.Fatal(n, err)
				}
			}
		})
	}
}
