package party

import (
	"errors"
	"fmt"
	"log/slog"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/session"
)

// maxRecord is the size up to which records are written and read.
const maxRecord = 64 << 10

// Options of a Party. The zero value is an observer.
type Options struct {
	// Name under which to join: see [kiel.CheckMember]. "" only observes.
	Name string
	// Data is the member's record, up to 64 KiB; nil is an empty one, like
	// that of Python members. It needs a Name.
	Data []byte
	// Logger receives what happens. With nil, warnings and errors go to
	// slog.Default() and the rest is dropped; a Logger with
	// slog.DiscardHandler drops all.
	Logger *slog.Logger
}

func (o Options) validate(path string) error {
	var errs []error
	if err := session.CheckPath(path); err != nil {
		errs = append(errs, err)
	}
	if o.Name != "" {
		if err := kiel.CheckMember(o.Name); err != nil {
			errs = append(errs, err)
		}
	}
	if len(o.Data) > maxRecord {
		errs = append(errs, fmt.Errorf("options.Data: %d bytes: %w", len(o.Data), ErrRecordTooLarge))
	}
	if o.Name == "" && len(o.Data) > 0 {
		errs = append(errs, errors.New("options.Data: an observer has no record"))
	}
	return errors.Join(errs...)
}
