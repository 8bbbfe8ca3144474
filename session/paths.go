package session

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/kielgo/kiel/internal/operr"
)

// CheckPath returns an error wrapping ErrInvalidPath unless path is absolute and normal: it begins with "/", does not end with
// one (but for the root), has no empty, "." or ".." component, is valid UTF-8, and has no character that ZooKeeper refuses:
// controls, private use (U+E000 to U+F8FF), and everything from U+FFF0 on, with it all characters above U+FFFF, such as emoji.
// (Java sees those as pairs of surrogates, which ZooKeeper refuses.)
func CheckPath(path string) error {
	if err := namedFault(path); err != nil {
		return operr.New(pkg, "", "", err)
	}
	return nil
}

// namedFault is CheckPath without the package's name.
func namedFault(path string) error {
	if why := fault(path); why != "" {
		return fmt.Errorf("%w %s: %s", ErrInvalidPath, quote(path), why)
	}
	return nil
}

// checkPath is CheckPath for operations, which name the package and the path themselves.
func checkPath(path string) error {
	if why := fault(path); why != "" {
		return fmt.Errorf("%w: %s", ErrInvalidPath, why)
	}
	return nil
}

// fault says why CheckPath refuses a path; "" if it does not.
func fault(path string) string {
	switch {
	case path == "":
		return "is empty"
	case path[0] != '/':
		return "does not begin with /"
	case path == "/":
		return ""
	case !utf8.ValidString(path):
		return "is not UTF-8"
	}
	for part := range strings.SplitSeq(path[1:], "/") {
		switch part {
		case "":
			return "has an empty component"
		case ".", "..":
			return "has a component " + part
		}
	}
	for i, r := range path {
		if r <= 0x1f || r >= 0x7f && r <= 0x9f || r >= 0xe000 && r <= 0xf8ff || r >= 0xfff0 {
			return fmt.Sprintf("%q at byte %d is not allowed in ZooKeeper", r, i)
		}
	}
	return ""
}

// Join joins path elements with single slashes, with a leading slash and without empty elements. It neither resolves nor refuses
// ".."; CheckPath, and every call that takes a path, refuses it.
func Join(elem ...string) string {
	var b strings.Builder
	for _, e := range elem {
		for part := range strings.SplitSeq(e, "/") {
			if part != "" {
				b.WriteByte('/')
				b.WriteString(part)
			}
		}
	}
	if b.Len() == 0 {
		return "/"
	}
	return b.String()
}

// quote escapes a value for an error text and shortens it to 64 bytes.
func quote(s string) string {
	const limit = 64
	if len(s) > limit {
		return fmt.Sprintf("%q…", s[:limit])
	}
	return fmt.Sprintf("%q", s)
}
