package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/cmd/internal/connect"
	"github.com/kielgo/kiel/consumer/inspect"
)

// Run shows members and partitions.
func (c *describeCmd) Run(a *app) error {
	for _, t := range c.Topic {
		if err := kiel.CheckTopic(t); err != nil {
			return connect.Usage(fmt.Errorf("--topic: %w", err))
		}
	}
	report, err := a.look(c.Group, inspect.Options{Topics: c.Topic, MaxClaims: maxClaims})
	if err != nil {
		return err
	}
	if err := needs(report); err != nil {
		return err
	}
	if a.Output == "json" {
		return a.out.json(report)
	}
	a.out.line("%s at %s UTC: %d members, %d partitions, %s (%s)", report.Group, inspect.Clock(report.At, report.At), len(report.Members),
		len(report.Partitions), report.Verdict(), report.Asked())
	if c.Section != "partitions" {
		a.out.line("")
		a.out.members(report)
	}
	if c.Section != "members" {
		a.out.line("")
		a.out.partitions(report, c.Topic)
	}
	return nil
}

// members prints the members.
func (p printer) members(r *inspect.Report) {
	rows := make([]table.Row, len(r.Members))
	for i, m := range r.Members {
		where, joined := m.Host, "-"
		if m.PID > 0 {
			where += ":" + strconv.Itoa(m.PID)
		}
		if m.Since != nil {
			joined = inspect.Clock(*m.Since, r.At)
		}
		owned := "-"
		if m.Owned != nil && len(m.Functions) > 0 && r.Claims {
			owned = strconv.Itoa(*m.Owned)
		}
		rows[i] = table.Row{m.Name, joined, owned, where, strings.Join(m.Functions, ","), strings.Join(m.Topics, ","), m.Zone, m.Session}
	}
	p.table(table.Row{"MEMBER", "SINCE", "OWNED", "PROCESS", "FUNCTIONS", "TOPICS", "ZONE", "SESSION"}, rows)
}

// partitions prints the partitions of these topics, or of all.
func (p printer) partitions(r *inspect.Report, topics []string) {
	if !r.Claims {
		p.line("too many partitions to show: add --topic")
		return
	}
	var rows []table.Row
	for _, one := range r.Partitions {
		if len(topics) > 0 && !slices.Contains(topics, one.Topic) {
			continue
		}
		owner, at := one.Holder(), "-"
		if one.Since != nil {
			at = inspect.Clock(*one.Since, r.At)
		}
		because := ""
		if one.Reason != nil {
			because = one.Reason.String()
		}
		committed, end, waiting, behind := "-", "-", "-", "-"
		if o := one.Kafka; o != nil {
			committed, end, waiting = inspect.Number(o.Committed), inspect.Number(o.End), inspect.Number(o.Waiting)
			if o.Oldest != nil {
				behind = inspect.Age(*o.Oldest, r.At)
			}
		}
		rows = append(rows, table.Row{
			kiel.Partition{Topic: one.Topic, ID: one.Partition.Partition}.String(), owner, at, committed, end, waiting, behind, one.Previous, because,
		})
	}
	p.table(table.Row{"PARTITION", "OWNER", "SINCE", "COMMITTED", "END", "WAIT", "BEHIND", "BEFORE", "BECAUSE"}, rows)
}
