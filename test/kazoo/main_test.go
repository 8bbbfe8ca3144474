package kazoo_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/kielgo/kiel/internal/testonly/logtest"
	"github.com/kielgo/kiel/test/servers"
)

func TestMain(m *testing.M) {
	logtest.Silence()
	flag.Parse()
	parallel()
	goleak.VerifyTestMain(suite{m})
}

// parallel lets many cases run at a time, unless somebody has said how many: they wait most of the time.
func parallel() {
	said := false
	flag.Visit(func(f *flag.Flag) { said = said || f.Name == "test.parallel" })
	if said {
		return
	}
	if err := flag.Set("test.parallel", "16"); err != nil {
		panic(err)
	}
}

// suite is the package's tests, and the server that they share.
type suite struct{ *testing.M }

// Run runs the tests and ends the server, before goroutines are looked for.
func (s suite) Run() int {
	code := s.M.Run()
	if all.end(code != 0) && code == 0 {
		code = 1
	}
	return code
}

// all is what the server belongs to.
var all = &packageTB{}

// zooKeeper returns the server; who asks first waits for its start.
var zooKeeper = sync.OnceValues(func() (*servers.ZooKeeper, error) {
	var zk *servers.ZooKeeper
	done := make(chan struct{})
	go func() { // which Fatal ends
		defer close(done)
		zk = servers.StartZooKeeper(all, servers.ZooKeeperOptions{TickTime: tick})
	}()
	<-done
	if zk == nil {
		return nil, errors.New(all.said())
	}
	return zk, nil
})

// packageTB is a [testing.TB], as far as package servers needs one, that lives as long as the package's tests.
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
