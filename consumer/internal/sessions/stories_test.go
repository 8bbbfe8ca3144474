package sessions_test

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	. "github.com/kielgo/kiel/consumer/internal/sessions"
	"github.com/kielgo/kiel/internal/testonly/noerr"
)

var update = flag.Bool("update", false, "write the actions of the stories")

var dos = []string{"CallSetup", "Open", "EndSession", "CallCleanup", "Commit", "Release", "GiveUp", "Leave", "Return"}

var causes = []string{"None", "Rebalance", "LostClaim", "Exited", "Failed", "TimedOut", "Asked"}

// text returns an action as the stories have it.
func text(a Action) string {
	out := "\t" + dos[a.Do]
	switch a.Do {
	case CallSetup:
		out += fmt.Sprint(" ", a.Claims)
	case Open, Commit, Release:
		out += fmt.Sprint(" ", a.P)
	case EndSession, Return:
		out += " " + causes[a.Cause]
	case CallCleanup, GiveUp, Leave:
	}
	return out
}

// input returns the input of a line.
func input(t *testing.T, line string) Input {
	t.Helper()
	words := strings.Fields(line)
	in := Input{What: What(slices.Index(whats, words[0]))}
	if in.What > What(len(whats)) {
		t.Fatalf("%s is no input", words[0])
	}
	if in.What == Consume {
		in.Kind = map[string]Kind{"eager": {Eager: true}, "incremental": {}, "hold": {Hold: true}, "run": {Run: true}}[words[1]]
		return in
	}
	for _, w := range words[1:] {
		p, err := strconv.Atoi(w)
		noerr.Must(t, err)
		in.P, in.Mine = p, append(in.Mine, p)
	}
	return in
}

// The stories of testdata end as they are written.
func TestStories(t *testing.T) {
	const file = "testdata/stories.txt"
	page, err := os.ReadFile(file)
	noerr.Must(t, err)
	var s State
	var out []string
	for line := range strings.Lines(string(page)) {
		line = strings.TrimRight(line, "\n")
		switch {
		case strings.HasPrefix(line, "\t"):
			continue // an action
		case strings.HasPrefix(line, "=="):
			s = State{}
		case line == "" || strings.HasPrefix(line, "#"):
		default:
			out = append(out, line)
			for _, a := range s.Step(input(t, line)) {
				out = append(out, text(a))
			}
			continue
		}
		out = append(out, line)
	}
	got := strings.Join(out, "\n") + "\n"
	if *update {
		noerr.Must(t, os.WriteFile(file, []byte(got), 0o600))
		return
	}
	if got != string(page) {
		t.Errorf("the stories are:\n%s", got)
	}
}
