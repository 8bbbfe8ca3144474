package chaos_test

import (
	"fmt"
	"maps"
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

// list tells all of some measurements.
func list(ds []time.Duration) string {
	texts := make([]string, len(ds))
	for i, d := range ds {
		texts[i] = ms(d).String()
	}
	return strings.Join(texts, ", ")
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

// stoppedAt returns when a member's trust ended after a time, by its own log; what it did then is looked at by
// [fleet.stopsBefore] and by check-events.
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
	// It says so itself; what it did after it was cut off must agree.
	last := int64(0)
	for _, e := range m.events {
		if e.T > cut && (e.Event == eventlog.Message || e.Event == eventlog.Done) {
			last = e.T
		}
	}
	f.t.Attr("margin", fmt.Sprintf("%v: stopped after %v, last message processed after %v, ephemeral gone after %v",
		ms(margin), ms(time.Duration(since-cut)), ms(time.Duration(last-cut)), ms(time.Duration(gone-cut))))
	if last == 0 || last >= gone {
		f.t.Errorf("%s: the last message was processed %v after it was cut off, and its ephemeral was gone after %v",
			m.Name, time.Duration(last-cut), time.Duration(gone-cut))
	}
	if least := f.opts.timeout/3 - tick/2; margin < least {
		f.t.Errorf("%s stopped %v before its ephemeral was gone, want %v at least", m.Name, margin, least)
	}
}

// tokens returns what each member holds under which token.
func (f *fleet) tokens() map[string]map[int32]int64 {
	held := map[string]map[int32]int64{}
	for _, m := range f.all {
		held[m.Name] = map[int32]int64{}
		for id, own := range m.held {
			held[m.Name][id] = own.token
		}
	}
	return held
}

// unmoved says that everybody holds what he held at a time, in the same session and under the same claims, and nobody was asked
// to hand anything over. Trust may have been lost for a while: it returns how often it was.
func (f *fleet) unmoved(what string, before map[string]map[int32]int64, since int64) (lost int) {
	f.t.Helper()
	f.read()
	for _, m := range f.all {
		if n := m.countAfter(since, eventlog.Revoking); n != 0 {
			f.t.Errorf("%s: %s had to hand over %d partitions", what, m.Name, n)
		}
		if m.sessions() != 1 {
			f.t.Errorf("%s: %s had %d sessions", what, m.Name, m.sessions())
		}
		lost += m.countAfter(since, eventlog.Untrusted)
	}
	if now := f.tokens(); !maps.EqualFunc(before, now, maps.Equal) {
		f.t.Errorf("%s: held %v before, %v after", what, before, now)
	}
	return lost
}
