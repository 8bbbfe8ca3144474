package lock

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"unicode/utf8"
)

// word is the word of kazoo's exclusive contenders.
const word = "__lock__"

// Options of a [Lock]. The zero value works.
type Options struct {
	// Identifier is the data of our contenders: who we are, for those who look. It
	// is UTF-8; kazoo shows it in contenders(). Default: empty.
	Identifier string

	// ExtraPatterns are more words that make a child a contender, such as "-lock-" for
	// the locks of go-zookeeper. Those are waited for, too. They are taken literally;
	// kazoo's extra_lock_patterns are regular expressions, so characters that mean
	// something there are refused.
	ExtraPatterns []string

	// Logger is told what can't be returned as an error. Default: nothing is logged.
	Logger *slog.Logger
}

func (o Options) validate() error {
	var errs []error
	if !utf8.ValidString(o.Identifier) {
		errs = append(errs, fmt.Errorf("lock: Identifier %q is no valid UTF-8", o.Identifier))
	}
	for _, p := range o.ExtraPatterns {
		if p == "" || !utf8.ValidString(p) || strings.ContainsAny(p, `/\.+*?()|[]{}^$`) {
			errs = append(errs, fmt.Errorf("lock: ExtraPatterns: %q: want literal text without / and the special characters of regular expressions", p))
		}
	}
	return errors.Join(errs...)
}
