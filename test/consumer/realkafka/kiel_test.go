package realkafka_test

import (
	"bytes"
	"context"
	"encoding/json"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel/consumer/inspect"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/test/servers"
)

// installed is the command kiel, as it is installed, and the servers that it asks.
type installed struct {
	*rig
	bin       string
	zookeeper string
}

func newInstalled(t *testing.T, zk *servers.ZooKeeper) *installed {
	t.Helper()
	k := &installed{rig: sharedRig(t, servers.Kafka4, 4), bin: filepath.Join(t.TempDir(), "kiel")}
	k.zk, k.zookeeper = zk.Addr(), strings.Join(zk.Addrs(), ",")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", k.bin, "github.com/kielgo/kiel/cmd/kiel").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return k
}

// run runs a command.
func (k *installed) run(args ...string) (out string, code int) {
	k.t.Helper()
	cmd := exec.CommandContext(k.t.Context(), k.bin, append(args, "--zookeeper", k.zookeeper, "--kafka", strings.Join(k.brokers, ","))...)
	var errOut bytes.Buffer
	cmd.Stderr = &errOut
	stdout, _ := cmd.Output()
	code = cmd.ProcessState.ExitCode()
	k.t.Logf("kiel %s: exit code %d\n%s%s", strings.Join(args, " "), code, stdout, errOut.String())
	return string(stdout), code
}

// wants runs a command that must have this exit code, and a text in its output.
func (k *installed) wants(code int, text string, args ...string) {
	k.t.Helper()
	if out, got := k.run(args...); got != code || !strings.Contains(out, text) {
		k.t.Errorf("kiel %s: exit code %d, want %d and %q: %s", strings.Join(args, " "), got, code, text, out)
	}
}

// producing writes to partitions until stop is called.
func (k *installed) producing(partitions ...int32) (stop func()) {
	ends, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-ends:
				return
			case <-time.After(300 * time.Millisecond):
				k.produce(1, partitions...)
			}
		}
	}()
	return func() { close(ends); <-ended }
}

// releases deletes a znode in the place of a claim that nobody has ever made, and checks that it leaves no epoch.
func (k *installed) releases(partition string) {
	k.t.Helper()
	s, err := session.Start(k.t.Context(), strings.Split(k.zookeeper, ","), session.Options{})
	if err != nil {
		k.t.Fatal(err)
	}
	defer s.Close(context.WithoutCancel(k.t.Context()))
	inc, err := s.Incarnation(k.t.Context())
	if err != nil {
		k.t.Fatal(err)
	}
	if _, err := inc.Create(k.t.Context(), "/kiel/groups/"+k.group+"/owners/"+partition, nil, session.Persistent); err != nil {
		k.t.Fatal(err)
	}
	k.wants(0, "deleted", "release", k.group, partition, "--yes")
	k.wants(1, "", "release", k.group, partition, "--yes")
	if exists, _, err := inc.Exists(k.t.Context(), "/kiel/groups/"+k.group+"/epochs/"+partition); exists || err != nil {
		k.t.Errorf("an epoch is left: %v, %v", exists, err)
	}
}

// On real servers kiel finds a handler that hangs, resets offsets when the members have gone, and says that the quorum is lost.
func TestKielOnRealServers(t *testing.T) {
	t.Parallel()
	zk := servers.StartZooKeeper(t, servers.ZooKeeperOptions{Servers: 3, TickTime: time.Second})
	k := newInstalled(t, zk)
	var hang atomic.Bool
	release := make(chan struct{})
	k.processed = func(m *sarama.ConsumerMessage) {
		if hang.Load() && m.Partition == 0 {
			<-release
		}
	}
	c := k.member("c1")
	k.produce(5, 0, 1, 2, 3)
	until(t, "all is committed", func() bool {
		out, _ := k.run("why", k.group, k.topic+":0")
		return strings.Contains(out, "committed 5 of 5")
	})
	k.wants(0, "ZooKeeper 3/3, Kafka ok", "doctor", k.group, "--window", "2s")
	hang.Store(true)
	began := time.Now()
	k.produce(5, 0)
	stop := k.producing(0, 1)
	out, _ := k.run("doctor", k.group, "--window", "5s", "-o", "json")
	stop()
	var report inspect.Report
	if err := json.Unmarshal([]byte(out), &report); err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(report.Findings, func(f inspect.Finding) bool {
		return f.Kind == inspect.StandsStill && slices.Equal(f.Objects, []string{k.topic + ":0"}) && f.Member == "c1" && f.Waiting >= 5 && f.Since != nil
	})
	if i < 0 || report.Findings[i].Since.Before(began.Add(-time.Second)) || report.Findings[i].Since.After(began.Add(10*time.Second)) {
		t.Errorf("findings %+v", report.Findings)
	}
	reset := []string{"offsets", "reset", k.group, "--topic", k.topic, "--to", "@-1h", "--yes"}
	k.wants(1, "", reset...)
	close(release)
	c.leave()
	k.wants(0, "stored", reset...)
	k.wants(0, "a reset", "offsets", "show", k.group)
	k.releases(k.topic + ":99")
	for _, node := range zk.Nodes()[:2] {
		node.Kill()
	}
	k.wants(1, "no quorum of ZooKeeper answers", "doctor", k.group, "--wait", "5s")
}
