package conformance_test

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/go-zookeeper/zk"

	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/test/conformance"
	"github.com/kielgo/kiel/test/servers"
	"github.com/kielgo/kiel/zktest"
)

// TestCharacters asks a real server and zktest which characters a path may have, and compares session.CheckPath with them: all
// characters of Unicode's basic plane, and some of the others.
func TestCharacters(t *testing.T) {
	t.Parallel()
	var allowed, refused []string
	for r := range unicode.MaxRune + 1 {
		if !utf8.ValidRune(r) || r == '/' || r > 0xffff && r%997 != 0 && r < unicode.MaxRune-1 {
			continue
		}
		path := "/c/a" + string(r) + "b"
		if session.CheckPath(path) == nil {
			allowed = append(allowed, path)
		} else {
			refused = append(refused, path)
		}
	}
	if len(allowed) < 50_000 || len(refused) < 7_000 {
		t.Fatalf("%d characters allowed, %d refused", len(allowed), len(refused))
	}
	zookeeper := servers.StartZooKeeper(t, servers.ZooKeeperOptions{TickTime: conformance.TickTime, MaxSessionTimeout: time.Minute, Heap: "256m"})
	_, test := zktest.Start(t, zktest.Options{})
	for name, address := range map[string]string{"ZooKeeper": zookeeper.Addr(), "zktest": test} {
		conn, _, err := zk.Connect([]string{address}, 30*time.Second, zk.WithLogInfo(false))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if _, err := conn.Create("/c", nil, 0, zk.WorldACL(zk.PermAll)); err != nil {
			t.Fatal(err)
		}
		each(t, slices.Collect(slices.Chunk(allowed, 500)), func(paths []string) error {
			var creates []any
			for _, path := range paths {
				creates = append(creates, &zk.CreateRequest{Path: path, Acl: zk.WorldACL(zk.PermAll)})
			}
			if _, err := conn.Multi(creates...); err != nil {
				return fmt.Errorf("%s: one from %+q to %+q is refused, and CheckPath allows it: %w", name, paths[0], paths[len(paths)-1], err)
			}
			return nil
		})
		each(t, refused, func(path string) error {
			_, err := conn.Create(path, nil, 0, zk.WorldACL(zk.PermAll))
			if !errors.Is(err, zk.ErrBadArguments) && !errors.Is(err, zk.ErrInvalidPath) { // the latter is go-zookeeper's
				return fmt.Errorf("%s: %+q is refused by CheckPath, and gives this: %w", name, path, err)
			}
			return nil
		})
	}
}

// each calls f for each element, many at a time, and reports the first errors.
func each[T any](t *testing.T, list []T, f func(element T) error) {
	t.Helper()
	const atOnce, most = 200, 10
	todo := make(chan T)
	var wg sync.WaitGroup
	var mu sync.Mutex
	faults := 0
	for range atOnce {
		wg.Go(func() {
			for element := range todo {
				err := f(element)
				mu.Lock()
				if err != nil {
					if faults++; faults <= most {
						t.Error(err)
					}
				}
				mu.Unlock()
			}
		})
	}
	for _, element := range list {
		todo <- element
	}
	close(todo)
	wg.Wait()
	if faults > most {
		t.Errorf("%d faults", faults)
	}
}
