package consumer

import (
	"fmt"
	"log/slog"
	"testing"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/internal/testonly/logtest"
)

// A handler has recovered when its partition has got further than where it stumbled.
func TestStumbled(t *testing.T) {
	var s stumbled
	p, stream := trackedPartition(t, 0)
	stream.put(0, 1, 2)
	p.next()
	s.at(p)
	open := func() map[kiel.Partition]*Partition { return map[kiel.Partition]*Partition{p.id: p} }
	none := func() map[kiel.Partition]*Partition { return nil }
	if got := s.passed(open); len(got) > 0 {
		t.Errorf("%v got further", got)
	}
	if got := s.passed(none); len(got) > 0 {
		t.Errorf("%v got further though they are closed", got)
	}
	p.next()
	if got := fmt.Sprint(s.passed(open), s.passed(open)); got != "[t:0] []" {
		t.Errorf("%s got further", got)
	}
	s.at(p)
	p.Mark(&sarama.ConsumerMessage{Topic: "t", Offset: 0})
	if got := s.passed(open); len(got) != 1 {
		t.Errorf("%v have marked more", got)
	}
	s.at(p)
	s.forget(p.id)
	p.next()
	if got := s.passed(open); len(got) > 0 {
		t.Errorf("%v was forgotten", got)
	}
}

// A claim that has ended leaves nothing behind: a member of a group that goes on for ever may have had any partition. So the
// opening of a claim that is not known any more is logged as the first one.
func TestOpenLogForgets(t *testing.T) {
	r, said := newRig(t, nil, nil), &logtest.Log{}
	r.logTo(slog.NewTextHandler(said, &slog.HandlerOptions{Level: slog.LevelDebug}))
	h := newHolder(t, tp("t", 0))
	for i, again := range []string{"level=INFO", "level=DEBUG"} {
		ended := r.addOpening(&opening{member: r.membership, claim: h, tp: h.p})
		r.openLog.Opened(h.p, h, func() int { return 1 })
		r.openLog.Opened(h.p, h, func() int { return 1 })
		if n := said.Count(again, "msg=opened"); n != i+1 {
			t.Errorf("opening %d: %d lines %s:\n%s", i, n, again, said)
		}
		ended()
	}
}
