package seqnode

import (
	"cmp"
	"crypto/rand"
	"encoding/hex"
	"slices"
	"strconv"
	"strings"
)

// guidLen is the length of a GUID in a name.
const guidLen = 32

// FirstRefused is the first sequence number that is refused: 2^20 creates before the server's counter stays at its end.
const FirstRefused = 1<<31 - 1<<20

// NewGUID returns a random UUID of version 4 as kazoo writes it: 32 lower-case hex digits without dashes. It does not block.
func NewGUID() string {
	var b [guidLen / 2]byte
	_, _ = rand.Read(b[:]) // never fails
	b[6] = b[6]&0x0f | 0x40
	b[8] = b[8]&0x3f | 0x80
	return hex.EncodeToString(b[:])
}

// Contender is the parsed name of a child.
type Contender struct {
	Name string // the whole name
	Word string // the word in front of the sequence number
	Seq  int64  // the sequence number; negative after an overflow of the server's counter
}

// Parse parses the name of a contender: anything, then one of words, an optional minus, and the digits that a server appends:
// ten, or nine after a minus. Parse reports false for other names.
func Parse(name string, words ...string) (Contender, bool) {
	for _, word := range words {
		if seq, ok := parseSeq(name, word); ok {
			return Contender{Name: name, Word: word, Seq: seq}, true
		}
	}
	return Contender{}, false
}

// parseSeq returns the number after word at the end of name.
func parseSeq(name, word string) (int64, bool) {
	digits := 0
	for digits < len(name) && digits < 10 && isDigit(name[len(name)-1-digits]) {
		digits++
	}
	for _, n := range []int{10, 9} {
		if digits < n {
			continue
		}
		rest, number := name[:len(name)-n], name[len(name)-n:]
		seq, err := strconv.ParseInt(number, 10, 64)
		if err != nil {
			return 0, false
		}
		if n == 10 && strings.HasSuffix(rest, word) {
			return seq, true
		}
		if rest, ok := strings.CutSuffix(rest, "-"); ok && strings.HasSuffix(rest, word) {
			return -seq, true
		}
	}
	return 0, false
}

func isDigit(b byte) bool { return '0' <= b && b <= '9' }

// Contenders returns the contenders among children in their order, and drops other children. Contenders with equal sequence
// numbers are sorted by name; which of them precedes the others, only their czxids show.
func Contenders(children []string, words ...string) []Contender {
	var list []Contender
	for _, name := range children {
		if c, ok := Parse(name, words...); ok {
			list = append(list, c)
		}
	}
	slices.SortFunc(list, func(a, b Contender) int {
		return cmp.Or(cmp.Compare(a.Seq, b.Seq), strings.Compare(a.Name, b.Name))
	})
	return list
}
