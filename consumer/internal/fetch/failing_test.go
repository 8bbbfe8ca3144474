package fetch

import (
	"testing"
	"time"

	"github.com/IBM/sarama"
)

// A partition without a leader fails from the first failure on until it is read. A paused one does not count, nor does a leader's
// move for long.
func TestFailingSince(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, k *fakeCluster, x *Fetcher) {
		p := begun(t, k, x, 1)
		check := func(when string, least, most time.Duration) {
			t.Helper()
			age := time.Duration(0)
			if at := p.FailingSince(); !at.IsZero() {
				age = time.Since(at)
			}
			if age < least || age > most {
				t.Errorf("%s: fails for %v, want %v to %v", when, age, least, most)
			}
		}
		check("all is well", 0, 0)
		k.change(func() { k.log(0).leader, k.log(0).epoch = 2, 1 })
		for range 10 {
			time.Sleep(time.Second)
			check("the leader has moved", 0, time.Second)
		}
		k.change(func() { k.leaderErr, k.down[2] = sarama.ErrLeaderNotAvailable, true })
		k.hangUp()
		time.Sleep(5 * time.Minute)
		check("there is no leader", 5*time.Minute-10*time.Second, 5*time.Minute)
		p.Pause()
		check("it is paused", 0, 0)
		p.Resume()
		check("it is not any more", 5*time.Minute-10*time.Second, 5*time.Minute)
		k.change(func() { k.leaderErr, k.down[2] = nil, false })
		time.Sleep(5 * time.Second)
		check("all is well again", 0, 0)
	})
}

// The time for which a quota allows no messages does not count when another error is waited out.
func TestQuotaLeavesThePatience(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, k *fakeCluster, x *Fetcher) {
		p := begun(t, k, x, 1)
		began := time.Now()
		for range 5 {
			k.change(func() { k.starving, k.throttle = true, 3*time.Second })
			time.Sleep(3 * time.Second)
		}
		k.change(func() { k.starving, k.throttle, k.log(0).err = false, 0, sarama.ErrUnknown })
		time.Sleep(6 * time.Second)
		if since := p.FailingSince(); since.IsZero() || since.Sub(began) > 3*time.Second {
			t.Errorf("fails since %v after the beginning", since.Sub(began))
		}
		k.change(func() { k.log(0).err = 0 })
		k.add(0, batch{values: vals(1)})
		same(t, offsets(t, p, 2), []int64{1})
		if since := p.FailingSince(); !since.IsZero() {
			t.Errorf("still fails since %v", since)
		}
	})
}
