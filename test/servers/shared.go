package servers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
)

// Shared is what the tests of a package share: servers that are started when the first test asks for them, and that are ended
// when all tests have run. The zero value is ready. Run the tests by [Shared.Main].
type Shared struct {
	mu      sync.Mutex
	started map[string]func() (any, error)
	tb      packageTB
}

// Share returns what start returned when a test asked for this key for the first time.
func Share[T any](tb testing.TB, s *Shared, key string, start func(testing.TB) T) T {
	tb.Helper()
	s.mu.Lock()
	once := s.started[key]
	if once == nil {
		if s.started == nil {
			s.started = map[string]func() (any, error){}
		}
		once = sync.OnceValues(func() (any, error) { return s.start(func() any { return start(&s.tb) }) })
		s.started[key] = once
	}
	s.mu.Unlock()
	v, err := once()
	if err != nil {
		tb.Fatalf("%s: %v", key, err)
	}
	shared, ok := v.(T)
	if !ok {
		tb.Fatalf("%s is a %T", key, v)
	}
	return shared
}

// Kafka returns the cluster with this key, whose brokers tests must leave alone, as the test's own.
func (s *Shared) Kafka(tb testing.TB, key string, opts KafkaOptions) *Kafka {
	tb.Helper()
	return Share(tb, s, key, func(tb testing.TB) *Kafka {
		tb.Helper()
		return StartKafka(tb, opts)
	}).As(tb)
}

// As returns the same cluster for another test: what goes wrong in its methods ends that test.
func (k *Kafka) As(tb testing.TB) *Kafka {
	tb.Helper()
	same := *k
	same.tb, same.nodes = tb, nil
	for _, n := range k.nodes {
		node := *n
		node.kafka = &same
		same.nodes = append(same.nodes, &node)
	}
	return &same
}

// start calls f on a goroutine of its own, which Fatal ends.
func (s *Shared) start(f func() any) (v any, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		v = f()
	}()
	<-done
	if v == nil {
		return nil, errors.New(s.tb.said())
	}
	return v, nil
}

// Main returns tests that end the shared servers when all have run, for goleak.VerifyTestMain or their own Run.
func (s *Shared) Main(m interface{ Run() int }) interface{ Run() int } { return sharing{s, m} }

type sharing struct {
	shared *Shared
	tests  interface{ Run() int }
}

// Run runs the tests and ends the servers.
func (s sharing) Run() int {
	code := s.tests.Run()
	if s.shared.tb.end(code != 0) && code == 0 {
		code = 1
	}
	return code
}

// packageTB is a [testing.TB], as far as servers need one, that lives as long as the tests of a package.
type packageTB struct {
	testing.TB // nil: the methods that are not below

	mu       sync.Mutex
	cleanups []func()
	errs     []string
	failed   bool
}

func (p *packageTB) Helper()                  {}
func (p *packageTB) Context() context.Context { return context.Background() }

func (p *packageTB) Logf(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }

func (p *packageTB) Errorf(format string, args ...any) {
	p.Logf(format, args...)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.failed = true
	p.errs = append(p.errs, fmt.Sprintf(format, args...))
}

func (p *packageTB) Fatalf(format string, args ...any) {
	p.Errorf(format, args...)
	runtime.Goexit()
}

func (p *packageTB) Fatal(args ...any) { p.Fatalf("%s", fmt.Sprint(args...)) }

func (p *packageTB) Cleanup(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cleanups = append(p.cleanups, f)
}

// TempDir returns a folder that is removed in the end.
func (p *packageTB) TempDir() string {
	dir, err := os.MkdirTemp("", "kiel-shared-")
	if err != nil {
		p.Fatal(err)
	}
	p.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func (p *packageTB) Failed() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.failed
}

// said returns the errors so far.
func (p *packageTB) said() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Join(p.errs, "; ")
}

// end runs the cleanups, the newest first, and reports whether anything has failed.
func (p *packageTB) end(failed bool) bool {
	p.mu.Lock()
	p.failed = p.failed || failed
	cleanups := p.cleanups
	p.mu.Unlock()
	for _, f := range slices.Backward(cleanups) {
		f()
	}
	return p.Failed()
}
