package session_test

import (
	"errors"
	"testing"

	"github.com/kielgo/kiel/session"
)

func TestPaths(t *testing.T) {
	for _, path := range []string{"/", "/a", "/a/b", "/a..b", "/...", "/a b", "/ä", "/zookeeper"} {
		if err := session.CheckPath(path); err != nil {
			t.Error(err)
		}
	}
	for _, path := range []string{
		"", "a", "a/b", "/a/", "//", "//a", "/a//b", "/.", "/a/.", "/./a", "/..", "/a/../b", "/a\x00", "/a\x1f", "/a\x7f",
		"/a\u0085", "/\uf000", "/\ufff0", "/\uffff", "/\xff",
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
