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
	"github.com/kielgo/kiel/status"
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
	a.out.line("%s at %s UTC: %d members, %d partitions, %s (%s)", report.Group, clock(report.At, report.At), len(report.Members),
		len(report.Partitions), verdict(report), sources(report))
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
			joined = clock(*m.Since, r.At)
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
		owner, at := owned(one), "-"
		if one.Since != nil {
			at = clock(*one.Since, r.At)
		}
		because := ""
		if one.Reason != nil {
			because = one.Reason.String()
		}
		committed, end, waiting, behind := "-", "-", "-", "-"
		if o := one.Kafka; o != nil {
			committed, end, waiting = number(o.Committed), number(o.End), number(o.Waiting)
			if o.Oldest != nil {
				behind = age(*o.Oldest, r.At)
			}
		}
		rows = append(rows, table.Row{
			kiel.Partition{Topic: one.Topic, ID: one.Partition.Partition}.String(), owner, at, committed, end, waiting, behind, one.Previous, because,
		})
	}
	p.table(table.Row{"PARTITION", "OWNER", "SINCE", "COMMITTED", "END", "WAIT", "BEHIND", "BEFORE", "BECAUSE"}, rows)
}

// owned returns who owns a partition, and for whom it is planned if that is another.
func owned(p inspect.Partition) string {
	switch {
	case p.State != status.Owned && p.Planned != "":
		return "(" + string(p.State) + ", for " + p.Planned + ")"
	case p.State != status.Owned:
		return "(" + string(p.State) + ")"
	case p.Planned != "" && p.Planned != p.Owner:
		return p.Owner + " -> " + p.Planned
	default:
		return p.Owner
	}
}

// number returns a number, "-" if it is not known.
func number(n int64) string {
	if n < 0 {
		return "-"
	}
	return strconv.FormatInt(n, 10)
}
