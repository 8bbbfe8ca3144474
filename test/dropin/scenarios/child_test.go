package scenarios_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/kielgo/kiel/test/dropin/scenarios"
)

// The environment tells a child its case, its variant, and the file that takes its notes.
const (
	childCase    = "KIEL_SCENARIO"
	childVariant = "KIEL_VARIANT"
	childNotes   = "KIEL_NOTES"
)

// note is one observation of a child.
type note struct{ Lane, Text string }

// observeInChild runs a case in a process of its own, which notes what it observes as long as it lives.
func observeInChild(t *testing.T, c scenarios.Case, v scenarios.Variant) scenarios.Observations {
	t.Helper()
	notes := filepath.Join(t.TempDir(), "notes")
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestChild$", "-test.timeout=1m")
	cmd.Env = append(os.Environ(), childCase+"="+c.Name, fmt.Sprintf("%s=%d", childVariant, v), childNotes+"="+notes)
	out, err := cmd.CombinedOutput()
	seen := scenarios.Observations{}
	data, readErr := os.ReadFile(notes)
	if readErr != nil {
		t.Fatalf("%v, %v\n%s", readErr, err, out)
	}
	for decoder := json.NewDecoder(bytes.NewReader(data)); ; {
		var n note
		if decoder.Decode(&n) != nil {
			break
		}
		seen[n.Lane] = append(seen[n.Lane], n.Text)
	}
	if exit := new(exec.ExitError); errors.As(err, &exit) {
		panicked := regexp.MustCompile(`(?m)^panic: (.*?)( \[recovered.*)?$`).FindSubmatch(out)
		if panicked == nil {
			t.Fatalf("%v: %v\n%s", v, err, out)
		}
		// The child's notes from before its end differ from run to run.
		seen = scenarios.Observations{"process": {"ends: panic: " + string(panicked[1])}}
	} else if err != nil {
		t.Fatal(err)
	}
	return seen
}

// TestChild is what a child runs. Without a child's environment there is nothing to run.
func TestChild(t *testing.T) {
	name := os.Getenv(childCase)
	if name == "" {
		return
	}
	notes, err := os.Create(os.Getenv(childNotes))
	if err != nil {
		t.Fatal(err)
	}
	encoder := json.NewEncoder(notes)
	var v scenarios.Variant
	if _, err := fmt.Sscan(os.Getenv(childVariant), &v); err != nil {
		t.Fatal(err)
	}
	for _, c := range scenarios.Cases() {
		if c.Name != name {
			continue
		}
		scenarios.Observe(t, newBackend(t), c, v, func(lane, text string) { _ = encoder.Encode(note{lane, text}) })
	}
}
