package transactions_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel/test/servers"
	"github.com/kielgo/kiel/test/wait"
)

// haltAt is the offset at which a process stops in mid transaction.
const haltAt = 3

// The lines that a process prints.
const (
	isMidway  = "midway\n"
	committed = "committed\n"
	fenced    = "fenced\n"
)

// runProcess runs the program of a process. In the transaction of the message haltAt it prints isMidway, and goes on when it
// reads a line. It ends after that transaction and prints what came of it.
func runProcess(text string) error {
	var set settings
	if err := json.Unmarshal([]byte(text), &set); err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	ended := make(chan string, 1)
	set.midway = func(m *sarama.ConsumerMessage) {
		if m.Offset == haltAt {
			fmt.Print(isMidway)
			_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
		}
	}
	set.after = func(m *sarama.ConsumerMessage, err error) {
		switch {
		case m.Offset != haltAt:
		case err == nil:
			ended <- committed
		case isFenced(err):
			ended <- fenced
		default:
			ended <- err.Error() + "\n"
		}
	}
	ran := make(chan error, 1)
	go func() { ran <- (&program{settings: set}).run(ctx) }()
	select {
	case err := <-ran:
		return err
	case outcome := <-ended:
		fmt.Print(outcome)
		stop()
		<-ran // its session was lost, maybe
		return nil
	}
}

// process is a program in a process of its own.
type process struct {
	*servers.Process
	t     *testing.T
	stdin *os.File
}

// startProcess starts a process, which ends with the test.
func startProcess(t *testing.T, set settings) *process {
	t.Helper()
	text, err := json.Marshal(set)
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	stdin, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.Close() })
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), self)
	cmd.Env = append(os.Environ(), asProcess+"="+string(text))
	cmd.Stdin = stdin
	p := &process{Process: servers.Start(t, set.Name, cmd), t: t, stdin: w}
	_ = stdin.Close()
	return p
}

// awaitLine waits until the process has printed one of some lines, and returns it.
func (p *process) awaitLine(lines ...string) string {
	p.t.Helper()
	found := ""
	wait.Until(p.t, time.Minute, func() bool {
		for _, line := range lines {
			if strings.Contains(p.Log(), line) {
				found = line
			}
		}
		return found != ""
	}, func() string { return fmt.Sprintf("%s printed none of %q:\n%s", p.t.Name(), lines, p.Log()) })
	return found
}

// goOn lets the process go on that was paused in its transaction.
func (p *process) goOn() {
	p.t.Helper()
	p.Resume()
	if _, err := p.stdin.WriteString("\n"); err != nil {
		p.t.Fatal(err)
	}
}
