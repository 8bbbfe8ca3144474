package scenarios_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// TestSubset runs a case alone, as -run chooses it, on all groups and on one of them: what did not run is not judged.
func TestSubset(t *testing.T) {
	t.Parallel()
	for _, run := range []string{"no_topics$", "no_topics$/^ours$", "no_case"} {
		t.Run(strings.ReplaceAll(run, "/", " "), func(t *testing.T) {
			t.Parallel()
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestScenarios$/^run$/^observe$/^"+run, "-test.timeout=5m")
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}
