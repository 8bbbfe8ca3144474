package session_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/kielgo/kiel/internal/testonly/noerr"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/zktest"
)

// values returns those of all series, as name{label=value,…}; of histograms how often they observed something.
func values(t *testing.T, reg *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := reg.Gather()
	noerr.Must(t, err)
	all := make(map[string]float64)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetName()+"="+l.GetValue())
			}
			all[f.GetName()+"{"+strings.Join(labels, ",")+"}"] = m.GetGauge().GetValue() + m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return all
}

// wantValues checks some of them, of a session without a group.
func wantValues(t *testing.T, reg *prometheus.Registry, want map[string]float64) {
	t.Helper()
	got := values(t, reg)
	for _, name := range slices.Sorted(maps.Keys(want)) {
		series := fmt.Sprintf("kiel_zk_%s{group=}", name)
		if base, state, found := strings.Cut(name, " "); found {
			series = fmt.Sprintf("kiel_zk_%s{group=,state=%s}", base, state)
		}
		if v, ok := got[series]; !ok || v != want[name] {
			t.Errorf("%s is %v, there %v, want %v", series, v, ok, want[name])
		}
	}
}

// A program that has a session alone shows all that Stats has, through an outage and an expiry, until the session is closed.
func TestMetrics(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		reg := prometheus.NewPedanticRegistry()
		m := w.start("a", func(o *session.Options) { o.Registerer, o.EphemeralBudget = reg, 1000 })
		inc := m.incarnation()
		noerr.Last(t)(inc.Create(t.Context(), "/abc", nil, session.Ephemeral))
		time.Sleep(10 * timeout)
		wantValues(t, reg, map[string]float64{
			"session_state connecting": 0, "session_state connected": 1, "session_state suspended": 0, "session_state lost": 0, "session_state closed": 0,
			"session_expirations_total": 0, "reconnects_total": 0, "trust_losses_total": 0, "clients_replaced_total": 0,
			"clients_abandoned_total": 0, "timeout_changes_total": 0, "bad_frames_total": 0,
			"session_timeout_seconds": timeout.Seconds(), "ephemeral_bytes": 8, "ephemeral_bytes_limit": 1000,
		})
		now := values(t, reg)
		if left := now["kiel_zk_trust_remaining_seconds{group=}"]; left < timeout.Seconds()/3 || left > timeout.Seconds() {
			t.Errorf("%v s of trust are left", left)
		}
		if n := now["kiel_zk_proof_duration_seconds{group=}"]; n < 60 || n > 63 { // six in a session timeout
			t.Errorf("%v proofs were timed", n)
		}

		m.link.BlackHole(zktest.Both)
		time.Sleep(2 * timeout)
		wantValues(t, reg, map[string]float64{"session_state lost": 1, "session_state connected": 0, "trust_remaining_seconds": 0, "trust_losses_total": 1})
		if lost := values(t, reg); len(lost) != len(now) {
			t.Errorf("%d series without trust, %d before", len(lost), len(now))
		}
		m.link.Heal()
		m.incarnation()
		wantValues(t, reg, map[string]float64{"session_state connected": 1, "session_expirations_total": 1, "ephemeral_bytes": 0})

		if problems, err := testutil.GatherAndLint(reg); err != nil || len(problems) > 0 {
			t.Error(problems, err)
		}
		noerr.Want(t, m.stop())
		if left := values(t, reg); len(left) > 0 {
			t.Errorf("left behind: %v", left)
		}
	})
}

// Two sessions use one Registerer: the second does not start until the first is closed, and its error says what to do.
func TestMetricsOfTwoSessions(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		reg := prometheus.NewPedanticRegistry()
		start := func(reg prometheus.Registerer) (*session.Session, error) {
			opts := w.options("a")
			opts.Registerer = reg
			return session.Start(t.Context(), []string{"zk:2181"}, opts)
		}
		first := must[*session.Session](t)(start(reg))
		if _, err := start(reg); err == nil || !strings.Contains(err.Error(), "WrapRegistererWith") {
			t.Errorf("a second session: %v", err)
		}
		wantValues(t, reg, map[string]float64{"session_state connected": 1})
		other := must[*session.Session](t)(start(prometheus.WrapRegistererWith(prometheus.Labels{"client": "b"}, prometheus.NewRegistry())))
		noerr.Want(t, first.Close(t.Context()))
		again := must[*session.Session](t)(start(reg))
		wantValues(t, reg, map[string]float64{"session_state connected": 1})
		for _, s := range []*session.Session{again, other} {
			noerr.Want(t, s.Close(t.Context()))
		}
	})
}

// A session that was never run is in nobody's way, and a group's registerer shows the same series beside the session's own.
func TestMetricsBesideAGroup(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		reg := prometheus.NewPedanticRegistry()
		opts := w.options("idle")
		opts.Registerer = reg
		must[*session.Session](t)(session.New([]string{"zk:2181"}, opts))
		m := w.start("a", func(o *session.Options) { o.Registerer = reg })
		m.incarnation()
		alone := len(values(t, reg))
		noerr.Must(t, prometheus.WrapRegistererWith(prometheus.Labels{"group": "g"}, reg).Register(m.Collector()))
		if n := len(values(t, reg)); alone == 0 || n != 2*alone {
			t.Errorf("%d series with the group's, %d without", n, alone)
		}
	})
}
