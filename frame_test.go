package kiel_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// What a user of kiel gets with it. Whatever only commands or heavy tests need belongs into the modules under cmd and test.
func TestDirectRequirements(t *testing.T) {
	want := []string{
		"github.com/IBM/sarama",
		"github.com/cockroachdb/datadriven", // tests, for stories
		"github.com/go-zookeeper/zk",
		"github.com/klauspost/compress", // sarama requires it, too, and so it does the next one
		"github.com/pierrec/lz4/v4",
		"github.com/prometheus/client_golang",
		"github.com/rcrowley/go-metrics", // tests, to switch sarama's off
		"go.uber.org/goleak",             // tests
		"pgregory.net/rapid",             // tests
	}
	mod, err := os.ReadFile("go.mod")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for line := range strings.Lines(string(mod)) {
		fields := strings.Fields(strings.TrimPrefix(line, "require "))
		if len(fields) == 2 && strings.HasPrefix(fields[1], "v") { // a third field is // indirect
			got = append(got, fields[0])
		}
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("go.mod requires directly\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
