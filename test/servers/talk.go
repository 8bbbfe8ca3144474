package servers

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"
)

// Talker is a process that talks JSON: it reads requests from its standard input, and writes answers to its standard output.
type Talker struct {
	*Process

	In  *json.Encoder
	Out *json.Decoder
}

// Talk starts a program that talks JSON; see [Start].
func Talk(tb testing.TB, name string, cmd *exec.Cmd) *Talker {
	tb.Helper()
	stdin, err := cmd.StdinPipe()
	if err != nil {
		tb.Fatal(err)
	}
	out, stdout, err := os.Pipe()
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = out.Close() })
	cmd.Stdout = stdout
	p := &Talker{Process: Start(tb, name, cmd), In: json.NewEncoder(stdin), Out: json.NewDecoder(out)}
	if err := stdout.Close(); err != nil { // the process has its own copy
		tb.Fatal(err)
	}
	return p
}

// Answer reads the next answer. A process that does not give it within patience is killed.
func (p *Talker) Answer(patience time.Duration, answer any) error {
	silent := time.AfterFunc(patience, p.Kill)
	defer silent.Stop()
	if err := p.Out.Decode(answer); err != nil {
		return fmt.Errorf("%s: no answer: %w\n%s", p.name, err, p.Log())
	}
	return nil
}
