package fetch

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kielgo/kiel/internal/testonly/assert"
)

// slowSearch is a cluster whose search for a leader waits until it is let go on.
type slowSearch struct {
	*fakeCluster
	goOn chan struct{}
}

func (c slowSearch) Leader(topic string, id int32) (Node, int32, error) {
	<-c.goOn
	return c.fakeCluster.Leader(topic, id)
}

// A partition that is closed while its leader is searched is not fetched, whatever the search finds.
func TestClosedDuringTheSearch(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, k *fakeCluster, x *Fetcher) {
		goOn := make(chan struct{})
		x.cluster = slowSearch{k, goOn}
		k.add(0, batch{values: vals(1)})
		p := open(t, x, 0, 0, -1)
		synctest.Wait() // the search goes on
		p.Close()
		close(goOn)
		time.Sleep(time.Minute)
		if n := len(k.requests()); n > 0 {
			t.Errorf("%d requests for a partition that is closed", n)
		}
	})
}

// The answer to a request from before Close is dropped. Taken, its memory counts for ever, as nobody reads it.
func TestAnswerAfterCloseIsDropped(t *testing.T) {
	inBubble(t, func(o *Options) { o.Config.Consumer.MaxWaitTime = time.Minute }, func(t *testing.T, k *fakeCluster, x *Fetcher) {
		k.add(0)
		k.add(1)
		open(t, x, 1, 0, -1)
		p := open(t, x, 0, 0, -1)
		time.Sleep(time.Second) // a long poll asks for both
		p.Close()
		k.add(0, batch{values: wide(100, 1000)})
		time.Sleep(time.Second)
		assert.Equal(t, p.read(func() int64 { return int64(p.buffered) }), 0, "bytes that count as held")
	})
}

// The position that a partition goes back to when batches are dropped has the leader epoch of the batch before it. With that of a
// dropped batch, the comparison with the next leader's log finds a truncation that was none.
func TestEpochAfterATrim(t *testing.T) {
	for name, read := range map[string]int{"to what was handed out": 1, "to what is still buffered": 0} {
		subtest(t, name, func(o *Options) { o.MaxBytes = 2 << 20 }, func(t *testing.T, k *fakeCluster, x *Fetcher) {
			lead := func(epoch int32) {
				k.change(func() { k.log(0).epoch = epoch; k.known[key{"t", 0}] = fakeLeader{1, epoch} })
			}
			lead(5)
			k.add(0, batch{values: vals(10)})
			p := open(t, x, 0, 0, -1)
			synctest.Wait()
			for range read {
				if _, err := next(t, p, time.Second); err != nil {
					t.Fatal(err)
				}
			}
			lead(6)
			k.add(0, batch{values: wide(50, 4000)})
			time.Sleep(time.Second)
			if at := p.read(func() int64 { return p.position }); at != 60 {
				t.Fatalf("position %d", at)
			}
			p.Pause()
			for id := int32(1); id < 16; id++ { // the share becomes too small for the newer batch
				k.add(id)
				open(t, x, id, 0, -1)
			}
			if at := p.read(func() int64 { return p.position }); at != 10 {
				t.Fatalf("position %d after the trim", at)
			}
			lead(7)
			p.Resume()
			_, err := next(t, p, time.Minute)
			if read == 0 && err == nil {
				_, err = next(t, p, time.Minute)
			}
			if errors.Is(err, ErrTruncated) || err != nil {
				t.Errorf("Next: %v", err)
			}
		})
	}
}

// The leader that is found first is compared, too: the epoch at Open is that of the message before, and an unclean election may
// have come between the two owners of the partition.
func TestTruncationBeforeTheOpening(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, k *fakeCluster, x *Fetcher) {
		k.change(func() { k.log(0).epoch = 6; k.known[key{"t", 0}] = fakeLeader{1, 6} })
		k.add(0, batch{values: vals(10), epoch: 5}, batch{values: vals(20)})
		var cut *TruncatedError
		if _, err := next(t, open(t, x, 0, 20, 5), time.Minute); !errors.As(err, &cut) || cut.Diverges != 10 {
			t.Errorf("Next: %v, the log differs from offset 10", err)
		}
	})
}
