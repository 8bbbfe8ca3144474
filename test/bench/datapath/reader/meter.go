package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"regexp"
	"runtime"
	"runtime/pprof"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/kielgo/kiel/test/bench/datapath"
)

// meter counts messages, and takes the sample when the last one has been read.
type meter struct {
	parts   []part
	all     int64 // messages of all partitions
	warm    int64 // so many are read before the rate is measured
	profile string
	finish  context.CancelFunc

	read   atomic.Int64 // in steps of up to stride for each partition
	warmAt time.Time
	warmed int64
	cpu    *os.File // the profile that is being written, or nil
	sample datapath.Sample

	mu   sync.Mutex
	errs []error
}

// maxErrors is how many errors are kept: the first ones tell.
const maxErrors = 10

// stride is how many messages of a partition are counted at once.
const stride = 64

// part is one partition. One goroutine reads it.
type part struct {
	meter   *meter
	id      int32
	next    int64 // offset
	counted int64
	end     int64
	size    int
	_       [64]byte // from the next part, so that cores don't share a cache line
}

func newMeter(partitions int, messages int64, size int, profile string, finish context.CancelFunc) *meter {
	m := &meter{all: int64(partitions) * messages, profile: profile, finish: finish, parts: make([]part, partitions)}
	m.warm = m.all / 10
	for i := range m.parts {
		m.parts[i] = part{meter: m, id: int32(i), end: messages, size: size}
	}
	return m
}

// part returns the partition of this number.
func (m *meter) part(id int32) *part { return &m.parts[id] }

// take counts the next message of the partition, and checks that it is the next.
func (p *part) take(offset int64, value []byte) {
	if offset != p.next || len(value) != p.size || binary.BigEndian.Uint64(value) != uint64(offset) {
		p.meter.fail(fmt.Errorf("partition %d: got offset %d with %d bytes, want offset %d with %d", p.id, offset, len(value), p.next, p.size))
	}
	p.next++
	if p.next%stride == 0 || p.next == p.end {
		n := p.next - p.counted
		p.counted = p.next
		p.meter.add(n)
	}
}

func (m *meter) fail(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.errs) < maxErrors {
		m.errs = append(m.errs, err)
	}
	m.finish()
}

func (m *meter) add(n int64) {
	read := m.read.Add(n)
	if read >= m.warm && read-n < m.warm {
		m.warmAt, m.warmed = time.Now(), read
		m.startProfile()
	}
	if read == m.all {
		m.take()
		m.finish()
	}
}

// take takes the sample.
func (m *meter) take() {
	now := time.Now()
	cpu, err := used()
	if err != nil {
		m.fail(err)
	}
	var heap runtime.MemStats
	runtime.ReadMemStats(&heap)
	m.sample = datapath.Sample{
		CPU:    cpu,
		Allocs: int64(heap.Mallocs), Bytes: int64(heap.TotalAlloc), Memory: peak(),
		Counted: m.all - m.warmed, Elapsed: now.Sub(m.warmAt),
	}
	m.stopProfile()
}

// used returns the CPU time of the process.
func used() (time.Duration, error) {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0, err
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()), nil
}

// peak returns how much memory was resident at most. Rusage does not tell: its figure begins with that of the parent.
func peak() int64 {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	found := regexp.MustCompile(`VmHWM:\s*(\d+) kB`).FindSubmatch(status)
	if found == nil {
		return 0
	}
	kilobytes, _ := strconv.ParseInt(string(found[1]), 10, 64)
	return kilobytes << 10
}

func (m *meter) startProfile() {
	if m.profile == "" {
		return
	}
	file, err := os.Create(m.profile)
	if err == nil {
		m.cpu, err = file, pprof.StartCPUProfile(file)
	}
	if err != nil {
		m.fail(err)
	}
}

func (m *meter) stopProfile() {
	if m.cpu == nil {
		return
	}
	pprof.StopCPUProfile()
	file, err := os.Create(m.profile + ".allocs")
	if err == nil {
		err = pprof.Lookup("allocs").WriteTo(file, 0)
	}
	if err := errors.Join(err, file.Close(), m.cpu.Close()); err != nil {
		m.fail(err)
	}
}

// result returns the sample when all has been read, and nothing but that.
func (m *meter) result() (datapath.Sample, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	errs := m.errs
	for i := range m.parts {
		if p := &m.parts[i]; p.next != p.end {
			errs = append(errs, fmt.Errorf("partition %d: read %d messages, want %d", p.id, p.next, p.end))
		}
	}
	return m.sample, errors.Join(errs...)
}
