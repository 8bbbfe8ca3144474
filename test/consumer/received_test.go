package consumer_test

import (
	"testing"
	"time"
)

// With sarama's interfaces the metrics count what a handler has received, not what stands in its channel.
func TestMessagesThatWereReceivedAreCounted(t *testing.T) {
	inRig(t, 1, func(t *testing.T, r *rig) {
		r.produce(100, 0)
		m, reg := r.watchedMember("a", nil)
		m.h.delay = time.Second
		m.start()
		until(t, "the first was read", func() bool { return total(m) >= 1 })
		time.Sleep(20 * time.Second)
		s := scrape(t, reg)
		if n := s["messages_total{topic=t}"]; n < 19 || n > 23 {
			t.Errorf("%v messages counted in 20 s", n)
		}
		if n := s["handler_duration_seconds{topic=t}"]; n < 18 || n > 22 {
			t.Errorf("%v were measured in 20 s", n)
		}
		m.leave()
		if n, got := scrape(t, reg)["messages_total{topic=t}"], float64(total(m)); n < got-1 || n > got+1 {
			t.Errorf("%v messages counted, and the handler has had %v", n, got)
		}
	})
}
