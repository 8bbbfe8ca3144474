package main

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/kielgo/kiel/internal/eventlog"
)

const columns = 78 // columns; readable on an 80-column terminal

// ui prints the demo. Colour is used on a terminal only, and never when NO_COLOR is set.
type ui struct {
	w      io.Writer
	colour bool
}

func newUI(w io.Writer) ui {
	f, ok := w.(*os.File)
	if !ok {
		return ui{w: w}
	}
	info, err := f.Stat()
	terminal := err == nil && info.Mode()&os.ModeCharDevice != 0
	return ui{w: w, colour: terminal && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"}
}

func (u ui) paint(s string, colours ...text.Color) string {
	if !u.colour {
		return s
	}
	text.EnableColors() // u.colour decides, not the library's own guess
	return text.Colors(colours).Sprint(s)
}

func (u ui) say(format string, args ...any) {
	fmt.Fprintln(u.w, wrap(fmt.Sprintf(format, args...), columns, ""))
}

func (u ui) step(n int, title, why string) {
	fmt.Fprintf(u.w, "\n%s\n%s\n", u.paint(fmt.Sprintf("%d. %s", n, title), text.Bold), wrap(why, columns, "   "))
}

// table shows who owns what.
func (u ui) table(s state, owners []string, all int, took time.Duration) {
	held := map[string][]int{}
	for p, owner := range s.owners {
		held[owner] = append(held[owner], int(p.ID))
	}
	t := table.NewWriter()
	t.SetOutputMirror(u.w)
	t.SetStyle(table.StyleLight)
	t.AppendHeader(table.Row{"member", "owns", "partitions of " + demoTopic})
	for _, name := range owners {
		ids := held[name]
		slices.Sort(ids)
		words := make([]string, len(ids))
		for i, id := range ids {
			words[i] = strconv.Itoa(id)
		}
		t.AppendRow(table.Row{name, len(ids), strings.Join(words, " ")})
	}
	t.Render()
	fmt.Fprintf(u.w, "all %d owned after %.2f s; %d messages seen, %d duplicates, %s\n",
		all, took.Seconds(), s.messages, s.duplicates, u.good(s.lost, "lost"))
}

func (u ui) good(n int, what string) string {
	colour := text.FgGreen
	if n > 0 {
		colour = text.FgRed
	}
	return u.paint(fmt.Sprintf("%d %s", n, what), colour)
}

func (u ui) verdict(r *eventlog.Report, produced int, took time.Duration) {
	fmt.Fprintf(u.w, "\n%s\n", u.paint("Summary", text.Bold))
	fmt.Fprintf(u.w, "%d messages produced, %d seen, %d duplicates (after the crash), %s\n",
		produced, r.Distinct, r.Duplicates, u.good(r.Lost, "lost"))
	fmt.Fprintf(u.w, "%d partitions in %d tenures, %s at once\n", r.Partitions, r.Tenures, u.good(r.Overlaps, "owned by two members"))
	if r.OK() {
		fmt.Fprintf(u.w, "%s in %.0f s: nothing lost, nothing owned twice.\n", u.paint("All well", text.FgGreen, text.Bold), took.Seconds())
		return
	}
	fmt.Fprintln(u.w, u.paint("NOT WELL:", text.FgRed, text.Bold))
	for _, v := range r.Violations {
		fmt.Fprintln(u.w, wrap(v, columns, "  "))
	}
}
