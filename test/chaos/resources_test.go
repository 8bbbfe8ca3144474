package chaos_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// resources are what a process holds of its machine, by what Linux says of it.
type resources struct {
	files  int   // open descriptors
	memory int64 // bytes of its own that are in use: the heap, garbage included, and stacks
}

func (r resources) String() string {
	return fmt.Sprintf("%d open files, %.1f MiB", r.files, float64(r.memory)/(1<<20))
}

// A process that has been through many faults may hold this much more than when it had just begun to work. Connections to servers
// that come and go are some files. Memory may be twice as much as in the beginning, when nothing had been collected yet, plus the
// heap of 8 MiB that live: it grows to twice that before it is collected.
const (
	moreFiles  = 8
	moreMemory = 16 << 20
)

// grown says in what way there is more of something than there may be.
func (r resources) grown(before resources) (wrong []string) {
	if most := before.files + moreFiles; r.files > most {
		wrong = append(wrong, fmt.Sprintf("%d open files, want %d at most", r.files, most))
	}
	if most := 2*before.memory + moreMemory; r.memory > most {
		wrong = append(wrong, fmt.Sprintf("%d bytes of memory, want %d at most", r.memory, most))
	}
	return wrong
}

// resources are those of a member's process.
func (m *member) resources() resources {
	m.f.t.Helper()
	r, err := resourcesOf(m.Events)
	if err != nil {
		m.f.t.Fatalf("%s: %v", m.Name, err)
	}
	return r
}

// resourcesOf are those of the process with an argument, of which there may be no other.
func resourcesOf(arg string) (r resources, err error) {
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return r, fmt.Errorf("processes: %w", err)
	}
	var dirs []string
	for _, name := range lines {
		line, err := os.ReadFile(name)
		if err != nil {
			continue // it has just gone
		}
		if slices.Contains(strings.Split(string(line), "\x00"), arg) {
			dirs = append(dirs, filepath.Dir(name))
		}
	}
	if len(dirs) != 1 {
		return r, fmt.Errorf("%d processes have the argument %s, want one", len(dirs), arg)
	}
	open, err := os.ReadDir(filepath.Join(dirs[0], "fd"))
	if err != nil {
		return r, fmt.Errorf("open files: %w", err)
	}
	status, err := os.ReadFile(filepath.Join(dirs[0], "status"))
	if err != nil {
		return r, fmt.Errorf("memory: %w", err)
	}
	_, rest, _ := bytes.Cut(status, []byte("\nRssAnon:"))
	value, _, _ := bytes.Cut(rest, []byte(" kB\n"))
	kib, err := strconv.ParseInt(string(bytes.TrimSpace(value)), 10, 64)
	if err != nil {
		return r, fmt.Errorf("memory: %w", err)
	}
	return resources{files: len(open), memory: kib << 10}, nil
}

func TestResources(t *testing.T) {
	t.Parallel()
	before := resources{files: 10, memory: 10 << 20}
	for _, c := range []struct {
		after resources
		wrong int
	}{
		{resources{18, 36 << 20}, 0},
		{resources{19, 36 << 20}, 1},
		{resources{1, 36<<20 + 1}, 1},
		{resources{19, 37 << 20}, 2},
	} {
		if got := c.after.grown(before); len(got) != c.wrong {
			t.Errorf("%v after %v: %q, want %d complaints", c.after, before, got, c.wrong)
		}
	}
}
