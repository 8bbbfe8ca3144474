package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/cmd/internal/connect"
	"github.com/kielgo/kiel/consumer/inspect"
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
		a.out.line("%s %s", inspect.Clock(change.At, time.Now()), change)
	})
	return errors.Join(err, failed)
}
