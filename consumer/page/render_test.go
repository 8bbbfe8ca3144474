package page

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/consumer/inspect"
	"github.com/kielgo/kiel/internal/statuswrite"
	"github.com/kielgo/kiel/internal/testonly/assert"
	"github.com/kielgo/kiel/internal/testonly/noerr"
	"github.com/kielgo/kiel/status"
)

func handlerFor(t *testing.T) *Handler {
	t.Helper()
	h, err := New("g", inspect.Sources{Servers: []string{"localhost:2181"}}, Options{})
	noerr.Must(t, err)
	return h
}

// shown renders the page of a report in a view.
func shown(t *testing.T, r *inspect.Report, v view) string {
	t.Helper()
	r.ZooKeeper.State, r.Claims = inspect.OK, true
	if r.At.IsZero() {
		r.At = time.Date(2026, 3, 14, 3, 14, 9, 0, time.UTC)
	}
	s := newSnapshot(handlerFor(t), newState().next(r, nil))
	body, err := s.page(v, r.At)
	noerr.Must(t, err)
	return string(body)
}

// Whatever names and texts others have written, they are shown as text, and turn nothing around.
func TestHostileTexts(t *testing.T) {
	const evil = `"><script>alert(1)</script><img src=x onerror=alert(2)>'` + "\u202e\u009b31m\x00 {{.}} \xff javascript:alert(3)"
	at := time.Date(2026, 3, 14, 3, 14, 0, 0, time.UTC)
	reason := statuswrite.Reason(status.MemberGone, evil)
	r := &inspect.Report{
		Group:   evil,
		Members: []status.Member{{Name: evil, Host: evil, Functions: []string{evil}, Since: &at}},
		Partitions: []inspect.Partition{{
			Partition: status.Partition{Topic: evil, State: status.Owned, Owner: evil, Previous: "x" + evil, Reason: &reason, Since: &at},
			Kafka:     &inspect.Offsets{Committed: 1, End: 2, Waiting: 1, Error: evil},
		}},
		Findings: []inspect.Finding{{
			Kind: inspect.Kind(evil), Severity: inspect.Problem, Objects: []string{evil, evil}, Member: evil, Text: evil, Do: evil, Command: evil, Runbook: evil, Since: &at,
		}},
		Answers: []inspect.Answer{{Member: evil, State: inspect.Failed, Error: evil}},
		Changes: []inspect.Change{{At: at, Kind: inspect.MemberGone, Member: evil}, {At: at, Kind: inspect.Claimed, Partition: evil, From: evil, To: "y", Reason: &reason}},
	}
	r.Kafka = inspect.Source{State: inspect.Failed, Error: evil, Missed: []string{evil}}
	for _, v := range []view{{}, {table: true}, {query: evil}, {partition: "orders:0", query: "alert"}} {
		body := shown(t, r, v)
		for _, bad := range []string{"<script>", "<img", "onerror=alert(2)>\"", "href=\"javascript:"} {
			if strings.Contains(body, bad) {
				t.Errorf("%+v: the page has %q", v, bad)
			}
		}
		for _, c := range body {
			if c != '\n' && !unicode.IsPrint(c) {
				t.Errorf("%+v: the page has %q", v, c)
				break
			}
		}
		if !strings.Contains(body, `\u202e`) || !strings.Contains(body, "&lt;script&gt;") {
			t.Errorf("%+v: nothing is shown of it", v)
		}
	}
	j := must(newSnapshot(handlerFor(t), newState().next(r, nil)).reportJSON())
	if strings.Contains(string(j), "\u202e") || strings.Contains(string(j), "<script>") || !json.Valid(j) || !strings.HasSuffix(string(j), "}\n") {
		t.Errorf("the report has hidden letters, or is no JSON: %s", j)
	}
	s := newSnapshot(handlerFor(t), newState().next(nil, errors.New(evil)))
	pieces, _, err := s.news(view{query: "a\r\nb"}, nil, at)
	events := string(bytes.Join(pieces, nil))
	if err != nil || strings.Contains(events, "<script") || strings.ContainsAny(events, "\u202e\r") || strings.Count(events, "\n\n") != len(parts())+1 ||
		strings.Count(events, "\n") != 3*(len(parts())+1) {
		t.Errorf("%v: %s", err, events)
	}
}

// group makes a report with so many partitions, of which each hundredth has a fault.
func group(n int) *inspect.Report {
	r := &inspect.Report{Members: []status.Member{{Name: "c1"}}}
	for i := range n {
		p := inspect.Partition{Partition: status.Partition{Topic: "t", Partition: int32(i), State: status.Owned, Owner: "c1"}}
		if i%100 == 7 {
			p.Fault = inspect.StandsStill
		}
		r.Partitions = append(r.Partitions, p)
	}
	return r
}

// The page of a large group shows partitions with a finding, and those that are searched, up to a bound.
func TestLargeGroup(t *testing.T) {
	for _, tc := range []struct {
		n     int
		query string
		cells int
	}{{2000, "", 2000}, {5000, "", 50}, {5000, "t:12", 111}, {5000, "t:", 500}, {9999, "c1", 500}, {60, "nothing", 0}} {
		body := shown(t, group(tc.n), view{query: tc.query})
		assert.Equal(t, strings.Count(body, `class="cell `), tc.cells, "%d partitions, search %q: cells", tc.n, tc.query)
		assert.Equal(t, strings.Count(shown(t, group(tc.n), view{query: tc.query, table: true}), `<th scope="row"><a`), tc.cells, "%d partitions, search %q: rows", tc.n, tc.query)
	}
	if body := shown(t, group(5000), view{query: "t:"}); !strings.Contains(body, "and 4500 more") {
		t.Error("it does not say that there are more")
	}
	r := group(20000)
	r.Partitions[0].Owner = ""
	s := newState().next(r, nil)
	r.ZooKeeper.State, r.Claims = inspect.OK, false
	s.kept = r
	if body := string(must(newSnapshot(handlerFor(t), s).page(view{}, r.At))); !strings.Contains(body, "too many to read who owns them") {
		t.Error("it does not say that claims were not read")
	}
}

// The page and each event say how old what they show is, from when the first source was asked.
func TestAge(t *testing.T) {
	r := group(1)
	r.At, r.ZooKeeper, r.Kafka = time.Date(2026, 3, 14, 3, 14, 12, 0, time.UTC), inspect.Source{State: inspect.OK, Age: 3}, inspect.Source{State: inspect.OK, Age: 0.5}
	s, now := newSnapshot(handlerFor(t), newState().next(r, nil)), r.At.Add(4*time.Second)
	if body := string(must(s.page(view{}, now))); !strings.Contains(body, `<span id="age" data-age="7.0">7.0 s</span> old`) || !strings.Contains(body, `data-stale="10"`) {
		t.Error(body)
	}
	pieces, _, err := s.news(view{}, nil, now)
	if text := string(bytes.Join(pieces, nil)); err != nil || !strings.Contains(text, `data: {"age":"7.0","at":"03:14:09","stamp":"2026-03-14T03:14:09Z",`) {
		t.Errorf("%v: %s", err, text)
	}
}

// However many views there are, a snapshot keeps few grids, and which partition is chosen makes no other one.
func TestManyViews(t *testing.T) {
	r := group(maxAll)
	r.ZooKeeper.State, r.Claims = inspect.OK, true
	h := handlerFor(t)
	s := newSnapshot(h, newState().next(r, nil))
	for i := range 20 {
		must(s.page(view{partition: fmt.Sprintf("t:%d", i)}, r.At))
	}
	if len(s.grids) != 1 || len(h.renderer.now) != maxAll {
		t.Errorf("%d grids are kept, %d cells were rendered", len(s.grids), len(h.renderer.now))
	}
	s.size = maxKept
	if must(s.page(view{query: "t:"}, r.At)); len(s.grids) != 1 {
		t.Errorf("%d bytes of grids are kept", s.size)
	}
	for range 2 {
		newSnapshot(h, newState().next(group(10), nil))
	}
	assert.Equal(t, len(h.renderer.now)+len(h.renderer.before), 0, "cells that are kept, and nobody is shown")
}

// Links to partitions keep what else a view has, escaped.
func TestLinksKeepTheView(t *testing.T) {
	const evil = `c1"><b>&#partition"`
	r := group(1)
	r.Partitions[0].Owner = evil
	for v, want := range map[view]string{
		{query: evil}:              `<a href="?partition=t%3A0&amp;q=c1%22%3E%3Cb%3E%26%23partition%22#partition" class=`,
		{query: "c1", table: true}: `<a href="?partition=t%3A0&amp;q=c1&amp;view=table#partition">t:0</a>`,
	} {
		if body := shown(t, r, v); !strings.Contains(body, want) || strings.Contains(body, "<b>&#") {
			t.Errorf("%+v: no %s in %s", v, want, body)
		}
	}
}

// A verdict has its colour: that not all could be seen is not well.
func TestVerdicts(t *testing.T) {
	for class, change := range map[string]func(*inspect.Report){
		`<h1><span class="ok">all well:`:                                  func(*inspect.Report) {},
		`<h1><span class="warn">no problem found, not all could be seen:`: func(r *inspect.Report) { r.Kafka.State = inspect.NotAsked },
		`<h1><span class="warn">no problem found at one look:`:            func(r *inspect.Report) { r.Window = 0 },
		`<h1><span class="bad">1 problem:`:                                func(r *inspect.Report) { r.Findings = []inspect.Finding{{Severity: inspect.Problem}} },
	} {
		r := &inspect.Report{Window: 10, Kafka: inspect.Source{State: inspect.OK}}
		change(r)
		if body := shown(t, r, view{}); !strings.Contains(body, class) {
			t.Errorf("no %s in %s", class, body)
		}
	}
}

// Members say how many partitions they own. Of many those with a problem are shown before others.
func TestMembers(t *testing.T) {
	r, owned := &inspect.Report{}, 3
	for i := range 500 {
		r.Members = append(r.Members, status.Member{Name: fmt.Sprintf("m%03d", i), Owned: &owned, Functions: []string{"balanced/1"}})
	}
	r.Members[1].Owned = nil
	r.Findings = []inspect.Finding{{Kind: inspect.StandsStill, Severity: inspect.Problem, Member: "m499", Objects: []string{"t:1"}}}
	body := shown(t, r, view{})
	for _, want := range []string{
		`</span> m000</th><td class="hide">-</td><td class="n">3</td>`, `</span> m001</th><td class="hide">-</td><td class="n">-</td>`,
		`<td class="bad">stands still: t:1</td>`, "and 200 more",
	} {
		if !strings.Contains(body, want) {
			t.Errorf("no %q in %s", want, body)
		}
	}
	assert.Equal(t, strings.Count(body, `<th scope="row"><span`), maxMembers, "members that are shown")
}

// Sums say of how many partitions something is missing in them.
func TestSumsWithoutSomePartitions(t *testing.T) {
	r := group(3)
	r.Partitions[0].Kafka, r.Partitions[1].Kafka = &inspect.Offsets{Waiting: 0}, &inspect.Offsets{Waiting: -1}
	if body := shown(t, r, view{}); !strings.Contains(body, "waiting <b>0</b> (of 2 partitions not known)") {
		t.Error(body)
	}
}

func must(b []byte, err error) []byte {
	if err != nil {
		panic(err)
	}
	return b
}

// A partition's look says who owns it, whether it moved, and whether something is wrong.
func TestCells(t *testing.T) {
	at := time.Date(2026, 3, 14, 3, 14, 9, 0, time.UTC)
	long, now := at.Add(-time.Hour), at.Add(-time.Minute)
	oldest := at.Add(-90 * time.Second)
	owned := func(i int32, owner, previous string, since *time.Time) inspect.Partition {
		return inspect.Partition{Partition: status.Partition{Topic: "orders", Partition: i, State: status.Owned, Owner: owner, Previous: previous, Since: since}, Kafka: &inspect.Offsets{}}
	}
	r := &inspect.Report{At: at, Members: []status.Member{{Name: "c1"}, {Name: "c2"}}, Partitions: []inspect.Partition{
		owned(0, "c1", "c3", &long), owned(1, "c2", "c3", &now), owned(2, "c2", "", &now),
		{Partition: status.Partition{Topic: "orders", Partition: 3, State: status.Free}},
		{Partition: status.Partition{Topic: "orders", Partition: 4, State: status.Blocked}},
	}}
	r.Partitions[2].Fault = inspect.StandsStill
	r.Partitions[2].Kafka = &inspect.Offsets{Waiting: 291, Oldest: &oldest}
	body := shown(t, r, view{})
	for _, want := range []string{
		`<a href="?partition=orders%3A0#partition" class="cell o0" title="orders:0, owner c1, 0 wait"><b>0 A</b> <span class="behind">0s</span> <span class="sr">orders:0, owner c1, 0 wait</span></a>`,
		`<a href="?partition=orders%3A1#partition" class="cell o1 moved" title="orders:1, owner c2, moved from c3 since 03:13:09, 0 wait"><b>1 B</b> <span class="behind">0s</span> <span class="sr">orders:1, owner c2, moved from c3 since 03:13:09, 0 wait</span></a>`,
		`<a href="?partition=orders%3A2#partition" class="cell o1 bad" title="orders:2, owner c2, stands still, 291 wait"><b>2 B !</b> <span class="behind">1m30s</span> <span class="sr">orders:2, owner c2, stands still, 291 wait</span></a>`,
		`<a href="?partition=orders%3A3#partition" class="cell nobody" title="orders:3, no owner"><b>3 –</b> <span class="behind">?</span> <span class="sr">orders:3, no owner</span></a>`,
		`<a href="?partition=orders%3A4#partition" class="cell nobody bad" title="orders:4, no owner: blocked, persistent claim"><b>4 – !</b> <span class="behind">?</span> <span class="sr">orders:4, no owner: blocked, persistent claim</span></a>`,
	} {
		if !strings.Contains(body, want) {
			t.Errorf("no %s in %s", want, body)
		}
	}
}

// A name keeps its letter while others come and go, and for an hour after it has gone.
func TestLetters(t *testing.T) {
	l, at := letters{}, time.Now()
	see := func(names ...string) (got string) {
		r := &inspect.Report{}
		for _, n := range names {
			r.Members = append(r.Members, status.Member{Name: n})
		}
		l.assign(r, at)
		for _, n := range names {
			got += letterOf(l[n].number)
		}
		return got
	}
	for _, tc := range []struct {
		names []string
		after time.Duration
		want  string
	}{
		{[]string{"b", "c"}, 0, "AB"},
		{[]string{"a", "c"}, time.Minute, "CB"},
		{[]string{"a", "b"}, time.Minute, "CA"},
		{[]string{"a", "b", "d"}, 2 * time.Hour, "ABC"},
	} {
		at = at.Add(tc.after)
		if tc.after > keepLetter {
			see("a", "b")
		}
		if got := see(tc.names...); tc.after < keepLetter && got != tc.want {
			t.Errorf("%v: %s, want %s", tc.names, got, tc.want)
		}
	}
	for n, want := range map[int]string{0: "A", 25: "Z", 26: "AA", 51: "AZ", 52: "BA", 701: "ZZ", 702: "AAA"} {
		assert.Equal(t, letterOf(n), want, "%d", n)
	}
}

// Changes of one moment are one line, the newest first, and lines are bounded.
func TestChangesTogether(t *testing.T) {
	at := time.Date(2026, 3, 14, 3, 12, 4, 0, time.UTC)
	reason := statuswrite.Reason(status.MemberGone, "c3")
	var h history
	h.add([]inspect.Change{
		{At: at.Add(-time.Hour), Kind: inspect.MemberJoined, Member: "c1"},
		{At: at.Add(-time.Hour).Add(time.Second), Kind: inspect.MemberJoined, Member: "c2"},
		{At: at, Kind: inspect.Claimed, Partition: "orders:0", From: "c3", To: "c1", Reason: &reason},
		{At: at.Add(time.Second), Kind: inspect.Claimed, Partition: "orders:1", From: "c3", To: "c2", Reason: &reason},
		{At: at.Add(time.Minute), Kind: inspect.Freed, Partition: "orders:4", From: "c2"},
	})
	h.add([]inspect.Change{{At: at.Add(2 * time.Second), Kind: inspect.Claimed, Partition: "orders:2", From: "c3", To: "c2", Reason: &reason}})
	var got []string
	for _, c := range h.newest() {
		got = append(got, c.first.Format(time.TimeOnly)+" "+c.String())
	}
	want := "03:13:04 orders:4 has no owner, before c2\n" +
		"03:12:04 3 partitions claimed (member-gone c3): orders:0 c3 -> c1, orders:1 c3 -> c2, orders:2 c3 -> c2\n" +
		"02:12:04 c1, c2 joined"
	if text := strings.Join(got, "\n"); text != want {
		t.Errorf("got\n%s\nwant\n%s", text, want)
	}
	for i := range 10000 {
		h.add([]inspect.Change{{At: at.Add(time.Duration(i) * time.Hour), Kind: inspect.MemberGone, Member: fmt.Sprint("m", i)}})
	}
	assert.Equal(t, len(h.newest()), maxRows, "lines")
}

func TestViews(t *testing.T) {
	for in, want := range map[string]view{
		"":                                     {},
		"view=table&q=+a+&partition=orders:-7": {table: true, query: "a"},
		"view=x&partition=orders:7":            {partition: "orders:7"},
		"q=" + strings.Repeat("x", 200):        {query: strings.Repeat("x", 100)},
		"q=%ff%fe":                             {},
	} {
		q, err := url.ParseQuery(in)
		noerr.Must(t, err)
		assert.Equal(t, viewOf(q), want, "%s", in)
	}
	v := view{table: true, query: "a&b", partition: kiel.Partition{Topic: "t", ID: 3}.String()}
	if got := v.link("events"); got != "events?partition=t%3A3&q=a%26b&view=table" {
		t.Error(got)
	}
	if got := (view{}).link(""); got != "./" {
		t.Error(got)
	}
}
