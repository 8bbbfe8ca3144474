package eventlog_test

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/kielgo/kiel/internal/eventlog"
	"github.com/kielgo/kiel/internal/testonly/noerr"
)

// script builds a log from lines like "10 claimed 3 token=7".
func script(t *testing.T, name string, killed int64, lines ...eventlog.Event) eventlog.Log {
	t.Helper()
	return eventlog.Log{Name: name, Events: lines, Killed: killed}
}

func ev(t int64, kind string) eventlog.Event { return eventlog.Event{T: t, Event: kind} }

func on(t int64, kind string, offset int64) eventlog.Event {
	return eventlog.Event{T: t, Event: kind, Topic: "orders", Partition: new(int32(0)), Offset: &offset}
}

func claim(t, token int64) eventlog.Event {
	return eventlog.Event{T: t, Event: eventlog.Claimed, Topic: "orders", Partition: new(int32(0)), Token: token, Session: "0x1"}
}

func drop(t int64, kind string) eventlog.Event {
	return eventlog.Event{T: t, Event: kind, Topic: "orders", Partition: new(int32(0))}
}

func untrusted(t, since int64) eventlog.Event {
	return eventlog.Event{T: t, Event: eventlog.Untrusted, Since: since}
}

func sent(t, offset, since int64) eventlog.Event {
	e := on(t, eventlog.Committed, offset)
	e.Since = since
	return e
}

func end(n int64) eventlog.Expect {
	return eventlog.Expect{End: map[eventlog.Partition]int64{{Topic: "orders", ID: 0}: n}}
}

func TestCheck(t *testing.T) {
	first := []eventlog.Event{
		claim(10, 100), on(11, eventlog.Opened, 0), on(12, eventlog.Message, 0), on(13, eventlog.Message, 1),
		on(14, eventlog.Committed, 2), drop(15, eventlog.Releasing), ev(16, eventlog.Left),
	}
	tests := map[string]struct {
		logs   []eventlog.Log
		want   eventlog.Expect
		says   string // a part of the violation; empty for none
		late   int
		exempt int
	}{
		"orderly hand-over": {
			logs: []eventlog.Log{
				script(t, "a", 0, first...),
				script(t, "b", 0, claim(17, 101), on(18, eventlog.Opened, 2), on(19, eventlog.Message, 2), on(20, eventlog.Committed, 3), drop(21, eventlog.Releasing)),
			},
			want: end(3),
		},
		"killed, then read again from the committed offset": {
			logs: []eventlog.Log{
				script(t, "a", 20, claim(10, 100), on(11, eventlog.Opened, 0), on(12, eventlog.Message, 0), on(13, eventlog.Committed, 1), on(14, eventlog.Message, 1)),
				script(t, "b", 0, claim(21, 101), on(22, eventlog.Opened, 1), on(23, eventlog.Message, 1), ev(24, eventlog.Left)),
			},
			want: end(2),
		},
		"trust regained in the same session keeps the token": {
			logs: []eventlog.Log{script(t, "a", 0, claim(10, 100),
				eventlog.Event{T: 15, Event: eventlog.Untrusted, Since: 14}, claim(20, 100), ev(21, eventlog.Left))},
		},
		"opened again under the claim, from what was committed": {
			logs: []eventlog.Log{script(t, "a", 0, claim(10, 100), on(11, eventlog.Opened, 0), on(12, eventlog.Message, 0), on(13, eventlog.Message, 1),
				on(14, eventlog.Done, 0), on(15, eventlog.Committed, 1), on(16, eventlog.Opened, 1), on(17, eventlog.Message, 1),
				on(18, eventlog.Done, 1), on(19, eventlog.Committed, 2), drop(20, eventlog.Releasing))},
			want: end(2),
		},
		"opened again under the claim, beyond what was handed out": {
			logs: []eventlog.Log{script(t, "a", 0, claim(10, 100), on(11, eventlog.Opened, 0), on(12, eventlog.Message, 0), on(13, eventlog.Opened, 2), drop(14, eventlog.Releasing))},
			says: "opened at 2, behind 1",
		},
		"opened again under the claim, before the committed offset": {
			logs: []eventlog.Log{script(t, "a", 0, append(first[:5:5], on(15, eventlog.Opened, 1), drop(16, eventlog.Releasing))...)},
			says: "before the committed offset 2",
		},
		"tenures that begin and end within an instant": {
			logs: []eventlog.Log{
				script(t, "b", 0, claim(10, 102), ev(20, eventlog.Left)),
				script(t, "y", 0, claim(10, 101), drop(10, eventlog.Releasing)),
				script(t, "z", 0, claim(10, 100), drop(10, eventlog.Releasing)),
			},
		},
		"two owners": {
			logs: []eventlog.Log{
				script(t, "a", 0, first...),
				script(t, "b", 0, claim(14, 101), ev(20, eventlog.Left)),
			},
			says: "before the tenure of a ended",
		},
		"token does not grow": {
			logs: []eventlog.Log{script(t, "a", 0, first...), script(t, "b", 0, claim(17, 100), ev(20, eventlog.Left))},
			says: "does not exceed",
		},
		"message after the release": {
			logs: []eventlog.Log{script(t, "a", 0, append(first[:6:6], on(16, eventlog.Message, 2))...)},
			says: "does not own it",
		},
		"the message at the moment when trust ended": {
			logs: []eventlog.Log{script(t, "a", 0, claim(10, 100), on(11, eventlog.Opened, 0), on(30, eventlog.Message, 0), untrusted(31, 14))},
			late: 1,
		},
		"the message at that moment, logged after the end of trust": {
			logs: []eventlog.Log{script(t, "a", 0, claim(10, 100), on(11, eventlog.Opened, 0), untrusted(31, 14), on(32, eventlog.Message, 0))},
			late: 1,
		},
		"a message at each of two ends of trust": {
			logs: []eventlog.Log{script(t, "a", 0, claim(10, 100), on(11, eventlog.Opened, 0), untrusted(31, 14), on(32, eventlog.Message, 0),
				claim(33, 100), on(34, eventlog.Opened, 0), untrusted(35, 35), on(36, eventlog.Message, 0))},
			late: 2,
		},
		"the message at the moment when the claim was lost": {
			logs: []eventlog.Log{script(t, "a", 0, claim(10, 100), on(11, eventlog.Opened, 0), drop(31, eventlog.Lost), on(32, eventlog.Message, 0))},
			late: 1,
		},
		"a message after the end of trust that was not the next": {
			logs: []eventlog.Log{script(t, "a", 0, claim(10, 100), on(11, eventlog.Opened, 0), untrusted(31, 14), on(32, eventlog.Message, 1))},
			says: "message 1 came where 0 was next",
			late: 1,
		},
		"a late message after the member left": {
			logs: []eventlog.Log{script(t, "a", 0, claim(10, 100), on(11, eventlog.Opened, 0), untrusted(31, 14), ev(32, eventlog.Left), on(33, eventlog.Message, 0))},
			says: "does not own it",
		},
		"two messages after trust ended": {
			logs: []eventlog.Log{script(t, "a", 0, claim(10, 100), on(11, eventlog.Opened, 0), on(29, eventlog.Message, 0), on(30, eventlog.Message, 1),
				untrusted(31, 14))},
			says: "message 1 was handed out 16ns after the end (untrusted)",
			late: 1,
		},
		"one message after trust ended, and another after that was said": {
			logs: []eventlog.Log{script(t, "a", 0, claim(10, 100), on(11, eventlog.Opened, 0), on(30, eventlog.Message, 0), untrusted(31, 14),
				on(32, eventlog.Message, 1))},
			says: "message 1 was handed out 18ns after the end (untrusted)",
			late: 1,
		},
		"commit after trust ended": {
			logs: []eventlog.Log{script(t, "a", 0, append(first[:4:4], untrusted(31, 14), on(32, eventlog.Committed, 2))...)},
			says: "by a member that does not own it",
		},
		"commit after trust ended, before that was said": {
			logs: []eventlog.Log{script(t, "a", 0, append(first[:4:4], on(30, eventlog.Committed, 2), untrusted(31, 14))...)},
			says: "the commit of 2 was sent 16ns after the end (untrusted)",
		},
		"commit sent before trust ended, answered later": {
			logs: []eventlog.Log{script(t, "a", 0, append(first[:4:4], sent(30, 2, 14), untrusted(31, 14), sent(32, 2, 13))...)},
		},
		"commit sent after trust ended, answered in the next tenure": {
			logs: []eventlog.Log{script(t, "a", 0, append(first[:4:4], untrusted(31, 14), claim(40, 100), sent(41, 2, 30), ev(42, eventlog.Left))...)},
			says: "the commit of 2 was sent 10ns before it was claimed",
		},
		"commit sent before trust ended, answered in the next tenure": {
			logs: []eventlog.Log{script(t, "a", 0, append(first[:4:4], untrusted(31, 14), claim(40, 100), sent(41, 2, 13), ev(42, eventlog.Left))...)},
		},
		"commit sent before the first claim": {
			logs: []eventlog.Log{script(t, "a", 0, claim(10, 100), sent(11, 0, 9), ev(12, eventlog.Left))},
			says: "the commit of 0 was sent 1ns before it was claimed",
		},
		"commit of what a handler has in hand": {
			logs: []eventlog.Log{script(t, "a", 0, claim(10, 100), on(11, eventlog.Opened, 0), on(12, eventlog.Message, 0), on(13, eventlog.Done, 0),
				on(14, eventlog.Message, 1), on(15, eventlog.Committed, 2), ev(16, eventlog.Left))},
			says: "committed 2, but only messages before 1 were processed",
		},
		"commit of the start position, and of what is done": {
			logs: []eventlog.Log{script(t, "a", 0, claim(10, 100), on(11, eventlog.Opened, 5), on(12, eventlog.Committed, 5), on(13, eventlog.Message, 5),
				on(14, eventlog.Done, 5), on(15, eventlog.Committed, 6), ev(16, eventlog.Left))},
		},
		"killed with a message in hand that is read by nobody else": {
			logs: []eventlog.Log{
				script(t, "a", 20, claim(10, 100), on(11, eventlog.Opened, 0), on(12, eventlog.Message, 0), on(13, eventlog.Done, 0), on(14, eventlog.Message, 1)),
				script(t, "b", 0, claim(21, 101), on(22, eventlog.Opened, 2), ev(24, eventlog.Left)),
			},
			want: end(2),
			says: "1 messages of 2 were handed out and never done, the first is 1",
		},
		"done after the end of trust": {
			logs: []eventlog.Log{
				script(t, "a", 0, claim(10, 100), on(11, eventlog.Opened, 0), on(12, eventlog.Message, 0), untrusted(14, 14), on(15, eventlog.Done, 0),
					ev(16, eventlog.Left)),
			},
			want: end(1),
		},
		"done before the log has that it was handed out": {
			logs: []eventlog.Log{script(t, "a", 0, claim(10, 100), on(11, eventlog.Opened, 0), on(12, eventlog.Done, 0), on(13, eventlog.Message, 0),
				on(14, eventlog.Committed, 1), ev(15, eventlog.Left))},
			want: end(1),
		},
		"done without having been handed out": {
			logs: []eventlog.Log{script(t, "a", 0, claim(10, 100), on(11, eventlog.Opened, 0), on(12, eventlog.Done, 0), ev(13, eventlog.Left))},
			says: "message 0 was done and never handed out",
		},
		"commit after the release": {
			logs: []eventlog.Log{script(t, "a", 0, append(first[:6:6], on(16, eventlog.Committed, 2))...)},
			says: "by a member that does not own it",
		},
		"message after the member left": {
			logs: []eventlog.Log{script(t, "a", 0, append(first[:4:4], on(18, eventlog.Message, 2), eventlog.Event{T: 19, Event: eventlog.Left, Since: 15},
				on(20, eventlog.Message, 3))...)},
			says: "does not own it",
		},
		"time runs backwards": {
			logs: []eventlog.Log{script(t, "a", 0, claim(10, 100), ev(9, eventlog.Left))},
			says: "line 2: time runs backwards",
		},
		"opened without a claim": {
			logs: []eventlog.Log{script(t, "a", 0, on(11, eventlog.Opened, 0))},
			says: "opened without a claim",
		},
		"committed offset goes back": {
			logs: []eventlog.Log{script(t, "a", 0, append(first[:5:5], on(15, eventlog.Committed, 1), ev(16, eventlog.Left))...)},
			says: "went back from 2 to 1",
		},
		"two owners where an operator has deleted a claim": {
			logs: []eventlog.Log{
				script(t, "a", 0, append(first[:5:5], drop(20, eventlog.Lost))...),
				script(t, "b", 0, claim(17, 101), on(18, eventlog.Opened, 2), ev(30, eventlog.Left)),
			},
			want:   eventlog.Expect{Exempt: []eventlog.Exempt{{Partition: eventlog.Partition{Topic: "orders"}, Span: eventlog.Span{From: 17, To: 20}}}},
			exempt: 1,
		},
		"claimed where an operator deletes the claim before that is in the log": {
			logs: []eventlog.Log{
				script(t, "a", 0, append(first[:5:5], drop(22, eventlog.Releasing))...),
				script(t, "b", 0, claim(17, 99), drop(20, eventlog.Lost), ev(30, eventlog.Left)),
			},
			want:   eventlog.Expect{Exempt: []eventlog.Exempt{{Partition: eventlog.Partition{Topic: "orders"}, Span: eventlog.Span{From: 16, To: 22}}}},
			exempt: 1,
		},
		"two owners for longer than that excuses": {
			logs: []eventlog.Log{
				script(t, "a", 0, append(first[:5:5], drop(20, eventlog.Lost))...),
				script(t, "b", 0, claim(17, 101), on(18, eventlog.Opened, 2), ev(30, eventlog.Left)),
			},
			want: eventlog.Expect{Exempt: []eventlog.Exempt{
				{Partition: eventlog.Partition{Topic: "orders"}, Span: eventlog.Span{From: 16, To: 19}},
				{Partition: eventlog.Partition{Topic: "orders"}, Span: eventlog.Span{From: 18, To: 30}},
				{Partition: eventlog.Partition{Topic: "orders", ID: 1}, Span: eventlog.Span{From: 0, To: 30}},
			}},
			says: "before the tenure of a ended",
		},
		"all data of ZooKeeper lost: tokens start anew, while its owner trusts its session": {
			logs: []eventlog.Log{
				script(t, "a", 0, append(first[:5:5], untrusted(21, 20))...),
				script(t, "b", 0, claim(17, 3), on(18, eventlog.Opened, 2), ev(30, eventlog.Left)),
			},
			want:   eventlog.Expect{Wiped: []eventlog.Span{{From: 16, To: 20}}},
			exempt: 1,
		},
		"tokens fall after the data of ZooKeeper was lost": {
			logs: []eventlog.Log{
				script(t, "a", 0, first...),
				script(t, "b", 0, claim(21, 3), ev(22, eventlog.Left)),
				script(t, "c", 0, claim(23, 2), ev(24, eventlog.Left)),
			},
			want: eventlog.Expect{Wiped: []eventlog.Span{{From: 16, To: 20}}},
			says: "token 2 of c does not exceed 3 of b",
		},
		"killed twice over: the end is not before the last line": {
			logs: []eventlog.Log{
				script(t, "a", 10, claim(10, 100), on(11, eventlog.Opened, 0), on(18, eventlog.Message, 0)),
				script(t, "b", 0, claim(17, 101), ev(30, eventlog.Left)),
			},
			says: "1ns before the tenure of a ended (killed)",
		},
		"hole": {
			logs: []eventlog.Log{script(t, "a", 0, claim(10, 100), on(11, eventlog.Opened, 0), on(12, eventlog.Message, 1), ev(13, eventlog.Left))},
			says: "where 0 was next",
		},
		"lost": {
			logs: []eventlog.Log{script(t, "a", 0, first...)},
			want: end(3),
			says: "never handed out",
		},
		"processed again after an orderly release": {
			logs: []eventlog.Log{
				script(t, "a", 0, claim(10, 100), on(11, eventlog.Opened, 0), on(12, eventlog.Message, 0), on(13, eventlog.Done, 0), drop(15, eventlog.Releasing)),
				script(t, "b", 0, claim(17, 101), on(18, eventlog.Opened, 0), on(19, eventlog.Message, 0), on(20, eventlog.Done, 0), ev(21, eventlog.Left)),
			},
			says: "a released it when all before 1 was processed",
		},
		"read again after an orderly release, because it only stood in the channel": {
			logs: []eventlog.Log{
				script(t, "a", 0, claim(10, 100), on(11, eventlog.Opened, 0), on(12, eventlog.Message, 0), on(13, eventlog.Done, 0), on(14, eventlog.Message, 1),
					on(15, eventlog.Committed, 1), drop(16, eventlog.Releasing)),
				script(t, "b", 0, claim(17, 101), on(18, eventlog.Opened, 1), on(19, eventlog.Message, 1), on(20, eventlog.Done, 1), ev(21, eventlog.Left)),
			},
			want: end(2),
		},
		"handed over before what was processed, with what only stood in the channel": {
			logs: []eventlog.Log{
				script(t, "a", 0, claim(10, 100), on(11, eventlog.Opened, 0), on(12, eventlog.Message, 0), on(13, eventlog.Done, 0), on(14, eventlog.Message, 1),
					drop(16, eventlog.Releasing)),
				script(t, "b", 0, claim(17, 101), on(18, eventlog.Opened, 2), ev(21, eventlog.Left)),
			},
			says: "opened at 2, but a released it when all before 1 was processed",
		},
		"opened before the committed offset": {
			logs: []eventlog.Log{
				script(t, "a", 16, first[:5]...),
				script(t, "b", 0, claim(17, 101), on(18, eventlog.Opened, 1), ev(20, eventlog.Left)),
			},
			says: "before the committed offset 2",
		},
		"opened behind what was handed out": {
			logs: []eventlog.Log{
				script(t, "a", 16, first[:5]...),
				script(t, "b", 0, claim(17, 101), on(18, eventlog.Opened, 5), ev(20, eventlog.Left)),
			},
			says: "the next offset to hand out",
		},
		"commit of what was not handed out": {
			logs: []eventlog.Log{script(t, "a", 0, claim(10, 100), on(11, eventlog.Opened, 0), on(12, eventlog.Committed, 5), ev(13, eventlog.Left))},
			says: "only messages before 0 were processed",
		},
		"commit while another owns it": {
			logs: []eventlog.Log{
				script(t, "a", 0, append(first[:6:6], on(19, eventlog.Committed, 2))...),
				script(t, "b", 0, claim(17, 101), ev(20, eventlog.Left)),
			},
			says: "by a member that does not own it",
		},
		"log ends while owned": {
			logs: []eventlog.Log{script(t, "a", 0, first[:4]...)},
			says: "the log ends while it is owned",
		},
		"claimed twice": {
			logs: []eventlog.Log{script(t, "a", 0, claim(10, 100), claim(11, 101), ev(12, eventlog.Left))},
			says: "claimed while it is owned",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			r := eventlog.Check(tc.logs, tc.want)
			switch {
			case tc.says == "" && !r.OK():
				t.Errorf("violations in a sound history: %v", r)
			case tc.says != "" && !strings.Contains(r.String(), tc.says):
				t.Errorf("want a violation with %q, got: %v", tc.says, r)
			}
			if r.Late != tc.late || r.Exempted != tc.exempt {
				t.Errorf("%d late, %d exempt, want %d and %d: %v", r.Late, r.Exempted, tc.late, tc.exempt, r)
			}
		})
	}
}

func TestRepeatedMessagesAreCountedByCause(t *testing.T) {
	r := eventlog.Check([]eventlog.Log{
		script(t, "a", 20, claim(10, 100), on(11, eventlog.Opened, 0), on(12, eventlog.Message, 0), on(13, eventlog.Message, 1)),
		script(t, "b", 0, claim(21, 101), on(22, eventlog.Opened, 0), on(23, eventlog.Message, 0), ev(24, eventlog.Left)),
	}, eventlog.Expect{})
	if len(r.Repeated) != 1 || r.Repeated["killed"] != 2 {
		t.Errorf("repeated %v, want 2 after the kill", r.Repeated)
	}
}

// A message that stood in a channel and is read by the next owner is no duplicate.
func TestDuplicatesAreProcessedAgain(t *testing.T) {
	again := []eventlog.Event{on(23, eventlog.Message, 1)}
	done := append(again[:1:1], on(24, eventlog.Done, 1))
	for name, c := range map[string]struct {
		lines []eventlog.Event
		then  []eventlog.Event // by the next owner
		want  int
	}{
		"handed out again": {[]eventlog.Event{on(12, eventlog.Message, 0), on(13, eventlog.Done, 0), on(14, eventlog.Message, 1)}, done, 0},
		"done again":       {[]eventlog.Event{on(12, eventlog.Message, 0), on(13, eventlog.Message, 1), on(14, eventlog.Done, 1)}, done, 1},
		"handed out again, after a process that has done nothing": {[]eventlog.Event{on(12, eventlog.Message, 0), on(13, eventlog.Message, 1)}, done, 0},
		"handed out again, in logs without done":                  {[]eventlog.Event{on(12, eventlog.Message, 0), on(13, eventlog.Message, 1)}, again, 1},
	} {
		t.Run(name, func(t *testing.T) {
			r := eventlog.Check([]eventlog.Log{
				script(t, "a", 20, append([]eventlog.Event{claim(10, 100), on(11, eventlog.Opened, 0)}, c.lines...)...),
				script(t, "b", 0, slices.Concat([]eventlog.Event{claim(21, 101), on(22, eventlog.Opened, 1)}, c.then, []eventlog.Event{ev(25, eventlog.Left)})...),
			}, eventlog.Expect{})
			if r.Duplicates != c.want {
				t.Errorf("%d duplicates, want %d", r.Duplicates, c.want)
			}
		})
	}
}

func TestReadDropsAHalfWrittenLastLineOnly(t *testing.T) {
	var buf bytes.Buffer
	w := eventlog.NewWriter(&buf)
	now := func() int64 { return 42 }
	for range 2 {
		noerr.Must(t, w.Write(on(0, eventlog.Message, 0), now))
	}
	whole := buf.String()
	got, err := eventlog.Read(strings.NewReader(whole + `{"t":43,"mem`))
	if err != nil || len(got) != 2 || got[0].T != 42 || *got[0].Partition != 0 {
		t.Fatalf("got %+v, %v", got, err)
	}
	if _, err := eventlog.Read(strings.NewReader(`{"t":` + "\n" + whole)); err == nil || !strings.Contains(err.Error(), "line 1") {
		t.Errorf("a broken line in the middle: got %v", err)
	}
}
