package consumer

import (
	"sync"

	"github.com/kielgo/kiel"
)

// pauses has the partitions that the user has paused, open or not, and the streams of the open partitions. Its mutex makes each
// pause, resume and opening one step.
type pauses struct {
	mu     sync.Mutex
	paused map[kiel.Partition]bool
	open   map[kiel.Partition]*opened
}

// opened is an open partition.
type opened struct {
	stream  stream
	resumed chan struct{} // closed at Resume, if the partition was opened while it was paused; else nil
}

// resume ends a pause.
func (o *opened) resume() {
	o.stream.Resume()
	if o.resumed != nil {
		close(o.resumed)
		o.resumed = nil
	}
}

// set pauses or resumes tp, if it is open at once, and also for later openings.
func (p *pauses) set(tp kiel.Partition, paused bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	o := p.open[tp]
	if !paused {
		delete(p.paused, tp)
		if o != nil {
			o.resume()
		}
		return
	}
	if p.paused == nil {
		p.paused = map[kiel.Partition]bool{}
	}
	p.paused[tp] = true
	if o != nil {
		o.stream.Pause()
	}
}

// resumeAll ends all pauses.
func (p *pauses) resumeAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for tp := range p.paused {
		if o := p.open[tp]; o != nil {
			o.resume()
		}
	}
	clear(p.paused)
}

// opened makes s the stream of tp, and pauses s if tp is paused. In that case it returns a channel that is closed at Resume:
// messages that were fetched to open tp are not handed out before.
func (p *pauses) opened(tp kiel.Partition, s stream) (resumed <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.open == nil {
		p.open = map[kiel.Partition]*opened{}
	}
	o := &opened{stream: s}
	p.open[tp] = o
	if !p.paused[tp] {
		return nil
	}
	s.Pause()
	o.resumed = make(chan struct{})
	return o.resumed
}

// closed drops s, unless tp has another stream by now.
func (p *pauses) closed(tp kiel.Partition, s stream) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if o := p.open[tp]; o != nil && o.stream == s {
		delete(p.open, tp)
	}
}

// has reports whether the user has paused tp.
func (p *pauses) has(tp kiel.Partition) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.paused[tp]
}
