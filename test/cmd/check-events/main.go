// Command check-events reads the event logs of all processes of a group, as demo-consumer consume --events writes them, and says
// whether a partition ever had two owners, whether messages were handed out of order or by a member that did not own their
// partition, and whether tokens and committed offsets grew.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/kielgo/kiel/internal/eventlog"
)

const usage = `Usage: check-events [FLAG]... FILE...

Each FILE is the log of one process. Exit code 0: sound; 1: violated; 2: bad usage.

  -killed FILE=T   the process of FILE was killed at CLOCK_MONOTONIC T (ns);
                   without it a log that ends while partitions are owned is a fault
  -end TP=OFFSET   every offset of the partition below OFFSET must have been seen
  -exempt TP=T..T  the partition may have had two owners between these times:
                   a third party has removed a claim, a member or a session
  -wiped T..T      ZooKeeper lost all it knew between these times: tokens start
                   anew, and partitions may have had two owners
  -empty           logs without a single event are fine
  -json            print the report as JSON

TP is TOPIC:PARTITION.
`

// Exit codes.
const (
	exitSound = iota
	exitViolated
	exitUsage
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// arguments are the command line.
type arguments struct {
	killed      map[string]int64
	expect      eventlog.Expect
	empty, json bool
	files       []string
}

func run(args []string, out, errOut io.Writer) int {
	a, err := parse(args)
	if errors.Is(err, flag.ErrHelp) {
		fmt.Fprint(out, usage)
		return exitSound
	}
	if err != nil {
		fmt.Fprintf(errOut, "check-events: %v\n%s", err, usage)
		return exitUsage
	}
	logs, err := a.read()
	if err != nil {
		fmt.Fprintln(errOut, "check-events:", err)
		return exitUsage
	}
	report := eventlog.Check(logs, a.expect)
	if report.Events == 0 && !a.empty {
		fmt.Fprintln(errOut, "check-events: the logs hold no event; say -empty if that is fine")
		return exitUsage
	}
	if err := a.print(out, report); err != nil {
		fmt.Fprintln(errOut, "check-events:", err)
		return exitUsage
	}
	if !report.OK() {
		return exitViolated
	}
	return exitSound
}

func parse(args []string) (arguments, error) {
	a := arguments{killed: map[string]int64{}, expect: eventlog.Expect{End: map[eventlog.Partition]int64{}}}
	flags := flag.NewFlagSet("check-events", flag.ContinueOnError)
	flags.SetOutput(io.Discard) // run prints errors and usage
	flags.BoolVar(&a.empty, "empty", false, "")
	flags.BoolVar(&a.json, "json", false, "")
	flags.Func("killed", "", func(s string) error {
		file, at, found := cutLast(s, "=")
		if !found {
			return errors.New("want FILE=T")
		}
		n, err := strconv.ParseInt(at, 10, 64)
		a.killed[file] = n
		return err
	})
	flags.Func("end", "", func(s string) error {
		p, value, err := partition(s)
		if err != nil {
			return err
		}
		a.expect.End[p], err = strconv.ParseInt(value, 10, 64)
		return err
	})
	flags.Func("exempt", "", func(s string) error {
		p, value, err := partition(s)
		if err != nil {
			return err
		}
		exempt, err := span(value)
		a.expect.Exempt = append(a.expect.Exempt, eventlog.Exempt{Partition: p, Span: exempt})
		return err
	})
	flags.Func("wiped", "", func(value string) error {
		s, err := span(value)
		a.expect.Wiped = append(a.expect.Wiped, s)
		return err
	})
	if err := flags.Parse(args); err != nil {
		return a, err
	}
	a.files = flags.Args()
	if len(a.files) == 0 {
		return a, errors.New("no file")
	}
	for file := range a.killed {
		if !slices.Contains(a.files, file) {
			return a, fmt.Errorf("-killed %s: no such file among the arguments", file)
		}
	}
	return a, nil
}

// read reads all logs.
func (a *arguments) read() ([]eventlog.Log, error) {
	var logs []eventlog.Log
	for _, name := range a.files {
		f, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		events, err := eventlog.Read(f)
		if err := errors.Join(err, f.Close()); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		logs = append(logs, eventlog.Log{Name: name, Events: events, Killed: a.killed[name]})
	}
	return logs, nil
}

func (a *arguments) print(out io.Writer, report *eventlog.Report) error {
	if a.json {
		return json.NewEncoder(out).Encode(report)
	}
	_, err := fmt.Fprintln(out, report)
	return err
}

// partition takes "TOPIC:PARTITION=value" apart.
func partition(s string) (p eventlog.Partition, value string, err error) {
	name, value, found := cutLast(s, "=")
	topic, id, named := cutLast(name, ":")
	if !found || !named {
		return p, "", errors.New("want TOPIC:PARTITION=…")
	}
	n, err := strconv.ParseInt(id, 10, 32)
	return eventlog.Partition{Topic: topic, ID: int32(n)}, value, err
}

// span reads "FROM..TO".
func span(s string) (eventlog.Span, error) {
	from, to, found := strings.Cut(s, "..")
	if !found {
		return eventlog.Span{}, errors.New("want FROM..TO")
	}
	begin, err := strconv.ParseInt(from, 10, 64)
	end, bad := strconv.ParseInt(to, 10, 64)
	return eventlog.Span{From: begin, To: end}, errors.Join(err, bad)
}

func cutLast(s, sep string) (before, after string, found bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}
