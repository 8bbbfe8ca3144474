package lock

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"unicode/utf8"
)

// The words of kazoo's contenders.
const (
	word     = "__lock__"  // of Lock and WriteLock
	readWord = "__rlock__" // of ReadLock
)

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

	// Persistent makes contenders that outlive their session, as kazoo's
	// acquire(ephemeral=False) does. The hold then lasts until it is released, or somebody
	// removes the contender: it does not end with trust nor with the session, and when the
	// process dies it stays, for ever. See the package's documentation.
	Persistent bool

	// Logger is told what can't be returned as an error, and who is in front of one that waits for
	// long: after about half a minute, and then whenever the time has doubled.
	// With nil, warnings and errors go to slog.Default(); a Logger with slog.DiscardHandler drops all.
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
