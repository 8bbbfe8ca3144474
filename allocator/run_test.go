package allocator

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/party"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/sharedset"
)

func TestFirstSnapshot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		r.run()
		r.join("a", "c")
		if r.Snapshot() != nil {
			t.Fatal("a snapshot without a set")
		}
		r.partitions("t:0", "t:1", "t:2")
		s := r.want(TriggerInitial, "")
		if s.Joined || list(s.Partitions) != "t:0 t:1 t:2" || fmt.Sprint(s.Members) != "[a c]" || s.Version != 1 {
			t.Errorf("%+v", s)
		}
		if got := fmt.Sprint(s.Mapping()); got != "map[a:map[t:[0 2]] c:map[t:[1]]]" {
			t.Error(got)
		}
		r.join("a", "b", "c") // we: at once
		s = r.want(TriggerMembers, "t:1")
		if err := r.Ready(t.Context()); err != nil {
			t.Error(err)
		}
		if owner, ok := s.Owner(kiel.Partition{Topic: "t", ID: 2}); owner != "c" || !ok {
			t.Error(owner, ok)
		}
		if owner, ok := s.Owner(kiel.Partition{Topic: "t", ID: 3}); ok {
			t.Error(owner)
		}
		if got := r.told(); got != "+ -, +t:1 -" {
			t.Error(got)
		}
		if err := r.stop(); err != nil {
			t.Error(err)
		}
		r.want(TriggerMembers, "")
		if got := r.told(); got != "+ -t:1" {
			t.Error(got)
		}
	})
}

func TestLoneChangeIsActedOnAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		r.begin("t:0", "t:1", "t:2", "t:3")
		for i, names := range [][]string{{"a", "b"}, {"b"}, {"b", "c"}} {
			sleep(time.Minute)
			start := time.Now()
			r.join(names...)
			s := r.Snapshot()
			if len(s.Members) != len(names) || !s.At.Equal(start) {
				t.Errorf("change %d: members %v after %v", i, s.Members, s.At.Sub(start))
			}
		}
		r.stop()
	})
}

func TestStormIsOneRebalance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		r.begin("t:0")
		sleep(time.Minute)
		before := r.published()
		names := []string{"b"}
		for i := range 50 {
			names = append(names, fmt.Sprintf("m%02d", i))
			r.join(names...)
			sleep(10 * time.Millisecond)
		}
		sleep(time.Minute)
		if n := r.published() - before; n != 2 {
			t.Errorf("%d rebalances, want 2", n)
		}
		if got := r.Snapshot().Members; len(got) != 51 {
			t.Errorf("%d members", len(got))
		}
		r.stop()
	})
}

func TestUnchangedViewIsNoRebalance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		r.run()
		r.partitions("t:0")
		r.join("a", "b")
		sleep(time.Minute)
		before := r.published()
		r.join("a", "b")
		r.partitions("t:0")
		sleep(time.Minute)
		if n := r.published() - before; n != 0 {
			t.Errorf("%d rebalances", n)
		}
		v := &party.View{Incarnation: r.inc, Joined: true, Members: []party.Member{{Name: "a", Czxid: 2}, {Name: "b", Czxid: 1}}}
		r.show(v)
		if n := r.published() - before; n != 1 {
			t.Errorf("a came back under its name: %d rebalances", n)
		}
		r.stop()
	})
}

// TestViewsOfTwoIncarnationsAreNotMixed is the catching up after a loss.
func TestViewsOfTwoIncarnationsAreNotMixed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		r.run()
		r.partitions("t:0", "t:1")
		r.join("a", "b")
		old := r.inc
		r.want(TriggerInitial, "t:1")
		r.lose(session.ErrTrustLost)
		s := r.want(TriggerSession, "")
		if s.Joined || s.Incarnation != old || !errors.Is(s.Err, session.ErrTrustLost) {
			t.Errorf("joined %t, err %v", s.Joined, s.Err)
		}
		if fmt.Sprint(s.Mapping()) != "map[a:map[t:[0]] b:map[t:[1]]]" {
			t.Error("the last good mapping is gone")
		}
		r.incarnate()
		r.join("b")
		sleep(time.Hour)
		if s := r.want(TriggerSession, ""); s.Incarnation != old || len(s.Members) != 2 {
			t.Errorf("mixed: %v", s.Members)
		}
		r.partitions("t:0", "t:1", "t:2")
		s = r.want(TriggerSession, "t:0 t:1 t:2")
		if s.Incarnation != r.inc || !s.Joined || s.Err != nil {
			t.Errorf("joined %t, err %v", s.Joined, s.Err)
		}
		if got := r.told(); !strings.HasSuffix(got, "+t:1 -, + -t:1, +t:0 t:1 t:2 -") {
			t.Error(got)
		}
		// The same in another incarnation is another snapshot.
		r.incarnate()
		r.partitions("t:0", "t:1", "t:2")
		r.join("b")
		if s := r.want(TriggerSession, "t:0 t:1 t:2"); s.Incarnation != r.inc {
			t.Error("no snapshot of the new incarnation")
		}
		if err := r.failed(); !errors.Is(err, session.ErrTrustLost) {
			t.Error(err)
		}
		r.stop()
	})
}

func TestViewsOfAnEndedIncarnation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		r.run()
		r.lose(session.ErrSessionExpired)
		r.partitions("t:0")
		r.join("b")
		if s := r.want(TriggerInitial, ""); s.Joined || !errors.Is(s.Err, session.ErrSessionExpired) {
			t.Errorf("joined %t, err %v", s.Joined, s.Err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := r.Ready(ctx); !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, session.ErrSessionExpired) {
			t.Error("ready:", err)
		}
		r.stop()
	})
}

func TestLeavingEmptiesTheOwnShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		r.run()
		r.partitions("t:0", "t:1")
		r.join("a", "b")
		r.join("a")
		s := r.want(TriggerMembers, "")
		if s.Joined || fmt.Sprint(s.Mapping()) != "map[a:map[t:[0 1]]]" {
			t.Error(s.Mapping())
		}
		r.stop()
	})
}

// TestNamesakeIsNotUs: our name stands among the members, but it is not we.
func TestNamesakeIsNotUs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		r.run()
		r.partitions("t:0", "t:1")
		r.show(&party.View{Incarnation: r.inc, Members: []party.Member{{Name: "a"}, {Name: "b"}}})
		s := r.want(TriggerInitial, "")
		if fmt.Sprint(s.Mapping()) != "map[a:map[t:[0]] b:map[t:[1]]]" {
			t.Error("others see another mapping than", s.Mapping())
		}
		r.stop()
	})
}

func TestNameTakenWhileWeOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		r.begin("t:0")
		r.want(TriggerInitial, "t:0")
		r.members.end <- fmt.Errorf("party: %w", ErrNameTaken)
		if err := <-r.ran; !errors.Is(err, ErrNameTaken) {
			t.Error(err)
		}
		s := r.want(TriggerMembers, "")
		if s.Joined || !errors.Is(s.Err, ErrNameTaken) || s.Incarnation != r.inc {
			t.Errorf("joined %t, err %v", s.Joined, s.Err)
		}
		if got := r.told(); !strings.HasSuffix(got, "+ -t:0") {
			t.Error(got)
		}
		if err := r.Rebalance(t.Context()); !errors.Is(err, ErrStopped) || !errors.Is(err, ErrNameTaken) {
			t.Error("rebalance:", err)
		}
	})
}

func TestNameTakenBeforeAnythingWasRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		r.run()
		r.members.end <- ErrNameTaken
		if err := <-r.ran; !errors.Is(err, ErrNameTaken) {
			t.Error(err)
		}
		if s := r.Snapshot(); s == nil || s.Joined || !errors.Is(s.Err, ErrNameTaken) {
			t.Error(s)
		}
		if err := r.Ready(t.Context()); !errors.Is(err, ErrNameTaken) {
			t.Error("ready:", err)
		}
	})
}

// TestOvertakenViews: a refresh brings newer views than those on their way.
func TestOvertakenViews(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		l := r.loop
		l.onMembers(&party.View{Version: 2})
		l.onMembers(&party.View{Version: 1})
		l.onSet(&sharedset.View{Version: 4})
		l.onSet(&sharedset.View{Version: 3})
		if l.members.Version != 2 || l.set.Version != 4 {
			t.Errorf("back to %d and %d", l.members.Version, l.set.Version)
		}
	})
}
