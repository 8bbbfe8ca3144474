package fetch

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// An answer that continues batches which were dropped meanwhile is dropped, too. Applied, it moves the position past messages
// that nobody has: they are lost.
func TestAnswerAfterATrimIsDropped(t *testing.T) {
	const limit = 2 << 20
	value := strings.Repeat("x", 4000)
	change := func(o *Options) {
		o.MaxBytes = limit
		o.Config.Consumer.MaxWaitTime = 10 * time.Second
	}
	inBubble(t, change, func(t *testing.T, k *fakeCluster, x *Fetcher) {
		k.add(0, batch{values: slices.Repeat([]string{value}, 30)}, batch{values: slices.Repeat([]string{value}, 30)})
		p := open(t, x, 0, 0, -1)
		synctest.Wait() // 60 messages wait to be read, and a long poll asks for the next ones
		if at := p.read(func() int64 { return p.position }); at != 60 {
			t.Fatalf("position %d", at)
		}
		for id := int32(1); id < 16; id++ { // the share becomes too small for the 60
			k.add(id)
			open(t, x, id, 0, -1)
		}
		k.add(0, batch{values: vals(5)}) // the answer to the long poll
		same(t, offsets(t, p, 65), seq(0, 65))
	})
}

// A record batch that comes in part, and alone, is fetched again, with more bytes. Passed over, its messages are lost.
func TestBatchInPartIsFetchedAgain(t *testing.T) {
	inBubble(t, func(o *Options) { o.Config.Consumer.Fetch.Default = minFetch }, func(t *testing.T, k *fakeCluster, x *Fetcher) {
		value := strings.Repeat("x", 10<<10)
		k.add(0, batch{values: vals(5)}, batch{values: slices.Repeat([]string{value}, 10)}, batch{values: vals(5)})
		k.log(0).part = true
		same(t, offsets(t, open(t, x, 0, 0, -1), 20), seq(0, 20))
	})
}
