package party

import (
	"errors"
	"fmt"
	"log/slog"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/session"
)

// maxRecord is the size of the largest record, in bytes.
const maxRecord = 64 << 10

// Options configure a [Party]. The zero value makes an observer.
type Options struct {
	// Name is the member's name, which [kiel.CheckMember] allows. "" means that the Party only observes.
	Name string
	// Data is the member's record, up to 64 KiB. Empty data means that the member has no record, as Python members have none.
	// Data needs a Name.
	Data []byte
	// Logger receives the log. With nil, warnings and errors go to slog.Default() and the rest is dropped; a Logger with
	// slog.DiscardHandler drops all.
	Logger *slog.Logger
}

// validate returns all faults of the options and of path.
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
		errs = append(errs, fmt.Errorf("option Data: %d bytes: %w", len(o.Data), ErrRecordTooLarge))
	}
	if o.Name == "" && len(o.Data) > 0 {
		errs = append(errs, errors.New("option Data: a Party without a name has no record"))
	}
	return errors.Join(errs...)
}
