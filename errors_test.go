package kiel_test

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestErrorsAreNotCut looks for errors whose texts begin with a package's name, which package operr adds at the exported edge,
// and for code that cuts or parses the text of an error.
func TestErrorsAreNotCut(t *testing.T) {
	files, _ := sources(t)
	named := regexp.MustCompile(`(?:errors\.New|fmt\.Errorf)\("(kiel|allocator|allocfn|barrier|consumer|counter|election|lease|lock|ownership|partitioner|party|` +
		`queue|semaphore|session|sharedset|status|watched|zones): `)
	cut := regexp.MustCompile(`strings\.\w+\([^\n]*\.Error\(\)`)
	for _, path := range files {
		if regexp.MustCompile(`^(test|cmd|zktest|internal/testonly)/`).MatchString(path) {
			continue
		}
		code, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, re := range []*regexp.Regexp{named, cut} {
			for _, m := range re.FindAllString(string(code), -1) {
				t.Errorf("%s: %s", path, strings.TrimSpace(m))
			}
		}
	}
}
