package attacks_test

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/kielgo/kiel/internal/eventlog"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/test/members"
	"github.com/kielgo/kiel/test/servers"
)

// childEnv makes this program a member instead of a test.
const childEnv = "KIEL_ATTACKS_MEMBER"

// child is a member in a process of its own, which can be stopped as a whole.
type child struct {
	Group, Name, Events string
	Servers             []string
	Timeout             time.Duration

	process *servers.Process
}

// startChild starts a member as a process that dies with the test.
func startChild(t *testing.T, c *child) {
	t.Helper()
	c.Events = filepath.Join(t.TempDir(), "events.json")
	config, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), self)
	cmd.Env = append(os.Environ(), childEnv+"="+string(config))
	c.process = servers.Start(t, c.Name, cmd)
}

// log reads what the member has told so far.
func (c *child) log(t *testing.T) eventlog.Log {
	t.Helper()
	data, err := os.ReadFile(c.Events)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	events, err := eventlog.Read(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	return eventlog.Log{Name: c.Name, Events: events}
}

// told says how often the member has told of a kind of event.
func (c *child) told(t *testing.T, kind string) int {
	t.Helper()
	n := 0
	for _, e := range c.log(t).Events {
		if e.Event == kind {
			n++
		}
	}
	return n
}

// beChild is the process. It leaves in order when it is told to.
func beChild(config string) error {
	var c child
	if err := json.Unmarshal([]byte(config), &c); err != nil {
		return err
	}
	out, err := os.OpenFile(c.Events, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	j := newJournal(c.Name, members.Monotonic)
	j.out = json.NewEncoder(out)
	o := options{servers: c.Servers, session: session.Options{Timeout: c.Timeout}}.seeded()
	o.ownership.StopTimeout = 5 * time.Second
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
	m, err := start(c.Group, j, log, o)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	<-ctx.Done()
	m.stop()
	return out.Close()
}
