package consumer

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/internal/defaultlog/logtest"
)

// versioned is a claim under a plan.
type versioned struct {
	*fakeHolder
	version uint64
}

func (v versioned) Version() uint64 { return v.version }

// Up to 16 partitions of one plan are logged one by one, and each claim once.
func TestOpenLogOfManyIsQuiet(t *testing.T) {
	said := &logtest.Log{}
	l := newOpenLog(slog.New(slog.NewTextHandler(said, &slog.HandlerOptions{Level: slog.LevelDebug})))
	version := uint64(0)
	openAll := func(n int, token int64) {
		version++
		for i := range n {
			p := tp("t", int32(i))
			l.opened(p, versioned{&fakeHolder{p: p, token: token}, version}, func() int { return n - i }, "offset", i)
		}
	}
	check := func(when string, info, debug int) {
		t.Helper()
		if i, d := said.Count("level=INFO", "msg=opened"), said.Count("level=DEBUG", "msg=opened"); i != info || d != debug {
			t.Errorf("%s: %d lines at Info, %d at Debug, want %d and %d:\n%s", when, i, d, info, debug, said)
		}
	}
	openAll(maxLines, 1)
	check("few", 16, 0)
	openAll(maxLines, 1)
	check("again under the same claims", 16, 16)
	openAll(maxLines+1, 2)
	check("many", 16, 16+17)
	openAll(maxLines, 3)
	check("few again", 32, 33)
}

// The partitions that start by policy within a second share one line for each reason.
func TestStartsByPolicyAreGathered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		said := &logtest.Log{}
		l := newOpenLog(slog.New(slog.NewTextHandler(said, nil)))
		for i := range 12 {
			l.startsByPolicy(tp("t", int32(i)), int64(10*i), reasonNone, Latest)
			time.Sleep(50 * time.Millisecond)
		}
		l.startsByPolicy(tp("u", 0), 7, reasonRecreated, Earliest)
		for i := range 6 {
			l.startsByCopy(tp("v", int32(i)), 5)
		}
		if said.String() != "" {
			t.Errorf("logged at once: %s", said)
		}
		time.Sleep(startsWithin)
		synctest.Wait()
		if all := strings.Count(said.String(), "\n"); all != 3 ||
			said.Count("level=WARN", "in another Kafka cluster", `partitions=6 first="v:0 at 5, v:1 at 5, v:2 at 5, v:3 at 5, v:4 at 5 and 1 more"`) != 1 ||
			said.Count("level=WARN", "reason=none policy=latest partitions=12", `first="t:0 at 0, t:1 at 10, t:2 at 20, t:3 at 30, t:4 at 40 and 7 more"`) != 1 ||
			said.Count("level=WARN", "reason=recreated policy=earliest partitions=1", `first="u:0 at 7"`) != 1 {
			t.Errorf("logged %s", said)
		}
		l.flush()
		l.startsByPolicy(tp("u", 1), 7, reasonNone, Earliest)
		l.flush()
		l.flush()
		time.Sleep(time.Minute)
		if all := strings.Count(said.String(), "\n"); all != 4 {
			t.Errorf("%d lines:\n%s", all, said)
		}
	})
}

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

// A claim that has ended leaves nothing behind: a member of a group that goes on for ever may have had any partition.
func TestOpenLogForgets(t *testing.T) {
	r := newRig(t, nil, nil)
	for i := range int32(3) {
		h := newHolder(t, tp("t", i))
		ended := r.addOpening(&opening{member: r.membership, claim: h, tp: h.p})
		r.openLog.opened(h.p, h, func() int { return 1 })
		if _, known := r.openLog.tokens[h.p]; !known {
			t.Errorf("the token of %v is not known while it is open", h.p)
		}
		ended()
	}
	if n := len(r.openLog.tokens); n != 0 {
		t.Errorf("%d tokens are kept of claims that have ended", n)
	}
}
