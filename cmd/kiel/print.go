package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"unicode/utf8"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/kielgo/kiel/internal/plain"
)

const page = 80 // columns

// printer prints to standard output. Colour is used on a terminal only, and never when NO_COLOR is set.
type printer struct {
	w      io.Writer
	colour bool
}

func newPrinter(w io.Writer) printer {
	f, ok := w.(*os.File)
	if !ok {
		return printer{w: w}
	}
	info, err := f.Stat()
	terminal := err == nil && info.Mode()&os.ModeCharDevice != 0
	return printer{w: w, colour: terminal && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"}
}

func (p printer) paint(s string, colours ...text.Color) string {
	if !p.colour {
		return s
	}
	text.EnableColors() // p.colour decides, not the library's own guess
	return text.Colors(colours).Sprint(s)
}

// line prints one line, of which the arguments may be anybody's texts.
func (p printer) line(format string, args ...any) {
	fmt.Fprintln(p.w, plain.Text(fmt.Sprintf(format, args...)))
}

// json prints a value. What a terminal would obey is escaped, as in texts.
func (p printer) json(v any) error {
	data, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	lines := strings.Split(string(data), "\n")
	for i := range lines {
		lines[i] = plain.Text(lines[i])
	}
	_, err = fmt.Fprintln(p.w, strings.Join(lines, "\n"))
	return err
}

// table prints rows below a header, in columns.
func (p printer) table(header table.Row, rows []table.Row) {
	t := table.NewWriter()
	style := table.StyleDefault
	style.Options = table.OptionsNoBordersAndSeparators
	style.Box.PaddingLeft, style.Box.PaddingRight = "", "  "
	t.SetStyle(style)
	t.AppendHeader(header)
	for _, row := range rows {
		for i, cell := range row {
			if s, ok := cell.(string); ok {
				row[i] = plain.Text(s)
			}
		}
		t.AppendRow(row)
	}
	for line := range strings.SplitSeq(t.Render(), "\n") {
		fmt.Fprintln(p.w, strings.TrimRight(line, " "))
	}
}

// wrapped returns a text in lines of at most a page, of which all but the first are indented by so many columns.
func wrapped(s string, indent int) string {
	var b strings.Builder
	column := 0
	for i, word := range strings.Fields(s) {
		n := utf8.RuneCountInString(word)
		switch {
		case i == 0:
		case column+1+n > page-indent:
			b.WriteString("\n" + strings.Repeat(" ", indent))
			column = 0
		default:
			b.WriteByte(' ')
			column++
		}
		b.WriteString(word)
		column += n
	}
	return b.String()
}
