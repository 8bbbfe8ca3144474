package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/bluekeyes/go-gitdiff/gitdiff"
)

// suffix of the files that hold mutants.
const suffix = ".patch"

// mutant is a defect made on purpose.
type mutant struct {
	name  string
	rule  string // that it breaks
	harm  string // without the rule
	tests []test
	files []*gitdiff.File
}

// test must fail with a mutant, or stay green.
type test struct {
	pkg  string   // as ./session
	name string   // TestX or TestX/subtest, as go test writes it
	args []string // flags of the package's own, as -runs=400
	says string   // in what it writes as it fails
	// green is set of a test that must stay green: another rule is enough for it.
	green bool
}

func (t test) String() string {
	text := strings.Join(append([]string{t.pkg, t.name}, t.args...), " ")
	if t.green {
		return text + " stays green"
	}
	return fmt.Sprintf("%s says %q", text, t.says)
}

// pattern is the test's name as go test's -run wants it.
func (t test) pattern() string {
	return "^" + strings.ReplaceAll(regexp.QuoteMeta(t.name), "/", "$/^") + "$"
}

// read reads a mutant from its file.
func read(file string) (*mutant, error) {
	m := &mutant{name: strings.TrimSuffix(filepath.Base(file), suffix)}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	files, header, err := gitdiff.Parse(bytes.NewReader(text))
	if err == nil {
		m.files, err = files, m.head(header)
	}
	if err == nil && len(files) == 0 {
		err = errors.New("it changes nothing")
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return m, nil
}

// head reads the lines in front of the diff: lines of "key: value", which those that are indented continue.
func (m *mutant) head(header string) error {
	header = strings.NewReplacer("\n\t", " ", "\n  ", " ").Replace(header)
	for line := range strings.Lines(header) {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		key, value, _ := strings.Cut(line, ":")
		value = strings.TrimSpace(value)
		words := strings.Split(value, " -") // a flag's value may have spaces
		pkg, name, _ := strings.Cut(words[0], " ")
		last := len(m.tests) - 1
		switch {
		case value == "":
			return fmt.Errorf("header: %q is no key and value", line)
		case key == "rule" && m.rule == "":
			m.rule = value
		case key == "harm" && m.harm == "":
			m.harm = value
		case key == "test" || key == "green":
			if !strings.HasPrefix(pkg, "./") || !strings.HasPrefix(name, "Test") {
				return fmt.Errorf("header: %q is not ./package and the name of a test", value)
			}
			for i := range words[1:] {
				words[i+1] = "-" + words[i+1]
			}
			m.tests = append(m.tests, test{pkg: pkg, name: name, args: words[1:], green: key == "green"})
		case key == "says" && last >= 0 && m.tests[last].says == "" && !m.tests[last].green:
			m.tests[last].says = value
		default:
			return fmt.Errorf("header: unexpected: %s", line)
		}
	}
	if m.rule == "" || m.harm == "" {
		return errors.New("header: it has no rule, or no harm")
	}
	if len(m.tests) == 0 {
		return errors.New("header: it has no test")
	}
	for _, t := range m.tests {
		if !t.green && t.says == "" {
			return fmt.Errorf("header: it does not say how %s %s fails", t.pkg, t.name)
		}
	}
	return nil
}

// harmless reports whether all tests of a mutant must stay green, since other rules are enough.
func (m *mutant) harmless() bool {
	return !slices.ContainsFunc(m.tests, func(t test) bool { return !t.green })
}

// apply writes the files that the patch changes, changed, to dir. It returns their paths by those of the originals.
func (m *mutant) apply(root, dir string) (map[string]string, error) {
	replaced := map[string]string{}
	for i, f := range m.files {
		if f.OldName == "" || f.OldName != f.NewName {
			return nil, fmt.Errorf("the patch makes, removes or renames %s%s", f.OldName, f.NewName)
		}
		original := filepath.Join(root, f.OldName)
		text, err := os.ReadFile(original)
		if err != nil {
			return nil, err
		}
		if err := place(f.TextFragments, string(text)); err != nil {
			return nil, fmt.Errorf("%s: %w", f.OldName, err)
		}
		var changed bytes.Buffer
		if err := gitdiff.Apply(&changed, bytes.NewReader(text), f); err != nil {
			return nil, fmt.Errorf("%s: %w", f.OldName, err)
		}
		mutated := filepath.Join(dir, fmt.Sprintf("%d-%s", i, filepath.Base(f.OldName)))
		if err := os.WriteFile(mutated, changed.Bytes(), 0o600); err != nil {
			return nil, err
		}
		replaced[original] = mutated
	}
	return replaced, nil
}

// place moves each fragment to where its lines are, all of them and as they are, so that a patch outlives changes elsewhere in
// the file. They must be there exactly once.
func place(fragments []*gitdiff.TextFragment, text string) error {
	for i, f := range fragments {
		var old strings.Builder
		for _, line := range f.Lines {
			if line.Old() {
				old.WriteString(line.Line)
			}
		}
		// The newline in front makes lines of what is looked for.
		switch n := strings.Count("\n"+text, "\n"+old.String()); n {
		case 1:
		case 0:
			return fmt.Errorf("fragment %d: its lines are not there:\n%s", i+1, old.String())
		default:
			return fmt.Errorf("fragment %d: its lines are there %d times:\n%s", i+1, n, old.String())
		}
		before, _, _ := strings.Cut("\n"+text, "\n"+old.String())
		at := int64(strings.Count(before, "\n")) + 1
		f.NewPosition += at - f.OldPosition
		f.OldPosition = at
	}
	return nil
}
