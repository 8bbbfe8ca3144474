package fetch

// maxNotes bounds the lines that wait while the log's writer blocks.
const maxNotes = 1024

// The log's writer is the user's: it may block, or ask for the status of the group, which asks the fetcher. So lines are
// collected as notes while the fetcher's mu is held, and written after unlock, in order, by one goroutine at a time.

// failed logs an error, after unlock. f.mu is held.
func (f *Fetcher) failed(kind, about string, err error) {
	f.addNote(func() { f.settings.Errors.FailedWarn(kind, about, err) }, false)
}

// works ends the errors of a kind in the log, after unlock. f.mu is held.
func (f *Fetcher) works(kind, about string) {
	if f.maySomethingFail() {
		f.addNote(func() { f.settings.Errors.OK(kind, about) }, false)
	}
}

// gone ends all errors about a thing that does not exist any more, after unlock. f.mu is held.
func (f *Fetcher) gone(about string) {
	if f.maySomethingFail() {
		f.addNote(func() { f.settings.Errors.Gone(about) }, true)
	}
}

// maySomethingFail returns whether the log has errors that last, or may have when all notes are written.
func (f *Fetcher) maySomethingFail() bool {
	return f.settings.Errors.Failing() || f.logging || len(f.notes) > 0
}

// addNote adds a note. With maxNotes notes it drops those that come again by themselves; once says that a note does not.
func (f *Fetcher) addNote(note func(), once bool) {
	if once || len(f.notes) < maxNotes {
		f.notes = append(f.notes, note)
	}
}

// unlock unlocks f.mu and writes the notes to the log. If another goroutine is writing notes, that one writes these, too.
func (f *Fetcher) unlock() {
	for !f.logging && len(f.notes) > 0 {
		notes := f.notes
		f.notes, f.logging = nil, true
		f.mu.Unlock()
		for _, note := range notes {
			note()
		}
		f.mu.Lock()
		f.logging = false
	}
	f.mu.Unlock()
}
