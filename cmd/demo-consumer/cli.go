package main

import (
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/alecthomas/kong"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/cmd/internal/connect"
)

const (
	helpWidth   = 80
	description = `Shares the partitions of Kafka topics among the members of a group that meet in ZooKeeper. Without a command it plays a narrated scenario on embedded servers: no ZooKeeper, Kafka, Java or Docker needed.`
	examples    = `Examples:
  demo-consumer                           the narrated scenario, under a minute
  demo-consumer --keep                    and then a group to watch as a page
  demo-consumer servers                   an embedded ZooKeeper and Kafka
  demo-consumer consume --print value     a member; start some, in terminals
  demo-consumer produce --rate 20 --count 1000
                                          made-up orders, 20 a second
  demo-consumer produce --keyed FILE      "key<TAB>value" lines of a file
  seq 100 | demo-consumer produce -       lines from standard input

Every flag can be given by the environment variable named behind it.
Exit codes: 0 all well; 1 failed (demo: lost or owned twice); 2 bad usage.
`
)

// cli is the command line.
type cli struct {
	Demo    demoCmd    `cmd:"" default:"withargs" help:"Play the narrated scenario on embedded servers (the default)."`
	Produce produceCmd `cmd:"" help:"Write messages to a topic: lines of a file, or made-up orders."`
	Consume consumeCmd `cmd:"" help:"Be one member of a group and consume."`
	Page    pageCmd    `cmd:"" help:"Serve a group as a page, without being a member of it."`
	Servers serversCmd `cmd:"" help:"Run the embedded ZooKeeper and Kafka until stopped."`

	Version kong.VersionFlag `help:"Show the version."`
}

type produceCmd struct {
	connect.KafkaFlags
	Topic      []string `default:"orders" env:"KIEL_TOPIC" help:"Topic to write to (${default}), created when missing; repeatable: each message goes to the next."`
	Partitions int32    `default:"12" env:"KIEL_PARTITIONS" help:"Partitions of a topic that is created (${default})."`
	Keyed      bool     `env:"KIEL_KEYED" help:"Lines are key<TAB>value."`
	Rate       float64  `default:"10" env:"KIEL_RATE" help:"Made-up orders a second (${default}); 0: as fast as possible."`
	Count      int64    `default:"0" env:"KIEL_COUNT" help:"Stop after so many messages; 0: go on until stopped, or until the file ends."`
	File       string   `arg:"" optional:"" help:"File with one message a line, - for standard input; without it orders are made up."`

	// A producer needs neither; one set of flags serves produce and consume.
	ZooKeeper string `name:"zookeeper" env:"KIEL_ZOOKEEPER" placeholder:"HOST:PORT,…" help:"Not used: accepted so that produce takes consume's flags."`
	Group     string `env:"KIEL_GROUP" help:"Not used: accepted so that produce takes consume's flags."`
}

type consumeCmd struct {
	connect.ZooKeeperFlags
	connect.KafkaFlags
	Group          string        `default:"demo" env:"KIEL_GROUP" help:"Group to join (${default})."`
	Topic          []string      `default:"orders" env:"KIEL_TOPIC" help:"Topic to consume (${default}); repeatable."`
	Name           string        `env:"KIEL_NAME" help:"Name of this member; by default host:pid."`
	Static         bool          `env:"KIEL_STATIC" help:"Stay a member, with --name, for the session timeout after an orderly stop or a crash: a process that starts under that name meanwhile moves no partition of another member."`
	Function       []string      `default:"balanced,roundrobin" enum:"${functions}" env:"KIEL_FUNCTION" help:"Allocation functions this member can run, the preferred first (${default}): any of ${enum}. All members need one in common; members written in Python run roundrobin."`
	Weight         int           `default:"1" env:"KIEL_WEIGHT" help:"This member's share of the partitions compared with others' (${default}), if the function goes by weights: ${weighted}."`
	Zone           string        `env:"KIEL_ZONE" help:"Where this member runs: it prefers partitions led by brokers with this broker.rack, and fetches from replicas there if Kafka is set up for it."`
	SessionTimeout time.Duration `default:"10s" env:"KIEL_SESSION_TIMEOUT" help:"ZooKeeper session timeout to ask for (${default}): a crashed member's partitions are free after it."`
	MaxTimeout     time.Duration `default:"40s" name:"max-session-timeout" env:"KIEL_MAX_SESSION_TIMEOUT" help:"The longest session timeout that the servers grant, or that any member of the group asks for (${default}): a member waits that long for a dead one of its name."`
	From           string        `default:"earliest" enum:"earliest,latest" env:"KIEL_FROM" help:"Where a new group starts: ${enum} (${default})."`
	Print          string        `default:"none" enum:"none,value,json" env:"KIEL_PRINT" help:"What to print of each message: ${enum} (${default})."`
	Metrics        string        `env:"KIEL_METRICS" placeholder:"HOST:PORT" help:"Serve at this address: the group as a page under /page/, Prometheus metrics under /metrics, probes under /healthz and /readyz, the group as JSON under /status, and, if --hang-on is given, profiles under /debug/pprof/. Whoever reaches it may see the group's names."`
	AskMembers     string        `default:"none" enum:"none,others,local" env:"KIEL_ASK_MEMBERS" help:"Whom the page asks for their /status: ${enum} (${default}); local: also those at loopback and link-local addresses. ZooKeeper names the addresses: who may write there chooses whom this process asks."`
	Events         string        `env:"KIEL_EVENTS" placeholder:"FILE" help:"Write everything that happens to FILE, one JSON object a line; a new or empty file for each process."`
	Work           time.Duration `default:"0s" env:"KIEL_WORK" help:"How long handling a message takes (${default}); to see what slow handlers do."`
	Verbose        bool          `short:"v" env:"KIEL_VERBOSE" help:"Log protocol steps too."`
	FailOn         string        `env:"KIEL_FAIL_ON" placeholder:"TEXT" group:"To try alerts and runbooks:" help:"Fail at each message that contains TEXT, as a handler with a poisonous message does."`
	HangOn         string        `env:"KIEL_HANG_ON" placeholder:"TEXT" group:"To try alerts and runbooks:" help:"Hang for ever at a message that contains TEXT, even when told to stop."`
}

type pageCmd struct {
	connect.ZooKeeperFlags
	connect.KafkaFlags
	Group      string `default:"demo" env:"KIEL_GROUP" help:"Group to show (${default})."`
	Listen     string `default:"localhost:9400" env:"KIEL_LISTEN" placeholder:"HOST:PORT" help:"Where to serve the page (${default}). Whoever reaches it sees the group's names."`
	AskMembers string `default:"none" enum:"none,others,local" env:"KIEL_ASK_MEMBERS" help:"As of consume."`
	Verbose    bool   `short:"v" env:"KIEL_VERBOSE" help:"Log protocol steps too."`
}

type serversCmd struct {
	ZooKeeper  string        `name:"zookeeper" default:"localhost:2181" env:"KIEL_ZOOKEEPER" placeholder:"HOST:PORT" help:"Address to serve ZooKeeper's protocol on (${default})."`
	Kafka      string        `default:"localhost:9092" env:"KIEL_KAFKA" placeholder:"HOST:PORT" help:"Address to serve Kafka's protocol on (${default})."`
	Topic      []string      `default:"orders" env:"KIEL_TOPIC" help:"Topic to create (${default}); repeatable."`
	Partitions int32         `default:"12" env:"KIEL_PARTITIONS" help:"Partitions of each topic (${default})."`
	Tick       time.Duration `default:"2s" env:"KIEL_TICK" help:"ZooKeeper's tick; session timeouts lie between 2 and 20 of them (${default})."`
}

type demoCmd struct {
	Keep    bool   `env:"KIEL_KEEP" help:"Keep a group running after the scenario, with its page, until stopped."`
	Page    string `default:"localhost:0" env:"KIEL_PAGE" placeholder:"HOST:PORT" help:"With --keep: where to serve the page (${default}: any free port)."`
	Verbose bool   `short:"v" env:"KIEL_VERBOSE" help:"Log what the members do too."`
}

// helpWithExamples prints kong's help and, for the whole program, examples.
func helpWithExamples(options kong.HelpOptions, ctx *kong.Context) error {
	if err := kong.DefaultHelpPrinter(options, ctx); err != nil {
		return err
	}
	if sel := ctx.Selected(); sel == nil || sel.Name == "demo" {
		fmt.Fprint(ctx.Stdout, "\n"+examples)
	}
	return nil
}

func checkTopics(topics []string) error {
	if len(topics) == 0 {
		return connect.Usage(errors.New("--topic names no topic"))
	}
	for _, topic := range topics {
		if err := kiel.CheckTopic(topic); err != nil {
			return connect.Usage(fmt.Errorf("--topic: %w", err))
		}
	}
	return nil
}

func checkAddress(flag, address string) error {
	if _, port, err := net.SplitHostPort(address); err != nil || port == "" {
		return connect.Usage(fmt.Errorf("--%s %q is not host:port", flag, address))
	}
	return nil
}
