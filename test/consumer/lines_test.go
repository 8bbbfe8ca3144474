package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel/consumer"
	"github.com/kielgo/kiel/party"
)

// logAll makes a member log what a production system keeps to l: all but Debug.
func logAll(l *lines, o *consumer.Options) { o.Logger = slog.New(slog.NewTextHandler(l, nil)) }

// wants fails unless there are at most so many lines, each of the wanted texts in exactly one of them.
func wants(t *testing.T, when string, said []string, most int, texts ...string) {
	t.Helper()
	t.Logf("%s: %d lines", when, len(said))
	if len(said) > most {
		t.Errorf("%s: %d lines, at most %d:\n%s", when, len(said), most, strings.Join(said, ""))
	}
	for _, text := range texts {
		if n := count(said, text); n != 1 {
			t.Errorf("%s: %d lines have %q:\n%s", when, n, text, strings.Join(said, ""))
		}
	}
}

// count returns how many lines have all the words of a text.
func count(said []string, text string) int {
	n := 0
	for _, line := range said {
		if !slices.ContainsFunc(strings.Fields(text), func(word string) bool { return !strings.Contains(line, word) }) {
			n++
		}
	}
	return n
}

// loudLines returns the lines that warn.
func loudLines(said []string) []string {
	return slices.DeleteFunc(slices.Clone(said), func(line string) bool {
		return !strings.Contains(line, "level=WARN") && !strings.Contains(line, "level=ERROR")
	})
}

// TestLinesOfAThousandPartitions: a member that joins or leaves is a handful of lines, however many partitions move.
func TestLinesOfAThousandPartitions(t *testing.T) {
	const partitions = 1000
	inRig(t, partitions, func(t *testing.T, r *rig) {
		var said, bSaid lines
		a := r.member("a", func(o *consumer.Options) { logAll(&said, o) }).start()
		until(t, "all is open", func() bool { return len(a.owns()) == partitions })
		time.Sleep(5 * time.Second)
		wants(t, "the first joins", said.take(), 5, `msg=rebalanced reason=started`, `msg="new group starts" partitions=1000 995 more`)

		b := r.member("b", func(o *consumer.Options) { logAll(&bSaid, o) }).start()
		until(t, "both have half", func() bool { return len(a.owns()) == partitions/2 && len(b.owns()) == partitions/2 })
		time.Sleep(5 * time.Second)
		wants(t, "another joins", said.take(), 2, `msg=rebalanced reason="member-joined b" moved=500 taken_away=500`)
		wants(t, "the other", bSaid.take(), 5, `msg=rebalanced given=500`)

		b.leave()
		until(t, "all is back", func() bool { return len(a.owns()) == partitions })
		time.Sleep(5 * time.Second)
		wants(t, "the other leaves", said.take(), 2, `msg=rebalanced gone=b given=500`)
		wants(t, "the other", bSaid.take(), 5)
	})
}

// TestLinesOfFewPartitions: while few partitions move, the log tells of each who had it, why it came, and where it starts.
func TestLinesOfFewPartitions(t *testing.T) {
	inRig(t, 4, func(t *testing.T, r *rig) {
		var said, bSaid lines
		a := r.member("a", func(o *consumer.Options) { logAll(&said, o) }).start()
		until(t, "all is open", func() bool { return len(a.owns()) == 4 })
		r.produce(5, 0, 1, 2, 3)
		until(t, "all is read", func() bool { return total(a) == 20 })
		time.Sleep(5 * time.Second)
		first := said.take()
		// The first view of the set has the topic, or is older than it: which of the two comes first is chance.
		why := `reason="topic-added t"`
		if count(first, "msg=rebalanced reason=started given=4") == 1 {
			why = "reason=started"
		}
		wants(t, "the first joins", first, 13, "msg=rebalanced given=4 "+why, `msg="new group starts" policy=earliest option= partitions=4`)
		for p := range 4 {
			if count(first, fmt.Sprintf("msg=opened partition=t:%d offset=0 origin=policy ", p)+why) != 1 {
				t.Errorf("partition %d was not logged: %s", p, first)
			}
		}

		b := r.member("b", func(o *consumer.Options) { logAll(&bSaid, o) }).start()
		until(t, "both have two", func() bool { return len(a.owns()) == 2 && len(b.owns()) == 2 })
		time.Sleep(5 * time.Second)
		moved := b.owns()[0]
		wants(t, "another joins", said.take(), 5, `msg=rebalanced reason="member-joined b"`,
			fmt.Sprintf(`msg=revoking partition=%s next=b reason="member-joined b"`, moved), "msg=released partition="+moved)
		wants(t, "the other", bSaid.take(), 9, "msg=rebalanced",
			"msg=claimed partition="+moved, fmt.Sprintf("msg=opened partition=%s offset=5 origin=committed", moved))

		r.grow(6)
		until(t, "the new ones are open", func() bool { return len(a.owns())+len(b.owns()) == 6 })
		time.Sleep(5 * time.Second)
		grown := append(said.take(), bSaid.take()...)
		if count(grown, "msg=\"topic grew\" topic=t partitions_before=4 partitions=6") != 2 || count(grown, `msg=rebalanced reason="topic-grew t"`) != 2 {
			t.Errorf("the topic grew: %s", grown)
		}
	})
}

// TestLinesOfZooKeeperAway: ZooKeeper is away for longer than the session lasts, and comes back.
func TestLinesOfZooKeeperAway(t *testing.T) {
	for _, c := range []struct {
		partitions int32
		back       int // lines when it is back
	}{{9, 9*2 + 6}, {300, 6}} {
		t.Run(fmt.Sprint(c.partitions), func(t *testing.T) {
			inRig(t, c.partitions, func(t *testing.T, r *rig) {
				var said lines
				a := r.owning("a", func(o *consumer.Options) { logAll(&said, o) }).start() // its session logs, too
				all := func() bool { return len(a.owns()) == int(c.partitions) }
				until(t, "all is open", all)
				time.Sleep(5 * time.Second)
				said.take()
				r.zk.Down()
				time.Sleep(time.Minute)
				wants(t, "ZooKeeper is away", said.take(), 12, fmt.Sprintf("level=WARN partitions=%d stopped", c.partitions))
				r.zk.Restart(false)
				until(t, "all is open", all)
				time.Sleep(10 * time.Second)
				back := said.take()
				wants(t, "ZooKeeper is back", back, c.back, "msg=resumed after=")
				if loud := loudLines(back); len(loud) > 0 {
					t.Errorf("warned when all was well: %s", loud)
				}
			})
		})
	}
}

// TestLinesOfATakenName: a member that has another's name says so once while it waits, and Consume returns what to do.
func TestLinesOfATakenName(t *testing.T) {
	for _, read := range []bool{false, true} {
		t.Run(fmt.Sprintf("errors are read %v", read), func(t *testing.T) {
			inRig(t, 2, func(t *testing.T, r *rig) {
				a := r.member("a", nil).start()
				until(t, "all is open", func() bool { return len(a.owns()) == 2 })
				var said lines
				b := r.member("b", func(o *consumer.Options) {
					logAll(&said, o)
					o.Name, o.Config.Consumer.Return.Errors = "a", read
				}).start()
				time.Sleep(30 * time.Second)
				wants(t, "the name is taken", loudLines(said.take()), 1, "kind=name held session")
				if err := <-b.done; !errors.Is(err, party.ErrNameTaken) || !strings.Contains(err.Error(), "give one of the two members another name, or stop the other process") {
					t.Errorf("Consume: %v", err)
				}
				b.close()
				wants(t, "it gives up", loudLines(said.take()), 1) // Consume has returned why
				a.leave()
			})
		})
	}
}

// TestDeadAreNamed: a member that is killed has a name in the log of each survivor.
func TestDeadAreNamed(t *testing.T) {
	inRig(t, 9, func(t *testing.T, r *rig) {
		said := make([]lines, 3)
		var ms []*member
		for i, name := range []string{"a", "b", "c"} {
			ms = append(ms, r.member(name, func(o *consumer.Options) { logAll(&said[i], o) }).start())
		}
		until(t, "all is open", func() bool { return len(ms[0].owns()) == 3 && len(ms[1].owns()) == 3 && len(ms[2].owns()) == 3 })
		time.Sleep(5 * time.Second)
		lost := ms[2].owns()
		for i := range said {
			said[i].take()
		}
		ms[2].net.Freeze() // as when its machine has died
		ms[2].log.cut = time.Now().UnixNano()
		until(t, "the others have all", func() bool { return len(ms[0].owns())+len(ms[1].owns()) == 9 })
		time.Sleep(5 * time.Second)
		var took []string
		for i := range 2 {
			survivor := said[i].take()
			wants(t, "a survivor", survivor, 6, "msg=rebalanced gone=c reason=\"member-")
			for _, p := range lost {
				if n := count(survivor, "msg=claimed previous=c partition="+p); n == 1 && count(survivor, "msg=opened partition="+p) == 1 {
					took = append(took, p)
				}
			}
			if loud := loudLines(survivor); len(loud) > 0 {
				t.Errorf("a survivor warned: %s", loud)
			}
		}
		slices.Sort(took)
		if !slices.Equal(took, lost) {
			t.Errorf("the logs name c as the owner before of %v, want %v", took, lost)
		}
		ms[2].net.Heal()
	})
}

// TestRollingRestartIsSilent: members with the handler of sarama's example are restarted one after the other. Nobody warns of
// anything.
func TestRollingRestartIsSilent(t *testing.T) {
	for _, end := range []string{"ctx", "Close"} {
		t.Run(end, func(t *testing.T) {
			inRig(t, 6, func(t *testing.T, r *rig) {
				r.produce(5, 0, 1, 2, 3, 4, 5)
				var said lines
				names := []string{"a", "b", "c"}
				ms := map[string]*member{}
				start := func(name string) {
					m := r.member(name, func(o *consumer.Options) {
						logAll(&said, o)
						o.Config.Consumer.Return.Errors = false
					})
					m.startWith(watcher{recorder: m.h, result: func(context.Context) error { return nil }}, topic)
					ms[name] = m
				}
				settled := func() bool {
					for _, m := range ms {
						if m.log.holds() != 2 {
							return false
						}
					}
					return true
				}
				for _, name := range names {
					start(name)
				}
				until(t, "each has two", settled)
				time.Sleep(time.Minute)
				if loud := slices.DeleteFunc(loudLines(said.take()), func(line string) bool { return strings.Contains(line, "cause=none") }); len(loud) > 0 {
					t.Errorf("the start: %s", loud)
				}
				for round := range 2 {
					for _, name := range names {
						m := ms[name]
						if end == "ctx" {
							m.leave()
						}
						m.close()
						start(name)
						until(t, "each has two", settled)
						r.produce(1, 0, 1, 2, 3, 4, 5)
						time.Sleep(time.Duration(round+1) * 10 * time.Second)
					}
				}
				restarts := said.take()
				if loud := loudLines(restarts); len(loud) > 0 {
					t.Errorf("warned: %s", strings.Join(loud, ""))
				}
				if n, most := len(restarts), 6*32; n > most {
					t.Errorf("%d lines for 6 restarts, at most %d", n, most)
				}
				t.Logf("%d lines for 6 restarts of a member with 2 partitions of 6", len(restarts))
			})
		})
	}
}

// consumeInALoop has the member consume until stop is called, as programs for sarama's groups do.
func (m *member) consumeInALoop() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			if err := m.group.Consume(ctx, []string{topic}, m.h); err != nil {
				m.t.Errorf("%s: Consume: %v", m.name, err)
			}
		}
	}()
	return func() {
		cancel()
		<-ended
	}
}

// TestLinesOfAFailingHandler: however often a handler fails, or panics, the log tells so once, and then every 10 s; and when it
// has recovered.
func TestLinesOfAFailingHandler(t *testing.T) {
	for _, c := range []struct{ reopen, panics bool }{{}, {reopen: true}, {panics: true}, {true, true}} {
		t.Run(fmt.Sprintf("%+v", c), func(t *testing.T) {
			inRig(t, 2, func(t *testing.T, r *rig) {
				var said lines
				a := r.member("a", func(o *consumer.Options) {
					logAll(&said, o)
					o.ReopenPartition = c.reopen
				})
				var sick sync.Map
				a.h.each = func(s sarama.ConsumerGroupSession, _ sarama.ConsumerGroupClaim, m *sarama.ConsumerMessage) error {
					if _, ok := sick.Load(m.Partition); ok {
						if c.panics {
							panic(errWork)
						}
						return errWork
					}
					s.MarkMessage(m, "")
					return nil
				}
				defer a.consumeInALoop()()
				until(t, "both are open", func() bool { return len(a.owns()) == 2 })
				time.Sleep(2 * time.Second)
				said.take()
				sick.Store(int32(0), true)
				r.produce(3, 0, 1)
				time.Sleep(35 * time.Second)
				failing := said.take()
				wants(t, "a handler fails", failing, 8, "level=ERROR msg=failed kind=handler about=t:0 error= "+errWork.Error()[:4])
				if n := len(a.errors()); n < 8 {
					t.Errorf("%d errors in Errors", n)
				}
				kinds := 1
				if c.panics {
					kinds++
					wants(t, "a handler panics", failing, 8, `level=ERROR msg=failed kind="panic in handler" about=t:0 error= stack=`)
				}
				if n := len(loudLines(failing)); n > 4*kinds {
					t.Errorf("warned %d times in 35 s: %s", n, failing)
				}
				sick.Delete(int32(0))
				until(t, "all is committed", func() bool { return r.committed(topic, 0) == 3 })
				time.Sleep(2 * time.Minute)
				recovered := said.take()
				wants(t, "it has recovered", recovered, 4, "msg=recovered kind=handler")
				if c.panics {
					wants(t, "it panics no more", recovered, 4, `msg=recovered kind="panic in handler"`)
				}
			})
		})
	}
}
