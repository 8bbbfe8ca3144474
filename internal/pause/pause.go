// Package pause waits between attempts: for a time, and for longer the more attempts have failed. It also has contexts for what
// is to go on for a while, and tells the end of a wait from other errors.
package pause

import (
	"context"
	"math/rand/v2"
	"time"
)

// Sleep waits for d and returns nil, or until ctx ends, whose cause it returns. If ctx has ended, it returns that at once.
func Sleep(ctx context.Context, d time.Duration) error {
	if ctx.Err() != nil || d <= 0 {
		return context.Cause(ctx)
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Jitter returns a random time between half of d and d, so that goroutines that failed together do not retry together.
func Jitter(d time.Duration) time.Duration { return d/2 + rand.N(max(d/2, 1)) }

// Early returns a random time between d and d less the given part of it, such as d/4, so that those who began together do not go
// on together.
func Early(d, part time.Duration) time.Duration { return d - rand.N(max(part, 1)) }

// Growth says how long pauses are that grow from one to the next. It has no jitter.
type Growth struct {
	First, Most time.Duration
	Percent     int // by how much a pause is longer than the one before; 100 doubles it
}

// After returns the pause after so many others.
func (g Growth) After(others int) time.Duration {
	d := g.First
	for i := 0; i < others && d < g.Most; i++ {
		d += d * time.Duration(g.Percent) / 100
	}
	return min(d, g.Most)
}

// Doubling returns pauses of which each is twice as long as the one before, up to a limit.
func Doubling(first, most time.Duration) Growth {
	return Growth{First: first, Most: most, Percent: 100}
}

// Backoff counts the pauses of a Growth. It is used by one goroutine at a time.
type Backoff struct {
	Growth

	taken int
}

// Next returns the next pause.
func (b *Backoff) Next() time.Duration {
	d := b.After(b.taken)
	b.taken++
	return d
}

// Wait waits for the next pause, or until ctx ends, whose cause it returns.
func (b *Backoff) Wait(ctx context.Context) error { return Sleep(ctx, b.Next()) }

// Reset begins anew with the first pause.
func (b *Backoff) Reset() { b.taken = 0 }
