package kiel_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/kielgo/kiel"
)

func ExampleCheckTopic() {
	fmt.Println(kiel.CheckTopic("orders"))
	fmt.Println(kiel.CheckTopic("or/ders"))
	// Output:
	// <nil>
	// kiel: invalid name: topic "or/ders": '/' at byte 2 is not one of A-Z a-z 0-9 . _ -
}

func TestNames(t *testing.T) {
	for _, name := range []string{"a", "A-b_c.9", "...", "_", strings.Repeat("x", 249), "zookeeper"} {
		if err := errors.Join(kiel.CheckGroup(name), kiel.CheckTopic(name), kiel.CheckMember(name)); err != nil {
			t.Error(err)
		}
	}
	if err := kiel.CheckMember("host:4711"); err != nil {
		t.Error(err)
	}
	for _, name := range []string{
		"", ".", "..", "a/b", "../x", "/", "a\x00", "a\n", "\x1b[31m", "a\u202eb", "\uffff", "\xff", "a b", "ä",
		strings.Repeat("x", 250), "<script>", "a:b",
	} {
		for field, check := range map[string]func(string) error{
			"topic": kiel.CheckTopic, "member": kiel.CheckMember,
		} {
			if field == "member" && name == "a:b" {
				continue
			}
			err := check(name)
			if !errors.Is(err, kiel.ErrInvalidName) || !strings.Contains(err.Error(), ": "+field+` "`) {
				t.Errorf("%s %q: %v", field, name, err)
				continue
			}
			if text := err.Error(); strings.ContainsAny(text, "\x00\n\x1b\u202e") || len(text) > 300 {
				t.Errorf("%s %q: error text not escaped or too long: %q", field, name, text)
			}
		}
	}
}
