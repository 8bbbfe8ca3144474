package main

import (
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/kielgo/kiel/consumer/inspect"
	"github.com/kielgo/kiel/status"
)

// groupLine is a group in a list.
type groupLine struct {
	Group      string     `json:"group"`
	Members    int        `json:"members"`
	Partitions int        `json:"partitions"`
	Owned      int        `json:"owned"`                    // partitions that members have claimed; members in Python claim nothing
	Waiting    int64      `json:"waiting"`                  // messages; -1 if that is not known
	Oldest     *time.Time `json:"oldest_waiting,omitempty"` // when the first of them was written
	Problems   int        `json:"problems"`                 // as far as one look finds them
}

// groupList is the JSON of groups.
type groupList struct {
	Version int         `json:"version"`
	Groups  []groupLine `json:"groups"`
}

// Run lists the groups.
func (c *groupsCmd) Run(a *app) error {
	defer a.slow("looking at all groups")()
	in, closeIt, err := a.open()
	if err != nil {
		return err
	}
	defer closeIt()
	names, err := in.Groups(a)
	if err != nil {
		return err
	}
	list := groupList{Version: inspect.Version}
	if list.Groups, err = a.lines(in, names); err != nil {
		return err
	}
	if a.Output == "json" {
		return a.out.json(list)
	}
	now := time.Now()
	rows := make([]table.Row, 0, len(list.Groups))
	for _, g := range list.Groups {
		behind := "-"
		switch {
		case g.Oldest != nil:
			behind = inspect.Age(*g.Oldest, now)
		case g.Waiting == 0:
			behind = "0s"
		}
		rows = append(rows, table.Row{g.Group, strconv.Itoa(g.Members), fmt.Sprintf("%d/%d", g.Owned, g.Partitions), behind, strconv.Itoa(g.Problems)})
	}
	a.out.table(table.Row{"GROUP", "MEMBERS", "OWNED", "BEHIND", "PROBLEMS"}, rows)
	return nil
}

// looks is how many groups are looked at at the same time.
const looks = 8

// lines looks at groups.
func (a *app) lines(in *inspect.Inspector, names []string) ([]groupLine, error) {
	lines, errs := make([]groupLine, len(names)), make([]error, len(names))
	var all sync.WaitGroup
	for first := range min(looks, len(names)) {
		all.Go(func() {
			for i := first; i < len(names); i += looks {
				var report *inspect.Report
				if report, errs[i] = in.Look(a, names[i], inspect.Options{MaxClaims: maxClaims}); errs[i] == nil {
					lines[i] = lineOf(report)
				}
			}
		})
	}
	all.Wait()
	return lines, errors.Join(errs...)
}

// lineOf returns a report as a line.
func lineOf(r *inspect.Report) groupLine {
	g := groupLine{Group: r.Group, Members: len(r.Members), Partitions: len(r.Partitions), Waiting: -1}
	for _, p := range r.Partitions {
		if p.State == status.Owned {
			g.Owned++
		}
		if p.Kafka == nil || p.Kafka.Waiting < 0 {
			continue
		}
		g.Waiting = max(g.Waiting, 0) + p.Kafka.Waiting
		if at := p.Kafka.Oldest; at != nil && (g.Oldest == nil || at.Before(*g.Oldest)) {
			g.Oldest = at
		}
	}
	g.Problems = r.Problems()
	return g
}
