package allocator_test

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kielgo/kiel/allocator"
	"github.com/kielgo/kiel/internal/testonly/noerr"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/status"
	"github.com/kielgo/kiel/zktest"
)

// of returns options of a member of a cluster.
func of(cluster string) allocator.Options {
	return allocator.Options{Cluster: cluster, Seed: map[string][]int32{"t": ids(4)}}
}

// ended fails unless the member has ended with ErrOtherCluster within a moment, and returns the text.
func (n *node) ended() string {
	n.w.Helper()
	var err error
	select {
	case err = <-n.ran:
	case <-time.After(settle):
		n.w.Fatalf("%s goes on", n.Member())
	}
	n.ran <- err
	delete(n.w.nodes, n.Member())
	n.cancelAfter()
	<-n.after
	if !errors.Is(err, allocator.ErrOtherCluster) {
		n.w.Fatalf("%s ended with %v", n.Member(), err)
	}
	return err.Error()
}

// others returns the names of the disagreement about clusters.
func (n *node) others() string {
	for _, d := range n.Status().Disagreements {
		if d.Kind == status.OtherCluster {
			return strings.Join(d.Names, " ")
		}
	}
	return ""
}

// hold has a session of its own create a member's znode with a record.
func (w *world) hold(client, name, record string) {
	w.Helper()
	s, err := session.New([]string{zktest.VirtualAddress}, session.Options{Dial: w.net.Client(client).Dial, Timeout: timeout})
	noerr.Must(w, err)
	ran := make(chan error, 1)
	go func() { ran <- s.Run(w.Context()) }()
	w.Cleanup(func() { <-ran })
	inc, err := s.Incarnation(w.Context())
	if err == nil {
		err = inc.EnsurePath(w.Context(), members)
	}
	if err == nil {
		_, err = inc.Create(w.Context(), members+"/"+name, []byte(record), session.Ephemeral)
	}
	noerr.Must(w, err)
}

func recordOf(cluster string) string {
	return fmt.Sprintf(`{"v":1,"functions":["roundrobin/1"],"cluster":%q}`, cluster)
}

// TestOtherClusterDoesNotJoin is red if a member of one cluster joins members of another.
func TestOtherClusterDoesNotJoin(t *testing.T) {
	inWorld(t, func(w *world) {
		a := w.start("z-first", of("A"))
		a.ready()
		_, before, _ := w.srv.Get(members)
		b := w.start("b", of("B"))
		text := b.ended()
		for _, part := range []string{members, `"z-first"`, `"A"`, `"B"`} {
			if !strings.Contains(text, part) {
				w.Errorf("the error does not have %s: %s", part, text)
			}
		}
		if _, after, _ := w.srv.Get(members); after.Cversion != before.Cversion {
			w.Error("it joined for a moment")
		}
		same, none := w.start("c", of("A")), w.start("d", of(""))
		same.ready()
		none.ready()
		a.end()
		same.end() // now nobody names a cluster
		last := w.start("e", of("B"))
		last.ready()
		w.start("f", of("A")).ended()
		if s := last.Snapshot(); s.Err != nil || last.others() != "" {
			w.Errorf("%v, %q", s.Err, last.others())
		}
	})
}

// TestYoungerOfTwoClustersLeaves has two members of two clusters join at once: each reads before the other's znode is there, and
// then when both are.
func TestYoungerOfTwoClustersLeaves(t *testing.T) {
	inWorld(t, func(w *world) {
		w.start("c", of("")).ready() // so that the directory exists
		create, list := make(chan struct{}), make(chan struct{})
		var waiting atomic.Int32
		w.srv.SetHook(func(r *zktest.Request) zktest.Action {
			if r.Op == zktest.OpMulti && strings.HasPrefix(r.Ops[0].Path, members+"/") {
				waiting.Add(1)
				<-create
			}
			if r.Op == zktest.OpGetChildren2 && r.Path == members && waiting.Load() == 2 {
				<-list
			}
			return zktest.Action{}
		})
		a, b := w.start("a", of("A")), w.start("b", of("B"))
		sleep(time.Second)
		if waiting.Load() != 2 {
			w.Fatalf("%d members are about to join", waiting.Load())
		}
		close(create)
		sleep(time.Second)
		w.srv.SetHook(nil)
		close(list)
		var stays *node
		select {
		case err := <-a.ran:
			a.ran <- err
			a.ended()
			stays = b
		case err := <-b.ran:
			b.ran <- err
			b.ended()
			stays = a
		case <-time.After(settle):
			w.Fatal("both are members")
		}
		stays.ready()
		sleep(settle)
		if stays.own() != 2 {
			w.Errorf("the older has %d partitions", stays.own())
		}
	})
}

// TestWhoNamesACluster is red if a member is kept out by what names no cluster, or let in in spite of one that does.
func TestWhoNamesACluster(t *testing.T) {
	for name, c := range map[string]struct {
		stands func(w *world)
		out    bool
	}{
		"another":                   {func(w *world) { w.hold("x", "x", recordOf("B")) }, true},
		"the same":                  {func(w *world) { w.hold("x", "x", recordOf("A")) }, false},
		"none, as of 762eed2":       {func(w *world) { w.hold("x", "x", `{"v":1,"functions":["roundrobin/1"]}`) }, false},
		"none, as of Python":        {func(w *world) { w.hold("x", "x", "") }, false},
		"a bad record":              {func(w *world) { w.hold("x", "x", `{"v":1,"cluster":"B"}`) }, false},
		"a number":                  {func(w *world) { w.hold("x", "x", `{"v":1,"functions":["roundrobin/1"],"cluster":5}`) }, false},
		"a text that is no id":      {func(w *world) { w.hold("x", "x", recordOf("B B")) }, false},
		"an id that is too long":    {func(w *world) { w.hold("x", "x", recordOf(strings.Repeat("x", 129))) }, false},
		"a younger one":             {func(w *world) { w.hold("x", "x", recordOf("A")); w.hold("y", "a", recordOf("B")) }, false},
		"an older one":              {func(w *world) { w.hold("x", "x", recordOf("B")); w.hold("y", "a", recordOf("A")) }, true},
		"the oldest names none":     {func(w *world) { w.hold("x", "x", ""); w.hold("y", "a", recordOf("B")) }, true},
		"a persistent znode":        {func(w *world) { w.persistent("x", recordOf("B")) }, false},
		"a record changed in place": {func(w *world) { w.hold("x", "x", recordOf("A")); w.rewrite("x", recordOf("B")) }, false},
		"a former process, same name": {func(w *world) {
			w.hold("x", "me", recordOf("B"))
			w.net.Client("x").BlackHole(zktest.Both)
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				c.stands(w)
				me := w.start("me", of("A"))
				if c.out {
					me.ended()
					return
				}
				sleep(3 * timeout) // until a former process's session has expired
				if s := me.Snapshot(); s == nil || !s.Joined {
					w.Fatalf("not joined: %v", s)
				}
			})
		})
	}
}

func (w *world) persistent(name, record string) {
	w.Helper()
	noerr.Must(w, w.srv.Create(members+"/"+name, []byte(record)))
}

func (w *world) rewrite(name, record string) {
	w.Helper()
	noerr.Must(w, w.srv.Set(members+"/"+name, []byte(record)))
}

// TestOtherClusterIsSeen has a member of another cluster that does not leave, as one of a later or another program.
func TestOtherClusterIsSeen(t *testing.T) {
	inWorld(t, func(w *world) {
		a := w.start("b-first", of("A"))
		a.ready()
		w.hold("x", "a-second", recordOf("B"))
		sleep(settle)
		if s := a.Snapshot(); !s.Joined || s.Err != nil || len(s.Members) != 2 {
			w.Errorf("%v", s)
		}
		if got := a.others(); got != "a-second" {
			w.Errorf("the disagreement names %q", got)
		}
		if m := a.Status().Members; m[0].Cluster != "B" || m[1].Cluster != "A" {
			w.Errorf("members %+v", m)
		}
		g, err := allocator.Inspect(w.Context(), a.session, group)
		if err != nil || len(g.Disagreements) != 1 || g.Disagreements[0].Kind != status.OtherCluster || g.Members[0].Cluster != "B" {
			w.Errorf("Inspect: %v, %+v", err, g.Disagreements)
		}
		w.rewrite("b-first", recordOf("B")) // puts right its record: then it is the younger
		sleep(2 * timeout)
		if got := a.ended(); !strings.Contains(got, `"a-second"`) {
			w.Error(got)
		}
	})
}

// TestClusterOfALaterSession is red if a member that joins again in a new session is not asked which cluster it is of.
func TestClusterOfALaterSession(t *testing.T) {
	inWorld(t, func(w *world) {
		a := w.start("a", of("A"))
		a.ready()
		a.client.BlackHole(zktest.Both)
		sleep(3 * timeout)
		b := w.start("b", of("B"))
		b.ready()
		a.client.Heal()
		a.ended()
		if b.own() != 4 || b.others() != "" {
			w.Errorf("b has %d partitions, others %q", b.own(), b.others())
		}
	})
}

func TestClusterOptionIsChecked(t *testing.T) {
	for cluster, good := range map[string]bool{
		"": true, "A": true, "MkU3OEVBNTcwNTJENDM2Qg": true, "ns.servicebus.windows.net": true, strings.Repeat("x", 128): true,
		strings.Repeat("x", 129): false, "a b": false, "a\n": false, "\u00e4": false, "\x7f": false,
	} {
		s, err := session.New([]string{"zk:2181"}, session.Options{})
		noerr.Must(t, err)
		if _, err := allocator.New(s, group, "m", allocator.Options{Cluster: cluster}); (err == nil) != good {
			t.Errorf("%q: %v", cluster, err)
		}
	}
}
