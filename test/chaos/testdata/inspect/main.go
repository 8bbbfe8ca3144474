// Command inspect prints what package ownership tells of a group: inspect HOST:PORT,… GROUP. It is compiled within an earlier
// version of this repository, whose package it shows; see TestRollingUpgrade.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/kielgo/kiel/ownership"
	"github.com/kielgo/kiel/session"
)

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	err := inspect(ctx, strings.Split(os.Args[1], ","), os.Args[2])
	cancel()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func inspect(ctx context.Context, servers []string, group string) error {
	s, err := session.New(servers, session.Options{})
	if err != nil {
		return err
	}
	running, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- s.Run(running) }()
	found, err := ownership.Inspect(ctx, s, group)
	stop()
	<-ended
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(found)
}
