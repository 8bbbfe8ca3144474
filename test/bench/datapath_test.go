package bench_test

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel/test/bench/datapath"
	"github.com/kielgo/kiel/test/servers"
)

var (
	cells   = flag.String("cells", "", "measure the data path for cells whose names match this pattern, as 100x8-none")
	clients = flag.String("clients", "", "measure the data path of clients whose names match this pattern alone")
	profile = flag.String("profile", "", "folder for profiles of the data path's clients, of the last round")
)

// dataPathTimeout is how long one client may take for one topic.
const dataPathTimeout = 5 * time.Minute

// TestDataPath measures what a message costs several clients that read the same topic from a real Kafka: see package datapath.
// Each client is a process of its own; they take turns. It fails when a client does not read each message once, in order, or
// leaves without having committed its end. Without -keep and -cells one small topic is read, and no figure means anything.
func TestDataPath(t *testing.T) {
	r := newDataPathRig(t)
	all, times := []datapath.Cell{{Size: 100, Partitions: 8, Compression: "zstd"}}, 1
	perPartition := func(datapath.Cell) int { return 5000 }
	if *keep || *cells != "" {
		all, times, perPartition = matching(t, *cells, datapath.Cells()), *rounds, datapath.Cell.PerPartition
	}
	figures := datapath.Figures{Machine: machine(t), Kafka: servers.Kafka4}
	for _, cell := range all {
		t.Run(cell.String(), func(t *testing.T) {
			figures.Figures = append(figures.Figures, r.measure(t, cell, perPartition(cell), times)...)
			if *keep {
				write(t, datapath.File, figures)
			}
		})
	}
}

// matching returns the names that match the pattern.
func matching[N any](t *testing.T, pattern string, names []N) []N {
	t.Helper()
	re, err := regexp.Compile(pattern)
	if err != nil {
		t.Fatal(err)
	}
	names = slices.DeleteFunc(names, func(n N) bool { return !re.MatchString(fmt.Sprint(n)) })
	if len(names) == 0 {
		t.Fatalf("nothing matches %q", pattern)
	}
	return names
}

// dataPathRig is what the clients share.
type dataPathRig struct {
	kafka  *servers.Kafka
	zk     *servers.ZooKeeper
	admin  sarama.ClusterAdmin
	reader string // path of the program
	groups int    // so many were started
}

func newDataPathRig(t *testing.T) *dataPathRig {
	t.Helper()
	r := &dataPathRig{
		kafka: servers.StartKafka(t, servers.KafkaOptions{
			Heap:   "1g",
			Config: map[string]string{"group.initial.rebalance.delay.ms": "0", "log.segment.delete.delay.ms": "1000"},
		}),
		zk:     servers.StartZooKeeper(t, servers.ZooKeeperOptions{}),
		reader: filepath.Join(t.TempDir(), "reader"),
	}
	build := exec.CommandContext(t.Context(), "go", "build", "-o", r.reader, "./datapath/reader")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the reader: %v\n%s", err, out)
	}
	config := sarama.NewConfig()
	config.Version = sarama.V3_6_0_0
	admin, err := sarama.NewClusterAdmin(r.kafka.Brokers(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := admin.Close(); err != nil {
			t.Error(err)
		}
	})
	r.admin = admin
	return r
}

// measure fills the cell's topics, has all clients read them in turn, and returns the figures.
func (r *dataPathRig) measure(t *testing.T, cell datapath.Cell, perPartition, times int) []datapath.Figure {
	t.Helper()
	small, large := r.fill(t, cell, perPartition)
	participants := matching(t, *clients, datapath.Clients())
	samples := make(map[datapath.Client][]datapath.Round)
	for round := range times {
		for i := range participants {
			c := participants[(round+i)%len(participants)]
			samples[c] = append(samples[c], datapath.Round{
				Start: r.read(t, c, cell, small, 1), Full: r.read(t, c, cell, large, perPartition),
			})
		}
	}
	var table strings.Builder
	w := tabwriter.NewWriter(&table, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "\tCPU ns\tleast\tmost\tallocations\tbytes\tmessages/s\tMB resident\t")
	var figures []datapath.Figure
	for _, c := range participants {
		f := datapath.Summarize(cell, c, perPartition*cell.Partitions, samples[c])
		figures = append(figures, f)
		fmt.Fprintf(w, "%s\t%.0f\t%.0f\t%.0f\t%.3f\t%.0f\t%.0f\t%.0f\t\n",
			c.Title(), f.CPU, f.LeastCPU, f.MostCPU, f.Allocs, f.Bytes, f.Rate, float64(f.Memory)/1e6)
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	t.Logf("for a message, medians of %d rounds of %d messages\n%s", times, perPartition*cell.Partitions, &table)
	return figures
}

// fill makes a topic with one message in each partition, and one with more.
func (r *dataPathRig) fill(t *testing.T, cell datapath.Cell, perPartition int) (small, large string) {
	t.Helper()
	small, large = cell.String()+"-start", cell.String()
	for topic, n := range map[string]int{small: 1, large: perPartition} {
		r.kafka.CreateTopic(topic, int32(cell.Partitions))
		if err := datapath.Fill(t.Context(), r.kafka.Brokers(), topic, cell, n); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		for _, topic := range []string{small, large} {
			if err := r.admin.DeleteTopic(topic); err != nil {
				t.Error(err)
			}
		}
	})
	return small, large
}

// read has a client read a topic, and returns what it used. The program gets more arguments.
func (r *dataPathRig) read(t *testing.T, client datapath.Client, cell datapath.Cell, topic string, perPartition int, more ...string) datapath.Sample {
	t.Helper()
	args := append([]string{
		"-client", string(client), "-topic", topic,
		"-partitions", fmt.Sprint(cell.Partitions), "-messages", fmt.Sprint(perPartition), "-size", fmt.Sprint(cell.Size),
	}, more...)
	if *profile != "" && perPartition > 1 {
		args = append(args, "-cpuprofile", filepath.Join(*profile, fmt.Sprintf("%v-%s.pprof", cell, client)))
	}
	sample, group := r.run(t, "reader-"+string(client), args)
	if client.Commits() {
		r.checkCommitted(t, client, group, topic, cell.Partitions, int64(perPartition))
	}
	return sample
}

// run runs the program on the rig's servers, in a group of its own, and returns what it used and the group.
func (r *dataPathRig) run(t *testing.T, name string, args []string) (sample datapath.Sample, group string) {
	t.Helper()
	r.groups++
	group = fmt.Sprintf("bench-%d", r.groups)
	result := filepath.Join(t.TempDir(), "sample.json")
	args = append(args, "-brokers", strings.Join(r.kafka.Brokers(), ","), "-zookeeper", r.zk.Addr(), "-group", group, "-result", result)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), dataPathTimeout)
	defer cancel()
	process := servers.Start(t, name, exec.CommandContext(ctx, r.reader, args...))
	if err := process.Wait(); err != nil {
		t.Fatalf("%s: %v\n%s", name, err, process.Log())
	}
	data, err := os.ReadFile(result)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, &sample); err != nil {
		t.Fatal(err)
	}
	return sample, group
}

// checkCommitted fails unless the group's offsets are the ends of the partitions.
func (r *dataPathRig) checkCommitted(t *testing.T, client datapath.Client, group, topic string, partitions int, end int64) {
	t.Helper()
	var ids []int32
	for id := range int32(partitions) {
		ids = append(ids, id)
	}
	offsets, err := r.admin.ListConsumerGroupOffsets(group, map[string][]int32{topic: ids})
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range ids {
		if block := offsets.GetBlock(topic, id); block == nil || block.Offset != end {
			t.Errorf("%s left partition %d with %+v committed, want %d", client, id, block, end)
		}
	}
}
