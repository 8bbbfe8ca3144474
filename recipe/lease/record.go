package lease

import (
	"encoding/json"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"time"
	"unicode/utf16"
)

// version is the version of kazoo's records, the only one that this package reads.
const version = 1

// dateFormat is the format in which Python writes the end.
const dateFormat = "2006-01-02T15:04:05"

// Record is the content of a lease's znode.
type Record struct {
	Version int       // 1; a record of another version has no other fields here
	Holder  string    // the holder's identifier
	End     time.Time // when the lease ends, in UTC
}

// bytes returns the record as Python's json.dumps writes it.
func (r Record) bytes() []byte {
	b := append([]byte(`{"version": `), strconv.Itoa(r.Version)...)
	b = appendString(append(b, `, "holder": `...), r.Holder)
	b = appendString(append(b, `, "end": `...), r.End.UTC().Format(dateFormat))
	return append(b, '}')
}

// appendString appends s as a JSON string of ASCII characters. Python escapes every character that is not between space and
// tilde.
func appendString(b []byte, s string) []byte {
	b = append(b, '"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b = append(b, '\\', byte(r))
		case r == '\n':
			b = append(b, `\n`...)
		case r == '\r':
			b = append(b, `\r`...)
		case r == '\t':
			b = append(b, `\t`...)
		case r == '\b':
			b = append(b, `\b`...)
		case r == '\f':
			b = append(b, `\f`...)
		case ' ' <= r && r <= '~':
			b = append(b, byte(r))
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			b = fmt.Appendf(b, `\u%04x\u%04x`, high, low)
		default:
			b = fmt.Appendf(b, `\u%04x`, r)
		}
	}
	return append(b, '"')
}

// endForm returns the form that Python's strptime reads: fields may lack their leading zeros.
func endForm() *regexp.Regexp {
	return regexp.MustCompile(`^(\d{4})-(\d{1,2})-(\d{1,2})T(\d{1,2}):(\d{1,2}):(\d{1,2})$`)
}

// parse reads a record. If the record has another version, parse reads only that.
func parse(data []byte) (Record, error) {
	var fields map[string]any
	if err := json.Unmarshal(data, &fields); err != nil {
		return Record{}, fmt.Errorf("%w: %.200q: %w", ErrBadRecord, data, err)
	}
	bad := func(key string) (Record, error) {
		return Record{}, fmt.Errorf("%w: %.200q: no proper %q", ErrBadRecord, data, key)
	}
	number, ok := fields["version"].(float64)
	if !ok || number != math.Trunc(number) || math.Abs(number) > math.MaxInt32 {
		return bad("version")
	}
	r := Record{Version: int(number)}
	if r.Version != version {
		return r, nil
	}
	if r.Holder, ok = fields["holder"].(string); !ok {
		return bad("holder")
	}
	text, ok := fields["end"].(string)
	if !ok {
		return bad("end")
	}
	if r.End, ok = parseEnd(text); !ok {
		return bad("end")
	}
	return r, nil
}

func parseEnd(text string) (time.Time, bool) {
	m := endForm().FindStringSubmatch(text)
	if m == nil {
		return time.Time{}, false
	}
	var n [6]int
	for i := range n {
		n[i], _ = strconv.Atoi(m[i+1]) // digits only
	}
	t := time.Date(n[0], time.Month(n[1]), n[2], n[3], n[4], n[5], 0, time.UTC)
	// Date takes the 31st of April for the 1st of May.
	same := t.Year() == n[0] && int(t.Month()) == n[1] && t.Day() == n[2] && t.Hour() == n[3] && t.Minute() == n[4] && t.Second() == n[5]
	return t, same
}
