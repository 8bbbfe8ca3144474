package counter

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"
)

// kind reads, writes and adds numbers of one kind.
type kind[V any] interface {
	decode(data []byte) (V, error)
	encode(v V) []byte
	add(a, b V) (V, error)
	subtract(a, b V) (V, error)
	clone(v V) V // a copy that shares no memory with v
}

// bigKind is Python's int.
type bigKind struct{}

func (bigKind) decode(data []byte) (*big.Int, error) {
	digits := strings.TrimFunc(string(data), isPythonSpace)
	unsigned := strings.TrimPrefix(digits, "-")
	if unsigned == digits {
		unsigned = strings.TrimPrefix(digits, "+")
	}
	if !isDigits(unsigned) {
		return nil, fmt.Errorf("%w: %s", ErrValue, quote(data))
	}
	v, ok := new(big.Int).SetString(strings.ReplaceAll(digits, "_", ""), 10)
	if !ok {
		return nil, fmt.Errorf("%w: %s", ErrValue, quote(data))
	}
	return v, nil
}

func (bigKind) encode(v *big.Int) []byte                 { return v.Append(nil, 10) }
func (bigKind) add(a, b *big.Int) (*big.Int, error)      { return new(big.Int).Add(a, b), nil }
func (bigKind) subtract(a, b *big.Int) (*big.Int, error) { return new(big.Int).Sub(a, b), nil }
func (bigKind) clone(v *big.Int) *big.Int                { return new(big.Int).Set(v) }

// intKind is Python's int within 64 bits.
type intKind struct{ bigKind }

func (k intKind) decode(data []byte) (int64, error) {
	v, err := k.bigKind.decode(data)
	if err != nil {
		return 0, err
	}
	return fit(v)
}

func (intKind) encode(v int64) []byte { return strconv.AppendInt(nil, v, 10) }

func (intKind) add(a, b int64) (int64, error) {
	return fit(new(big.Int).Add(big.NewInt(a), big.NewInt(b)))
}

func (intKind) subtract(a, b int64) (int64, error) {
	return fit(new(big.Int).Sub(big.NewInt(a), big.NewInt(b)))
}

func (intKind) clone(v int64) int64 { return v }

func fit(v *big.Int) (int64, error) {
	if !v.IsInt64() {
		return 0, fmt.Errorf("%w: %s has more than 64 bits", ErrRange, quote(v.Append(nil, 10)))
	}
	return v.Int64(), nil
}

// curatorKind is the four bytes of Curator's SharedCount.
type curatorKind struct{}

func (curatorKind) decode(data []byte) (int32, error) {
	if len(data) != 4 {
		return 0, fmt.Errorf("%w: %s, want 4 bytes", ErrValue, quote(data))
	}
	return int32(binary.BigEndian.Uint32(data)), nil
}

func (curatorKind) encode(v int32) []byte { return binary.BigEndian.AppendUint32(nil, uint32(v)) }

func (curatorKind) add(a, b int32) (int32, error)      { return fit32(int64(a) + int64(b)) }
func (curatorKind) subtract(a, b int32) (int32, error) { return fit32(int64(a) - int64(b)) }
func (curatorKind) clone(v int32) int32                { return v }

func fit32(v int64) (int32, error) {
	if v < math.MinInt32 || v > math.MaxInt32 {
		return 0, fmt.Errorf("%w: %d has more than 32 bits", ErrRange, v)
	}
	return int32(v), nil
}

// floatKind is Python's float.
type floatKind struct{}

func (floatKind) decode(data []byte) (float64, error) {
	text := strings.ToLower(strings.TrimFunc(string(data), isPythonSpace))
	unsigned := strings.TrimPrefix(text, "-")
	if unsigned == text {
		unsigned = strings.TrimPrefix(text, "+")
	}
	if !isFloat(unsigned) {
		return 0, fmt.Errorf("%w: %s", ErrValue, quote(data))
	}
	v, err := strconv.ParseFloat(strings.ReplaceAll(text, "_", ""), 64)
	if err != nil && !math.IsInf(v, 0) { // a number that is too large is infinite, as in Python
		return 0, fmt.Errorf("%w: %s", ErrValue, quote(data))
	}
	return v, nil
}

// encode returns the shortest text that is read as v, as Python's repr does.
func (floatKind) encode(v float64) []byte {
	size := math.Abs(v)
	switch {
	case math.IsNaN(v):
		return []byte("nan")
	case math.IsInf(v, 1):
		return []byte("inf")
	case math.IsInf(v, -1):
		return []byte("-inf")
	case size != 0 && (size < 1e-4 || size >= 1e16):
		return strconv.AppendFloat(nil, v, 'e', -1, 64)
	}
	text := strconv.AppendFloat(nil, v, 'f', -1, 64)
	if v == math.Trunc(v) {
		text = append(text, ".0"...)
	}
	return text
}

func (floatKind) add(a, b float64) (float64, error)      { return a + b, nil }
func (floatKind) subtract(a, b float64) (float64, error) { return a - b, nil }
func (floatKind) clone(v float64) float64                { return v }

// isFloat reports whether Python's float reads text, which has no sign and is in lower case.
func isFloat(text string) bool {
	switch text {
	case "inf", "infinity", "nan":
		return true
	}
	mantissa, exponent, scientific := strings.Cut(text, "e")
	if scientific {
		if exponent != "" && strings.ContainsRune("+-", rune(exponent[0])) {
			exponent = exponent[1:]
		}
		if !isDigits(exponent) {
			return false
		}
	}
	whole, fraction, _ := strings.Cut(mantissa, ".")
	return (whole != "" || fraction != "") && (whole == "" || isDigits(whole)) && (fraction == "" || isDigits(fraction))
}

// isDigits reports whether text is one or more ASCII digits, perhaps with single underscores between them.
func isDigits(text string) bool {
	before := rune('_')
	for _, r := range text {
		if r != '_' && (r < '0' || r > '9') || r == '_' && before == '_' {
			return false
		}
		before = r
	}
	return before != '_'
}

// isPythonSpace reports whether Python strips r from ASCII text that is a number.
func isPythonSpace(r rune) bool { return r == ' ' || '\t' <= r && r <= '\r' }

// quote returns the first bytes of data, quoted for an error.
func quote(data []byte) string {
	const limit = 40
	if len(data) > limit {
		return fmt.Sprintf("%q… (%d bytes)", data[:limit], len(data))
	}
	return fmt.Sprintf("%q", data)
}
