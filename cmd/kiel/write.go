package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/cmd/internal/connect"
	"github.com/kielgo/kiel/consumer/inspect"
	"github.com/kielgo/kiel/ownership"
)

// released is the JSON of release.
type released struct {
	Version   int              `json:"version"`
	Group     string           `json:"group"`
	Partition string           `json:"partition"`
	Znode     *ownership.Block `json:"znode"`
	Deleted   bool             `json:"deleted"`
}

// Run deletes a persistent znode in a claim's place, or shows what is there.
func (c *releaseCmd) Run(a *app) error {
	tp, err := kiel.ParsePartition(c.Partition)
	if err := errors.Join(err, kiel.CheckGroup(c.Group)); err != nil {
		return connect.Usage(err)
	}
	in, closeIt, err := a.open()
	if err != nil {
		return err
	}
	defer closeIt()
	b, err := in.Release(a, c.Group, tp, false)
	if err != nil {
		return err
	}
	switch {
	case !b.Exists:
		return fmt.Errorf("nothing is in the place of the claim of %s: any member may claim it", tp)
	case !b.Persistent:
		return fmt.Errorf("not released: %s belongs to session %s (owner %q%s) and goes with it; end the process that has the session: "+
			"the servers' command cons, or a member's log (session_id), says which", b.Path, b.Session, b.Owner, inspect.Since(b.Since, time.Now()))
	case b.Children > 0:
		return fmt.Errorf("not released: %s has %d children, so no claim was ever there; delete it by zkCli's deleteall", b.Path, b.Children)
	}
	if c.Yes {
		if b, err = in.Release(a, c.Group, tp, true); err != nil {
			return err
		}
	}
	if a.Output == "json" {
		return a.out.json(released{inspect.Version, c.Group, tp.String(), b, c.Yes})
	}
	if c.Yes {
		a.out.line("deleted %s; the member that is to own %s claims it within a session timeout", b.Path, tp)
		return nil
	}
	a.out.line("would delete %s: persistent, made%s, names %q", b.Path, inspect.Since(b.Since, time.Now()), b.Owner)
	a.out.line("Make sure that nobody works on %s because of it. Then repeat with --yes.", tp)
	return nil
}

// Run removes a topic from the group's set, or shows what would be removed.
func (c *removeTopicCmd) Run(a *app) error {
	if err := errors.Join(kiel.CheckTopic(c.Topic), kiel.CheckGroup(c.Group)); err != nil {
		return connect.Usage(err)
	}
	in, closeIt, err := a.open()
	if err != nil {
		return err
	}
	defer closeIt()
	if c.Yes {
		if err := in.RemoveTopic(a, c.Group, c.Topic); err != nil {
			return err
		}
	}
	report, err := in.Look(a, c.Group, inspect.Options{Topics: []string{c.Topic}, MaxClaims: maxClaims})
	if err == nil {
		err = needs(report)
	}
	if err != nil {
		return err
	}
	left := 0
	for _, p := range report.Partitions {
		if p.Topic == c.Topic {
			left++
		}
	}
	switch {
	case a.Output == "json":
		return a.out.json(struct {
			Version    int    `json:"version"`
			Group      string `json:"group"`
			Topic      string `json:"topic"`
			Partitions int    `json:"partitions"` // in the set now
			Removed    bool   `json:"removed"`
		}{inspect.Version, c.Group, c.Topic, left, c.Yes})
	case c.Yes:
		a.out.line("removed %s from the set; Kafka's topic and the group's offsets are as they were", c.Topic)
	case left == 0:
		return fmt.Errorf("topic %s is not in the group's set", c.Topic)
	default:
		a.out.line("would remove %d partitions of %s from the set, unless a member asks for the topic. Kafka's topic and the group's", left, c.Topic)
		a.out.line("offsets stay. Repeat with --yes.")
	}
	return nil
}

// Run shows stored offsets.
func (c *offsetsShowCmd) Run(a *app) error {
	report, err := a.look(c.Group, inspect.Options{Topics: c.Topic})
	if err == nil {
		err = needs(report)
	}
	if err != nil {
		return err
	}
	if report.Kafka.State != inspect.OK {
		return fmt.Errorf("offsets are in Kafka, which was not asked or did not answer: %s", report.Kafka.Error)
	}
	if a.Output == "json" {
		return a.out.json(report)
	}
	rows := []table.Row{}
	for _, p := range report.Partitions {
		o := p.Kafka
		if o == nil {
			continue
		}
		behind, by := "-", "not kiel"
		if o.Oldest != nil {
			behind = inspect.Age(*o.Oldest, report.At)
		}
		switch {
		case o.Committed < 0:
			by = ""
		case o.Tree != "" && o.Tree != report.Tree:
			by = "another tree, " + o.Tree
		case o.Token > 0:
			by = "token " + strconv.FormatInt(o.Token, 10)
		case o.Tree != "":
			by = "a reset"
		}
		id := kiel.Partition{Topic: p.Topic, ID: p.Partition.Partition}.String()
		rows = append(rows, table.Row{id, inspect.Number(o.Committed), inspect.Number(o.End), inspect.Number(o.Waiting), behind, by, o.Error})
	}
	a.out.table(table.Row{"PARTITION", "COMMITTED", "END", "WAIT", "BEHIND", "COMMITTED BY", ""}, rows)
	return nil
}

// Run stores offsets, or shows which would be stored.
func (c *offsetsResetCmd) Run(a *app) error {
	to, err := inspect.ParseTarget(c.To, time.Now())
	if err := errors.Join(err, kiel.CheckTopic(c.Topic), kiel.CheckGroup(c.Group)); err != nil {
		return connect.Usage(err)
	}
	if a.NoKafka {
		return connect.Usage(errors.New("offsets are in Kafka: leave --no-kafka out"))
	}
	defer a.slow("looking at ZooKeeper and Kafka")()
	in, closeIt, err := a.open()
	if err != nil {
		return err
	}
	defer closeIt()
	result, err := in.ResetOffsets(a, c.Group, inspect.Reset{Topic: c.Topic, Partitions: c.Partition, To: to, Write: c.Yes, AnyTree: c.AnyTree})
	switch {
	case errors.Is(err, inspect.ErrInUse) && !errors.Is(err, inspect.ErrChanged):
		return fmt.Errorf("refused: %w", err)
	case errors.Is(err, inspect.ErrOtherTree) && result == nil:
		return fmt.Errorf("refused: %w; if that tree is gone, add --any-tree", err)
	case result == nil:
		return err
	case a.Output == "json":
		return errors.Join(a.out.json(result), err)
	}
	rows := make([]table.Row, len(result.Partitions))
	for i, p := range result.Partitions {
		id := kiel.Partition{Topic: result.Topic, ID: p.Partition}.String()
		rows[i] = table.Row{id, inspect.Number(p.Start), inspect.Number(p.End), inspect.Number(p.From), inspect.Number(p.To), p.Error}
	}
	a.out.table(table.Row{"PARTITION", "START", "END", "STORED", "NEW", ""}, rows)
	switch {
	case err != nil:
	case result.Written:
		a.out.line("stored, and looked at once more: they are as above, and the group has no members and no claims.")
		for line := range strings.SplitSeq(wrapped(result.NotExcluded, 0), "\n") {
			a.out.line("%s", line)
		}
	default:
		a.out.line("nothing is stored yet: repeat with --yes.")
	}
	return err
}
