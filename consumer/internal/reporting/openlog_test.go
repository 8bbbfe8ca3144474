package reporting

import (
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/internal/errlog"
	"github.com/kielgo/kiel/internal/testonly/assert"
	"github.com/kielgo/kiel/internal/testonly/conntest"
	"github.com/kielgo/kiel/internal/testonly/logtest"
)

// fakeClaim is a claim under a plan.
type fakeClaim struct {
	token   int64
	version uint64
}

func (c fakeClaim) Token() int64    { return c.token }
func (c fakeClaim) Version() uint64 { return c.version }

func at(topic string, id int32) kiel.Partition { return kiel.Partition{Topic: topic, ID: id} }

// Up to 16 partitions of one plan are logged one by one, and each claim once.
func TestOpenLogOfManyIsQuiet(t *testing.T) {
	said := &logtest.Log{}
	l := NewOpenLog(slog.New(slog.NewTextHandler(said, &slog.HandlerOptions{Level: slog.LevelDebug})))
	version := uint64(0)
	openAll := func(n int, token int64) {
		version++
		for i := range n {
			p := at("t", int32(i))
			l.Opened(p, fakeClaim{token, version}, func() int { return n - i }, "offset", i)
		}
	}
	check := func(when string, info, debug int) {
		t.Helper()
		if i, d := said.Count("level=INFO", "msg=opened"), said.Count("level=DEBUG", "msg=opened"); i != info || d != debug {
			t.Errorf("%s: %d lines at Info, %d at Debug, want %d and %d:\n%s", when, i, d, info, debug, said)
		}
	}
	openAll(errlog.MaxLines, 1)
	check("few", 16, 0)
	openAll(errlog.MaxLines, 1)
	check("again under the same claims", 16, 16)
	openAll(errlog.MaxLines+1, 2)
	check("many", 16, 16+17)
	openAll(errlog.MaxLines, 3)
	check("few again", 32, 33)
}

// The partitions that start by policy within a second share one line for each reason.
func TestStartsByPolicyAreGathered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		said := &logtest.Log{}
		l := NewOpenLog(slog.New(slog.NewTextHandler(said, nil)))
		for i := range 12 {
			l.StartsByPolicy(at("t", int32(i)), int64(10*i), Start{Reason: "none", Policy: "latest", Option: "Options.StartAt", NewGroup: true, Skipped: int64(i)})
			time.Sleep(50 * time.Millisecond)
		}
		l.StartsByPolicy(at("u", 0), 7, Start{Reason: "recreated", Policy: "earliest"})
		l.StartsByPolicy(at("u", 2), 0, Start{Reason: "none", Policy: "earliest", Option: "default", NewGroup: true})
		l.StartsByPolicy(at("u", 3), 9, Start{Reason: "out_of_range", Policy: "latest", Option: "Options.StartAt"})
		for i := range 6 {
			l.StartsByCopy(at("v", int32(i)), 5)
		}
		assert.Equal(t, said.String(), "", "logged at once: %s", said)
		time.Sleep(StartsWithin)
		synctest.Wait()
		if all := strings.Count(said.String(), "\n"); all != 5 ||
			said.Count("level=WARN", "in another Kafka cluster", `partitions=6 first="v:0 at 5, v:1 at 5, v:2 at 5, v:3 at 5, v:4 at 5 and 1 more"`) != 1 ||
			said.Count("level=WARN", "new group starts behind messages that it skips", "policy=latest option=Options.StartAt skipped=66 partitions=12", `first="t:0 at 0, t:1 at 10, t:2 at 20, t:3 at 30, t:4 at 40 and 7 more"`) != 1 ||
			said.Count("level=WARN", "cause=recreated policy=earliest partitions=1", `first="u:0 at 7"`) != 1 ||
			said.Count("level=INFO", `msg="new group starts" policy=earliest option=default partitions=1`) != 1 ||
			said.Count("level=WARN", "cause=out_of_range policy=latest option=Options.StartAt") != 1 {
			t.Errorf("logged %s", said)
		}
		l.Flush()
		l.StartsByPolicy(at("u", 1), 7, Start{Reason: "none", Policy: "earliest"})
		l.Flush()
		l.Flush()
		time.Sleep(time.Minute)
		if all := strings.Count(said.String(), "\n"); all != 6 {
			t.Errorf("%d lines:\n%s", all, said)
		}
	})
}

func TestErrorsDropTheOldest(t *testing.T) {
	dropped := 0
	q := newQueue(2, func() { dropped++ })
	for _, s := range []string{"a", "b", "c", "d"} {
		q.put(errors.New(s))
	}
	q.close()
	q.close()
	q.put(errors.New("e"))
	var got []string
	for err := range q.ch {
		got = append(got, err.Error())
	}
	if strings.Join(got, "") != "cd" || dropped != 2 {
		t.Errorf("got %v, %d dropped", got, dropped)
	}
}

func TestMain(m *testing.M) { conntest.Main(m) }
