// Command fuzz runs fuzz tests, some at a time, and writes what `go test -json` writes, for command results to read: with how
// often each was called as an attribute, and with the input of one that failed, which go test leaves in a file.
//
//	go run ./test/cmd/fuzz -time=20s ./session.FuzzFrames ./sharedset.FuzzDecode
//
// Without names it runs all there are in the module of the working directory. It exits with 1 when one has failed.
package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"time"
)

func main() {
	length := flag.Duration("time", 20*time.Second, "how long to run each")
	jobs := flag.Int("jobs", 2, "how many to run at a time, each on one core")
	flag.Parse()
	ctx := context.Background()
	targets, err := parse(flag.Args())
	if err == nil && len(targets) == 0 {
		targets, err = all(ctx)
	}
	if err != nil { // as an event too: who reads these looks at nothing else
		fmt.Fprintln(os.Stderr, "fuzz:", err)
		write(os.Stdout, event{Action: "fail", Package: "fuzz"})
		os.Exit(1)
	}
	if !run(ctx, os.Stdout, targets, *length, *jobs) {
		os.Exit(1)
	}
}

// target is one fuzz test.
type target struct{ pkg, name string }

func parse(args []string) (targets []target, err error) {
	for _, arg := range args {
		pkg, name, ok := cutLast(arg, ".")
		if !ok || !strings.HasPrefix(name, "Fuzz") {
			return nil, fmt.Errorf("%s is not <package>.Fuzz<name>", arg)
		}
		targets = append(targets, target{pkg, name})
	}
	return targets, nil
}

func cutLast(s, sep string) (before, after string, found bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}

// all finds the fuzz tests.
func all(ctx context.Context) (targets []target, err error) {
	const format = `{{$p := .}}{{range .TestGoFiles}}{{$p.ImportPath}} {{$p.Dir}}/{{.}}
{{end}}{{range .XTestGoFiles}}{{$p.ImportPath}} {{$p.Dir}}/{{.}}
{{end}}`
	out, err := exec.CommandContext(ctx, "go", "list", "-f", format, "./...").Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	fuzz := regexp.MustCompile(`(?m)^func (Fuzz\w*)\(`)
	for line := range strings.Lines(string(out)) {
		pkg, file, ok := strings.Cut(strings.TrimSpace(line), " ")
		if !ok {
			continue
		}
		source, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		for _, found := range fuzz.FindAllSubmatch(source, -1) {
			targets = append(targets, target{pkg, string(found[1])})
		}
	}
	return targets, nil
}

// run runs the targets and reports whether all is well. What each writes stays together.
func run(ctx context.Context, out io.Writer, targets []target, length time.Duration, jobs int) bool {
	var wg sync.WaitGroup
	var mu sync.Mutex
	well := len(targets) > 0
	free := make(chan struct{}, jobs)
	for _, t := range targets {
		free <- struct{}{}
		wg.Go(func() {
			defer func() { <-free }()
			var written bytes.Buffer
			err := t.run(ctx, &written, length)
			for try := 1; try < tries && err != nil && cutShort(written.Bytes()); try++ {
				written.Reset()
				err = t.run(ctx, &written, length)
			}
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				well = false
				if !bytes.Contains(written.Bytes(), []byte(`"Action":"fail"`)) {
					write(&written, event{Action: "output", Package: t.pkg, Test: t.name, Output: err.Error() + "\n"})
					write(&written, event{Action: "fail", Package: t.pkg, Test: t.name})
				}
			}
			if _, err := written.WriteTo(out); err != nil {
				well = false
			}
		})
	}
	wg.Wait()
	return well
}

// tries is how often a fuzz test is run at most that go test itself has ended badly.
const tries = 3

// cutShort says whether go test failed because its own time to fuzz was over at the wrong moment (golang/go#75804), and
// not because of any input.
func cutShort(written []byte) bool {
	return bytes.Contains(written, []byte("context deadline exceeded")) && !bytes.Contains(written, []byte("Failing input"))
}

func (t target) run(ctx context.Context, out io.Writer, length time.Duration) error {
	dir, err := exec.CommandContext(ctx, "go", "list", "-f", "{{.Dir}}", t.pkg).Output()
	if err != nil {
		return fmt.Errorf("go list: %w", err)
	}
	cmd := exec.CommandContext(ctx, "go", "test", "-json", "-run=^$", "-fuzz=^"+t.name+"$", "-fuzztime="+length.String(), "-parallel=1", t.pkg)
	cmd.Stderr = os.Stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	if err := t.relay(out, stdout, strings.TrimSpace(string(dir))); err != nil {
		return err
	}
	return cmd.Wait()
}

// event is what of a line is of interest here.
type event struct {
	Action, Package, Test string
	Output                string `json:",omitempty"`
	Key                   string `json:",omitempty"`
	Value                 string `json:",omitempty"`
}

// What go test says while it fuzzes.
var (
	executed = regexp.MustCompile(`execs: (\d+)`)
	failing  = regexp.MustCompile(`Failing input written to (\S+)`)
)

// relay copies go test's output, and adds what is only in it for humans.
func (t target) relay(out io.Writer, in io.Reader, dir string) error {
	lines := bufio.NewReader(in)
	execs := "0"
	for {
		line, err := lines.ReadString('\n')
		var e event
		if json.Unmarshal([]byte(line), &e) == nil {
			if found := executed.FindStringSubmatch(e.Output); found != nil {
				execs = found[1]
			}
			if e.Test == "" && (e.Action == "pass" || e.Action == "fail") {
				write(out, event{Action: "attr", Package: e.Package, Test: t.name, Key: "execs", Value: execs})
			}
		}
		if _, err := io.WriteString(out, line); err != nil {
			return err
		}
		if found := failing.FindStringSubmatch(e.Output); found != nil {
			input, err := os.ReadFile(filepath.Join(dir, found[1]))
			if err != nil {
				return err
			}
			for line := range strings.Lines(string(input)) {
				write(out, event{Action: "output", Package: e.Package, Test: t.name, Output: "    " + strings.TrimSuffix(line, "\n") + "\n"})
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read go test's output: %w", err)
		}
	}
}

func write(out io.Writer, e event) {
	line, err := json.Marshal(e)
	if err != nil {
		return // strings always can be
	}
	fmt.Fprintf(out, "%s\n", line)
}
