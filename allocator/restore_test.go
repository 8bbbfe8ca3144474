package allocator

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/kielgo/kiel/internal/sharedset"
)

// TestSeedAfterABackup: what a set from a backup lacks is added again, and nothing else, which somebody may be removing; what
// somebody removed is not.
func TestSeedAfterABackup(t *testing.T) {
	tests := map[string]struct {
		trusted bool // the session stays trusted all the while
		garbage bool // the set can't be read in between
		writes  int32
		items   string
		added   string // in the end
	}{
		"written less often, new session":        {writes: 2, items: "t:0", added: "t:1"},
		"written as often, new session":          {writes: 3, items: "t:0", added: "t:1"},
		"removed while without a session":        {writes: 4, items: "t:0"},
		"written less often":                     {trusted: true, writes: 2, items: "t:0", added: "t:1"},
		"written as often":                       {trusted: true, writes: 3, items: "t:0", added: "t:1"},
		"removed":                                {trusted: true, writes: 4, items: "t:0"},
		"nothing lost":                           {writes: 3, items: "t:0 t:1"},
		"nothing lost, written less often":       {writes: 2, items: "t:0 t:1"},
		"unreadable, then removed":               {trusted: true, garbage: true, writes: 5, items: "t:0"},
		"unreadable, then from a backup":         {trusted: true, garbage: true, writes: 2, items: "t:0", added: "t:1"},
		"unreadable, from a backup, new session": {garbage: true, writes: 2, items: "t:0", added: "t:1"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			inSeedRig(t, func(r *rig, adds *[]string) {
				r.begin("s:0", "t:0", "t:1")
				r.restored(3, "s:0", "t:0", "t:1")
				sleep(time.Minute)
				if !test.trusted {
					r.lose(errors.New("x"))
					r.incarnate()
					r.join("b")
				}
				if test.garbage {
					r.showSet(&sharedset.View{
						Items: []string{"s:0", "t:0", "t:1"}, Exists: true, Czxid: r.czxid, DataVersion: 4, Err: sharedset.ErrUnreadable,
					})
					sleep(time.Minute)
				}
				r.restored(test.writes, strings.Fields(test.items)...)
				sleep(time.Minute)
				want := "[]"
				if test.added != "" {
					want = "[" + test.added + "]"
				}
				if got := fmt.Sprint(*adds); got != want {
					r.Errorf("added %s, want %s", got, want)
				}
			})
		})
	}
}

// TestRemovedIsRemovedForGood: what a member saw removed is not added again, neither when the set is deleted nor when the servers
// go back to a backup.
func TestRemovedIsRemovedForGood(t *testing.T) {
	inSeedRig(t, func(r *rig, adds *[]string) {
		r.begin("t:0", "t:1")
		r.partitions("t:0")
		sleep(time.Minute)
		r.lose(errors.New("x"))
		r.incarnate()
		r.join("b")
		r.restored(1)
		if got := fmt.Sprint(*adds); got != "[t:0]" {
			r.Errorf("after a restore: added %s", got)
		}
		r.partitions("t:0")
		r.showSet(&sharedset.View{})
		sleep(time.Minute)
		if got := fmt.Sprint(*adds); got != "[t:0 t:0]" {
			r.Errorf("after a deletion: added %s", got)
		}
	})
}
