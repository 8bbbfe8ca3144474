package functional

import (
	"encoding/json"
	"flag"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kielgo/kiel/test/dropin/functional/suite"
	"github.com/kielgo/kiel/test/servers"
)

var (
	own  = flag.Bool("own", false, "run sarama's tests on sarama's own groups")
	full = flag.Bool("full", false, "on all versions of Kafka")
)

// theirs is the file of sarama's tests.
const theirs = "functional_consumer_group_test.go"

// decided are the tests of sarama's file, each with the reason why it is excused, which is "" for one that must pass.
var decided = map[string]string{
	"TestFuncJoinGroupVersionSelection":                   "",
	"TestFuncConsumerGroupPartitioning":                   "",
	"TestFuncConsumerGroupExcessConsumers":                "",
	"TestFuncConsumerGroupRebalanceAfterAddingPartitions": "",
	"TestFuncConsumerGroupFuzzy":                          "",
	"TestFuncConsumerGroupOffsetDeletion":                 "",

	"TestFuncConsumerGroupPartitioningStateful": "it counts how often Kafka's leader of a group calls a BalanceStrategy, and what " +
		"UserData it gets: a group of ours has no leader and calls no BalanceStrategy",
}

// mustPass returns the names of the tests that must pass.
func mustPass() []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(decided)), func(name string) bool { return decided[name] != "" })
}

// TestEachIsDecided fails when sarama has a test of which this file says nothing.
func TestEachIsDecided(t *testing.T) {
	t.Parallel()
	tests := generate(t).Tests
	for _, name := range tests {
		if _, ok := decided[name]; !ok {
			t.Errorf("sarama has a test %s: decide in this file whether it must pass", name)
		}
	}
	for name := range decided {
		if !slices.Contains(tests, name) {
			t.Errorf("sarama has no test %s any more", name)
		}
	}
}

// TestSarama runs sarama's tests on our groups.
func TestSarama(t *testing.T) {
	t.Parallel()
	source := generate(t)
	binary := compile(t, source)
	versions := []string{servers.Kafka4}
	if *full {
		versions = append(versions, servers.Kafka3)
	}
	for _, version := range versions {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			run(t, binary, version)
		})
	}
}

// generate makes a file of package suite from the sarama that we require.
func generate(t *testing.T) Source {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", saramaPath).Output()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(out)), theirs))
	if err != nil {
		t.Fatal(err)
	}
	source, err := Generate(theirs, text)
	if err != nil {
		t.Fatal(err)
	}
	return source
}

// compile makes a test binary of package suite and the generated file.
func compile(t *testing.T, source Source) string {
	t.Helper()
	dir := t.TempDir()
	generated := filepath.Join(dir, "sarama_test.go")
	place, err := filepath.Abs(filepath.Join(suiteName, filepath.Base(generated)))
	if err != nil {
		t.Fatal(err)
	}
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": {place: generated}})
	if err != nil {
		t.Fatal(err)
	}
	for file, text := range map[string][]byte{generated: source.Text, filepath.Join(dir, "overlay.json"): overlay} {
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	binary := filepath.Join(dir, "suite.test")
	args := []string{"test", "-c", "-o", binary, "-overlay", filepath.Join(dir, "overlay.json")}
	if info, ok := debug.ReadBuildInfo(); ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"}) {
		args = append(args, "-race")
	}
	if out, err := exec.CommandContext(t.Context(), "go", append(args, "./"+suiteName)...).CombinedOutput(); err != nil {
		t.Fatalf("compile: %v\n%s", err, out)
	}
	return binary
}

// run runs the tests on servers of their own.
func run(t *testing.T, binary, version string) {
	t.Helper()
	zk := servers.StartZooKeeper(t, servers.ZooKeeperOptions{TickTime: 500 * time.Millisecond})
	kafka := servers.StartKafka(t, servers.KafkaOptions{Version: version})
	for topic, partitions := range suite.Topics() {
		kafka.CreateTopic(topic, partitions)
	}
	names := mustPass()
	cmd := exec.Command(binary, "-test.v", "-test.timeout=5m", "-test.run=^("+strings.Join(names, "|")+")$")
	cmd.Env = append(os.Environ(),
		suite.EnvBrokers+"="+strings.Join(kafka.Brokers(), ","), suite.EnvZooKeeper+"="+zk.Addr(), suite.EnvKafka+"="+version)
	if *own {
		cmd.Env = append(cmd.Env, suite.EnvOwn+"=true")
	}
	tests := servers.Start(t, "sarama-tests", cmd)
	err := tests.Wait()
	log := tests.Log()
	for _, name := range names {
		passed := regexp.MustCompile(`(?m)^--- PASS: ` + name + ` \((.*)\)$`).FindStringSubmatch(log)
		if passed == nil {
			t.Errorf("%s has not passed", name)
			continue
		}
		t.Logf("%s passed after %s", name, passed[1])
	}
	if err != nil || t.Failed() {
		t.Errorf("%v\n%s", err, log)
	}
}
