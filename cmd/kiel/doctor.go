package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/kielgo/kiel/cmd/internal/connect"
	"github.com/kielgo/kiel/consumer/inspect"
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
	if err == nil && problems(report) > 0 {
		err = errProblems
	}
	return err
}

// doctor prints the findings.
func (p printer) doctor(r *inspect.Report) {
	p.line("%s at %s UTC: %s (%s)", r.Group, clock(r.At, r.At), verdict(r), sources(r))
	width := 0
	for _, f := range r.Findings {
		width = min(max(width, len(about(f))), 24)
	}
	for _, f := range r.Findings {
		p.finding(f, r, width)
	}
}

func verdict(r *inspect.Report) string {
	switch n := problems(r); n {
	case 0:
		if !complete(r) {
			return "no problem found, not all could be seen"
		}
		return "all well"
	case 1:
		return "1 problem"
	default:
		return fmt.Sprintf("%d problems", n)
	}
}

// complete returns whether all sources have shown all that was asked.
func complete(r *inspect.Report) bool {
	return r.ZooKeeper.State == inspect.OK && r.Kafka.State == inspect.OK && r.Claims && len(r.ZooKeeper.Missed)+len(r.Kafka.Missed) == 0 &&
		!slices.ContainsFunc(r.Findings, func(f inspect.Finding) bool { return f.Kind == inspect.ProgressUnknown })
}

// sources returns which sources have answered.
func sources(r *inspect.Report) string {
	zk := string(r.ZooKeeper.State)
	if len(r.Servers) > 0 {
		up := 0
		for _, s := range r.Servers {
			if s.OK {
				up++
			}
		}
		zk = fmt.Sprintf("%d/%d", up, len(r.Servers))
	}
	words := []string{"ZooKeeper " + zk + ", Kafka " + string(r.Kafka.State)}
	asked, answered := 0, 0
	for _, a := range r.Answers {
		switch a.State {
		case inspect.OK:
			answered++
			asked++
		case inspect.Failed:
			asked++
			words = append(words, a.Member+" did not answer: "+a.Error)
		case inspect.NotAsked:
		}
	}
	if asked > 0 {
		words[0] += fmt.Sprintf(", %d of %d members answered", answered, asked)
		words = words[:min(len(words), 4)] // a few are enough
	}
	for _, missed := range slices.Concat(r.ZooKeeper.Missed, r.Kafka.Missed) {
		words = append(words, "not seen: "+missed)
	}
	return strings.Join(words, "; ")
}

// finding prints a finding, of which the object has so many columns.
func (p printer) finding(f inspect.Finding, r *inspect.Report, width int) {
	mark := p.paint("!", text.FgRed, text.Bold)
	if f.Severity == inspect.Note {
		mark = p.paint("i", text.FgCyan)
	}
	indent := width + 4
	fmt.Fprintf(p.w, "%s %-*s  %s\n", mark, width, clean(about(f)), wrapped(clean(f.Text), indent))
	do := ""
	if f.Do != "" {
		do = wrapped(clean("do: "+f.Do), indent)
	}
	for _, more := range []struct{ label, text string }{{"", effect(f, r)}, {"", do}, {"run: ", clean(f.Command)}, {"runbook: ", clean(f.Runbook)}} { // the last two are copied: one line each
		if more.text != "" {
			fmt.Fprintf(p.w, "%s%s%s\n", strings.Repeat(" ", indent), more.label, more.text)
		}
	}
}

// effect returns since when something is wrong, and what it costs.
func effect(f inspect.Finding, r *inspect.Report) string {
	var parts []string
	switch {
	case f.Since != nil && f.Kind == inspect.MemberWent:
		parts = append(parts, fmt.Sprintf("at %s (%s ago)", clock(*f.Since, r.At), age(*f.Since, r.At)))
	case f.Since != nil:
		parts = append(parts, fmt.Sprintf("since %s (%s)", clock(*f.Since, r.At), age(*f.Since, r.At)))
	case f.Severity == inspect.Problem && f.Kind != inspect.NoGroup:
		parts = append(parts, "since when is not known")
	}
	switch {
	case f.Waiting == 1:
		parts = append(parts, "1 message waits")
	case f.Waiting > 1:
		parts = append(parts, fmt.Sprintf("%d messages wait", f.Waiting))
	}
	return strings.Join(parts, ", ")
}

// about returns the objects of a finding.
func about(f inspect.Finding) string {
	switch n := len(f.Objects) + f.More; n {
	case 0:
		return "the group"
	case 1:
		return f.Objects[0]
	default:
		return fmt.Sprintf("%s +%d more", f.Objects[0], n-1)
	}
}
