package fetch

// maxNotes bounds what waits to be told to the log while its writer blocks.
const maxNotes = 1024

// The log's writer is the user's: it may block, or ask for the status of the group, which asks the fetcher. So what happens under the
// fetcher's mu is noted there, and told after unlock, in order, by one goroutine at a time.

// failed has the log told that something fails. f.mu is held.
func (f *Fetcher) failed(kind, about string, err error) {
	f.tell(func() { f.settings.errs.FailedWarn(kind, about, err) }, false)
}

// works has the log told that something works that may have failed. f.mu is held.
func (f *Fetcher) works(kind, about string) {
	if f.maySomethingFail() {
		f.tell(func() { f.settings.errs.OK(kind, about) }, false)
	}
}

// gone has the log told that there is no such thing any more. f.mu is held.
func (f *Fetcher) gone(about string) {
	if f.maySomethingFail() {
		f.tell(func() { f.settings.errs.Gone(about) }, true)
	}
}

// maySomethingFail reports whether the log has something that fails, or will have when it was told all.
func (f *Fetcher) maySomethingFail() bool {
	return f.settings.errs.Failing() || f.telling || len(f.notes) > 0
}

// tell notes something to be told. What comes again by itself is left out when there is too much.
func (f *Fetcher) tell(note func(), once bool) {
	if once || len(f.notes) < maxNotes {
		f.notes = append(f.notes, note)
	}
}

// unlock unlocks f.mu, and tells the log what was noted, unless another goroutine is doing that: then that one does.
func (f *Fetcher) unlock() {
	for !f.telling && len(f.notes) > 0 {
		notes := f.notes
		f.notes, f.telling = nil, true
		f.mu.Unlock()
		for _, note := range notes {
			note()
		}
		f.mu.Lock()
		f.telling = false
	}
	f.mu.Unlock()
}
