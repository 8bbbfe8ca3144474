package semaphore

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"unicode/utf8"
)

// Options of a [Semaphore]. The zero value works.
type Options struct {
	// MaxLeases is how many leases there are. All who use the semaphore must give the
	// same number. Default: 1.
	MaxLeases int

	// Identifier is the data of our leases: who we are, for those who look. It is UTF-8;
	// kazoo shows it in lease_holders(). Default: empty.
	Identifier string

	// Logger is told what can't be returned as an error, and who is in front of one that waits for
	// long: after about half a minute, and then whenever the time has doubled.
	// With nil, warnings and errors go to slog.Default(); a Logger with slog.DiscardHandler drops all.
	Logger *slog.Logger
}

func (o Options) validate() error {
	var errs []error
	if o.MaxLeases < 0 {
		errs = append(errs, fmt.Errorf("semaphore: MaxLeases %d: want at least 1", o.MaxLeases))
	}
	if !utf8.ValidString(o.Identifier) {
		errs = append(errs, fmt.Errorf("semaphore: Identifier %q is no valid UTF-8", o.Identifier))
	}
	return errors.Join(errs...)
}

// pythonBytes returns what Python prints for the bytes of text, b'text'; nothing for
// empty text. That is the data of the inner lock's contenders, because kazoo hands bytes
// to a Lock that expects text.
func pythonBytes(text string) string {
	if text == "" {
		return ""
	}
	quote := byte('\'')
	if strings.Contains(text, "'") && !strings.Contains(text, `"`) {
		quote = '"'
	}
	var b strings.Builder
	b.WriteByte('b')
	b.WriteByte(quote)
	for i := range len(text) {
		switch c := text[i]; {
		case c == quote, c == '\\':
			b.WriteByte('\\')
			b.WriteByte(c)
		case c == '\t':
			b.WriteString(`\t`)
		case c == '\n':
			b.WriteString(`\n`)
		case c == '\r':
			b.WriteString(`\r`)
		case c < ' ', c >= 0x7f:
			fmt.Fprintf(&b, `\x%02x`, c)
		default:
			b.WriteByte(c)
		}
	}
	b.WriteByte(quote)
	return b.String()
}
