package kiel_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	link     = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading  = regexp.MustCompile(`(?m)^#+ (.*)$`)
	noAnchor = regexp.MustCompile(`[^\p{L}\p{N}_\- ]`)
	docsPage = regexp.MustCompile(`docs/[a-z0-9-]+\.md`)
)

// Each link of a page to a file or a heading of this repository leads there, and each page that a comment of Go code names is
// there.
func TestLinks(t *testing.T) {
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			if d != nil && slices.Contains([]string{".git", "out", "testdata"}, d.Name()) {
				return filepath.SkipDir
			}
			return err
		}
		switch filepath.Ext(path) {
		case ".md":
			for _, m := range link.FindAllStringSubmatch(read(t, path), -1) {
				checkLink(t, path, m[1])
			}
		case ".go":
			for _, page := range docsPage.FindAllString(read(t, path), -1) {
				if _, err := os.Stat(page); err != nil {
					t.Errorf("%s names %s, which is not there", path, page)
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func checkLink(t *testing.T, page, target string) {
	t.Helper()
	if strings.Contains(target, ":") { // of another site
		return
	}
	file, anchor, _ := strings.Cut(target, "#")
	if file == "" {
		file = page
	} else {
		file = filepath.Join(filepath.Dir(page), file)
	}
	if _, err := os.Stat(file); err != nil {
		t.Errorf("%s links to %s, which is not there", page, target)
		return
	}
	if anchor == "" || filepath.Ext(file) != ".md" {
		return
	}
	for _, h := range heading.FindAllStringSubmatch(read(t, file), -1) {
		text := noAnchor.ReplaceAllString(strings.ToLower(link.ReplaceAllString(h[1], "")), "")
		if strings.ReplaceAll(text, " ", "-") == anchor {
			return
		}
	}
	t.Errorf("%s links to %s, and there is no such heading", page, target)
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
