package chaos_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kielgo/kiel/internal/eventlog"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/test/members"
)

// join makes one value of several addresses for --zookeeper.
func join(addrs ...string) string { return strings.Join(addrs, ",") }

// without returns a list but for one element.
func without[T any](list []T, index int) []T {
	return slices.Delete(slices.Clone(list), index, index+1)
}

// spread is the median and the worst of some measurements.
func spread(ds []time.Duration) string {
	if len(ds) == 0 {
		return "nothing measured"
	}
	return fmt.Sprintf("median %v, worst %v (n=%d)", ms(median(ds)), ms(slices.Max(ds)), len(ds))
}

func median(ds []time.Duration) time.Duration {
	sorted := slices.Sorted(slices.Values(ds))
	return sorted[(len(sorted)-1)/2]
}

// memberPath is the znode of a member of a group.
func memberPath(group, name string) string { return "/kiel/groups/" + group + "/members/" + name }

// watchGone waits, in the background, until a znode has gone. What it returns tells when that was.
func watchGone(t *testing.T, addrs []string, path string) (gone func() int64) {
	t.Helper()
	s := openSession(t, addrs, session.Options{Timeout: timeout})
	if there, _, err := incarnation(t, s).Exists(t.Context(), path); err != nil || !there {
		t.Fatalf("%s: there %v, %v", path, there, err)
	}
	ctx := t.Context()
	at := make(chan int64, 1)
	var watching sync.WaitGroup
	watching.Go(func() {
		for ctx.Err() == nil {
			inc, err := s.Incarnation(ctx)
			if err != nil {
				continue
			}
			there, _, w, err := inc.ExistsW(ctx, path)
			switch {
			case err != nil:
				continue
			case there:
				select {
				case <-w.C():
				case <-ctx.Done():
				}
			default:
				at <- members.Monotonic()
				w.Stop()
				return
			}
			w.Stop()
		}
	})
	t.Cleanup(watching.Wait)
	return func() int64 {
		t.Helper()
		select {
		case when := <-at:
			return when
		case <-time.After(settleLimit):
			t.Fatalf("%s is still there", path)
			return 0
		}
	}
}

// stoppedAt returns when a member's trust ended after a time, by its own log.
func (m *member) stoppedAt(since int64) (int64, bool) {
	e, ok := m.after(since, eventlog.Untrusted)
	return e.Since, ok
}

// stopsBefore says that a member that was cut off stopped before its ephemerals were gone, and reports the margin.
func (f *fleet) stopsBefore(m *member, cut, gone int64) {
	f.t.Helper()
	f.until("the member that is cut off has stopped", func() bool { _, ok := m.stoppedAt(cut); return ok })
	since, _ := m.stoppedAt(cut)
	margin := time.Duration(gone - since)
	f.t.Attr("margin", fmt.Sprintf("%v: stopped after %v, ephemeral gone after %v", ms(margin), ms(time.Duration(since-cut)), ms(time.Duration(gone-cut))))
	if margin <= 0 {
		f.t.Errorf("%s stopped %v after its ephemeral was gone", m.Name, -margin)
	}
}

// undisturbed says that nothing happened to the working members from a time on: no rebalance, no other session, no loss of
// trust.
func (f *fleet) undisturbed(since int64) {
	f.t.Helper()
	f.read()
	for _, m := range f.working() {
		if n := m.rebalances(since); n != 0 {
			f.t.Errorf("%s: %d rebalances", m.Name, n)
		}
		if n := m.countAfter(since, eventlog.Untrusted); n != 0 {
			f.t.Errorf("%s lost its trust %d times", m.Name, n)
		}
		if m.sessions() != 1 {
			f.t.Errorf("%s had %d sessions", m.Name, m.sessions())
		}
	}
}
