package consumer

import (
	"sync"

	"github.com/kielgo/kiel/allocfn"
)

// pauses knows which partitions the user has paused while they come and go, and the sources of
// those that are open. Whoever pauses, resumes or opens a partition does it in one step.
type pauses struct {
	mu     sync.Mutex
	paused map[allocfn.Partition]bool
	open   map[allocfn.Partition]source
}

// set pauses or resumes tp, now if it is open, and for when it is opened again.
func (p *pauses) set(tp allocfn.Partition, paused bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.open[tp]
	if !paused {
		delete(p.paused, tp)
		if s != nil {
			s.Resume()
		}
		return
	}
	if p.paused == nil {
		p.paused = map[allocfn.Partition]bool{}
	}
	p.paused[tp] = true
	if s != nil {
		s.Pause()
	}
}

// resumeAll ends all pauses.
func (p *pauses) resumeAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for tp := range p.paused {
		if s := p.open[tp]; s != nil {
			s.Resume()
		}
	}
	clear(p.paused)
}

// opened notes that s is tp's source from now on, and pauses it if tp is paused.
func (p *pauses) opened(tp allocfn.Partition, s source) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.open == nil {
		p.open = map[allocfn.Partition]source{}
	}
	p.open[tp] = s
	if p.paused[tp] {
		s.Pause()
	}
}

// closed forgets s, unless tp has another source meanwhile.
func (p *pauses) closed(tp allocfn.Partition, s source) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.open[tp] == s {
		delete(p.open, tp)
	}
}
