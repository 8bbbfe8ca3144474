// Package modules_test runs programs of others on our groups, as the Go modules that they are: only sarama's constructors of
// groups give them a group of ours. The programs are in testdata/theirs, which a test makes a module of, since they need hundreds
// of others.
package modules_test

import (
	"flag"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/kielgo/kiel/test/servers"
)

var (
	full  = flag.Bool("full", false, "also the programs that need many other modules")
	kinds = flag.String("kinds", "", "the kinds of groups, with semicolons in between: ours; ours, incremental; eager; cooperative. Ours when empty")
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		goleak.IgnoreAnyFunction("github.com/rcrowley/go-metrics.(*meterArbiter).tick"), // sarama's, of a client that waits for Kafka's start
	)
}

// theirs is the folder of the programs. Each file of it has ".txt" at the end of its name, so that it belongs to no other module.
const theirs = "testdata/theirs"

// TestModules lets each program live as those of package programs do.
func TestModules(t *testing.T) {
	t.Parallel()
	dir := module(t)
	zk := servers.StartZooKeeper(t, servers.ZooKeeperOptions{TickTime: 500 * time.Millisecond})
	kafka := servers.StartKafka(t, servers.KafkaOptions{Config: map[string]string{"group.min.session.timeout.ms": "1000"}})
	packages := []string{"small"}
	if *full {
		packages = append(packages, "large")
	}
	for _, name := range packages {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			binary := filepath.Join(t.TempDir(), name+".test")
			command(t, dir, "go", "test", "-c", "-trimpath", "-tags", "hook", "-o", binary, "./"+name)
			args := []string{"-test.v", "-test.timeout=10m", "-test.parallel=4", "-brokers", strings.Join(kafka.Brokers(), ","), "-zookeeper", zk.Addr()}
			if *kinds != "" {
				args = append(args, "-kinds", *kinds)
			}
			t.Logf("%s", command(t, dir, binary, args...))
		})
	}
}

// module makes a module of the programs, which requires this repository as it is, and a copy of sarama whose constructors of
// groups ask a hook first.
func module(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	err := filepath.WalkDir(theirs, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		inside, err := filepath.Rel(theirs, strings.TrimSuffix(path, ".txt"))
		if err == nil {
			to := filepath.Join(dir, inside)
			err = os.MkdirAll(filepath.Dir(to), 0o700)
			write(t, to, read(t, path))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	root, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	mod := filepath.Join(dir, "go.mod")
	write(t, mod, strings.ReplaceAll(read(t, mod), "ROOT", root))
	sarama := filepath.Join(dir, "sarama")
	source := strings.TrimSpace(string(command(t, dir, "go", "list", "-m", "-f", "{{.Dir}}", "github.com/IBM/sarama")))
	if err := os.CopyFS(sarama, os.DirFS(source)); err != nil {
		t.Fatal(err)
	}
	ask(t, filepath.Join(sarama, "consumer_group.go"))
	write(t, mod, read(t, mod)+"\nreplace github.com/IBM/sarama => ./sarama\n")
	return dir
}

// ask has the two constructors of groups ask a hook first.
func ask(t *testing.T, file string) {
	t.Helper()
	text := read(t, file)
	for _, place := range []struct{ after, config string }{
		{"func NewConsumerGroup(addrs []string, groupID string, config *Config) (ConsumerGroup, error) {\n", "config"},
		{"func NewConsumerGroupFromClient(groupID string, client Client) (ConsumerGroup, error) {\n", "client.Config()"},
	} {
		if strings.Count(text, place.after) != 1 {
			t.Fatalf("sarama has no %q", place.after)
		}
		first := "\tif NewConsumerGroupHook != nil {\n\t\tif g, err, made := NewConsumerGroupHook(" + place.config + "); made {\n\t\t\treturn g, err\n\t\t}\n\t}\n"
		text = strings.Replace(text, place.after, place.after+first, 1)
	}
	write(t, file, text+"\nvar NewConsumerGroupHook func(config *Config) (group ConsumerGroup, err error, made bool)\n")
}

// command runs a command in a folder, and returns what it writes.
func command(t *testing.T, dir, name string, args ...string) []byte {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=readonly")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %v: %v\n%s", name, args, err, out)
	}
	return out
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
