package ownership_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kielgo/kiel/internal/statuswrite"
	"github.com/kielgo/kiel/internal/testonly/noerr"
	"github.com/kielgo/kiel/ownership"
	"github.com/kielgo/kiel/session"
)

// stranger is a session of no member.
func (w *world) stranger() *member {
	w.t.Helper()
	m := w.join("stranger", memberOptions{})
	w.within(5*time.Second, "a session", func() bool { return m.ses.Current() != nil })
	return m
}

// claims creates an ephemeral znode in the place of a claim.
func (m *member) claims(item, data string) {
	m.w.t.Helper()
	inc := m.ses.Current()
	if err := inc.EnsurePath(context.Background(), owners); err != nil {
		m.w.t.Fatalf("%s: %v", owners, err)
	}
	if _, err := inc.Create(context.Background(), owners+"/"+item, []byte(data), session.Ephemeral); err != nil {
		m.w.t.Fatalf("%s: %v", item, err)
	}
}

// wantDisagreements compares what a member's status says of claims, as "kind name name …".
func (m *member) wantDisagreements(want ...string) {
	m.w.t.Helper()
	var got []string
	for _, d := range m.owner.Status().Disagreements {
		if d.Text == "" {
			m.w.t.Errorf("%s says nothing", d.Kind)
		}
		got = append(got, fmt.Sprintf("%s %s", d.Kind, strings.Join(d.Names, " ")))
	}
	if !slices.Equal(got, want) {
		m.w.t.Errorf("%s sees the disagreements %q, want %q", m.name, got, want)
	}
}

// An ephemeral znode in the place of a claim, whose data is no claim's, goes only with its session, which is no member's. The
// member that waits for it is told at once, and again and again, without a request more. When it has gone, the partition is owned
// at once.
func TestForeignClaim(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		stranger := w.stranger()
		stranger.claims("t:1", "")
		stranger.claims("t:2", `["nonsense"]`)
		stranger.claims("t:7", "of nobody here")
		ses := fmt.Sprintf("session 0x%x", stranger.sessionID())
		reg := prometheus.NewPedanticRegistry()
		w.assign(map[string]string{"a": items(3), "b": "t:3"})
		a := w.join("a", memberOptions{Options: ownership.Options{Registerer: reg}})
		b := w.join("b", memberOptions{})
		a.owns(5*time.Second, "t:0")
		b.owns(5*time.Second, "t:3")
		w.within(200*time.Millisecond, "a is told", func() bool { return a.told(ownership.ErrForeignClaim) > 0 })
		for _, want := range []string{fmt.Sprintf("%q of %s", owners+"/t:1", ses), fmt.Sprintf("%q of %s", owners+"/t:2", ses)} {
			if err := a.errors()[0]; !strings.Contains(err.Error(), want) {
				t.Errorf("%q says nothing of %s", err, want)
			}
		}
		wantUnclaimed(t, reg, unclaimed{foreign: 2})
		a.wantDisagreements("unreadable-claim t:1 t:2")
		b.wantDisagreements()
		a.wantStates(map[string]string{"t:1": "blocked, a znode of " + ses})
		if troubles := a.owner.Status().Troubles; len(troubles) != 1 || troubles[0].Kind != "foreign-claim" || troubles[0].Until != nil {
			t.Errorf("troubles %+v", troubles)
		}

		before, reads := a.told(ownership.ErrForeignClaim), w.requests(owners+"/t:1", owners+"/t:2")
		time.Sleep(5 * time.Minute)
		if n := a.told(ownership.ErrForeignClaim) - before; n < 5 || n > 40 {
			t.Errorf("told %d times in 5 minutes", n)
		}
		if ops := reads(); len(ops) > 3*int(5*time.Minute/timeout) { // as for any claim that is waited for
			t.Errorf("%d requests: %v", len(ops), ops)
		}
		if len(b.errors()) > 0 {
			t.Errorf("b, whose partition it is not, is told %v", b.errors())
		}

		w.kill(stranger.sessionID())
		a.owns(time.Second, items(3))
		wantUnclaimed(t, reg, unclaimed{})
		a.wantDisagreements()
		before = len(a.errors())
		time.Sleep(time.Minute)
		if errs := a.errors(); len(errs) > before {
			t.Errorf("told of %v after they are gone", errs[before:])
		}
	})
}

// The data of such a znode may change: it is judged again.
func TestForeignClaimOfOtherData(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.stranger().claims("t:0", "")
		w.assign(map[string]string{"a": "t:0"})
		a := w.join("a", memberOptions{})
		w.within(5*time.Second, "a is told", func() bool { return a.told(ownership.ErrForeignClaim) > 0 })
		noerr.Must(t, w.srv.Set(owners+"/t:0", []byte(`{"owner":"x"}`)))
		time.Sleep(time.Second)
		a.wantDisagreements()
		a.wantStates(map[string]string{"t:0": "waiting, the claim of x"})
		noerr.Must(t, w.srv.Set(owners+"/t:0", []byte(`{"owner":""}`)))
		time.Sleep(time.Second)
		a.wantDisagreements("unreadable-claim t:0")
	})
}

// A claim that reads like a member's, of a session that is no member's, is reported when it has stood for longer than a member
// that leaves may take, also if the waiting member loses its trust for a while.
func TestClaimOfNoMember(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		reg := prometheus.NewPedanticRegistry()
		stranger := w.stranger()
		stranger.claims("t:1", `{"owner":"a","version":1,"id":"of another process"}`)
		began := time.Now()
		a := w.joinFull("a", []int32{0, 1}, ownership.Options{Registerer: reg, RebalanceTimeout: 30 * time.Second})
		a.owns(5*time.Second, "t:0")
		time.Sleep(20 * time.Second)
		w.srv.FreezeClock()
		w.within(15*time.Second, "trust ends", func() bool { return a.owned() == "" })
		time.Sleep(time.Second)
		w.srv.Thaw()
		a.owns(10*time.Second, "t:0")

		time.Sleep(time.Until(began.Add(timeout + 30*time.Second)))
		a.wantDisagreements()
		w.within(2*timeout, "a is told", func() bool { return a.told(ownership.ErrForeignClaim) > 0 })
		wantUnclaimed(t, reg, unclaimed{foreign: 1})
		a.wantDisagreements("orphan-claim t:1")
		a.wantStates(map[string]string{"t:1": fmt.Sprintf("blocked, the claim of a in session 0x%x, which is no member's", stranger.sessionID())})
		w.kill(stranger.sessionID())
		a.owns(time.Second, items(2))
		wantUnclaimed(t, reg, unclaimed{})
		a.wantDisagreements()
	})
}

// The claims of members, and those of members that leave and drain, are waited for without such an error.
func TestClaimsOfMembersAreNotForeign(t *testing.T) {
	for name, test := range map[string]struct {
		longer time.Duration // a's RebalanceTimeout
		drain  time.Duration
		leaves bool
	}{
		"drains for long":   {longer: 10 * time.Minute, drain: 5 * time.Minute},
		"leaves and drains": {longer: 30 * time.Second, drain: 29 * time.Second, leaves: true},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				a := w.joinFull("a", []int32{0, 1}, ownership.Options{RebalanceTimeout: test.longer, StopTimeout: time.Minute})
				a.owns(5*time.Second, items(2))
				a.mu.Lock()
				a.drain = test.drain
				a.mu.Unlock()
				b := w.joinFull("b", nil, ownership.Options{RebalanceTimeout: 30 * time.Second})
				wanted := "t:1"
				if test.leaves {
					time.Sleep(time.Second)
					a.quit()
					wanted = items(2)
				}
				b.owns(test.drain+10*time.Second, wanted)
				if n := b.told(ownership.ErrForeignClaim); n > 0 {
					t.Errorf("told %v", b.errors())
				}
				for _, trouble := range b.owner.Status().Troubles {
					if trouble.Kind == "foreign-claim" {
						t.Errorf("trouble %+v", trouble)
					}
				}
			})
		})
	}
}

// Many such znodes are one error, and a status of bounded size.
func TestManyForeignClaims(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		stranger := w.stranger()
		for i := range 200 {
			stranger.claims(fmt.Sprintf("t:%d", i), "x")
		}
		w.assign(map[string]string{"a": items(201)})
		a := w.join("a", memberOptions{})
		a.owns(5*time.Second, "t:200")
		time.Sleep(timeout + time.Second)
		errs := a.errors()
		if last := errs[len(errs)-1].Error(); len(errs) > 3 || len(last) > 600 || !strings.Contains(last, "195 more") {
			t.Errorf("told %v", errs)
		}
		if all := a.owner.Status().Disagreements; len(all) != 1 || len(all[0].Names) != statuswrite.MaxListed || all[0].More != 200-statuswrite.MaxListed {
			t.Errorf("disagreements %+v", all)
		}
	})
}
