package page_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/kielgo/kiel/consumer/inspect"
	"github.com/kielgo/kiel/consumer/page"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/zktest"
)

// A program that is no member serves the page of a group, here of one that has lost all members.
func Example() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	zk, address, err := zktest.StartTCP(ctx, "127.0.0.1:0", zktest.Options{}) // instead of real servers
	if err != nil {
		log.Fatal(err)
	}
	defer zk.Close()
	for _, path := range []string{"/kiel", "/kiel/groups", "/kiel/groups/billing", "/kiel/groups/billing/members"} {
		if err := zk.Create(path, nil); err != nil {
			log.Fatal(err)
		}
	}

	sources := inspect.Sources{Servers: []string{address}, Session: session.Options{Logger: slog.New(slog.DiscardHandler)}}
	p, err := page.New("billing", sources, page.Options{})
	if err != nil {
		log.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	mux := http.NewServeMux()
	mux.Handle("/group/", p) // behind a login of your own: the page shows names, hosts, topics and texts of errors
	server := httptest.NewServer(mux)
	defer server.Close()

	text, err := get(server.URL + "/group/")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("it says so:", strings.Contains(text, "the group has no members"))
	stop()
	if err := <-ended; err != nil {
		log.Fatal(err)
	}
	// Output:
	// it says so: true
}

func get(url string) (string, error) {
	answer, err := http.Get(url)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	return string(text), err
}
