package consumer_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel/allocfn"
	"github.com/kielgo/kiel/consumer"
	"github.com/kielgo/kiel/consumer/inspect"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/zktest"
)

// stranger is a session of a program that is no member.
func (r *rig) stranger(change func(*session.Options)) *session.Incarnation {
	r.t.Helper()
	opts := session.Options{Dial: r.zknet.Client("stranger").Dial}
	if change != nil {
		change(&opts)
	}
	s, err := session.Start(r.t.Context(), []string{zktest.VirtualAddress}, opts)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = s.Close(context.WithoutCancel(r.t.Context())) })
	inc, err := s.Incarnation(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	return inc
}

// ephemeral creates a znode that goes with a stranger's session.
func (r *rig) ephemeral(path, data string) {
	r.t.Helper()
	if _, err := r.stranger(nil).Create(r.t.Context(), path, []byte(data), session.Ephemeral); err != nil {
		r.t.Fatal(err)
	}
}

// A znode of a session that is no member's is in a claim's place.
func TestInspectForeignClaims(t *testing.T) {
	for name, tc := range map[string]struct {
		data string
		kind inspect.Kind
		says string
		age  bool // its age is known
	}{
		"orphan":     {`{"owner":"ghost"}`, "orphan-claim", `"ghost" is no member`, false},
		"unreadable": {"{", "unreadable-claim", "a znode that is no member's", true},
	} {
		t.Run(name, func(t *testing.T) {
			inRig(t, 4, func(t *testing.T, r *rig) {
				a, b := r.two(nil)
				quit(a, b)
				began := time.Now()
				r.ephemeral(ownersPath+"/t:0", tc.data)
				c := r.member("c", nil).start()
				until(t, "c owns the others", func() bool { return len(c.owns()) == 3 })
				report := r.doctor(r.inspector(""), 0, 1, 2, 3)
				want := wantFinding{kind: tc.kind, object: "t:0", waiting: true, command: "kiel release g t:0", says: tc.says}
				if tc.age {
					want.after = began
				}
				finds(t, report, want)
				quit(c)
			})
		})
	}
}

// Nobody claims a partition, because ZooKeeper refuses it: the finding names the member for which it is planned.
func TestInspectNoOwner(t *testing.T) {
	inRig(t, 4, func(t *testing.T, r *rig) {
		a, b := r.two(nil)
		quit(a, b)
		r.zk.SetHook(func(q *zktest.Request) zktest.Action {
			if q.Op == zktest.OpMulti && slices.ContainsFunc(q.Ops, func(o zktest.Request) bool { return o.Path == ownersPath+"/t:0" }) {
				return zktest.Action{Err: zktest.ErrNoAuth}
			}
			return zktest.Action{}
		})
		c := r.member("c", nil).start()
		until(t, "c owns the others", func() bool { return len(c.owns()) == 3 })
		began := time.Now()
		report := r.doctor(r.inspector(""), 0, 1, 2, 3)
		finds(t, report, wantFinding{
			kind: inspect.NoOwner, object: "t:0", member: "c", after: began, waiting: true, command: "kiel why g t:0", says: "planned for c",
		})
		r.zk.SetHook(nil)
		quit(c)
	})
}

// Znodes of the group have different ACLs, and ZooKeeper shows none of them to this user.
func TestInspectACLs(t *testing.T) {
	inRig(t, 4, func(t *testing.T, r *rig) {
		inc := r.stranger(func(o *session.Options) {
			o.Auth = []session.Auth{{Scheme: "digest", Credential: []byte("me:secret")}}
			o.ACL = append(session.AuthACL(session.PermAll), session.WorldACL(session.PermAll)...)
		})
		for _, path := range []string{"/kiel", "/kiel/groups", "/kiel/groups/g"} {
			mustCreate(r, path)
		}
		if _, err := inc.Create(t.Context(), "/kiel/groups/g/epochs", nil, session.Persistent); err != nil {
			t.Fatal(err)
		}
		a, b := r.two(nil)
		report := r.doctor(r.inspector(""), 0, 1, 2, 3)
		finds(t, report, wantFinding{kind: inspect.ACLsDiffer, object: "/kiel/groups/g/epochs", note: true})
		in := r.inspector("")
		r.zk.SetHook(func(q *zktest.Request) zktest.Action {
			if q.Client == "operator" && q.Path == ownersPath {
				return zktest.Action{Err: zktest.ErrNoAuth}
			}
			return zktest.Action{}
		})
		report = r.doctor(in)
		r.zk.SetHook(nil)
		finds(t, report, wantFinding{kind: inspect.ZooKeeperRefused, object: group, says: ownersPath})
		quit(a, b)
	})
}

// Messages wait in a partition in which nothing new is written, and its member does not say how it is: that is no fault, and not
// well.
func TestInspectQuietPartition(t *testing.T) {
	inRig(t, 4, func(t *testing.T, r *rig) {
		a, b := r.two(nil)
		stop := make(chan struct{})
		work := func(c sarama.ConsumerGroupClaim, m *sarama.ConsumerMessage) {
			if c.Partition() == 0 && m.Offset >= 3 {
				<-stop
			}
		}
		a.h.before(work)
		b.h.before(work)
		began := time.Now()
		r.produce(1, 0)
		time.Sleep(window)
		report := r.doctor(r.inspector(""), 1, 2, 3)
		finds(t, report, wantFinding{
			kind: inspect.ProgressUnknown, object: "t:0", member: ownerOf(report, 0), after: began, waiting: true, note: true,
			command: "kiel doctor g --window 2m", says: "is not known",
		})
		close(stop)
		quit(a, b)
	})
}

// Members in Python claim nothing: what is planned for one is no fault, and whether it goes on is not known.
func TestInspectPythonMember(t *testing.T) {
	inRig(t, 4, func(t *testing.T, r *rig) {
		a, b := r.two(func(o *consumer.Options) {
			o.Func, o.AlsoFuncs = allocfn.Balanced(), []allocfn.Func{allocfn.RoundRobin()}
		})
		r.ephemeral(membersPath+"/py", "")
		until(t, "py has a share", func() bool { return len(a.owns())+len(b.owns()) < 4 })
		time.Sleep(window)
		began := time.Now()
		report := r.doctor(r.inspector(""), 0, 1, 2, 3)
		i := slices.IndexFunc(report.Partitions, func(p inspect.Partition) bool { return p.Owner == "" })
		if i < 0 || report.Partitions[i].Planned != "py" || len(report.Members[2].Functions) > 0 {
			t.Fatalf("%+v", report.Partitions)
		}
		finds(t, report, wantFinding{
			kind: inspect.ProgressUnknown, object: report.Partitions[i].Topic + ":" + string('0'+report.Partitions[i].Partition.Partition), member: "py",
			after: began, waiting: true, note: true, command: "kiel doctor g --window 2m", says: "members in Python",
		})
		quit(a, b)
	})
}

// Members under two chroots: each tree's doctor sees the other, and offsets that were committed there.
func TestInspectTwoChroots(t *testing.T) {
	inRig(t, 2, func(t *testing.T, r *rig) {
		a, _, _ := r.under("/production", "a")
		b, _, _ := r.under("/staging", "b")
		a.start()
		until(t, "a owns both", func() bool { return len(a.owns()) == 2 })
		time.Sleep(time.Hour)
		began := time.Now()
		b.start()
		until(t, "b owns both", func() bool { return len(b.owns()) == 2 })
		in := r.inspector("/production")
		find := func(kind inspect.Kind) *inspect.Finding {
			for range 10 { // who commits last is chance
				report := r.doctor(in, 0, 1)
				i := slices.IndexFunc(report.Findings, func(f inspect.Finding) bool { return f.Kind == kind && f.Severity == inspect.Problem })
				if i >= 0 {
					return &report.Findings[i]
				}
			}
			t.Fatalf("no finding of %s", kind)
			return nil
		}
		f := find(inspect.SiblingChroot)
		if !slices.Equal(f.Objects, []string{"/staging"}) || f.Do == "" || f.Command != "kiel describe g --zookeeper "+zktest.VirtualAddress+"/staging" ||
			f.Since == nil || f.Since.Sub(began).Abs() > 15*time.Second {
			t.Errorf("%+v", f)
		}
		if f = find(inspect.OtherTree); !strings.Contains(f.Text, "owned by a") || f.Since == nil || f.Command != "kiel describe g --zookeeper "+zktest.VirtualAddress+"/staging" || f.Do == "" {
			t.Errorf("%+v", f)
		}
		quit(a, b)
	})
}

// A group has moved to another tree: offsets that were committed in the one before are no fault.
func TestInspectMovedGroup(t *testing.T) {
	inRig(t, 2, func(t *testing.T, r *rig) {
		a, _, _ := r.under("/old", "a")
		a.start()
		r.produce(3, 0, 1)
		until(t, "all is committed", func() bool { return r.committed(topic, 0) == 3 && r.committed(topic, 1) == 3 })
		quit(a)
		b, _, _ := r.under("/new", "b")
		b.start()
		until(t, "b owns both", func() bool { return len(b.owns()) == 2 })
		if report := r.doctor(r.inspector("/new")); len(report.Findings) > 0 {
			t.Errorf("%+v", report.Findings)
		}
		quit(b)
	})
}

// What may not be listed, or has not answered, in the search for other chroots is said.
func TestInspectOtherChrootsUnseen(t *testing.T) {
	inRig(t, 2, func(t *testing.T, r *rig) {
		a, _, _ := r.under("/production", "a")
		a.start()
		until(t, "a owns both", func() bool { return len(a.owns()) == 2 })
		r.zk.SetHook(func(q *zktest.Request) zktest.Action { // the operator has no right to "/" at all
			if q.Client == "operator" && (q.Path == "/" || slices.ContainsFunc(q.Ops, func(o zktest.Request) bool { return o.Path == "/" })) {
				return zktest.Action{Err: zktest.ErrNoAuth}
			}
			return zktest.Action{}
		})
		report := r.doctor(r.inspector("/production"), 0, 1)
		if len(report.Findings) > 0 || report.ZooKeeper.State != inspect.OK || !slices.Equal(report.ZooKeeper.Missed, []string{"other chroots: / (this user may not list it)"}) {
			t.Errorf("%+v, %+v", report.ZooKeeper, report.Findings)
		}
		r.zk.SetHook(nil)
		quit(a)
	})
}
