package realkafka_test

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/ownership"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/test/servers"
)

// Groups have the names that Kafka accepts: their offsets are in Kafka under the name, and their znodes read back as the name.
func TestGroupNames(t *testing.T) {
	t.Parallel()
	znodes := map[string]string{
		"plain": "plain", "team/app": "team%2Fapp", "team": "team", "my group": "my group", "größe": "größe", "a@b": "a@b", "a:b": "a:b",
		"$x {a}\"<b>'\\": "$x {a}\"<b>'\\", "100%": "100%", "%2F": "%252F", "%41": "%2541", ".": "%2E", "..": "%2E%2E", "../plain": "..%2Fplain",
		"a\tb\n": "a%09b%0A", "😀": "%F0%9F%98%80", strings.Repeat("/", 83): strings.Repeat("%2F", 83), strings.Repeat("ö", 124): strings.Repeat("ö", 124),
	}
	r := sharedRig(t, servers.Kafka4, 1)
	r.zk = servers.StartZooKeeper(t, servers.ZooKeeperOptions{TickTime: 500 * time.Millisecond, MaxSessionTimeout: time.Minute}).Addr()
	r.produce(3, 0)
	zk, err := session.Start(t.Context(), []string{r.zk}, session.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer zk.Close(t.Context())
	inc, err := zk.Incarnation(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := inc.EnsurePath(t.Context(), "/kiel/groups/%2f"); err != nil { // of a member in Python
		t.Fatal(err)
	}
	members, rigs := map[string]*member{}, map[string]*rig{}
	for name := range znodes {
		one := *r
		one.group = name
		members[name], rigs[name] = one.member(fmt.Sprint("member-", len(members))), &one
	}
	for name, m := range members {
		until(t, fmt.Sprintf("three messages, in the group %q", name), func() bool { return m.count.Load() == 3 })
		until(t, fmt.Sprintf("the offset of group %q", name), func() bool { return rigs[name].committed(0) == 3 })
		g, err := ownership.Inspect(t.Context(), zk, name)
		if err != nil || g.Group != name || len(g.Partitions) != 1 || g.Partitions[0].Owner != m.group.Member() || len(g.Disagreements) > 0 {
			t.Errorf("%q: %+v, %v", name, g, err)
		}
		m.leave()
	}
	children, _, err := inc.Children(t.Context(), "/kiel/groups")
	if err != nil {
		t.Fatal(err)
	}
	read := map[string]string{}
	for _, znode := range children {
		if name, ok := kiel.GroupOfZnode(znode); ok {
			read[name] = znode
		} else if znode != "%2f" {
			t.Errorf("%q is nobody's", znode)
		}
	}
	if !maps.Equal(read, znodes) {
		t.Errorf("the groups have the znodes %q, want %q", read, znodes)
	}
}
