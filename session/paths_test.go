package session_test

import (
	"errors"
	"testing"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/kielgo/kiel/internal/testonly/noerr"
	"github.com/kielgo/kiel/session"
)

func TestPaths(t *testing.T) {
	for _, path := range []string{"/", "/a", "/a/b", "/a..b", "/...", "/a b", "/ä", "/zookeeper", "/\ud7ff", "/\uf900", "/\uffef"} {
		noerr.Want(t, session.CheckPath(path))
	}
	for _, path := range []string{
		"", "a", "a/b", "/a/", "//", "//a", "/a//b", "/.", "/a/.", "/./a", "/..", "/a/../b", "/a\x00", "/a\x1f", "/a\x7f",
		"/a\u0085", "/\ue000", "/\uf8ff", "/\ufff0", "/\uffff", "/\xff",
		"/\U00010000", "/🚀", "/\U0010ffff",
	} {
		if err := session.CheckPath(path); !errors.Is(err, session.ErrInvalidPath) {
			t.Errorf("%q: %v", path, err)
		}
	}
	for want, elems := range map[string][]string{
		"/":      {},
		"/a/b":   {"/a", "b"},
		"/a/b/c": {"a/", "/b/", "", "c"},
		"/a/..":  {"/a", ".."}, // CheckPath refuses it
	} {
		if got := session.Join(elems...); got != want {
			t.Errorf("Join(%q) = %q, want %q", elems, got, want)
		}
	}
}

// The rule for characters is that of ZooKeeper's PathUtils, whose text is UTF-16: it refuses U+0000 to U+001F, U+007F to U+009F,
// U+D800 to U+F8FF, and U+FFF0 to U+FFFF. A real server is asked by TestCharacters of test/conformance.
func TestCharactersOfPaths(t *testing.T) {
	for r := range unicode.MaxRune + 1 {
		if !utf8.ValidRune(r) || r == '/' {
			continue
		}
		allowed := true
		for _, unit := range utf16.Encode([]rune{r}) {
			if unit <= 0x1f || 0x7f <= unit && unit <= 0x9f || 0xd800 <= unit && unit <= 0xf8ff || unit >= 0xfff0 {
				allowed = false
			}
		}
		if err := session.CheckPath("/a" + string(r) + "b"); (err == nil) != allowed {
			t.Errorf("%U: %v, a server allows it: %t", r, err, allowed)
		}
	}
}

// A chroot that no server would accept is refused when the session is made, and not tried for ever.
func TestChrootWithForbiddenCharacter(t *testing.T) {
	for _, chroot := range []string{"/a\ue000", "/🚀", "/\ufff0/b"} {
		if _, err := session.New([]string{"zk"}, session.Options{Chroot: chroot}); !errors.Is(err, session.ErrInvalidPath) {
			t.Errorf("%q: %v", chroot, err)
		}
	}
}
