package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
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
	fmt.Fprintln(p.w, clean(fmt.Sprintf(format, args...)))
}

// json prints a value. What a terminal would obey is escaped, as in texts.
func (p printer) json(v any) error {
	data, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	lines := strings.Split(string(data), "\n")
	for i := range lines {
		lines[i] = clean(lines[i])
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
				row[i] = clean(s)
			}
		}
		t.AppendRow(row)
	}
	for line := range strings.SplitSeq(t.Render(), "\n") {
		fmt.Fprintln(p.w, strings.TrimRight(line, " "))
	}
}

// clean returns a text without anything that a terminal obeys or hides: such characters become \uXXXX, as in JSON.
func clean(s string) string {
	if !strings.ContainsFunc(s, unsafe) {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		switch {
		case !unsafe(r):
			b.WriteRune(r)
		case r > 0xffff:
			fmt.Fprintf(&b, `\u%04x\u%04x`, 0xd800+(r-0x10000)>>10, 0xdc00+(r-0x10000)&0x3ff)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}

func unsafe(r rune) bool { return r == utf8.RuneError || !unicode.IsPrint(r) }

// clock returns a moment as texts have it: the time of day, with the day if it is not that of now.
func clock(at, now time.Time) string {
	at, now = at.UTC(), now.UTC()
	if at.Format(time.DateOnly) == now.Format(time.DateOnly) {
		return at.Format(time.TimeOnly)
	}
	return at.Format(time.DateTime)
}

// since returns " since …", "" if it is not known.
func since(at *time.Time, now time.Time) string {
	if at == nil {
		return ""
	}
	return " since " + clock(*at, now)
}

// age returns how old a moment is, in two units.
func age(at, now time.Time) string {
	switch d := max(now.Sub(at), 0); {
	case d < 10*time.Second:
		return fmt.Sprintf("%.1fs", d.Seconds())
	case d < time.Hour:
		return d.Round(time.Second).String()
	case d < 48*time.Hour:
		return strings.TrimSuffix(d.Round(time.Minute).String(), "0s")
	default:
		return fmt.Sprintf("%dd", int(d.Hours())/24)
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
