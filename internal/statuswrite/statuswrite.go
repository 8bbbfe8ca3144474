// Package statuswrite makes what package status describes: it cuts names and texts to the limits of descriptions. Readers need
// package status alone.
package statuswrite

import (
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/kielgo/kiel/status"
)

// Limits of descriptions.
const (
	MaxName      = 256 // bytes of a name: those that kiel checks have 249 at most, those that others write may be longer
	MaxShortName = 64  // bytes of a name in a reason
	MaxText      = 500 // bytes of an error's text
	MaxListed    = 20  // names in a disagreement or a trouble
	MaxNames     = 5   // names in a reason, in an error, or in a log line
)

// Group returns an empty description.
func Group(group string, source status.Source, at time.Time) *status.Group {
	return &status.Group{
		Version: status.Version, Group: group, Source: source, At: at,
		Members: []status.Member{}, Partitions: []status.Partition{}, Disagreements: []status.Disagreement{}, Troubles: []status.Trouble{},
		Changes: []status.Change{},
	}
}

// Name returns the first MaxName bytes of a name, without a broken character at the end. What is not UTF-8 becomes "?".
func Name(name string) string { return cut(name, MaxName) }

// ShortName is Name with MaxShortName bytes.
func ShortName(name string) string { return cut(name, MaxShortName) }

// Text returns a text in one line, of at most MaxText bytes.
func Text(text string) string { return cut(strings.Join(strings.Fields(text), " "), MaxText) }

func cut(name string, limit int) string {
	name = strings.ToValidUTF8(name, "?")
	if len(name) <= limit {
		return name
	}
	end := limit
	for !utf8.RuneStart(name[end]) {
		end--
	}
	return name[:end]
}

// Millis returns the time that is this many milliseconds after the start of 1970, in UTC. It returns nil if ms is not positive,
// or if JSON can't hold the time.
func Millis(ms int64) *time.Time {
	const year10000 = 253402300800000
	if ms <= 0 || ms >= year10000 {
		return nil
	}
	t := time.UnixMilli(ms).UTC()
	return &t
}

// Disagreement returns a disagreement about these names, which it cuts to the limits.
func Disagreement(kind status.DisagreementKind, text string, names ...string) status.Disagreement {
	d := status.Disagreement{Kind: kind, Text: text, More: max(len(names)-MaxListed, 0)}
	for _, name := range names[:len(names)-d.More] {
		d.Names = append(d.Names, Name(name))
	}
	return d
}

// Reason returns the reason with this code for these names, which it cuts to the limits.
func Reason(code status.Code, names ...string) status.Reason {
	r := status.Reason{Code: code, More: max(len(names)-MaxNames, 0)}
	for _, name := range names[:min(len(names), MaxNames)] {
		r.Names = append(r.Names, ShortName(name))
	}
	return r
}

// Clone returns a copy that shares nothing with r.
func Clone(r status.Reason) status.Reason {
	r.Names = slices.Clone(r.Names)
	return r
}

// Check returns an error for a reason beyond the limits, or with a code that has other characters than lower-case letters and
// hyphens. A code that is not among status.Codes is no error: a later version may have written it.
func Check(r status.Reason) error {
	if len(r.Code) > MaxShortName {
		return fmt.Errorf("the code has %d bytes, more than %d", len(r.Code), MaxShortName)
	}
	for _, c := range []byte(r.Code) {
		if c != '-' && (c < 'a' || c > 'z') {
			return fmt.Errorf("the code %q is no word", r.Code)
		}
	}
	if len(r.Names) > MaxNames {
		return fmt.Errorf("%d names is more than %d", len(r.Names), MaxNames)
	}
	if r.More < 0 {
		return fmt.Errorf("more: %d is less than 0", r.More)
	}
	for _, name := range r.Names {
		if len(name) > MaxShortName {
			return fmt.Errorf("the name %.80q has %d bytes, more than %d", name, len(name), MaxShortName)
		}
		if !utf8.ValidString(name) {
			return fmt.Errorf("the name %.80q is not UTF-8", name)
		}
	}
	return nil
}
