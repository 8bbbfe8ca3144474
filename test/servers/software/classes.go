package software

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// JavaFlags are for servers and tools of tests: they start fast and are small.
func JavaFlags() []string {
	return []string{"-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData"}
}

// Classes returns the file with the classes of the servers in a folder of jars, as Java has them in memory: with it a start takes
// half of the time. Java goes on without it if it is missing, or was made by another Java.
func Classes(jars string) string { return filepath.Join(jars, "classes.jsa") }

const (
	startTimeout = time.Minute            // of a server
	startPoll    = 100 * time.Millisecond // how often it is tried whether one serves
)

// archive makes the classes of a server, which it starts and stops for that. Without them servers only start more slowly, so
// what goes wrong is said on out and is no error.
func archive(ctx context.Context, out io.Writer, p part, dir string) {
	if _, err := os.Stat(Classes(dir)); err == nil {
		return
	}
	start := time.Now()
	if err := p.archive(ctx, dir); err != nil {
		fmt.Fprintf(out, "setup: %s starts more slowly, without an archive of its classes: %v\n", p.name, err)
		return
	}
	fmt.Fprintf(out, "setup: the classes of %s are archived (%.1fs)\n", p.name, time.Since(start).Seconds())
}

func (p part) archive(ctx context.Context, dir string) error {
	java, err := Java()
	if err != nil {
		return err
	}
	tmp, err := os.MkdirTemp("", "kiel-classes-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp) //nolint:errcheck // a folder for temporary files
	addr, other, err := freeAddrs(ctx)
	if err != nil {
		return err
	}
	class, text := p.server(filepath.Join(tmp, "data"), addr, other)
	config := filepath.Join(tmp, "config")
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		return err
	}
	flags := append(JavaFlags(), "-cp", dir+"/*")
	if p.product == "kafka" {
		const cluster = "AAAAAAAAAAAAAAAAAAAAAA"
		if err := run(ctx, java, append(flags, "kafka.tools.StorageTool", "format", "--cluster-id="+cluster, "--config", config)...); err != nil {
			return err
		}
	}
	made := Classes(dir) + ".new"
	defer os.Remove(made) //nolint:errcheck // renamed when all went well
	flags = append([]string{"-XX:ArchiveClassesAtExit=" + made, "-Xlog:disable"}, flags...)
	if err := serveOnce(ctx, addr, java, append(flags, class, config)...); err != nil {
		return err
	}
	return os.Rename(made, Classes(dir))
}

// server returns the class of the server and its configuration.
func (p part) server(data, addr, controller string) (class, config string) {
	if p.product == "kafka" {
		return "kafka.Kafka", "process.roles=broker,controller\nnode.id=1\ncontroller.listener.names=CONTROLLER\n" +
			"controller.quorum.voters=1@" + controller + "\nlisteners=PLAINTEXT://" + addr + ",CONTROLLER://" + controller + "\nlog.dirs=" + data + "\n"
	}
	host, port, _ := strings.Cut(addr, ":")
	return "org.apache.zookeeper.server.quorum.QuorumPeerMain",
		"dataDir=" + data + "\nclientPortAddress=" + host + "\nclientPort=" + port + "\nadmin.enableServer=false\n"
}

// serveOnce starts a server, waits until it serves, and stops it.
func serveOnce(ctx context.Context, addr, name string, args ...string) error {
	ctx, stop := context.WithTimeout(ctx, startTimeout)
	defer stop()
	cmd := exec.CommandContext(ctx, name, args...)
	if err := cmd.Start(); err != nil {
		return err
	}
	dialer := net.Dialer{Timeout: startPoll}
	for ctx.Err() == nil {
		if conn, err := dialer.DialContext(ctx, "tcp", addr); err == nil {
			_ = conn.Close()
			break
		}
		time.Sleep(startPoll)
	}
	time.Sleep(time.Second) // what begins after it serves
	_ = cmd.Process.Signal(syscall.SIGTERM)
	_ = cmd.Wait() // Java says that it was a signal
	return context.Cause(ctx)
}

// freeAddrs returns two addresses on which nobody listens.
func freeAddrs(ctx context.Context) (one, other string, err error) {
	var config net.ListenConfig
	a, err := config.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", "", err
	}
	defer a.Close() //nolint:errcheck // to be free
	b, err := config.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", "", err
	}
	defer b.Close() //nolint:errcheck // to be free
	return a.Addr().String(), b.Addr().String(), nil
}
