package consumer

import (
	"sync/atomic"
	"time"
)

// stage is how far the opening of a partition has come: what it waits for.
type stage int32

// The stages, in their order.
const (
	atSession  stage = iota // a Consume call, and its Setup
	atTopic                 // Kafka's answer about the topic
	atFence                 // the user's Fence
	atOffset                // the committed offset, or the first or last one
	atStart                 // the start position to be stored
	atLeader                // the first answer of the partition's leader
	atObserver              // the user's Observer
	atHandler               // nothing: the partition is open
)

// waitsFor says what a partition at this stage waits for.
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
		return kindMetadata
	case atFence:
		return kindFence
	case atOffset:
		return kindOffsets
	case atStart:
		return kindCommit
	default:
		return kindFetch
	}
}

// progress is where an opening stands, for those who look at it from outside.
type progress struct {
	stage   atomic.Int32
	waited  atomic.Pointer[time.Time] // since when the partition is not open; nil while it is
	failure atomic.Pointer[string]    // of the last try; nil when it did not fail
	inUser  atomic.Bool               // its ConsumeClaim or Fence runs
}

func (p *progress) enter(s stage) { p.stage.Store(int32(s)) }
func (p *progress) at() stage     { return stage(p.stage.Load()) }

// opens notes since when the partition is not open.
func (p *progress) opens(since time.Time) { p.waited.Store(&since) }

// isOpen notes that the partition is open.
func (p *progress) isOpen() {
	p.enter(atHandler)
	p.waited.Store(nil)
}

// notOpenSince returns since when the partition is not open; zero while it is.
func (p *progress) notOpenSince() time.Time {
	if since := p.waited.Load(); since != nil {
		return *since
	}
	return time.Time{}
}
