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
	// MaxLeases is the number of leases. All users of the semaphore must give the same number. Default: 1.
	MaxLeases int

	// Identifier is the data of the handle's leases, and tells others who holds them. It must be UTF-8. kazoo shows it in
	// lease_holders(). Default: empty.
	Identifier string

	// Logger gets what can't be returned as an error. While a call waits for long, it also gets what the call waits for: after
	// about half a minute, and then whenever the time has doubled. With nil, warnings and errors go to slog.Default(); a Logger
	// with slog.DiscardHandler drops all.
	Logger *slog.Logger
}

func (o Options) validate() error {
	var errs []error
	if o.MaxLeases < 0 {
		errs = append(errs, fmt.Errorf("option MaxLeases: %d is less than 1", o.MaxLeases))
	}
	if !utf8.ValidString(o.Identifier) {
		errs = append(errs, fmt.Errorf("option Identifier: %q is not valid UTF-8", o.Identifier))
	}
	return errors.Join(errs...)
}

// pythonBytes returns what Python prints for the bytes of text, b'text', or "" for empty text. kazoo's contenders of the inner
// lock have it as data, because kazoo passes bytes to a Lock that expects text.
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
