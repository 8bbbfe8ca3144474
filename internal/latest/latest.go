// Package latest hands the newest of a row of immutable values to any number of readers. A reader never blocks a writer, may miss
// values that were soon replaced, and always comes to the newest.
package latest

import (
	"context"
	"iter"
	"sync/atomic"
)

// Value holds the newest value. What it points to must not be changed any more. Its methods may be called from any goroutine.
type Value[T any] struct{ current atomic.Pointer[version[T]] }

// version is a value and what is closed when there is a newer one.
type version[T any] struct {
	value *T
	newer chan struct{}
}

// New returns a Value that holds first, which may be nil.
func New[T any](first *T) *Value[T] {
	v := &Value[T]{}
	v.current.Store(&version[T]{value: first, newer: make(chan struct{})})
	return v
}

// Load returns the newest value.
func (v *Value[T]) Load() *T { return v.current.Load().value }

// Watch returns the newest value, and a channel that is closed when Store is called next.
func (v *Value[T]) Watch() (value *T, newer <-chan struct{}) {
	now := v.current.Load()
	return now.value, now.newer
}

// Store makes next the newest value, and wakes the goroutines that wait for one.
func (v *Value[T]) Store(next *T) {
	old := v.current.Swap(&version[T]{value: next, newer: make(chan struct{})})
	close(old.newer)
}

// Amend replaces the newest value by one with nothing new: it wakes nobody. It must not be called beside Store.
func (v *Value[T]) Amend(same *T) {
	v.current.Store(&version[T]{value: same, newer: v.current.Load().newer})
}

// Updates yields the newest value, unless it is nil, and then each that is stored later. It may skip some when the loop body is
// slow. It ends when ctx does, and after the last value once ended is closed, which may be nil.
func (v *Value[T]) Updates(ctx context.Context, ended <-chan struct{}) iter.Seq[*T] {
	return func(yield func(*T) bool) {
		for ctx.Err() == nil {
			now := v.current.Load()
			if now.value != nil && !yield(now.value) {
				return
			}
			select {
			case <-now.newer:
			case <-ctx.Done():
			case <-ended:
				if v.current.Load().newer == now.newer {
					return
				}
			}
		}
	}
}
