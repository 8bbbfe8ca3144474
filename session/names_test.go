package session_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/kielgo/kiel/session"
)

func ExampleCheckTopic() {
	fmt.Println(session.CheckTopic("orders"))
	fmt.Println(session.CheckTopic("or/ders"))
	// Output:
	// <nil>
	// session: invalid name: topic name "or/ders": '/' at byte 2 is not one of A-Z a-z 0-9 . _ -
}

func TestNames(t *testing.T) {
	for _, name := range []string{"a", "A-b_c.9", "...", "_", strings.Repeat("x", 249), "zookeeper"} {
		if err := errors.Join(session.CheckGroup(name), session.CheckTopic(name), session.CheckMember(name)); err != nil {
			t.Error(err)
		}
	}
	if err := session.CheckMember("host:4711"); err != nil {
		t.Error(err)
	}
	for _, name := range []string{
		"", ".", "..", "a/b", "../x", "/", "a\x00", "a\n", "\x1b[31m", "a\u202eb", "\uffff", "\xff", "a b", "ä",
		strings.Repeat("x", 250), "<script>", "a:b",
	} {
		for field, check := range map[string]func(string) error{
			"group": session.CheckGroup, "topic": session.CheckTopic, "member": session.CheckMember,
		} {
			if field == "member" && name == "a:b" {
				continue
			}
			err := check(name)
			if !errors.Is(err, session.ErrInvalidName) || !strings.Contains(err.Error(), field+" name") {
				t.Errorf("%s %q: %v", field, name, err)
				continue
			}
			if text := err.Error(); strings.ContainsAny(text, "\x00\n\x1b\u202e") || len(text) > 300 {
				t.Errorf("%s %q: error text not escaped or too long: %q", field, name, text)
			}
		}
	}
}

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
