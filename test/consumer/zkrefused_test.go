package consumer_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/kielgo/kiel/consumer"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/zktest"
)

// refuseJoining makes ZooKeeper refuse all that creates or lists members, with errors of an ACL or of a quota.
func (r *rig) refuseJoining(with zktest.Error) {
	r.zk.SetHook(func(q *zktest.Request) zktest.Action {
		path := q.Path
		if len(q.Ops) > 0 && q.Ops[0].Op == zktest.OpCreate {
			path, q = q.Ops[0].Path, &q.Ops[0]
		}
		members := strings.HasPrefix(path, "/kiel/groups/"+group+"/members")
		if members && slices.Contains([]zktest.Op{zktest.OpCreate, zktest.OpCreate2, zktest.OpGetChildren2}, q.Op) {
			return zktest.Action{Err: with}
		}
		return zktest.Action{}
	})
}

// waiting fails unless the running call goes on, and the member says in its status and on Errors that it is refused.
func (m *member) waiting(t *testing.T, reg *prometheus.Registry, want error) {
	t.Helper()
	select {
	case err := <-m.done:
		t.Fatalf("the call has ended: %v", err)
	default:
	}
	if !slices.ContainsFunc(m.errors(), func(err error) bool { return errors.Is(err, want) }) {
		t.Errorf("Errors has no %v: %v", want, m.errors())
	}
	st := m.group.Status()
	if st.Self.Ready || !strings.Contains(st.Self.Waiting, "/members") {
		t.Errorf("ready %v, waiting for %q", st.Self.Ready, st.Self.Waiting)
	}
	listed := false
	for _, trouble := range st.Troubles {
		listed = listed || trouble.Kind == "membership" && trouble.Until == nil
	}
	if !listed {
		t.Errorf("no trouble of kind membership: %+v", st.Troubles)
	}
	if n, err := testutil.GatherAndCount(reg, "kiel_membership_refusals_total"); n != 1 || err != nil {
		t.Errorf("%d metrics of refusals, %v", n, err)
	}
}

// A member that is refused as it joins for the first time ends its call. Later the call goes on: in a new session, and also when
// the membership had ended and a new one joins.
func TestZooKeeperRefusesTheMember(t *testing.T) {
	for name, refusal := range map[string]struct {
		with zktest.Error
		want error
	}{
		"acl":   {zktest.ErrNoAuth, session.ErrNoAuth},
		"quota": {-125, session.ErrQuotaExceeded},
	} {
		t.Run(name, func(t *testing.T) {
			inRig(t, 2, func(t *testing.T, r *rig) {
				reg := prometheus.NewRegistry()
				m := r.member("m", func(o *consumer.Options) { o.Registerer = reg })
				r.refuseJoining(refusal.with)
				m.start()
				if err := <-m.done; !errors.Is(err, refusal.want) {
					t.Fatalf("the first join: %v", err)
				}
				r.zk.SetHook(nil)
				m.start()
				owns := func(what string) {
					t.Helper()
					until(t, what, func() bool { return len(m.owns()) == 2 })
				}
				owns("joined")
				time.Sleep(time.Minute)

				r.refuseJoining(refusal.with)
				r.zk.KillSession(m.sessionID())
				time.Sleep(time.Minute)
				m.waiting(t, reg, refusal.want)
				r.zk.SetHook(nil)
				owns("back in a new session")
				m.leave()

				r.refuseJoining(refusal.with)
				m.start()
				time.Sleep(time.Minute)
				m.waiting(t, reg, refusal.want)
				r.zk.SetHook(nil)
				owns("back as a new membership")

				r.refuseJoining(refusal.with)
				r.zk.KillSession(m.sessionID())
				time.Sleep(time.Minute)
				began := time.Now()
				m.leave()
				synctest.Wait()
				if took := time.Since(began); took > time.Second {
					t.Errorf("left after %v", took)
				}
			})
		})
	}
}
