package chaos_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/kielgo/kiel/internal/eventlog"
	"github.com/kielgo/kiel/internal/statuswrite"
	"github.com/kielgo/kiel/ownership"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/status"
	"github.com/kielgo/kiel/test/members"
	"github.com/kielgo/kiel/test/wait"
)

var full = flag.Bool("full", false, "freeze members while a group is upgraded from an earlier version, and take it back, too; restart five processes twenty times")

// upgrade is a group whose processes are replaced by those of another version, one at a time.
type upgrade struct {
	*fleet

	old     earlierBuild
	o       *operator
	session *session.Session
	m       []*member // those that run
	version map[*member]string
	moved   []time.Duration // until all was owned again by each orderly step
	crashed []measured
	named   map[string]int // claims that name the owner before, by the versions of both, see pair
}

// The versions.
const (
	oldVersion   = "earlier"
	todayVersion = "today"
)

// Scenario 23: a group of an earlier version is upgraded under load, one process at a time. Halfway two members of either version
// share the group, and one of either is killed. What each claim says of its owner, the owner before and the reason is read alike
// by both versions. With -full, one of either is frozen, too, for longer than its session, and all is done again on the way back.
func TestRollingUpgrade(t *testing.T) {
	t.Parallel()
	u := newUpgrade(t)
	u.to(todayVersion)
	if *full {
		u.to(oldVersion)
	}
	median(t, "moved", upgradeBound, u.moved)
	crashed(t, "owned-after-a-crash", u.crashed...)
	report := u.finish()
	t.Attr("longest-without-owner", report.LongestUnheld.String())
	u.handOvers()
	u.nothingLost()
	u.repeatedOnlyAfter(report, "killed", eventlog.Untrusted)
}

// newUpgrade starts a group of the earlier version.
func newUpgrade(t *testing.T) *upgrade {
	t.Helper()
	old := buildEarlier(t)
	u := &upgrade{old: old, fleet: newFleet(t, 23, options{flags: []string{"--work", "5ms"}}), version: map[*member]string{}, named: map[string]int{}}
	u.o = u.operator(sharedZooKeeper(t))
	u.session = openSession(t, sharedZooKeeper(t).Addrs(), session.Options{})
	for i := range 4 {
		u.m = append(u.m, nil)
		u.launch(i, oldVersion)
	}
	u.settle()
	u.records(members.Monotonic()) // at the start a partition may come to its owner in many ways
	return u
}

// launch starts a process of a version.
func (u *upgrade) launch(i int, version string) {
	u.t.Helper()
	bin := demo
	if version == oldVersion {
		bin = u.old.demo
	}
	u.m[i] = u.start(fmt.Sprintf("m%d", i), built(bin))
	u.version[u.m[i]] = version
}

// to replaces all processes by those of a version.
func (u *upgrade) to(version string) {
	u.t.Helper()
	for i := range u.m {
		wait.Pass(u.t, aftermath) // a change soon after another waits for more of them
		stopped := u.measure(fmt.Sprintf("%s leaves for %s", u.m[i].Name, version), u.m[i].Stop)
		u.records(stopped.at)
		wait.Pass(u.t, aftermath)
		begun := members.Monotonic()
		u.launch(i, version)
		u.settle()
		joined, _ := u.m[i].after(0, eventlog.Joined)
		u.records(begun)
		u.moved = append(u.moved, stopped.owned, u.since(joined.T).owned)
		if i == len(u.m)/2-1 {
			for range tries {
				if u.crash() <= crashBound.limit {
					break
				}
			}
			if *full {
				u.freeze()
			}
		}
	}
}

// crash kills one member of each version and starts them again. It returns how long it took until all was owned by the others.
func (u *upgrade) crash() time.Duration {
	u.t.Helper()
	a, b := 0, len(u.m)-1
	between := []map[int32]string{u.without(u.m[a]), u.without(u.m[b])} // whose session ends first is not known
	r := u.measure("one of each version crashes", func() { u.m[a].Kill(); u.m[b].Kill() })
	u.crashed = append(u.crashed, r)
	u.records(r.at, between...)
	for _, i := range []int{a, b} {
		begun := members.Monotonic()
		u.launch(i, u.version[u.m[i]])
		u.settle()
		u.records(begun)
	}
	return r.owned
}

// without is how the group is divided when one of its members is gone.
func (u *upgrade) without(gone *member) map[int32]string {
	u.t.Helper()
	var names []string
	for _, m := range u.working() {
		if m != gone {
			names = append(names, m.Name)
		}
	}
	return u.shares(names...)
}

// freeze stops one member of each version for two session timeouts. They take their hands off when they wake.
func (u *upgrade) freeze() {
	u.t.Helper()
	victims := []*member{u.m[0], u.m[len(u.m)-1]}
	u.crashed = append(u.crashed, u.measure("one of each version is frozen", func() {
		for _, m := range victims {
			m.Pause()
		}
		wait.Pass(u.t, 2*u.opts.timeout)
	}))
	back := u.measure("the frozen come back", func() {
		for _, m := range victims {
			m.Resume()
		}
	})
	for _, m := range victims {
		u.proveSilence(m, back.at)
	}
	u.records(back.at)
}

// record is what a claim's znodes hold; nothing else may be in them.
type record struct {
	Owner    string        `json:"owner"`
	Version  uint64        `json:"version"`
	ID       string        `json:"id"`
	Previous string        `json:"previous"`
	Reason   status.Reason `json:"reason"`
}

// records compares what claims and epochs say with the logs, and with what both versions read. In what was claimed after a time
// the owner before must be right: who owned the partition, or was to own it by one of the mappings that there were in between,
// since a new owner may know no more than that. A group that does not stand still meanwhile, because a member has lost its
// session, is looked at again.
func (u *upgrade) records(since int64, between ...map[int32]string) {
	u.t.Helper()
	for {
		u.settle()
		before := u.tokens()
		wrong := u.wrong(since, between)
		u.read()
		switch now := u.tokens(); {
		case !maps.EqualFunc(before, now, maps.Equal):
			u.t.Logf("looked at again: %s", u)
		case len(wrong) > 0:
			u.t.Fatalf("%s\n%s", strings.Join(wrong, "\n"), u)
		default:
			return
		}
	}
}

// wrong says what is wrong with the znodes, and with what is read of them.
func (u *upgrade) wrong(since int64, between []map[int32]string) (wrong []string) {
	u.t.Helper()
	written := map[int32]record{}
	for _, m := range u.working() {
		for id, own := range m.held {
			r, err := u.record(m, id)
			if err == nil && own.claimed > since {
				err = u.origin(r, id, own.token, since, between)
			}
			if err != nil {
				wrong = append(wrong, fmt.Sprintf("%s of %s, %s: %v", u.partition(id), m.Name, u.version[m], err))
			}
			written[id] = r
		}
	}
	today, err := ownership.Inspect(u.t.Context(), u.session, u.topic)
	if err != nil {
		return append(wrong, err.Error())
	}
	for version, g := range map[string]*status.Group{todayVersion: today, oldVersion: u.old.inspect(u.t, u.opts.zookeeper, u.topic)} {
		for _, err := range u.misread(g, written) {
			wrong = append(wrong, fmt.Sprintf("as %s reads it: %s", version, err))
		}
	}
	return wrong
}

// record returns what the claim of a member says. The epoch must say the same, and both what the member's log does.
func (u *upgrade) record(m *member, id int32) (r record, err error) {
	claim, owner, err := u.o.Get(u.o.path("owners", u.partition(id)))
	if err != nil {
		return r, fmt.Errorf("claim: %w", err)
	}
	last, epoch, err := u.o.Get(u.o.path("epochs", u.partition(id)))
	if err != nil {
		return r, fmt.Errorf("epoch: %w", err)
	}
	decoder := json.NewDecoder(bytes.NewReader(claim))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&r); err != nil {
		return r, fmt.Errorf("%w: %s", err, claim)
	}
	if !bytes.Equal(claim, last) {
		return r, fmt.Errorf("the claim is %s, the epoch %s", claim, last)
	}
	return r, u.stands(r, m, id, owner, epoch)
}

// stands says whether the znodes of a claim are those of a member.
func (u *upgrade) stands(r record, m *member, id int32, owner, epoch *zk.Stat) error {
	token, current := m.held[id].token, ""
	for _, e := range m.events {
		if e.Event == eventlog.Claimed && e.Token == token {
			current = e.Session
		}
	}
	switch {
	case r.Owner != m.Name || r.Version == 0 || r.ID == "":
		return fmt.Errorf("the claim says %+v", r)
	case owner.Czxid != token || owner.Mzxid != token || epoch.Mzxid != token:
		return fmt.Errorf("created by %d, the epoch set by %d, the token is %d", owner.Czxid, epoch.Mzxid, token)
	case sessionName(owner.EphemeralOwner) != current || epoch.EphemeralOwner != 0:
		return fmt.Errorf("of the sessions %x and %x, want %s and none", owner.EphemeralOwner, epoch.EphemeralOwner, current)
	default:
		return nil
	}
}

// origin says whether a claim tells right why and from whom the partition came. Members that lost trust meanwhile may not know.
func (u *upgrade) origin(r record, id int32, token, since int64, between []map[int32]string) error {
	if err := statuswrite.Check(r.Reason); err != nil {
		return fmt.Errorf("reason: %w", err)
	}
	if times, _ := u.distrust(since); times > 0 {
		return nil
	}
	before, owner := u.before(id, token), u.before(id, token+1)
	switch r.Reason.Code {
	case status.Started, status.MemberJoined, status.MemberGone, status.MemberLeft, status.MemberChanged:
	default:
		return fmt.Errorf("the reason is %s", r.Reason)
	}
	switch planned := func(mapping map[int32]string) bool { return mapping[id] == r.Previous }; {
	case r.Previous == "": // nobody may be known
	case before == nil:
		return fmt.Errorf("the owner before is said to be %q, and there was none", r.Previous)
	case r.Previous == before.Name:
		u.named[u.pair(before, owner)]++
	case !slices.ContainsFunc(between, planned):
		return fmt.Errorf("the owner before is said to be %q, and it was %q", r.Previous, before.Name)
	}
	return nil
}

// pair names the versions of two members.
func (u *upgrade) pair(from, to *member) string { return u.version[from] + " to " + u.version[to] }

// before returns who owned a partition last with a token that is less than this one; nil if nobody did.
func (u *upgrade) before(id int32, token int64) (owner *member) {
	last := int64(0)
	for _, m := range u.all {
		for _, own := range m.terms[id] {
			if own.token < token && own.token > last {
				owner, last = m, own.token
			}
		}
	}
	return owner
}

// misread lists where what was read of a group differs from what is written.
func (u *upgrade) misread(g *status.Group, written map[int32]record) (wrong []string) {
	for _, d := range g.Disagreements {
		wrong = append(wrong, fmt.Sprintf("a disagreement: %+v", d))
	}
	var names []string
	for _, m := range g.Members {
		names = append(names, m.Name)
		if !slices.Equal(m.Topics, []string{u.topic}) || len(m.Functions) == 0 {
			wrong = append(wrong, fmt.Sprintf("the member %+v", m))
		}
	}
	var want []string
	for _, m := range u.working() {
		want = append(want, m.Name)
	}
	if slices.Sort(want); !slices.Equal(names, want) {
		wrong = append(wrong, fmt.Sprintf("the members are %s, want %s", names, want))
	}
	if len(g.Partitions) != u.opts.partitions {
		wrong = append(wrong, fmt.Sprintf("%d partitions", len(g.Partitions)))
	}
	for _, p := range g.Partitions {
		r := written[p.Partition]
		if p.State != status.Owned || p.Owner != r.Owner || p.Previous != r.Previous || p.Reason == nil || p.Reason.String() != r.Reason.String() {
			wrong = append(wrong, fmt.Sprintf("the partition %+v for %s, want %+v", p, p.Reason, r))
		}
	}
	return wrong
}

// handOvers says that partitions went from each version to each, and that owners of each knew from whom.
func (u *upgrade) handOvers() {
	u.t.Helper()
	count := map[string]int{}
	for _, m := range u.all {
		for id, terms := range m.terms {
			for _, own := range terms {
				if before := u.before(id, own.token); before != nil && before != m {
					count[u.pair(before, m)]++
				}
			}
		}
	}
	u.attr("hand-overs", fmt.Sprint(count))
	u.attr("named-the-owner-before", fmt.Sprint(u.named))
	versions := []string{oldVersion, todayVersion}
	for _, to := range versions {
		knew := 0
		for _, from := range versions {
			pair := from + " to " + to
			knew += u.named[pair]
			if count[pair] == 0 {
				u.t.Errorf("no partition went from %s", pair)
			}
		}
		if knew == 0 {
			u.t.Errorf("no claim of %s names the owner before", to)
		}
	}
}

// nothingLost says that nobody took what the other version wrote for something foreign: no member that trusted its session all
// the while has lost a claim.
func (u *upgrade) nothingLost() {
	u.t.Helper()
	for _, m := range u.all {
		if n := m.count[eventlog.Lost]; n > 0 && m.count[eventlog.Untrusted] == 0 {
			u.t.Errorf("%s, %s, lost %d claims", m.Name, u.version[m], n)
		}
	}
}
