package consumer

import (
	"sync/atomic"
	"time"

	"github.com/kielgo/kiel/consumer/internal/reporting"
)

// stage is how far the opening of a partition has come.
type stage int32

// The stages, in their order.
const (
	atSession  stage = iota // waits for a Consume call, and its Setup
	atTopic                 // waits for Kafka's answer about the topic
	atFence                 // waits for the user's Fence
	atOffset                // waits for the committed offset, or the first or last one of the log
	atStart                 // waits for the commit of the start position
	atLeader                // waits for the first answer of the partition's leader
	atObserver              // waits for the user's Observer
	atHandler               // the partition is open
)

// waitsFor returns what a partition at this stage waits for.
func (s stage) waitsFor() string {
	switch s {
	case atSession:
		return "Consume to be called and Setup to return"
	case atTopic:
		return "Kafka to describe the topic"
	case atFence:
		return "Fence to return"
	case atOffset:
		return "Kafka to say where to start"
	case atStart:
		return "the start position to be stored"
	case atLeader:
		return "the partition's leader to answer"
	case atObserver:
		return "the Observer to return"
	default:
		return ""
	}
}

// kind returns the kind of an error that ended this stage.
func (s stage) kind() string {
	switch s {
	case atTopic:
		return reporting.KindMetadata
	case atFence:
		return reporting.KindFence
	case atOffset:
		return reporting.KindOffsets
	case atStart:
		return reporting.KindCommit
	default:
		return reporting.KindFetch
	}
}

// progress is how far an opening has come, for the status and the metrics.
type progress struct {
	stage   atomic.Int32
	waited  atomic.Pointer[time.Time] // since when the partition is not open; nil while it is open
	failure atomic.Pointer[string]    // the error of the last attempt; nil when it did not fail
	inUser  atomic.Bool               // the partition's ConsumeClaim or Fence runs
}

func (p *progress) enter(s stage) { p.stage.Store(int32(s)) }
func (p *progress) at() stage     { return stage(p.stage.Load()) }

// setWaiting stores since when the partition is not open.
func (p *progress) setWaiting(since time.Time) { p.waited.Store(&since) }

// setOpen stores that the partition is open.
func (p *progress) setOpen() {
	p.enter(atHandler)
	p.waited.Store(nil)
}

// notOpenSince returns since when the partition is not open; zero while it is open.
func (p *progress) notOpenSince() time.Time {
	if since := p.waited.Load(); since != nil {
		return *since
	}
	return time.Time{}
}
