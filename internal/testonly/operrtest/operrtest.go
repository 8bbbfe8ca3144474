// Package operrtest is for tests of the texts of errors.
package operrtest

import (
	"regexp"
	"strings"
	"testing"
)

// names matches the name of a package of this library where a text names the package.
var names = regexp.MustCompile(`\b(kiel|allocator|allocfn|barrier|consumer|counter|election|fetch|health|hold|lease|lock|offsets|` +
	`ownership|partitioner|party|queue|semaphore|seqnode|session|sharedset|status|watched|zones): `)

// Once fails the test unless the text of err begins with the package's name, names no package of this library a second time, and
// has each of parts, such as operation and object, exactly once.
func Once(t *testing.T, err error, pkg string, parts ...string) {
	t.Helper()
	if err == nil {
		t.Errorf("no error, want one of %s with %q", pkg, parts)
		return
	}
	text := err.Error()
	if found := names.FindAllString(text, -1); len(found) != 1 || !strings.HasPrefix(text, pkg+": ") {
		t.Errorf("%q names the packages %q, want %s at the beginning alone", text, found, pkg)
	}
	for _, part := range parts {
		if n := strings.Count(text, part); n != 1 {
			t.Errorf("%q has %q %d times, want once", text, part, n)
		}
	}
}
