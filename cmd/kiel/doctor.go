package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/kielgo/kiel/cmd/internal/connect"
	"github.com/kielgo/kiel/consumer/inspect"
	"github.com/kielgo/kiel/internal/plain"
)

// Run says what is wrong with a group.
func (c *doctorCmd) Run(a *app) error {
	if c.Window <= 0 {
		return connect.Usage(errors.New("--window must be positive"))
	}
	fmt.Fprintf(a.err, "looking twice, %v apart …\n", c.Window)
	report, err := a.look(c.Group, inspect.Options{Window: c.Window, Thorough: true})
	if err != nil {
		return err
	}
	if a.Output == "json" {
		err = a.out.json(report)
	} else {
		a.out.doctor(report)
	}
	if err == nil && report.Problems() > 0 {
		err = errProblems
	}
	return err
}

// doctor prints the findings.
func (p printer) doctor(r *inspect.Report) {
	p.line("%s at %s UTC: %s (%s)", r.Group, inspect.Clock(r.At, r.At), r.Verdict(), r.Asked())
	width := 0
	for _, f := range r.Findings {
		width = min(max(width, len(f.About())), 24)
	}
	for _, f := range r.Findings {
		p.finding(f, r, width)
	}
}

// finding prints a finding, of which the object has so many columns.
func (p printer) finding(f inspect.Finding, r *inspect.Report, width int) {
	mark := p.paint("!", text.FgRed, text.Bold)
	if f.Severity == inspect.Note {
		mark = p.paint("i", text.FgCyan)
	}
	indent := width + 4
	fmt.Fprintf(p.w, "%s %-*s  %s\n", mark, width, plain.Text(f.About()), wrapped(plain.Text(f.Text), indent))
	do := ""
	if f.Do != "" {
		do = wrapped(plain.Text("do: "+f.Do), indent)
	}
	for _, more := range []struct{ label, text string }{{"", f.Effect(r.At)}, {"", do}, {"run: ", plain.Text(f.Command)}, {"runbook: ", plain.Text(f.Runbook)}} { // the last two are copied: one line each
		if more.text != "" {
			fmt.Fprintf(p.w, "%s%s%s\n", strings.Repeat(" ", indent), more.label, more.text)
		}
	}
}
