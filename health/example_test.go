package health_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"sync"

	"github.com/kielgo/kiel/allocator"
	"github.com/kielgo/kiel/health"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/zktest"
)

// A member whose port for probes is open to others: they may ask whether it runs and is ready, and not what its group looks like.
func Example() {
	ctx, cancel := context.WithCancel(context.Background())
	zk, address, err := zktest.StartTCP(ctx, "127.0.0.1:0", zktest.Options{}) // instead of real servers
	if err != nil {
		log.Fatal(err)
	}
	defer zk.Close()
	s, err := session.Start(ctx, []string{address}, session.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close(context.WithoutCancel(ctx))
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	member, err := allocator.New(s, "billing", "host-1", allocator.Options{})
	if err != nil {
		log.Fatal(err)
	}

	mux := http.NewServeMux()
	mux.Handle("/healthz", health.Live(member))
	mux.Handle("/readyz", health.Ready(member))
	server := httptest.NewServer(mux) // a program has an http.Server
	defer server.Close()

	show := func(path string) {
		answer, err := http.Get(server.URL + path)
		if err != nil {
			log.Fatal(err)
		}
		defer answer.Body.Close()
		text, err := io.ReadAll(answer.Body)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%s: %d %s", path, answer.StatusCode, text)
	}
	show("/readyz")
	running.Go(func() { _ = member.Run(ctx) })
	if err := member.Ready(ctx); err != nil {
		log.Fatal(err)
	}
	show("/readyz")
	show("/healthz")
	// Output:
	// /readyz: 503 the first mapping: Run was not called
	// /readyz: 200 ok
	// /healthz: 200 ok
}
