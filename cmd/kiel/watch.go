package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/cmd/internal/connect"
	"github.com/kielgo/kiel/consumer/inspect"
	"github.com/kielgo/kiel/status"
)

// Run prints changes, one a line, until the process is told to stop.
func (c *watchCmd) Run(a *app) error {
	if err := kiel.CheckGroup(c.Group); err != nil {
		return connect.Usage(err)
	}
	if c.Every <= 0 {
		return connect.Usage(errors.New("--every must be positive"))
	}
	in, closeIt, err := a.open()
	if err != nil {
		return err
	}
	defer closeIt()
	fmt.Fprintln(a.err, "watching; Ctrl-C ends it")
	var failed error
	err = in.Follow(a, c.Group, c.Every, func(change inspect.Change) {
		if a.Output == "json" {
			line, err := json.Marshal(change) // one object a line
			failed = errors.Join(failed, err)
			a.out.line("%s", line)
			return
		}
		a.out.line("%s %s", clock(change.At, time.Now()), said(change))
	})
	return errors.Join(err, failed)
}

// said returns a change as text.
func said(c inspect.Change) string {
	because := ""
	if c.Reason != nil {
		because = " (" + c.Reason.String() + ")"
	}
	switch c.Kind {
	case inspect.MemberJoined:
		return c.Member + " joined"
	case inspect.MemberGone:
		how := ""
		if c.Reason != nil && c.Reason.Code == status.MemberLeft {
			how = " (left in order)"
		} else if c.Reason != nil && c.Reason.Code == status.MemberGone {
			how = " (did not leave, or the others saw it late)"
		}
		return fmt.Sprintf("%s gone%s, it had %d partitions", c.Member, how, c.Owned)
	case inspect.Claimed:
		if c.From == "" || c.From == c.To {
			return c.Partition + " claimed by " + c.To + because
		}
		return c.Partition + " " + c.From + " -> " + c.To + because
	case inspect.Blocked:
		return c.Partition + " has a znode without a session in the claim's place (kiel release shows it)"
	default:
		return c.Partition + " has no owner, before " + c.From
	}
}
