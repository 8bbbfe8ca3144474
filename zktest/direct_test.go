package zktest_test

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/kielgo/kiel/zktest"
)

// TestContainers: a container goes at the next full minute after its last child has gone, and not before it had one.
func TestContainers(t *testing.T) {
	bubble(t, func(t *testing.T, srv *zktest.Server, _ *zktest.Network, a, _ *zk.Conn) {
		for _, path := range []string{"/c", "/c/d", "/never"} {
			_, err := a.CreateContainer(path, nil, 4, open())
			must(t, err)
		}
		create(t, a, "/c/d/x", 0)
		time.Sleep(5 * time.Minute)
		must(t, a.Delete("/c/d/x", -1))
		gone := watchGone(t, a, "/c/d")
		time.Sleep(59 * time.Second)
		if got := srv.Children("/c"); len(got) != 1 {
			t.Error(got)
		}
		time.Sleep(2 * time.Second)
		if ev := <-gone; ev.Type != zk.EventNodeDeleted {
			t.Error(ev)
		}
		time.Sleep(time.Minute)
		if got := srv.Children("/"); !slices.Equal(got, []string{"never", "zookeeper"}) {
			t.Error(got)
		}
	})
}

// TestDirect: what a test does to the tree is seen by the clients, and the other way round.
func TestDirect(t *testing.T) {
	bubble(t, func(t *testing.T, srv *zktest.Server, _ *zktest.Network, a, _ *zk.Conn) {
		_, _, made, err := a.ExistsW("/x/y/z")
		must(t, err)
		must(t, srv.Create("/x/y/z", []byte("1")))
		if ev := <-made; ev.Type != zk.EventNodeCreated {
			t.Error(ev)
		}
		_, _, changed, err := a.GetW("/x/y/z")
		must(t, err)
		must(t, srv.Set("/x/y/z", []byte("2")))
		if ev := <-changed; ev.Type != zk.EventNodeDataChanged {
			t.Error(ev)
		}
		create(t, a, "/x/e", zk.FlagEphemeral)
		if got := srv.Children("/x"); !slices.Equal(got, []string{"e", "y"}) {
			t.Error(got)
		}
		if got := srv.Children("/x/e"); got == nil || len(got) != 0 {
			t.Error(got)
		}
		if got := srv.Children("/none"); got != nil {
			t.Error(got)
		}
		want := "/x \"\"\n/x/e \"\" owner=0x"
		if got := srv.Dump(); got[:len(want)] != want {
			t.Errorf("%q", got)
		}
		_, gone := make([]int, 0), watchGone(t, a, "/x/y")
		_, _, children, err := a.ChildrenW("/")
		must(t, err)
		must(t, srv.Delete("/x"))
		if ev := <-gone; ev.Type != zk.EventNodeDeleted {
			t.Error(ev)
		}
		<-children
		if len(srv.Sessions()[0].Ephemerals) != 0 {
			t.Error("the session still counts its ephemeral")
		}
		for _, err := range []error{srv.Set("/none", nil), srv.Delete("/none"), srv.Delete("/none/deep")} {
			if !errors.Is(err, zktest.ErrNoNode) {
				t.Error(err)
			}
		}
		for _, err := range []error{srv.Create("x", nil), srv.Create("/x/../y", nil), srv.Create("/x//y", nil), srv.Delete("/"), srv.Delete("/zookeeper")} {
			if !errors.Is(err, zktest.ErrBadArguments) {
				t.Error(err)
			}
		}
		if err := srv.Create("/zookeeper", nil); !errors.Is(err, zktest.ErrNodeExists) {
			t.Error(err)
		}
		if got := srv.Children("/"); !slices.Equal(got, []string{"zookeeper"}) {
			t.Error(got)
		}
	})
}

// TestNumbersEnd: a directory that has seen 2^31-1 creations gives the same number for ever, and its cversion and pzxid stand
// still. (By the source, DataTree.createNode: they are set only when the cversion is greater.)
func TestNumbersEnd(t *testing.T) {
	bubble(t, func(t *testing.T, srv *zktest.Server, _ *zktest.Network, a, _ *zk.Conn) {
		must(t, srv.Create("/x", nil))
		must(t, srv.SetCreates("/x", math.MaxInt32-1))
		var pzxid int64
		for i, want := range []string{"2147483646", "2147483647", "2147483647"} {
			prefix := fmt.Sprintf("/x/%c-", 'a'+i)
			got, err := a.Create(prefix, nil, zk.FlagSequence, open())
			if must(t, err); got != prefix+want {
				t.Errorf("%s, want %s%s", got, prefix, want)
			}
			_, stat, err := a.Get("/x")
			if must(t, err); i == 0 {
				pzxid = stat.Pzxid
			} else if stat.Pzxid != pzxid {
				t.Errorf("creation %d has changed the pzxid", i)
			}
		}
		if _, err := a.Create("/x/c-", nil, zk.FlagSequence, open()); !errors.Is(err, zk.ErrNodeExists) {
			t.Errorf("the same name again: %v", err)
		}
		if err := srv.SetCreates("/none", 1); !errors.Is(err, zktest.ErrNoNode) {
			t.Error(err)
		}
		if err := srv.SetCreates("/x", -1); !errors.Is(err, zktest.ErrBadArguments) {
			t.Error(err)
		}
	})
}
