package session

// Watch tells when to look again.
type Watch struct{ c chan struct{} }

// C is closed when to look again: changed, link dropped, incarnation ended, or T has passed without a hint.
func (w *Watch) C() <-chan struct{} { return w.c }

// Stop says that nobody waits any more; optional.
func (w *Watch) Stop() {}
