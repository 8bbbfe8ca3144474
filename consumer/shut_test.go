package consumer

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
)

// A topic of which this member owns nothing any more is refused by nobody: it must not keep the trouble "member" for ever.
func TestRefusalOfATopicThatWasGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := tp("t", 0)
		r := newRefusals("g", nil, 0, func(error) {})
		released := r.claimed(p)
		r.failed(p, errTopic)
		released()
		time.Sleep(24 * time.Hour)
		if r.some() {
			t.Error("a day after the partition was given up Kafka still refuses it")
		}
	})
}

// A handler that marks late: the first message that waits is in an older batch than the one at hand, so its age is not known.
func TestAgeOfTheFirstThatWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, s := trackedPartition(t, 0)
		s.put(0, 1)
		p.next()
		if at := p.timestampAt(0); at.IsZero() || !p.timestampAt(5).IsZero() {
			t.Errorf("the first message is of %v", at)
		}
		p.next()
		time.Sleep(time.Hour)
		s.put(2, 3)
		p.next()
		if at := p.timestampAt(0); !at.IsZero() {
			t.Errorf("the first message that waits is said to be of %v, an hour too late", at)
		}
	})
}

// A scrape finds the message that was taken from the batch and is not in the channel yet; then the partition ends.
func TestCountedAndNeverReceived(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, s := trackedPartition(t, 0)
		c := newClaimChannel(p, 4)
		s.put(0, 1)
		if p.next() == nil { // as feed does, right before send
			t.Fatal("none")
		}
		c.count()
		c.empty() // send has found the context ended
		if n := testutil.ToFloat64(p.metrics.messages); n != 0 {
			t.Errorf("%v messages counted, none was received", n)
		}
	})
}

// A partition may be claimed again before the end of the claim before is noticed, which must not drop what is known of the new
// one.
func TestEndOfTheClaimBefore(t *testing.T) {
	var l shutPartitions
	before, after := &opening{tp: tp("t", 0), claim: &fakeHolder{}}, &opening{tp: tp("t", 0), claim: &fakeHolder{}}
	l.claimed(before)
	l.claimed(after)
	l.found(after, 7)
	l.found(before, 3) // as an opening that is late
	l.gaveUp(before.tp, before.claim)
	if s := l.all[after.tp]; s == nil || s.claim != after.claim || s.committed() != 7 {
		t.Errorf("%+v is left", s)
	}
	l.gaveUp(after.tp, after.claim)
	if len(l.all) > 0 {
		t.Error("it is kept without a claim")
	}
}
