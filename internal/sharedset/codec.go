package sharedset

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// decode reads a JSON array of strings, or empty data, and returns its strings sorted and without duplicates. It is stricter than
// encoding/json: because a change writes back what decode has read, decode refuses text that would change on the way. It checks
// all data before it allocates anything. Its errors are *syntaxErrors.
func decode(data []byte) ([]string, error) {
	if len(data) == 0 {
		return nil, nil
	}
	n, err := scan(data, nil)
	if err != nil || n == 0 {
		return nil, err
	}
	items := make([]string, 0, n)
	text := string(data) // items without escapes share it
	_, err = scan(data, func(from, to int, escaped bool) {
		item := text[from:to]
		if escaped {
			item = unescape(item)
		}
		items = append(items, item)
	})
	if err != nil {
		return nil, err
	}
	slices.Sort(items)
	return slices.Compact(items), nil
}

// syntaxError says at which byte data stops being an array of strings.
type syntaxError struct {
	offset int
	what   string
}

func (e *syntaxError) Error() string { return fmt.Sprintf("byte %d: %s", e.offset, e.what) }

// scan walks over a JSON array of strings, calls emit (unless it is nil) with the limits of each string, and returns how many
// there are.
func scan(data []byte, emit func(from, to int, escaped bool)) (int, error) {
	pos := space(data, 0)
	if err := want(data, pos, '[', "the start of an array"); err != nil {
		return 0, err
	}
	pos = space(data, pos+1)
	n := 0
	if pos < len(data) && data[pos] == ']' {
		return 0, atEnd(data, pos+1)
	}
	for {
		if err := want(data, pos, '"', "a string"); err != nil {
			return 0, err
		}
		end, escaped, err := scanString(data, pos+1)
		if err != nil {
			return 0, err
		}
		if emit != nil {
			emit(pos+1, end, escaped)
		}
		n++
		pos = space(data, end+1)
		if pos < len(data) && data[pos] == ']' {
			return n, atEnd(data, pos+1)
		}
		if err := want(data, pos, ',', "a comma or the end of the array"); err != nil {
			return 0, err
		}
		pos = space(data, pos+1)
	}
}

// space returns the first position from pos on that holds no white space.
func space(data []byte, pos int) int {
	for pos < len(data) && (data[pos] == ' ' || data[pos] == '\n' || data[pos] == '\t' || data[pos] == '\r') {
		pos++
	}
	return pos
}

func want(data []byte, pos int, b byte, what string) error {
	switch {
	case pos >= len(data):
		return &syntaxError{pos, "the data ends, expected " + what}
	case data[pos] != b:
		return &syntaxError{pos, fmt.Sprintf("found %q, expected %s", data[pos], what)}
	}
	return nil
}

func atEnd(data []byte, pos int) error {
	if pos = space(data, pos); pos < len(data) {
		return &syntaxError{pos, fmt.Sprintf("found %q behind the array", data[pos])}
	}
	return nil
}

// scanString returns the position of the quote that ends the string whose text starts at pos, and whether there is an escape in
// it.
func scanString(data []byte, pos int) (end int, escaped bool, err error) {
	for pos < len(data) {
		switch b := data[pos]; {
		case b == '"':
			return pos, escaped, nil
		case b == '\\':
			n, err := scanEscape(data, pos)
			if err != nil {
				return 0, false, err
			}
			escaped = true
			pos += n
		case b < ' ':
			return 0, false, &syntaxError{pos, fmt.Sprintf("control character %q in a string", b)}
		case b < utf8.RuneSelf:
			pos++
		default:
			r, n := utf8.DecodeRune(data[pos:])
			if r == utf8.RuneError && n == 1 {
				return 0, false, &syntaxError{pos, "a string is no valid UTF-8"}
			}
			pos += n
		}
	}
	return 0, false, &syntaxError{pos, "the data ends in a string"}
}

// scanEscape returns the length of the escape at pos. A pair of surrogates is one escape; a single surrogate is an error.
func scanEscape(data []byte, pos int) (int, error) {
	if pos+1 < len(data) && strings.IndexByte(`"\/bfnrt`, data[pos+1]) >= 0 {
		return 2, nil
	}
	r, ok := hexEscape(data, pos)
	if !ok {
		return 0, &syntaxError{pos, "no valid escape"}
	}
	if r < 0xd800 || r > 0xdfff {
		return 6, nil
	}
	if low, ok := hexEscape(data, pos+6); ok && r < 0xdc00 && 0xdc00 <= low && low <= 0xdfff {
		return 12, nil
	}
	return 0, &syntaxError{pos, "half of a surrogate pair"}
}

// hexEscape reads \uXXXX at pos.
func hexEscape[T []byte | string](data T, pos int) (r rune, ok bool) {
	if pos+6 > len(data) || data[pos] != '\\' || data[pos+1] != 'u' {
		return 0, false
	}
	for i := pos + 2; i < pos+6; i++ {
		b := data[i]
		switch {
		case '0' <= b && b <= '9':
			b -= '0'
		case 'a' <= b && b <= 'f':
			b -= 'a' - 10
		case 'A' <= b && b <= 'F':
			b -= 'A' - 10
		default:
			return 0, false
		}
		r = r<<4 | rune(b)
	}
	return r, true
}

// unescape resolves the escapes of a string that scan has checked.
func unescape(s string) string {
	var out strings.Builder
	out.Grow(len(s))
	for i := 0; i < len(s); {
		if s[i] != '\\' {
			out.WriteByte(s[i])
			i++
			continue
		}
		r, ok := hexEscape(s, i)
		if !ok {
			out.WriteByte("\"\\/\b\f\n\r\t"[strings.IndexByte(`"\/bfnrt`, s[i+1])])
			i += 2
			continue
		}
		i += 6
		if 0xd800 <= r && r <= 0xdbff {
			low, _ := hexEscape(s, i)
			r = (r-0xd800)<<10 + low - 0xdc00 + 0x10000
			i += 6
		}
		out.WriteRune(r)
	}
	return out.String()
}

// encode writes items in their order as Python's json.dumps does: separated by a comma and a space, all but printable ASCII
// escaped.
func encode(items []string) []byte {
	size := 2
	for _, item := range items {
		size += len(item) + 4
	}
	out := append(make([]byte, 0, size), '[')
	for i, item := range items {
		if i > 0 {
			out = append(out, ", "...)
		}
		out = append(out, '"')
		for _, r := range item {
			out = appendRune(out, r)
		}
		out = append(out, '"')
	}
	return append(out, ']')
}

func appendRune(out []byte, r rune) []byte {
	switch {
	case r == '"' || r == '\\':
		return append(out, '\\', byte(r))
	case ' ' <= r && r <= '~':
		return append(out, byte(r))
	}
	if i := strings.IndexRune("\b\f\n\r\t", r); i >= 0 {
		return append(out, '\\', "bfnrt"[i])
	}
	if r > 0xffff {
		r -= 0x10000
		return appendHex(appendHex(out, 0xd800+r>>10), 0xdc00+r&0x3ff)
	}
	return appendHex(out, r)
}

func appendHex(out []byte, r rune) []byte {
	const digits = "0123456789abcdef"
	return append(out, '\\', 'u', digits[r>>12&15], digits[r>>8&15], digits[r>>4&15], digits[r&15])
}
