//go:build linux

package handout_test

import (
	"errors"
	"net"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// asDevice makes this test binary a device instead of a test. Its value says how long the device takes to reply.
const asDevice = "KIEL_TEST_DEVICE"

func TestMain(m *testing.M) {
	if text := os.Getenv(asDevice); text != "" {
		delay, err := time.ParseDuration(text)
		if err != nil {
			panic(err)
		}
		serve(delay)
		return
	}
	goleak.VerifyTestMain(m)
}

const maxPartitions = 64

// device is what handlers wait for: a process, so that its work is not counted as theirs, at the other end of a socket. One
// goroutine reads its replies and passes them on, as in a client of a database.
type device struct {
	conn    net.Conn
	replies [maxPartitions]chan struct{}
}

func startDevice(b *testing.B, delay time.Duration) *device {
	b.Helper()
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		b.Fatal(err)
	}
	ours, theirs := os.NewFile(uintptr(fds[0]), "device"), os.NewFile(uintptr(fds[1]), "device's")
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), asDevice+"="+delay.String())
	cmd.Stderr = os.Stderr
	cmd.ExtraFiles = []*os.File{theirs}
	conn, err := net.FileConn(ours)
	if err := errors.Join(err, cmd.Start(), ours.Close(), theirs.Close()); err != nil {
		b.Fatal(err)
	}
	d := &device{conn: conn}
	for i := range d.replies {
		d.replies[i] = make(chan struct{}, 1)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		buf := make([]byte, maxPartitions)
		for {
			n, err := conn.Read(buf)
			for _, partition := range buf[:n] {
				d.replies[partition] <- struct{}{}
			}
			if err != nil {
				return
			}
		}
	}()
	b.Cleanup(func() {
		_ = conn.Close()
		<-done
		if err := cmd.Wait(); err != nil {
			b.Error(err)
		}
	})
	d.ask(0) // it is up
	return d
}

// ask waits for a reply.
func (d *device) ask(partition int) {
	if _, err := d.conn.Write([]byte{byte(partition)}); err != nil {
		panic(err)
	}
	<-d.replies[partition]
}

// serve sends each byte of the socket back after a while, until the socket is closed. Timers of Go are not exact enough.
func serve(delay time.Duration) {
	const (
		fd               = 3
		prSetTimerSlack  = 29
		slackNanoseconds = 1
	)
	runtime.LockOSThread()
	if _, _, errno := syscall.RawSyscall(syscall.SYS_PRCTL, prSetTimerSlack, slackNanoseconds, 0); errno != 0 {
		panic(errno)
	}
	type request struct {
		from byte
		due  time.Time
	}
	var queue []request
	buf := make([]byte, 4096)
	for {
		var timeout *syscall.Timeval
		if len(queue) > 0 {
			left := syscall.NsecToTimeval(max(0, time.Until(queue[0].due).Nanoseconds()))
			timeout = &left
		}
		var set syscall.FdSet
		set.Bits[0] = 1 << fd
		ready, err := syscall.Select(fd+1, &set, nil, nil, timeout)
		if err != nil && !errors.Is(err, syscall.EINTR) {
			panic(err)
		}
		now := time.Now()
		if ready > 0 {
			n, err := syscall.Read(fd, buf)
			if err != nil || n == 0 {
				return
			}
			for _, from := range buf[:n] {
				queue = append(queue, request{from, now.Add(delay)})
			}
		}
		reply := buf[:0]
		for len(queue) > 0 && !queue[0].due.After(now) {
			reply, queue = append(reply, queue[0].from), queue[1:]
		}
		if len(reply) > 0 {
			if _, err := syscall.Write(fd, reply); err != nil {
				return
			}
		}
	}
}
