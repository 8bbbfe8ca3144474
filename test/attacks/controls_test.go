package attacks_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kielgo/kiel/allocator"
	"github.com/kielgo/kiel/internal/eventlog"
	"github.com/kielgo/kiel/ownership"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/zktest"
)

// Negative control "stock dialer (frozen leader)": followers that lose their leader drop their clients, and the next server that
// a client asks is the frozen one: it accepts and says nothing. The harm is what the servers hold: the session is gone, with the
// member and its claim, and another owns what was its, though there was a server to come back to all the time.
func TestFrozenServerAtTheHandshake(t *testing.T) {
	withstood(t, bubble(t, zktest.Options{}, func(w *world) *outcome {
		const frozen = "frozen:2181"
		opts := options{session: session.Options{Timeout: 6 * time.Second}, servers: []string{zktest.VirtualAddress, frozen}}
		a := w.member("a", opts)
		a.owns(5*time.Second, "0")
		b := w.member("b", options{session: opts.session})
		time.Sleep(20 * time.Second)
		l, err := w.net.Listen(frozen) // nobody accepts
		if err != nil {
			w.t.Fatal(err)
		}
		ses, began := a.sessionID(), time.Now()
		var gone, inherited time.Duration // 0: never
		w.net.Client("a").Cut()           // who was connected last is asked last
		back, came := poll(time.Minute, func() bool {
			since := time.Since(began)
			if gone == 0 && (w.owner("members", "a") != ses || w.owner("owners", "t:0") != ses) {
				gone = since
			}
			if inherited == 0 && b.owned() == "0" {
				inherited = since
			}
			return since > time.Millisecond && a.session.Stats().State == "connected"
		})
		same := a.sessionID() == ses
		if err := l.Close(); err != nil {
			w.t.Error(err)
		}
		o := w.close()
		o.figure("without-connection", back)
		switch {
		case gone > 0 && inherited > 0 && !same:
			o.figure("ephemerals-gone-after", gone)
			o.figure("inherited-after", inherited)
			o.harmed(sessionLost, "its ephemerals were gone after %v, another owned its partition after %v, it was back after %v", gone, inherited, back)
		case gone > 0 || inherited > 0 || !same || !came:
			o.harmed(otherHarm, "ephemerals gone after %v, inherited after %v, same session %t, back %t", gone, inherited, same, came)
		case a.journal.count(eventlog.Untrusted) > 0:
			o.harmed(otherHarm, "trust ended %d times", a.journal.count(eventlog.Untrusted))
		}
		return o
	}))
}

// Negative control "no claims": the handler of the old owner takes two seconds to finish.
func TestNoClaims(t *testing.T) {
	withstood(t, bubble(t, zktest.Options{}, func(w *world) *outcome {
		opts := options{handler: drainFor(2 * time.Second)}
		old := w.member("b", opts)
		old.owns(5*time.Second, "0")
		time.Sleep(10 * time.Second)
		began := time.Now()
		heir := w.member("a", opts)
		heir.owns(5*time.Second, "0")
		took := time.Since(began)
		o := w.close()
		o.figure("hand-over", took)
		return o
	}))
}

// kafka is as much of Kafka as a commit needs: who commits last is right, whoever it is.
type kafka struct {
	mu        sync.Mutex
	committed int64
}

func (k *kafka) commit(offset int64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.committed = offset
}

func (k *kafka) fetch() int64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.committed
}

// consume returns handlers that read on from what is committed and commit once, at the end, a moment before they return or a
// moment after: when the claim is released.
func (k *kafka) consume(late bool) func(m *member) ownership.Handler {
	return func(m *member) ownership.Handler {
		return func(ctx context.Context, c *ownership.Claim) error {
			next := k.fetch()
			m.journal.put(eventlog.Opened, c, next)
			ticker := time.NewTicker(pace)
			defer ticker.Stop()
			commit := func(offset int64) {
				k.commit(offset)
				m.journal.put(eventlog.Committed, c, offset)
			}
			for {
				select {
				case <-ticker.C:
					m.journal.put(eventlog.Message, c, next)
					next++
					continue
				case <-ctx.Done():
				}
				break
			}
			if !late {
				commit(next)
				return nil
			}
			context.AfterFunc(c.Context(), func() {
				time.Sleep(3 * pace)
				commit(next)
			})
			return nil
		}
	}
}

// Negative control "commit after release": what an owner commits after it has let go, the next one reads too late. The order is
// the handler's to keep (package consumer does; its tests say so), and the checker must see when it is not kept.
func TestCommitAfterRelease(t *testing.T) {
	run := func(t *testing.T, late bool) *outcome {
		return bubble(t, zktest.Options{}, func(w *world) *outcome {
			opts := options{handler: new(kafka).consume(late)}
			old := w.member("b", opts)
			old.owns(5*time.Second, "0")
			time.Sleep(10 * time.Second)
			heir := w.member("a", opts)
			heir.owns(5*time.Second, "0")
			time.Sleep(10 * time.Second)
			o := w.close()
			time.Sleep(time.Second) // the last of the late ones
			if s := o.harms[otherHarm]; strings.Contains(s, "committed") {
				o.forgive(otherHarm)
				o.harmed(lateCommit, "%s", s)
			}
			return o
		})
	}
	t.Run("on", func(t *testing.T) { withstood(t, run(t, false)) })
	t.Run("off", func(t *testing.T) { broken(t, lateCommit, run(t, true)) })
}

// Negative control "debounce off in a storm": many members join within a second.
func TestStormWithoutDebounce(t *testing.T) {
	const members, most = 25, 5
	run := func(t *testing.T, opts allocator.Options) *outcome {
		return bubble(t, zktest.Options{}, func(w *world) *outcome {
			counts := make([]atomic.Int64, members)
			for i := range members {
				opts := opts
				opts.Seed = seed(members)
				opts.OnRebalance = func(context.Context, allocator.Rebalance) { counts[i].Add(1) }
				w.member(fmt.Sprintf("m%03d", i), options{allocator: opts})
				time.Sleep(time.Second / members)
			}
			time.Sleep(30 * time.Second)
			worst, sum := int64(0), int64(0)
			for i := range counts {
				worst, sum = max(worst, counts[i].Load()), sum+counts[i].Load()
			}
			o := w.close()
			o.figure("rebalances-of-a-member", worst)
			o.figure("of-all", sum)
			if worst > most {
				o.harmed(storm, "a member has rebalanced %d times while %d joined within a second", worst, members)
			}
			return o
		})
	}
	t.Run("on", func(t *testing.T) { withstood(t, run(t, allocator.Options{})) })
	t.Run("off", func(t *testing.T) { broken(t, storm, run(t, allocator.Options{QuietPeriod: 1, MaxDelay: 1})) })
}
