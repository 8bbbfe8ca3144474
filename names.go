package kiel

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/kielgo/kiel/internal/operr"
)

// ErrInvalidName is wrapped by the errors of [CheckGroup], [CheckTopic] and [CheckMember].
var ErrInvalidName = errors.New("invalid name")

const maxName = 249 // Kafka's limit for topic names, and that for members and the znodes of groups

// CheckTopic returns an error wrapping ErrInvalidName unless name may be a topic's, by Kafka's rule: 1 to 249 of A-Z a-z 0-9 . _
// - and neither "." nor "..".
func CheckTopic(name string) error { return checkName("topic", name, "") }

// CheckMember returns an error wrapping ErrInvalidName unless name may be a member's: CheckTopic's rule, and ":" is allowed too.
func CheckMember(name string) error { return checkName("member", name, ":") }

func checkName(field, name, also string) error {
	switch {
	case name == "":
		return invalid(field, name, "is empty")
	case name == "." || name == "..":
		return invalid(field, name, "is . or ..")
	case len(name) > maxName:
		return invalid(field, name, "has %d bytes, more than %d", len(name), maxName)
	}
	for i, r := range name {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', strings.ContainsRune("._-"+also, r):
		default:
			return invalid(field, name, "%q at byte %d is not one of A-Z a-z 0-9 . _ -%s", r, i, spaced(also))
		}
	}
	return nil
}

// invalid returns the error of a name, with what is wrong with it.
func invalid(field, name, format string, args ...any) error {
	return operr.New("kiel", "", "", fmt.Errorf("%w: %s %s: %s", ErrInvalidName, field, quote(name, maxQuotedName), fmt.Sprintf(format, args...)))
}

const (
	maxQuotedName = 64  // how many bytes of a name an error repeats
	maxQuotedItem = 120 // the same of an item of a set
)

// quote returns a text escaped for an error, cut when it is longer than limit bytes. Then it says how long the text is.
func quote(s string, limit int) string {
	if len(s) <= limit {
		return strconv.Quote(s)
	}
	cut := limit
	for cut > limit-utf8.UTFMax && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return strconv.Quote(s[:cut]) + "… (" + strconv.Itoa(len(s)) + " bytes)"
}

func spaced(s string) string {
	if s == "" {
		return ""
	}
	return " " + s
}
