// Package plain makes texts of others harmless to show: names of members and topics, and texts of errors.
package plain

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Text returns a text without anything that a terminal obeys, or that a screen hides or turns around: such characters become
// \uXXXX, as in JSON.
func Text(s string) string {
	if !strings.ContainsFunc(s, Hidden) {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		switch {
		case !Hidden(r):
			b.WriteRune(r)
		case r > 0xffff:
			fmt.Fprintf(&b, `\u%04x\u%04x`, 0xd800+(r-0x10000)>>10, 0xdc00+(r-0x10000)&0x3ff)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}

// Hidden reports whether Text replaces a character.
func Hidden(r rune) bool { return r == utf8.RuneError || !unicode.IsPrint(r) }
