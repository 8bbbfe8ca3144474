package inspect

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/consumer/internal/kafkaconn"
	"github.com/kielgo/kiel/consumer/internal/offsets"
	"github.com/kielgo/kiel/internal/statuswrite"
	"github.com/kielgo/kiel/internal/testonly/assert"
	"github.com/kielgo/kiel/internal/testonly/noerr"
	"github.com/kielgo/kiel/status"
)

// seen makes a look at one partition, t:0, of a member c2: what waited and what waits, with the claim's token at both looks.
func seen(before, now status.Partition, committed, end [2]int64) *look {
	tp := kiel.Partition{Topic: "t"}
	before.Topic, now.Topic = "t", "t"
	l := &look{group: "g", told: map[kiel.Partition]bool{}, first: map[kiel.Partition]claim{tp: claimOf(Partition{Partition: before})}, report: &Report{
		Group: "g", At: time.Now(), ZooKeeper: Source{State: OK}, Kafka: Source{State: OK},
		Members: []status.Member{{Name: "c2", Functions: []string{"balanced/1"}}},
	}}
	g := [2]*glance{}
	for i := range g {
		g[i] = &glance{stored: map[kiel.Partition]offsets.Stored{tp: {Offset: committed[i]}}, ends: map[kiel.Partition]found{tp: {offset: end[i]}}}
	}
	l.report.Partitions, l.before = []Partition{{Partition: now}}, g[0]
	l.merge(g[1])
	return l
}

// A member that has claimed a partition between the looks has not had the time to go on, and is not to be restarted.
func TestNewOwnerDoesNotStandStill(t *testing.T) {
	was := status.Partition{State: status.Owned, Owner: "c3", Token: 7}
	is := status.Partition{State: status.Owned, Owner: "c2", Token: 9}
	stuck, waits := [2]int64{5, 5}, [2]int64{8, 9}
	assert.Equal(t, seen(is, is, stuck, waits).judge(seen(is, is, stuck, waits).report.Partitions[0]), StandsStill, "the same owner")
	l := seen(was, is, stuck, waits)
	assert.Equal(t, l.judge(l.report.Partitions[0]), "", "a new owner")
}

// A later owner's commit that comes between the look at ZooKeeper and that at Kafka is a handover.
func TestHandoverIsNoNewerOwner(t *testing.T) {
	is := status.Partition{State: status.Owned, Owner: "c2", Token: 7}
	for stored, want := range map[int64]Kind{7: "", 9: NewerOwner} {
		l := seen(is, is, [2]int64{5, 6}, [2]int64{6, 6})
		l.report.Partitions[0].Kafka.Token = 9
		l.before.stored[kiel.Partition{Topic: "t"}] = offsets.Stored{Offset: 5, Token: stored}
		assert.Equal(t, l.judge(l.report.Partitions[0]), want, "stored with %d before", stored)
	}
}

// Members that leave, or join, have claims and no znode for a while.
func TestLeavingMemberIsNoProblem(t *testing.T) {
	old, is := status.Partition{State: status.Owned, Owner: "c3", Token: 7}, status.Partition{State: status.Owned, Owner: "c3", Token: 9}
	for _, tc := range []struct {
		before status.Partition
		want   Severity
	}{{old, Note}, {is, Problem}} {
		l := seen(tc.before, is, [2]int64{5, 6}, [2]int64{6, 6})
		l.report.Disagreements = []status.Disagreement{statuswrite.Disagreement(status.OrphanClaim, "", "t:0")}
		l.findDisagreements()
		if f := l.report.Findings; len(f) != 1 || f[0].Severity != tc.want || strings.Contains(f[0].Text, "nobody can own") {
			t.Errorf("%+v", f)
		}
	}
}

// A disagreement lists a few; each partition has a finding with its command.
func TestManyPersistentClaims(t *testing.T) {
	for _, n := range []int{30, 250} {
		l := &look{group: "g", told: map[kiel.Partition]bool{}, report: &Report{}}
		var names []string
		for i := range n {
			p := Partition{Partition: status.Partition{Topic: "t", Partition: int32(i), State: status.Blocked}}
			l.report.Partitions, names = append(l.report.Partitions, p), append(names, id(p).String())
		}
		l.report.Disagreements = []status.Disagreement{statuswrite.Disagreement(status.PersistentClaim, "", names...)}
		l.findDisagreements()
		total := 0
		for i, f := range l.report.Findings {
			total += len(f.Objects) + f.More
			assert.Equal(t, f.Command, fmt.Sprintf("kiel release g t:%d", i), "%+v", f)
		}
		if total != n || len(l.report.Findings) != min(n, maxClaimFindings) {
			t.Errorf("%d findings about %d of %d partitions", len(l.report.Findings), total, n)
		}
	}
}

// Producers choose timestamps: one in nanoseconds is in a year that JSON can't hold.
func TestTimestampsOutOfRange(t *testing.T) {
	for _, ms := range []int64{time.Now().UnixNano(), math.MaxInt64, math.MinInt64, -1} {
		f := foundOf(kafkaconn.Listed{Offset: 3, Millis: ms})
		if _, err := json.Marshal(&Offsets{Oldest: &f.at}); err != nil || f.offset != 3 {
			t.Errorf("%d: %+v, %v", ms, f, err)
		}
	}
}

func TestUnknownOffsets(t *testing.T) {
	is := status.Partition{State: status.Owned, Owner: "c2", Token: 7}
	for end, want := range map[int64]int{6: 0, -1: 1} {
		l := seen(is, is, [2]int64{6, 6}, [2]int64{end, end})
		if end < 0 {
			l.before.ends = nil
		}
		l.findPartitions()
		if f := l.report.Findings; len(f) != want || want > 0 && (f[0].Kind != OffsetsUnknown || f[0].Objects[0] != "t:0" || f[0].Do == "") {
			t.Errorf("end %d: %+v", end, f)
		}
	}
}

// A member that answers something is neither gone nor stopped, and is not to be left alone.
func TestMembersThatAnswerAreNotSilent(t *testing.T) {
	is := status.Partition{State: status.Owned, Owner: "c2", Token: 7}
	for _, tc := range []struct {
		answer Answer
		silent bool
		want   string
	}{
		{Answer{Error: errAuth.Error()}, false, "wants a login"},
		{Answer{Error: "HTTP status 503"}, false, "it answers: HTTP status 503"},
		{Answer{Error: errLocal.Error()}, false, "stands still"},
		{Answer{Error: errFull.Error()}, false, "stands still"},
		{Answer{Error: errLate.Error(), Silent: true}, true, "does not answer"},
	} {
		l := seen(is, is, [2]int64{5, 5}, [2]int64{8, 9})
		tc.answer.Member, tc.answer.State = "c2", Failed
		l.report.Answers = []Answer{tc.answer}
		l.findPartitions()
		f := l.report.Findings[0]
		if !strings.Contains(f.Text, tc.want) || strings.Contains(f.Text, "does not answer") != tc.silent || strings.Contains(f.Do, "needs nothing") != tc.silent {
			t.Errorf("%+v: %s / %s", tc.answer, f.Text, f.Do)
		}
	}
}

// Partitions of which no offset is stored, or one that is no place in the log, are not well.
func TestOffsetsThatSayNothing(t *testing.T) {
	is := status.Partition{State: status.Owned, Owner: "c2", Token: 7}
	for _, tc := range []struct {
		committed, end [2]int64
		own            *status.Offsets
		want           Kind
	}{
		{[2]int64{-1, -1}, [2]int64{100, 200}, nil, ProgressUnknown},
		{[2]int64{-1, -1}, [2]int64{100, 200}, &status.Offsets{Uncommitted: 7}, ProgressUnknown},
		{[2]int64{-1, -1}, [2]int64{100, 200}, &status.Offsets{}, ""}, // its program keeps offsets
		{[2]int64{-1, -1}, [2]int64{0, 0}, nil, ""},
		{[2]int64{-1, 5}, [2]int64{9, 9}, nil, ""},
		{[2]int64{1000, 1000}, [2]int64{50, 80}, nil, OffsetAstray},
		{[2]int64{60, 60}, [2]int64{50, 80}, nil, ""},
	} {
		l := seen(is, is, tc.committed, tc.end)
		l.report.Partitions[0].Offsets, l.report.Claims = tc.own, true
		l.findPartitions()
		got := l.report.Partitions[0].Fault
		if got != tc.want || tc.want != "" && (len(l.report.Findings) != 1 || l.report.Verdict() == "all well") {
			t.Errorf("committed %v, end %v: %q, %+v", tc.committed, tc.end, got, l.report.Findings)
		}
	}
	l := seen(is, is, [2]int64{5, 5}, [2]int64{5, 5})
	l.report.Partitions[0].Kafka.otherTopic = true
	if l.findPartitions(); len(l.report.Findings) != 1 || !strings.Contains(l.report.Findings[0].Text, "deleted") {
		t.Errorf("of another topic: %+v", l.report.Findings)
	}
}

// A member's trouble, as a former owner's, hides nothing of the partitions of others.
func TestTroublesOfOthersHideNothing(t *testing.T) {
	is := status.Partition{State: status.Owned, Owner: "c2", Token: 7}
	for member, want := range map[string]int{"c2": 0, "former": 1} {
		l := seen(is, is, [2]int64{5, 5}, [2]int64{8, 9})
		l.report.Members[0].Name = member
		l.said = []*status.Group{{Self: &status.Self{}, Troubles: []status.Trouble{{Kind: "handler", Since: time.Now(), About: []string{"t:0"}}}}}
		l.findHandlers()
		l.findPartitions()
		n := 0
		for _, f := range l.report.Findings {
			if f.Kind == StandsStill {
				n++
			}
		}
		assert.Equal(t, n, want, "partitions that stand still beside a trouble of %s, in %+v", member, l.report.Findings)
	}
}

// A finding about many partitions lists a few, and is about the others too.
func TestFindingsConcernAll(t *testing.T) {
	l := seen(status.Partition{}, status.Partition{}, [2]int64{}, [2]int64{})
	l.report.Partitions, l.before, l.report.Tree = nil, nil, "mine"
	for i := range int32(30) {
		p := status.Partition{Topic: "t", Partition: i, State: status.Owned, Owner: "c2"}
		l.report.Partitions = append(l.report.Partitions, Partition{Partition: p, Kafka: &Offsets{Tree: "other", End: 9, Committed: 5}})
	}
	l.findPartitions()
	f := l.report.Findings[0]
	if len(f.Objects) != statuswrite.MaxListed || f.More != 10 || !f.Concerns("t:29") || !f.Concerns("t:0") || f.Concerns("t:30") {
		t.Errorf("%+v", f)
	}
}

// A partition that was just added to the set had no owner that it could lose.
func TestNewPartitionsAreNotFreed(t *testing.T) {
	f := &following{show: func(c Change) { t.Errorf("%+v", c) }}
	f.compare(&status.Group{}, &status.Group{Partitions: []status.Partition{{Topic: "t", State: status.Free}}})
}

// A name that begins as a flag is none.
func TestCommandsOfNamesLikeFlags(t *testing.T) {
	l := &look{group: "g", flags: []string{"--zookeeper", "zk:2181"}}
	if got := l.command("why", "t:0"); got != "kiel why g t:0 --zookeeper zk:2181" {
		t.Error(got)
	}
	if got := l.command("why", "-x:0"); got != "kiel why --zookeeper zk:2181 -- g -x:0" {
		t.Error(got)
	}
}

// Two looks find the times of the same partitions, if there are more than can be asked for.
func TestTimesAreOfTheSamePartitions(t *testing.T) {
	late := func(first int32) map[kiel.Partition]int64 {
		all := map[kiel.Partition]int64{}
		for i := range int32(maxSearched + 500) {
			all[kiel.Partition{Topic: "t", ID: first + i}] = 1
		}
		return all
	}
	l, one, two := seen(status.Partition{}, status.Partition{}, [2]int64{}, [2]int64{}), late(100), late(0)
	l.before = nil
	if left := l.fewest(one); left != 500 || len(one) != maxSearched {
		t.Fatalf("%d are left out, %d are asked for", left, len(one))
	}
	l.before = &glance{times: map[kiel.Partition]time.Time{}}
	for p := range one {
		l.before.times[p] = time.Now()
	}
	l.untimed = l.fewest(two)
	for p := range one {
		if _, ok := two[p]; !ok {
			t.Fatalf("%v has a time at the first look alone", p)
		}
	}
	if l.merge(&glance{}); len(l.report.Kafka.Missed) != 1 {
		t.Errorf("missed %v", l.report.Kafka.Missed)
	}
}

// A shift is not carried over to the other end.
func TestShiftOverflows(t *testing.T) {
	for _, tc := range [][3]int64{{5, math.MaxInt64, math.MaxInt64}, {5, -7, -2}, {5, math.MinInt64, math.MinInt64 + 5}, {5, 7, 12}} {
		assert.Equal(t, shifted(tc[0], tc[1]), tc[2], "%d by %d", tc[0], tc[1])
	}
}

// An answer is trimmed to what the member says of itself, within bounds.
func TestAnswersAreTrimmed(t *testing.T) {
	g := &status.Group{Self: &status.Self{}, Partitions: make([]status.Partition, 5000), Troubles: make([]status.Trouble, 5000)}
	g.Partitions[7] = status.Partition{Topic: "t", Partition: 7, Offsets: &status.Offsets{Marked: 3}}
	g.Troubles[0].About, g.Troubles[0].Kind = make([]string, 5000), strings.Repeat("k", 5000)
	got := trimmed(g)
	if len(got.Partitions) != 1 || got.Partitions[0].Offsets.Marked != 3 || len(got.Troubles) != maxTroubles || len(got.Troubles[0].About) != maxAbout ||
		len(got.Troubles[0].Kind) > statuswrite.MaxName {
		t.Errorf("%+v", got)
	}
}

// Each runbook that a finding names is a heading of the page, and each kind of members' errors that is known here is in its
// table.
func TestRunbooksExist(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "operating.md"))
	noerr.Must(t, err)
	anchors := map[string]bool{}
	for _, heading := range regexp.MustCompile(`(?m)^#+ (.+)$`).FindAllStringSubmatch(string(page), -1) {
		anchors[strings.ReplaceAll(strings.ToLower(heading[1]), " ", "-")] = true
	}
	files, err := filepath.Glob("*.go")
	noerr.Must(t, err)
	found := 0
	for _, file := range files {
		code, err := os.ReadFile(file)
		noerr.Must(t, err)
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		for _, name := range regexp.MustCompile(`"(kiel[a-z]+|security|kinds-of-errors)"`).FindAllStringSubmatch(string(code), -1) {
			if found++; !anchors[name[1]] {
				t.Errorf("%s names the runbook %q, which the page does not have", file, name[1])
			}
		}
	}
	if found < 20 {
		t.Errorf("%d runbooks found in the code", found)
	}
	kinds := slices.Concat(kafkaKinds(), claimKinds())
	for _, kind := range []Kind{HandlerStuck, OtherTree, Kind(status.UnwantedTopic), Kind(status.NoCommonFunction), Kind(status.UnreadableRecord), Kind(status.OrphanClaim)} {
		kinds = slices.Concat(kinds, tells(kind), tellsOfObjects(kind))
	}
	for _, kind := range kinds {
		if !regexp.MustCompile("(?m)^\\| (`[a-z-]+`, )*`" + kind + "`").Match(page) {
			t.Errorf("the page has no kind %s", kind)
		}
	}
}
