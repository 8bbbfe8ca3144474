package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/cmd/internal/connect"
	"github.com/kielgo/kiel/consumer/inspect"
	"github.com/kielgo/kiel/status"
)

// whyAnswer is the JSON of why.
type whyAnswer struct {
	Version   int               `json:"version"`
	Group     string            `json:"group"`
	Partition inspect.Partition `json:"partition"`
	Findings  []inspect.Finding `json:"findings"` // about the partition, its topic or its owner
}

// Run tells all about one partition.
func (c *whyCmd) Run(a *app) error {
	tp, err := kiel.ParsePartition(c.Partition)
	if err != nil {
		return connect.Usage(err)
	}
	report, err := a.look(c.Group, inspect.Options{Topics: []string{tp.Topic}})
	if err != nil {
		return err
	}
	if err := needs(report); err != nil {
		return err
	}
	i := slices.IndexFunc(report.Partitions, func(p inspect.Partition) bool { return p.Topic == tp.Topic && p.Partition.Partition == tp.ID })
	if i < 0 {
		return fmt.Errorf("partition %s is not in the group's set: no member has added it (kiel describe %s shows the set)", tp, c.Group)
	}
	answer := whyAnswer{Version: inspect.Version, Group: c.Group, Partition: report.Partitions[i], Findings: []inspect.Finding{}}
	for _, f := range report.Findings {
		if slices.ContainsFunc([]string{tp.String(), tp.Topic, answer.Partition.Owner}, func(s string) bool { return slices.Contains(f.Objects, s) }) {
			answer.Findings = append(answer.Findings, f)
		}
	}
	if a.Output == "json" {
		return a.out.json(answer)
	}
	a.out.why(&answer, report)
	return nil
}

func (p printer) why(w *whyAnswer, r *inspect.Report) {
	one := w.Partition
	first := "no owner"
	if one.State == status.Owned {
		first = fmt.Sprintf("owner %s%s (token %d)", one.Owner, since(one.Since, r.At), one.Token)
	} else if one.State != status.Free {
		first = "no owner: " + string(one.State) + since(one.Since, r.At)
	}
	if one.Previous != "" {
		first += ", before " + one.Previous
	}
	if one.Reason != nil {
		first += ", because " + one.Reason.String()
	}
	if one.Planned != "" {
		first += "; planned for " + one.Planned
	}
	p.line("%s", first)
	if one.WaitsFor != "" {
		p.line("%s says that it waits for %s", cmp.Or(one.Owner, one.Planned), one.WaitsFor)
	}
	if o := one.Kafka; o != nil {
		second := fmt.Sprintf("committed %s of %s, %s behind", number(o.Committed), number(o.End), number(o.Waiting))
		if o.Oldest != nil {
			second += fmt.Sprintf(" (%s)", age(*o.Oldest, r.At))
		}
		if o.Token > 0 && o.Token != one.Token {
			second += fmt.Sprintf("; by an owner before, with token %d", o.Token)
		}
		if o.Error != "" {
			second += "; " + o.Error
		}
		p.line("%s", second)
		if own := one.Offsets; own != nil {
			p.line("handler at %s, marked %s, takes no message since %.1f s", number(own.Position), number(own.Marked), own.Stalled)
		}
	} else {
		p.line("offsets are not known: Kafka %s", r.Kafka.State)
	}
	for _, f := range w.Findings {
		if strings.HasPrefix(f.Command, "kiel why ") {
			f.Command = "" // this one
		}
		p.finding(f, r, len(about(f)))
	}
}
