package lock

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"unicode/utf8"
)

// The words in the names of kazoo's contenders.
const (
	word     = "__lock__"  // of Lock and WriteLock
	readWord = "__rlock__" // of ReadLock
)

// Options configure a [Lock]. The zero value works.
type Options struct {
	// Identifier is the data of the contenders, for people and for kazoo's contenders(). It is UTF-8. Default: empty.
	Identifier string

	// ExtraPatterns are more words whose children are contenders that this handle waits for, such as "-lock-" for the locks of
	// go-zookeeper. They do not make others wait for this handle: go-zookeeper's Lock does, Curator's locks do not, so with
	// Curator there is no mutual exclusion. ExtraPatterns are literal text. kazoo's extra_lock_patterns are regular expressions,
	// so the special characters of those are refused.
	ExtraPatterns []string

	// Persistent creates contenders that outlive their session, as kazoo's acquire(ephemeral=False) does. The hold then lasts
	// until it is released or somebody removes the contender. It does not end with trust or with the session, and when the
	// process dies its contender stays for ever. See the package's documentation.
	Persistent bool

	// Logger gets what can't be returned as an error. While a call waits for long, it also gets the contender in front: after
	// about half a minute, and then whenever the time has doubled. With nil, warnings and errors go to slog.Default(); a Logger
	// with slog.DiscardHandler drops all.
	Logger *slog.Logger
}

func (o Options) validate() error {
	var errs []error
	if !utf8.ValidString(o.Identifier) {
		errs = append(errs, fmt.Errorf("option Identifier: %q is not valid UTF-8", o.Identifier))
	}
	for _, p := range o.ExtraPatterns {
		if p == "" || !utf8.ValidString(p) || strings.ContainsAny(p, `/\.+*?()|[]{}^$`) {
			errs = append(errs, fmt.Errorf("option ExtraPatterns: %q is empty, not UTF-8, or has a / or a special character of regular expressions", p))
		}
	}
	return errors.Join(errs...)
}
