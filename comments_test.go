package kiel_test

import (
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

const (
	column = 130 // where comments are wrapped, a tab counting as four
	early  = 100 // all lines of a paragraph end before it: it was wrapped at another column
)

// Comments are wrapped at one column in all files, as CONTRIBUTING.md says.
func TestCommentsAreWrapped(t *testing.T) {
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && slices.Contains([]string{".git", "out", "testdata"}, d.Name()):
			return filepath.SkipDir
		case !d.IsDir() && filepath.Ext(path) == ".go":
			checkComments(t, path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func checkComments(t *testing.T, path string) {
	t.Helper()
	text := read(t, path)
	lines := strings.Split(text, "\n")
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, path, text, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	for _, group := range file.Comments {
		first, last := files.Position(group.Pos()).Line, files.Position(group.End()).Line
		for _, p := range paragraphs(lines[first-1 : last]) {
			where := first + p.first
			switch {
			case p.long():
				t.Errorf("%s:%d: a line of this comment goes beyond column %d", path, where, column)
			case p.early():
				t.Errorf("%s:%d: the words of this comment fit into fewer lines: wrap it at column %d", path, where, column)
			}
		}
	}
}

// paragraph is a part of a comment whose lines are wrapped: sentences, or an item of a list.
type paragraph struct {
	first int // its first line in the comment
	lines []string
}

var (
	proseLine = regexp.MustCompile(`^\t*// ?[^\s#+]`)                 // the beginning of a paragraph, or its next line
	itemLine  = regexp.MustCompile(`^\t*//  +(-|\d+\.) \S`)           // the beginning of an item
	itemNext  = regexp.MustCompile(`^\t*//    +[^\s-]`)               // the next line of an item
	noProse   = regexp.MustCompile(`^\t*//(\S|.*\S {2,}\S)`)          // a directive, or columns
	endsProse = regexp.MustCompile(`(?i)^\t*// (unordered )?output:`) // of an example
)

// paragraphs returns those of the lines of a comment that stand by themselves.
func paragraphs(lines []string) (all []paragraph) {
	open := false
	for i, line := range lines {
		item := itemLine.MatchString(line)
		switch {
		case endsProse.MatchString(line):
			return all
		case noProse.MatchString(line):
			open = false
		case item, proseLine.MatchString(line) && !open:
			all = append(all, paragraph{i, []string{line}})
			open = true
		case open && (proseLine.MatchString(line) || itemNext.MatchString(line)):
			p := &all[len(all)-1]
			p.lines = append(p.lines, line)
		default:
			open = false
		}
	}
	return all
}

func width(line string) int {
	return utf8.RuneCountInString(strings.ReplaceAll(line, "\t", "    "))
}

// long reports whether a line that could be shorter goes beyond the column.
func (p paragraph) long() bool {
	return slices.ContainsFunc(p.lines, func(line string) bool {
		return width(line) > column && strings.Count(strings.TrimSpace(line), " ") > 1
	})
}

// early reports whether all lines end early, though the first word of the next one would fit.
func (p paragraph) early() bool {
	for i, line := range p.lines {
		if width(line) >= early {
			return false
		}
		if i+1 < len(p.lines) {
			next := strings.Fields(strings.TrimLeft(p.lines[i+1], "\t/ "))
			if width(line)+1+utf8.RuneCountInString(next[0]) > column {
				return false
			}
		}
	}
	return len(p.lines) > 1
}
