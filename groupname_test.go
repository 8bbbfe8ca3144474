package kiel_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/session"
)

func ExampleGroupZnode() {
	for _, group := range []string{"billing", "my group", "größe", "team/app", "100%", "100%25"} {
		fmt.Println(kiel.GroupZnode(group))
	}
	// Output:
	// billing
	// my group
	// größe
	// team%2Fapp
	// 100%
	// 100%2525
}

// The znodes of names are fixed: members of other versions look for them there.
func TestGroupZnode(t *testing.T) {
	names := map[string]string{ // those that stand for themselves have ""
		"plain": "", "A-b_c.9": "", "...": "", "a..": "", "zookeeper": "", strings.Repeat("x", 249): "", // those that earlier versions allow
		"my group": "", "größe": "", "a@b.c": "", "a:b": "", "$x": "", "{a}": "", " ": "", "a+b&c=d?e#f": "", `"<b>'\`: "", "日本語": "", "\u202e": "",
		"%": "", "%2": "", "%zz": "", "100%": "", "%%": "", "%g1": "", "%1g": "",
		".": "%2E", "..": "%2E%2E", "/": "%2F", "team/app": "team%2Fapp", "../x": "..%2Fx", "/a//b/": "%2Fa%2F%2Fb%2F",
		"%2F": "%252F", "%2f": "%252f", "%%41": "%%2541", "%/2": "%%2F2", "%4/1": "%4%2F1", "%252F": "%25252F",
		"a\x00b": "a%00b", "a\nb": "a%0Ab", "\x7f": "%7F", "\u0085": "%C2%85", "\ue000": "%EE%80%80", "\ufffd": "%EF%BF%BD", "😀": "%F0%9F%98%80",
	}
	for name, want := range names {
		if want == "" {
			want = name
		}
		if err := kiel.CheckGroup(name); err != nil {
			t.Error(err)
		}
		if got := kiel.GroupZnode(name); got != want {
			t.Errorf("the znode of %q is %q, want %q", name, got, want)
		}
		if got, ok := kiel.GroupOfZnode(want); got != name || !ok {
			t.Errorf("%q is the znode of %q, %v, want %q", want, got, ok, name)
		}
	}
}

// Znodes that no group of ours has are nobody's: what a lister shows of them is their own name.
func TestForeignGroupZnodes(t *testing.T) {
	for _, znode := range []string{
		"", ".", "..", "%41", "%2f", "a%2Fb%20c", "%2E.", ".%2E", "%2E%2E%2E", "%25", "%25zz", "%FF", "%C3", "%C3%A4", "%EF%BF%BD%", "a/b", "\x00", "😀", "\xff",
		"%2541%41", strings.Repeat("x", 250), strings.Repeat("%2F", 83) + "x",
	} {
		want := znode == "%EF%BF%BD%" // a % at the end is one
		if group, ok := kiel.GroupOfZnode(znode); ok != want {
			t.Errorf("%q is the znode of %q, %v", znode, group, ok)
		}
	}
}

func TestBadGroupNames(t *testing.T) {
	for name, want := range map[string]string{
		"": "is empty", "\xff": "is not UTF-8", "a\xc3": "is not UTF-8", "\xed\xa0\x80": "is not UTF-8",
		strings.Repeat("x", 250): "has 250 bytes, more than 249", strings.Repeat("ö", 125): "has 250 bytes, more than 249",
		strings.Repeat("/", 84):        "has 252 bytes as a znode's name, in which %XX is",
		strings.Repeat("x", 247) + "/": "has 250 bytes as a znode's name",
	} {
		err := kiel.CheckGroup(name)
		if !errors.Is(err, kiel.ErrInvalidName) || !strings.HasPrefix(err.Error(), `kiel: invalid name: group "`) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", name, err, want)
		} else if strings.ContainsRune(err.Error(), '\xff') || len(err.Error()) > 300 {
			t.Errorf("%q: the error's text is not escaped or too long: %q", name, err)
		}
	}
	for _, name := range []string{strings.Repeat("/", 83), strings.Repeat("x", 246) + "/", strings.Repeat("ö", 124)} {
		if err := kiel.CheckGroup(name); err != nil {
			t.Errorf("%d bytes: %v", len(name), err)
		}
	}
	_ = kiel.GroupZnode("a\xffb") // not a group's name, and no panic
}

// Exactly the characters that session.CheckPath refuses are escaped, and the slash.
func TestGroupZnodeAgreesWithCheckPath(t *testing.T) {
	for r := range unicode.MaxRune + 1 {
		if !utf8.ValidRune(r) || r > 0x10fff && r%997 != 0 && r < unicode.MaxRune-1 {
			continue
		}
		name := "a" + string(r) + "b"
		raw := kiel.GroupZnode(name) == name
		if want := r != '/' && session.CheckPath("/"+name) == nil; raw != want {
			t.Fatalf("%q is left as it is: %v, want %v", name, raw, want)
		}
	}
}

// tb is a test or a try of rapid's.
type tb interface {
	Fatalf(format string, args ...any)
}

// checkGroupName checks what must hold for any text as a group's name, and as the name of a znode.
func checkGroupName(t tb, text string) {
	if kiel.CheckGroup(text) == nil {
		znode := kiel.GroupZnode(text)
		if err := session.CheckPath("/kiel/groups/" + znode); err != nil || strings.Contains(znode, "/") || len(znode) > 249 || len(znode) < len(text) {
			t.Fatalf("the znode of %q is %q: %v", text, znode, err)
		}
		if kiel.CheckTopic(text) == nil && znode != text {
			t.Fatalf("earlier versions have another znode for %q than %q", text, znode)
		}
		if group, ok := kiel.GroupOfZnode(znode); group != text || !ok {
			t.Fatalf("%q is the znode of %q, and read back as that of %q, %v", znode, text, group, ok)
		}
	}
	if group, ok := kiel.GroupOfZnode(text); ok && (kiel.CheckGroup(group) != nil || kiel.GroupZnode(group) != text) {
		t.Fatalf("%q is read as the znode of %q, whose znode is %q", text, group, kiel.GroupZnode(group))
	} else if !ok && group != "" {
		t.Fatalf("%q is nobody's and %q", text, group)
	}
}

func TestGroupNamesOfAllKinds(t *testing.T) {
	piece := rapid.OneOf(
		rapid.SampledFrom([]string{"%", "%2", "%2F", "%41", "/", ".", "..", "2", "F", "f", "\x00", "ö", "😀", "\xff", "a", "\ue000"}), rapid.String())
	rapid.Check(t, func(t *rapid.T) {
		checkGroupName(t, strings.Join(rapid.SliceOf(piece).Draw(t, "pieces"), ""))
	})
}

func FuzzGroupName(f *testing.F) {
	for _, text := range []string{"plain", "team/app", "..", "%2F", "%%2F2", "größe", "\xff", "😀", strings.Repeat("/", 83)} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) { checkGroupName(t, text) })
}
