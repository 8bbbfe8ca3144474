package sim_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/allocator"
)

// Errors of ownership have these texts when the outcome of a request is unknown.
const (
	noAnswer      = "claim without an answer"
	noClearAnswer = "release without a clear answer"
)

// coverage counts what was reached.
type coverage struct{ *counters }

type counters struct {
	mu    sync.Mutex
	count map[string]int
}

func newCoverage() coverage { return coverage{&counters{count: map[string]int{}}} }

func (c coverage) hit(what string) { c.add(what, 1) }

func (c coverage) add(what string, n int) {
	if n == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.count[what] += n
}

func (c coverage) of(what string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.count[what]
}

// merge adds what another has counted.
func (c coverage) merge(other coverage) {
	other.mu.Lock()
	defer other.mu.Unlock()
	for what, n := range other.count {
		c.add(what, n)
	}
}

func (c coverage) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var lines []string
	for what, n := range c.count {
		lines = append(lines, fmt.Sprintf("%8d %s", n, what))
	}
	slices.SortFunc(lines, func(a, b string) int { return strings.Compare(a[8:], b[8:]) })
	return strings.Join(lines, "\n")
}

// required is what every run of 20 group-days must have reached, besides each kind of fault: branches that are rare, and the
// effects of the faults.
func required() []string {
	all := []string{
		"server: sessions expired", "server: sessions attached again",
		"session: expirations", "session: reconnects", "session: trust losses", "session: client replaced",
		"kept: claimed again with the same token",
		"uncertain claim: it was ours", "uncertain claim: it was not, or was given up",
		"log: " + noAnswer, "log: " + noClearAnswer, "log: session given up",
		"lost: a third party removed the claim", "lost: the handler was stuck", "error: stuck", "log: stuck handler returned",
		"error: callback panicked", "error: handler returned", "event untrusted", "event lost", "event left",
		"overlap after a third party's deed", "overlap for longer, in trouble", "operator deleted a znode", "duplicate name refused",
		"log: name is held by another session, waiting for it to go", "log: own znode was deleted, joining again",
		"log: own record was changed, joining again", "set changed",
		"garbage in the set was repaired", "log: failed set",
		"metric: kiel_claims_total result=conflict", "metric: kiel_claims_total result=unknown",
		"metric: kiel_rebalance_events_coalesced_total", "metric: kiel_claim_waits_overdue_total",
		"metric: kiel_drain_timeouts_total", "metric: kiel_rebalances_total cause=manual",
		"a message was in hand when the process stood still", "no trust when a message was to be processed",
		"no trust when a commit was to be sent", "commit arrived late", "late commit moved the offset back",
		"offset that was moved back was repaired", "messages processed again",
		"hook: answered with an error", "hook: ignored", "hook: cut", "hook: no touch",
		"hook: refused", "operator forged an entry",
		"drill: not concerned, and kept",
		"backup: sessions forgotten true", "backup: sessions forgotten false", "backup: elected true", "backup: elected false",
		"log: added partitions of the seed that the set had lost",
		"drill: " + otherTopics, "topics: lists differ", "topics: one that nobody asks for", "error: unwanted topic",
	}
	for _, kind := range kinds() { // which were possible
		all = append(all, "fault: "+kind)
	}
	for _, kind := range drillKinds() { // which ended well
		all = append(all, "drill: "+kind)
	}
	return all
}

// counting is a log that counts its records by their text, and keeps them for the monitor. Of those below INFO it takes snapshots
// alone.
type counting struct {
	p     *process
	attrs string
}

func (c counting) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelDebug }

func (c counting) Handle(_ context.Context, r slog.Record) error {
	if r.Message == "snapshot" && c.p.group != nil { // Groups don't show them
		r.Attrs(func(a slog.Attr) bool {
			if s, ok := a.Value.Any().(*allocator.Snapshot); ok {
				c.p.w.mon.groupSnapshot(s)
			}
			return true
		})
	}
	if r.Level < slog.LevelInfo {
		return nil
	}
	var b strings.Builder
	part, failure, what := "", "", "log: "+r.Message
	r.Attrs(func(a slog.Attr) bool {
		fmt.Fprintf(&b, " %s=%v", a.Key, a.Value)
		switch {
		case a.Key == "about":
			part = a.Value.String()
		case a.Key == "kind" && r.Message == "failed":
			what += " " + a.Value.String()
		case a.Key == "error":
			failure = a.Value.String()
		}
		return true
	})
	c.p.w.cov.hit(what)
	for _, text := range []string{noAnswer, noClearAnswer} {
		if strings.Contains(failure, text) {
			c.p.w.cov.hit("log: " + text)
		}
	}
	c.p.w.mon.Note("%s log: %s%s%s", c.p.id, r.Message, c.attrs, b.String())
	if strings.Contains(failure, noAnswer) {
		c.p.w.mon.unanswered(c.p, part)
	}
	return nil
}

func (c counting) WithAttrs(attrs []slog.Attr) slog.Handler {
	for _, a := range attrs {
		if a.Key == "component" {
			c.attrs += " (" + a.Value.String() + ")"
		}
	}
	return c
}

func (c counting) WithGroup(string) slog.Handler { return c }

// unanswered notes a claim that was sent and not answered.
func (m *monitor) unanswered(p *process, item string) {
	part, err := kiel.ParsePartition(item)
	if err != nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.gone[fmt.Sprint(p.id, " ", m.plan.index(part.Topic, part.ID))] = true
}
