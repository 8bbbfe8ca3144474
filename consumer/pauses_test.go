package consumer

import (
	"context"
	"runtime"
	"testing"
	"testing/synctest"

	"github.com/kielgo/kiel/internal/testonly/bubble"
)

func TestPauseReachesOnlyWhatIsOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHolder(t, tp("t", 0))
		r := newMarkRig(t, nil)
		s, done := r.opened(h)
		synctest.Wait()
		r.group.Pause(map[string][]int32{"t": {0, 1}})
		if !s.paused.Load() || r.group.pauses.has(tp("t", 1)) {
			t.Errorf("paused: %v; the one that is not open: %v", s.paused.Load(), r.group.pauses.has(tp("t", 1)))
		}
		h.release(t, done)
		again := newHolder(t, tp("t", 0))
		done = r.owned(again)
		s = <-r.fetch.streams
		synctest.Wait()
		if !s.paused.Load() {
			t.Error("opened again without its pause")
		}
		r.group.ResumeAll()
		if s.paused.Load() {
			t.Error("still paused")
		}
		r.group.PauseAll()
		r.group.Resume(map[string][]int32{"t": {0}})
		if s.paused.Load() {
			t.Error("still paused")
		}
		again.release(t, done)
	})
}

// Messages that are fetched when a paused partition is opened wait for Resume, or for the end.
func TestPausedPartitionIsOpenedAgain(t *testing.T) {
	for name, resume := range map[string]func(g *Group){
		"Resume":    func(g *Group) { g.Resume(map[string][]int32{"t": {0}}) },
		"ResumeAll": func(g *Group) { g.ResumeAll() },
		"never":     nil,
	} {
		bubble.Run(t, name, func(t *testing.T) {
			h := newHolder(t, tp("t", 0))
			r := newMarkRig(t, nil)
			r.group.pauses.set(tp("t", 0), true)
			_, done := r.opened(h, 0, 1)
			synctest.Wait()
			tracker := r.committer.Find("t", 0)
			if next, _, _ := tracker.Marked(); next != 0 {
				t.Errorf("handled up to %d while paused", next)
			}
			if resume != nil {
				resume(r.group)
				synctest.Wait()
				if next, _, _ := tracker.Marked(); next != 2 {
					t.Errorf("handled up to %d", next)
				}
			}
			h.release(t, done)
		})
	}
}

// A Resume at any moment of a partition's opening ends the pause.
func TestResumeWhileAPartitionIsOpened(t *testing.T) {
	p, other := tp("t", 0), tp("t", 7)
	ids := []int32{7}
	for i := range int32(100_000) { // it takes longer than the rest of the opening
		ids = append(ids, 1000+i)
	}
	ids = append(ids, 0)
	for name, meet := range map[string]func(r *rig, s *fakeStream){
		"before it is open": func(r *rig, _ *fakeStream) {
			go r.group.Resume(map[string][]int32{"t": ids})
			for r.group.pauses.has(other) {
				runtime.Gosched()
			}
		},
		"while the pause is carried over": func(r *rig, s *fakeStream) {
			s.onPause = func() { go r.group.Resume(map[string][]int32{"t": {0}}) }
		},
		"all, while the pause is carried over": func(r *rig, s *fakeStream) {
			s.onPause = func() { go r.group.ResumeAll() }
		},
	} {
		bubble.Run(t, name, func(t *testing.T) {
			h := newHolder(t, p)
			r := newMarkRig(t, nil)
			r.group.pauses.set(p, true)
			r.group.pauses.set(other, true)
			r.fetch.onOpen = func(s *fakeStream) { meet(r, s) }
			s, done := r.opened(h)
			synctest.Wait()
			if s.paused.Load() || r.group.pauses.has(p) {
				t.Errorf("paused: %v, remembered: %v", s.paused.Load(), r.group.pauses.has(p))
			}
			h.release(t, done)
		})
	}
}

// newPartsRig is newRunRig with a handler that hands out its Partition and reads it to its end.
func newPartsRig(t *testing.T) (*rig, <-chan *Partition) {
	t.Helper()
	parts := make(chan *Partition, 2)
	return newRunRig(t, func(_ context.Context, p *Partition) error {
		parts <- p
		for range p.Messages() {
		}
		return nil
	}, nil), parts
}

func TestPauseOfAPartition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHolder(t, tp("t", 0))
		r, parts := newPartsRig(t)
		done := r.owned(h)
		s, p := <-r.fetch.streams, <-parts
		p.Pause()
		if !s.paused.Load() || !r.group.pauses.has(tp("t", 0)) {
			t.Error("not paused")
		}
		p.Resume()
		if s.paused.Load() || r.group.pauses.has(tp("t", 0)) {
			t.Error("still paused")
		}
		h.release(t, done)
	})
}

// Resume of a closed Partition ends the pause of the Partition that was opened after it.
func TestResumeAfterAReopening(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHolder(t, tp("t", 0))
		r, parts := newPartsRig(t)
		done := r.owned(h)
		s, p := <-r.fetch.streams, <-parts
		p.Pause()
		s.ended <- errEndedInTest
		s = <-r.fetch.streams
		<-parts
		if !s.paused.Load() {
			t.Error("opened again without its pause")
		}
		p.Resume()
		if s.paused.Load() || r.group.pauses.has(tp("t", 0)) {
			t.Error("still paused")
		}
		h.release(t, done)
	})
}
