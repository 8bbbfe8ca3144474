package suite_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/kielgo/kiel/test/servers"
)

// ofRecipes is how many tests of its recipes kazoo 2.11.0 has.
const ofRecipes = 82

// private are kazoo's tests of what it has within its recipes, and what that is. They are not run.
func private() map[string]string {
	const (
		lock  = "a function within kazoo's Lock"
		locks = "the locks within kazoo's SetPartitioner, which the test has slow"
	)
	return map[string]string{
		"test_lock.TestSequence.test_get_predecessor":                                                lock,
		"test_lock.TestSequence.test_get_predecessor_go":                                             lock,
		"test_partitioner.KazooPartitionerTests.test_race_condition_new_partitioner_during_the_lock": locks,
		"test_partitioner.KazooPartitionerTests.test_race_condition_new_partitioner_steals_the_lock": locks,
	}
}

// different are kazoo's tests that fail with the recipes of this library, and why. In the place of these and of the private ones
// there are tests of the recipes: lock.TestForeignChildrenAreIgnored, barrier.TestBarrierExistingParentNode and
// TestBarrierExistingNode, partitioner.TestConnectionLoss and both named TestRaceConditionNewPartitioner….
func different() map[string]string {
	const barriers = "test_barrier.KazooDoubleBarrierTests."
	return map[string]string{
		barriers + "test_barrier_existing_node":                       "Enter waits for a znode of another session; kazoo takes it for its own",
		barriers + "test_barrier_existing_parent_node":                "Enter returns an error; kazoo's enter says nothing",
		"test_partitioner.KazooPartitionerTests.test_connection_loss": "a connection that is lost changes nothing before trust ends; kazoo's sets are released",
	}
}

// TestRecipesInGo runs kazoo's own tests of its recipes with the recipes of this library.
func TestRecipesInGo(t *testing.T) {
	t.Parallel()
	t.Run("zktest", func(t *testing.T) {
		t.Parallel()
		inGo(t, startServers)
	})
	t.Run("zookeeper", func(t *testing.T) {
		t.Parallel()
		inGo(t, func(t *testing.T) string { return servers.StartZooKeeper(t, servers.ZooKeeperOptions{}).Addr() })
	})
}

func inGo(t *testing.T, start func(t *testing.T) string) {
	t.Helper()
	r := newRunner(t, start(t), private(), "servers_in_memory", "recipes_in_go")
	b, address := serveBridge(t)
	r.env = append(r.env, "KAZOO_RECIPES="+address, "KAZOO_IN_GO="+strings.Join(classes(), ","))
	cases := r.insist(different(), recipeFiles(r.files)...)
	var failed []string
	for _, c := range cases {
		switch {
		case c.failed() && different()[c.name()] == "":
			t.Errorf("%s failed:\n%s", c.name(), c.text())
		case c.failed():
			failed = append(failed, c.name())
		case c.Skipped != nil:
			t.Errorf("kazoo skipped %s", c.name())
		}
	}
	if *only != "" {
		return
	}
	slices.Sort(failed)
	if want := slices.Sorted(maps.Keys(different())); !slices.Equal(failed, want) {
		t.Errorf("of those that are to fail, %q failed, want %q", failed, want)
	}
	if n := len(cases) + len(private()); n != ofRecipes {
		t.Errorf("kazoo has %d tests of recipes, want %d", n, ofRecipes)
	}
	for kind := range kinds() {
		if b.objects(kind) == 0 {
			t.Errorf("no %s was made: it is kazoo's own that was tested", kind)
		}
	}
	t.Attr("passed", fmt.Sprintf("%d of kazoo's %d tests of recipes", len(cases)-len(failed), ofRecipes))
}

// classes are the names of kazoo's recipes in its client.
func classes() []string {
	names := []string{"Counter"}
	for kind := range kinds() {
		if !strings.HasSuffix(kind, "Counter") {
			names = append(names, kind)
		}
	}
	return names
}

// recipeFiles returns those files that have tests of recipes, in groups that have about as much to wait for.
func recipeFiles(files []string) [][]string {
	groups := make([][]string, 2)
	for _, file := range files {
		switch file {
		case "test_lock.py", "test_counter.py":
			groups[0] = append(groups[0], file)
		case "test_queue.py", "test_party.py", "test_lease.py", "test_election.py", "test_partitioner.py", "test_barrier.py":
			groups[1] = append(groups[1], file)
		}
	}
	return slices.DeleteFunc(groups, func(group []string) bool { return len(group) == 0 })
}
