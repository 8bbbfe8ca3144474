package consumer

import "context"

// early is a stream that is opened while the commit of the start position is under way. Nothing of it is handed out before Kafka
// has stored that commit: if Kafka refuses it, members of Kafka's own protocol may own the partition and handle its messages.
type early struct {
	start  int64 // where the stream begins
	cancel context.CancelFunc
	opened chan struct{} // closed when the fields below are set
	stream stream
	err    error
}

// openEarly begins to open the stream at start, where the store has the position just as this member would store it. It does not
// block. It does so in the first attempt alone: while Kafka refuses commits, no attempt fetches what is not handed out.
func (o *opening) openEarly(ctx context.Context, start int64) {
	if o.failure.Load() != nil || o.cut != nil || o.session.hasSeeks(o.tp) {
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	e, leaderEpoch := &early{start: start, cancel: cancel, opened: make(chan struct{})}, o.leaderEpoch
	o.early = e
	o.member.background.Start(func() {
		defer close(e.opened)
		e.stream, e.err = o.member.fetcher.open(ctx, o.tp, start, leaderEpoch)
	})
}

// openAt opens the stream at start, or waits for the one that openEarly has begun to open there.
func (o *opening) openAt(ctx context.Context, start int64) (stream, error) {
	e := o.early
	if e == nil || e.start != start {
		o.dropEarly()
		return o.member.fetcher.open(ctx, o.tp, start, o.leaderEpoch)
	}
	o.early = nil
	defer e.cancel()
	<-e.opened // at the latest when ctx ends
	return e.stream, e.err
}

// dropEarly closes the stream that openEarly has begun to open, unless openAt has returned it.
func (o *opening) dropEarly() {
	e := o.early
	if e == nil {
		return
	}
	o.early = nil
	e.cancel()
	<-e.opened
	if e.err == nil {
		e.stream.Close()
	}
}
