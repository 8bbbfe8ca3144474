package interop_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kielgo/kiel/test/servers"
)

const minSessionTimeout = time.Second

const (
	callTimeout  = 60 * time.Second
	agreeTimeout = 30 * time.Second
)

// group is what the test knows about the members and the set: what all of them should see.
type group struct {
	t       *testing.T
	zk      string
	name    string
	members map[string]*member
	items   map[string]bool
	started int // members, ever
	expired int // members, by themselves
}

// newGroup starts a ZooKeeper that caps session timeouts, because a Python member can't choose its own (10 s).
func newGroup(t *testing.T, name string, maxSessionTimeout time.Duration) *group {
	t.Helper()
	zk := servers.StartZooKeeper(t, servers.ZooKeeperOptions{
		TickTime:          minSessionTimeout / 2,
		MaxSessionTimeout: maxSessionTimeout,
	})
	return &group{t: t, zk: zk.Addr(), name: name, members: map[string]*member{}, items: map[string]bool{}}
}

// member is one process, of either language.
type member struct {
	*servers.Process
	name     string
	language string
	in       *json.Encoder
	out      *json.Decoder
}

// join starts a member and returns when it says that it has joined.
func (g *group) join(language string, seed ...string) *member {
	g.t.Helper()
	return g.joinFor(nil, language, seed...)
}

// joinFor is join for a member that asks for topics, if it is one in Go.
func (g *group) joinFor(topics []string, language string, seed ...string) *member {
	g.t.Helper()
	g.started++
	name := fmt.Sprintf("%s-%d:%d", language, g.started, os.Getpid())
	seedJSON, err := json.Marshal(byTopic(seed))
	if err != nil {
		g.t.Fatal(err)
	}
	args := []string{g.zk, g.name, name, string(seedJSON)}
	var cmd *exec.Cmd
	if language == "python" {
		_, here, _, _ := runtime.Caller(0)
		cmd = exec.Command(servers.Python(g.t), append([]string{filepath.Join(filepath.Dir(here), "member.py")}, args...)...)
		cmd.Env = append(os.Environ(), "PYTHONUTF8=1") // the group's name is in UTF-8, whatever the locale
	} else {
		exe, err := os.Executable()
		if err != nil {
			g.t.Fatal(err)
		}
		cmd = exec.Command(exe, append(args, topics...)...)
		cmd.Env = append(os.Environ(), goMember+"=1")
	}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		g.t.Fatal(err)
	}
	out, stdout, err := os.Pipe()
	if err != nil {
		g.t.Fatal(err)
	}
	g.t.Cleanup(func() { _ = out.Close() })
	cmd.Stdout = stdout
	m := &member{
		Process:  servers.Start(g.t, strings.ReplaceAll(name, ":", "-"), cmd),
		name:     name,
		language: language,
		in:       json.NewEncoder(stdin),
		out:      json.NewDecoder(out),
	}
	if err := stdout.Close(); err != nil { // the member has its own copy
		g.t.Fatal(err)
	}
	if _, err := m.answer("join"); err != nil {
		g.t.Fatal(err)
	}
	g.members[name] = m
	for _, item := range seed {
		g.items[item] = true
	}
	return m
}

func (m *member) answer(op string) (response, error) {
	silent := time.AfterFunc(callTimeout, func() { _ = syscall.Kill(m.PID(), syscall.SIGKILL) })
	defer silent.Stop()
	var res response
	if err := m.out.Decode(&res); err != nil {
		return res, fmt.Errorf("%s: no answer to %s: %w\n%s", m.name, op, err, m.Log())
	}
	return res, nil
}

func (m *member) ask(req request) (response, error) {
	if err := m.in.Encode(req); err != nil {
		return response{}, fmt.Errorf("%s: ask for %s: %w\n%s", m.name, req.Op, err, m.Log())
	}
	return m.answer(req.Op)
}

// do has the member do something, and is an error when it could not; errExpired when that is because its session is gone.
func (m *member) do(op string, items ...string) error {
	res, err := m.ask(request{Op: op, Partitions: byTopic(items)})
	switch {
	case err != nil:
		return err
	case res.Expired:
		return errExpired
	case res.Error != "":
		return fmt.Errorf("%s: %s %v: %s", m.name, op, items, res.Error)
	}
	return nil
}

// errExpired: a machine that stands still for two seconds costs Python members their sessions, and they never come back. Such a
// one is taken for crashed, which is what the group sees.
var errExpired = errors.New("the session of a Python member has expired")

// leave lets a member leave in order and waits for its end; it is false when the member turned out to be lost.
func (g *group) leave(m *member) bool {
	g.t.Helper()
	err := m.do("leave")
	if errors.Is(err, errExpired) {
		g.expire(m)
		return false
	}
	if err := errors.Join(err, m.Wait()); err != nil {
		g.t.Fatalf("%s left with %v\n%s", m.name, err, m.Log())
	}
	delete(g.members, m.name)
	return true
}

// change has a member, or another one when that turns out to be lost, add items to the set or remove them, and returns which one
// did.
func (g *group) change(m *member, op string, items []string) *member {
	g.t.Helper()
	err := m.do(op, items...)
	for errors.Is(err, errExpired) {
		g.expire(m) // done or not, it does not hurt to do it again
		m = g.anyMember()
		err = m.do(op, items...)
	}
	if err != nil {
		g.t.Fatal(err)
	}
	for _, item := range items {
		if op == "add" {
			g.items[item] = true
		} else {
			delete(g.items, item)
		}
	}
	return m
}

func (g *group) anyMember() *member {
	g.t.Helper()
	for _, m := range g.members {
		return m
	}
	return g.join("go")
}

// crash kills a member; the others hear of it when its session has expired.
func (g *group) crash(m *member) {
	g.t.Helper()
	m.Kill()
	delete(g.members, m.name)
}

// agree waits until every member sees the same members, the same set and the same mapping, and these are the right ones.
func (g *group) agree() {
	g.t.Helper()
	for !g.agreeOrLose() {
	}
}

// agreeOrLose is agree, or false when a member turned out to be lost, so that something else is right.
func (g *group) agreeOrLose() bool {
	g.t.Helper()
	want := response{Members: slices.Sorted(maps.Keys(g.members)), Partitions: slices.Sorted(maps.Keys(g.items))}
	want.Mapping = roundRobin(want.Members, want.Partitions)
	deadline := time.NewTimer(agreeTimeout)
	defer deadline.Stop()
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for wrong := true; wrong; {
		wrong = false
		for _, m := range g.members {
			got, err := m.ask(request{Op: "state"})
			if err != nil {
				g.t.Fatal(err)
			}
			if got.Expired {
				g.expire(m)
				return false
			}
			if got.Error != "" || !equal(got, want) {
				wrong = true
				select {
				case <-deadline.C:
					g.t.Fatalf("%s sees\n%+v\nbut should see\n%+v\n%s", m.name, got, want, m.Log())
				default:
				}
			}
		}
		<-ticker.C
	}
	return true
}

func (g *group) expire(m *member) {
	g.t.Helper()
	g.t.Logf("%s: %v", m.name, errExpired)
	g.expired++
	g.crash(m)
}

func equal(got, want response) bool {
	maps.DeleteFunc(got.Mapping, func(_ string, share map[string][]int32) bool { return len(share) == 0 })
	return slices.Equal(got.Members, want.Members) && slices.Equal(got.Partitions, want.Partitions) &&
		len(got.Mapping) == len(want.Mapping) && (len(want.Mapping) == 0 || reflect.DeepEqual(got.Mapping, want.Mapping))
}

// roundRobin is kiel's default function, written a third time.
func roundRobin(members, items []string) map[string]map[string][]int32 {
	mapping := make(map[string]map[string][]int32)
	if len(members) == 0 {
		return mapping
	}
	for i, item := range items {
		m := members[i%len(members)]
		if mapping[m] == nil {
			mapping[m] = make(map[string][]int32)
		}
		topic, id := split(item)
		mapping[m][topic] = append(mapping[m][topic], id)
	}
	return mapping
}

func byTopic(items []string) map[string][]int32 {
	partitions := make(map[string][]int32)
	for _, item := range items {
		topic, id := split(item)
		partitions[topic] = append(partitions[topic], id)
	}
	return partitions
}

func split(item string) (topic string, id int32) {
	topic, number, _ := strings.Cut(item, ":")
	n, err := strconv.ParseInt(number, 10, 32)
	if err != nil {
		panic(err)
	}
	return topic, int32(n)
}
