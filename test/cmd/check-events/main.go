// Command check-events reads the event logs of all processes of a group, as
// demo-consumer consume --events writes them, and says whether a partition ever
// had two owners, whether messages were handed out of order or by a member that
// did not own their partition, and whether tokens and committed offsets grew.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/kielgo/kiel/internal/eventlog"
)

const usage = `Usage: check-events [-killed FILE=T]... [-end TOPIC:PARTITION=OFFSET]... FILE...

Each FILE is the log of one process. Exit code 0: sound; 1: violated; 2: bad usage.

  -killed FILE=T   the process of FILE was killed at CLOCK_MONOTONIC T (ns);
                   without it a log that ends while partitions are owned is a fault
  -end TP=OFFSET   every offset of the partition below OFFSET must have been seen
`

func main() { os.Exit(run(os.Args[1:])) }

func run(args []string) int {
	killed := map[string]int64{}
	expect := eventlog.Expect{End: map[eventlog.Partition]int64{}}
	flags := flag.NewFlagSet("check-events", flag.ContinueOnError)
	flags.Usage = func() { fmt.Fprint(os.Stderr, usage) }
	flags.Func("killed", "", func(s string) error {
		file, n, err := assignment(s)
		killed[file] = n
		return err
	})
	flags.Func("end", "", func(s string) error {
		name, n, err := assignment(s)
		if err != nil {
			return err
		}
		i := strings.LastIndexByte(name, ':')
		if i < 0 {
			return errors.New("want TOPIC:PARTITION=OFFSET")
		}
		id, err := strconv.ParseInt(name[i+1:], 10, 32)
		expect.End[eventlog.Partition{Topic: name[:i], ID: int32(id)}] = n
		return err
	})
	if err := flags.Parse(args); err != nil || flags.NArg() == 0 {
		if err == nil {
			flags.Usage()
		}
		return 2
	}
	var logs []eventlog.Log
	for _, name := range flags.Args() {
		f, err := os.Open(name)
		if err != nil {
			fmt.Fprintln(os.Stderr, "check-events:", err)
			return 2
		}
		events, err := eventlog.Read(f)
		err = errors.Join(err, f.Close())
		if err != nil {
			fmt.Fprintf(os.Stderr, "check-events: %s: %v\n", name, err)
			return 2
		}
		logs = append(logs, eventlog.Log{Name: name, Events: events, Killed: killed[name]})
	}
	report := eventlog.Check(logs, expect)
	fmt.Println(report)
	if !report.OK() {
		return 1
	}
	return 0
}

func assignment(s string) (name string, n int64, err error) {
	name, value, found := strings.Cut(s, "=")
	if !found {
		return "", 0, errors.New("want NAME=NUMBER")
	}
	n, err = strconv.ParseInt(value, 10, 64)
	return name, n, err
}
