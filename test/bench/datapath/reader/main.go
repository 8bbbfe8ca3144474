// Command reader reads a topic from its beginning to its end with one client, checks each message, and writes what the process
// has used to a file. TestDataPath of test/bench starts it.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/kielgo/kiel/test/bench/datapath"
)

// job says what to read.
type job struct {
	client    datapath.Client
	brokers   []string
	zookeeper []string
	topic     string
	group     string
	metrics   bool // of this project's clients are registered, and asked for
	meter     *meter
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "reader:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	flags := flag.NewFlagSet("reader", flag.ContinueOnError)
	client := flags.String("client", "", "one of the clients of package datapath")
	brokers := flags.String("brokers", "", "Kafka's brokers, separated by commas")
	zookeeper := flags.String("zookeeper", "", "ZooKeeper's servers, separated by commas")
	topic := flags.String("topic", "", "the topic")
	group := flags.String("group", "", "the group, which has no offsets yet")
	partitions := flags.Int("partitions", 1, "partitions of the topic")
	messages := flags.Int64("messages", 0, "messages in each partition")
	size := flags.Int("size", 0, "bytes of each value")
	metrics := flags.Bool("metrics", false, "register the metrics of this project's clients, and ask for them")
	idle := flags.Int("idle", 0, "instead of reading, let so many members of the group do nothing, each with one partition of an empty topic")
	span := flags.Duration("for", 10*time.Second, "how long they do nothing")
	result := flags.String("result", "", "file for the sample")
	profile := flags.String("cpuprofile", "", "file for a profile of the CPU while messages are counted; FILE.allocs gets all allocations")
	if err := flags.Parse(args); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, finish := context.WithCancel(ctx)
	defer finish()
	j := job{
		client: datapath.Client(*client), brokers: strings.Split(*brokers, ","), zookeeper: strings.Split(*zookeeper, ","),
		topic: *topic, group: *group, metrics: *metrics, meter: newMeter(*partitions, *messages, *size, *profile, finish),
	}
	var sample datapath.Sample
	var err error
	if *idle > 0 {
		sample, err = j.rest(ctx, *idle, *span)
	} else if err = read(ctx, j); err == nil {
		sample, err = j.meter.result()
	}
	if err != nil {
		return err
	}
	data, err := json.Marshal(sample)
	if err != nil {
		return err
	}
	return os.WriteFile(*result, data, 0o644)
}

// read reads until ctx ends, as it does when the meter has counted all messages, and leaves the group.
func read(ctx context.Context, j job) error {
	switch j.client {
	case datapath.PartitionConsumer:
		return readPartitions(ctx, j)
	case datapath.SaramaGroup:
		return readSaramaGroup(ctx, j)
	case datapath.Franz:
		return readFranz(ctx, j)
	case datapath.Kiel:
		return readKiel(ctx, j)
	case datapath.KielSarama:
		return readKielSarama(ctx, j)
	default:
		return fmt.Errorf("no client %q", j.client)
	}
}
