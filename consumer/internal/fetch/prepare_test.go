package fetch

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/kielgo/kiel/internal/testonly/assert"
)

// Prepare connects to the leader before a partition is opened, which then uses that connection. Nothing is asked on it meanwhile.
func TestPrepareConnects(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, c *fakeCluster, x *Fetcher) {
		c.add(0, batch{values: vals(3)})
		synctest.Wait() // Run has begun
		x.Prepare("t", []int32{0})
		synctest.Wait()
		assert.Equal(t, c.dialled(), 1, "connections before the partition is opened")
		x.Prepare("t", []int32{0, 7})
		synctest.Wait()
		p := open(t, x, 0, 0, -1)
		defer p.Close()
		same(t, offsets(t, p, 3), seq(0, 3))
		assert.Equal(t, c.dialled(), 1, "connections")
	})
}

// A connection that Prepare can't open is tried again when the partition is opened, at once: the failure before does not count.
func TestPrepareThatFails(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, c *fakeCluster, x *Fetcher) {
		c.add(0, batch{values: vals(3)})
		c.change(func() { c.down[1] = true })
		synctest.Wait()
		x.Prepare("t", []int32{0})
		time.Sleep(time.Second)
		c.change(func() { c.down[1] = false })
		began := time.Now()
		p := open(t, x, 0, 0, -1)
		defer p.Close()
		same(t, offsets(t, p, 3), seq(0, 3))
		if d := time.Since(began); d > 0 {
			t.Errorf("read after %v", d)
		}
	})
}
