package consumer_test

import (
	"testing"
	"time"

	"github.com/kielgo/kiel/internal/testonly/logtest"
)

// A group that can't start says so, though no Logger was given to anything.
func TestLogWithoutLogger(t *testing.T) {
	said := logtest.Capture(t)
	inRig(t, 1, func(t *testing.T, r *rig) {
		r.zknet.Refuse()
		m := r.member("a", nil).start()
		time.Sleep(time.Second)
		if said.Count("level=WARN", "connection failed") == 0 {
			t.Errorf("a second without ZooKeeper:\n%s", said)
		}
		r.zknet.Heal()
		until(t, "the partition is open", func() bool { return len(m.owns()) == 1 })
		m.leave()
	})
	if n := said.Count("level=INFO") + said.Count("level=DEBUG"); n > 0 {
		t.Errorf("%d lines are no warnings:\n%s", n, said)
	}
}
