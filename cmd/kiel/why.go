package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/cmd/internal/connect"
	"github.com/kielgo/kiel/consumer/inspect"
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
		if slices.ContainsFunc([]string{tp.String(), tp.Topic, answer.Partition.Owner}, f.Concerns) {
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
	for _, line := range w.Partition.Why(r) {
		p.line("%s", line)
	}
	for _, f := range w.Findings {
		if strings.HasPrefix(f.Command, "kiel why ") {
			f.Command = "" // this one
		}
		p.finding(f, r, len(f.About()))
	}
}
