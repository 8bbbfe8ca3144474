package main

import (
	"fmt"
	"time"

	"github.com/alecthomas/kong"

	"github.com/kielgo/kiel/cmd/internal/connect"
)

const (
	helpWidth   = 80
	description = `Shows groups that share Kafka partitions by ZooKeeper, and says what is wrong with them. It reads ZooKeeper and Kafka; nothing is written unless a command says so and gets --yes.`
	examples    = `Begin with 'kiel doctor GROUP': it says what is wrong, since when, what waits,
what to do, and with which command. 'kiel why GROUP TOPIC:NUMBER' tells all
about one partition.

Examples:
  kiel groups                             all groups, one line each
  kiel doctor demo                        what is wrong; exit code 1 if so
  kiel describe demo --topic orders       members, and the partitions of a topic
  kiel why demo orders:7                  who owns it, since when, and why
  kiel doctor demo -o json | jq .findings

Times are UTC. Every flag can be given by the environment variable named behind
it. Exit codes: 0 all well; 1 failed, or doctor found a problem; 2 bad usage.
`
)

// cli is the command line.
type cli struct {
	Groups   groupsCmd   `cmd:"" help:"List the groups, one line each."`
	Describe describeCmd `cmd:"" help:"Show a group's members and partitions."`
	Doctor   doctorCmd   `cmd:"" help:"Say what is wrong with a group, since when, what waits, and what to do."`
	Why      whyCmd      `cmd:"" help:"Say who owns a partition, since when and why, and how far it is."`
	Watch    watchCmd    `cmd:"" help:"Print who comes, who goes and which partitions move, until stopped."`

	Offsets     offsetsCmd     `cmd:"" help:"Show a group's stored offsets, or move them while nobody consumes."`
	Release     releaseCmd     `cmd:"" help:"Delete a znode without a session in the place of a partition's claim. Needs --yes."`
	RemoveTopic removeTopicCmd `cmd:"" help:"Take a topic out of a group's set that no member asks for. Needs --yes."`

	sourceFlags
	Version kong.VersionFlag `help:"Show the version."`
}

// sourceFlags say where to look and how to print.
type sourceFlags struct {
	connect.ZooKeeperFlags
	connect.KafkaFlags
	NoKafka      bool          `name:"no-kafka" env:"KIEL_NO_KAFKA" help:"Don't ask Kafka: no offsets, and what stands still is not found."`
	NoMembers    bool          `name:"no-members" env:"KIEL_NO_MEMBERS" help:"Don't ask the members that say where they answer /status."`
	LocalMembers bool          `name:"local-members" env:"KIEL_LOCAL_MEMBERS" help:"Ask those at loopback and link-local addresses, too. ZooKeeper names the addresses: who may write there chooses whom this machine asks."`
	Wait         time.Duration `default:"10s" env:"KIEL_WAIT" help:"How long each source has to answer (${default})."`
	Output       string        `short:"o" default:"text" enum:"text,json" env:"KIEL_OUTPUT" help:"Print ${enum} (${default})."`
	Verbose      bool          `short:"v" env:"KIEL_VERBOSE" help:"Log what the connections do, to standard error."`
}

type groupsCmd struct{}

type describeCmd struct {
	Group   string   `arg:"" help:"The group."`
	Section string   `default:"all" enum:"all,members,partitions" help:"What to show: ${enum} (${default})."`
	Topic   []string `env:"KIEL_TOPIC" help:"Show partitions of this topic alone; repeatable. Large groups show none without it."`
}

type doctorCmd struct {
	Group  string        `arg:"" help:"The group."`
	Window time.Duration `default:"10s" env:"KIEL_WINDOW" help:"The time between two looks, by which it tells what stands still (${default})."`
}

type whyCmd struct {
	Group     string `arg:"" help:"The group."`
	Partition string `arg:"" help:"The partition, as topic:number."`
}

type watchCmd struct {
	Group string        `arg:"" help:"The group."`
	Every time.Duration `default:"1s" env:"KIEL_EVERY" help:"How often to ask ZooKeeper (${default})."`
}

type offsetsCmd struct {
	Show  offsetsShowCmd  `cmd:"" help:"Show the stored offsets, and what wrote them."`
	Reset offsetsResetCmd `cmd:"" help:"Store other offsets for a topic. Refused while the group has a member or a claim. Needs --yes."`
}

type offsetsShowCmd struct {
	Group string   `arg:"" help:"The group."`
	Topic []string `env:"KIEL_TOPIC" help:"Show this topic alone; repeatable."`
}

type offsetsResetCmd struct {
	Group     string  `arg:"" help:"The group."`
	Topic     string  `required:"" help:"The topic."`
	Partition []int32 `placeholder:"NUMBER,…" help:"These of its partitions alone."`
	To        string  `required:"" placeholder:"TARGET" help:"start, end, an offset, --to=+N or --to=-N (a shift of what is stored), @-1h, or @2006-01-02T15:04:05Z (the first message from that time on)."`
	AnyTree   bool    `help:"Also if members in another ZooKeeper tree have stored the offsets, and may run: you know that it is gone."`
	Yes       bool    `help:"Store the offsets. Without it, show what would be stored."`
}

type releaseCmd struct {
	Group     string `arg:"" help:"The group."`
	Partition string `arg:"" help:"The partition, as topic:number."`
	Yes       bool   `help:"Delete the znode. Without it, show it."`
}

type removeTopicCmd struct {
	Group string `arg:"" help:"The group."`
	Topic string `arg:"" help:"The topic."`
	Yes   bool   `help:"Remove it. Without it, show what would be removed."`
}

// helpWithExamples prints kong's help and, for the whole program, examples.
func helpWithExamples(options kong.HelpOptions, ctx *kong.Context) error {
	if err := kong.DefaultHelpPrinter(options, ctx); err != nil {
		return err
	}
	if ctx.Selected() == nil {
		fmt.Fprint(ctx.Stdout, "\n"+examples)
	}
	return nil
}
