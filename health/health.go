package health

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/kielgo/kiel/status"
)

// Timeout is how long the sources of one request to [Live] have to answer.
const Timeout = 5 * time.Second

// Source is a part of the process whose health the handlers report. Its methods are called from any goroutine.
type Source interface {
	// Alive returns nil if the source's loops have answered, and otherwise the reason. It returns when ctx ends, and does not
	// depend on servers.
	Alive(ctx context.Context) error
	// NotReady returns what the source waits for before it is ready, "" if it is ready. It does not block.
	NotReady() string
	// Status describes the group as the source sees it. It may ask Kafka for the ends of partitions, as a consumer.Group does,
	// and takes a second or two at most. It never returns nil.
	Status() *status.Group
}

// Handler serves [Live] at /healthz, [Ready] at /readyz and [Status] at /status, for one source or several.
func Handler(source Source, more ...Source) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/healthz", Live(source, more...))
	mux.Handle("/readyz", Ready(source, more...))
	mux.Handle("/status", Status(source, more...))
	return mux
}

// Live answers 200 when all sources are alive, and 503 with the reasons when one is not, or has not answered within [Timeout].
func Live(source Source, more ...Source) http.Handler {
	sources := list(source, more)
	return reading(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), Timeout)
		defer cancel()
		var faults []string
		for _, s := range sources {
			if err := s.Alive(ctx); err != nil {
				faults = append(faults, err.Error())
			}
		}
		answer(w, faults)
	})
}

// Ready answers 200 when no source waits for anything, and otherwise 503 with what the sources wait for.
func Ready(source Source, more ...Source) http.Handler {
	sources := list(source, more)
	return reading(func(w http.ResponseWriter, _ *http.Request) {
		var faults []string
		for _, s := range sources {
			if what := s.NotReady(); what != "" {
				faults = append(faults, what)
			}
		}
		answer(w, faults)
	})
}

// Status answers with the JSON of one source's status.Group, indented if the request has the parameter pretty. Where there are
// several sources, the parameters group and member choose one; 404 says that none matches, 400 that several do. A source is asked
// once a second at most, however many look: its answer may be a second old.
func Status(source Source, more ...Source) http.Handler {
	sources := list(source, more)
	for i, s := range sources {
		sources[i] = &recent{Source: s}
	}
	return reading(func(w http.ResponseWriter, r *http.Request) {
		query := r.URL.Query()
		found := find(sources, query.Get("group"), query.Get("member"))
		switch len(found) {
		case 0:
			http.Error(w, "no such group or member in this process", http.StatusNotFound)
		case 1:
			describe(w, found[0], query.Has("pretty"))
		default:
			http.Error(w, fmt.Sprintf("%d sources: choose one by ?group=…&member=…", len(found)), http.StatusBadRequest)
		}
	})
}

// recent is a source that keeps its last description for maxAge.
type recent struct {
	Source

	mu   sync.Mutex // held while the source is asked: the others wait for the same answer
	last *status.Group
	at   time.Time // when last was made
}

// maxAge is how old an answer to a request may be.
const maxAge = time.Second

// Status returns the last description, or asks for another if that is too old. The result is shared.
func (r *recent) Status() *status.Group {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.last == nil || time.Since(r.at) >= maxAge {
		r.last, r.at = r.Source.Status(), time.Now()
	}
	return r.last
}

// find returns the descriptions of this group and this member; "" means any.
func find(sources []Source, group, member string) []*status.Group {
	var found []*status.Group
	for _, s := range sources {
		g := s.Status()
		if (group == "" || group == g.Group) && (member == "" || g.Self != nil && member == g.Self.Name) {
			found = append(found, g)
		}
	}
	return found
}

func describe(w http.ResponseWriter, g *status.Group, pretty bool) {
	var body bytes.Buffer
	encoder := json.NewEncoder(&body)
	if pretty {
		encoder.SetIndent("", "  ")
	}
	if err := encoder.Encode(g); err != nil {
		http.Error(w, "encode the status: "+err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	write(w, body.Bytes())
}

// answer writes 200, or 503 with a line for each fault.
func answer(w http.ResponseWriter, faults []string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	if len(faults) == 0 {
		write(w, []byte("ok\n"))
		return
	}
	w.WriteHeader(http.StatusServiceUnavailable)
	write(w, []byte(strings.Join(faults, "\n")+"\n"))
}

func write(w http.ResponseWriter, body []byte) {
	_, _ = w.Write(body) // a client that has gone gets no answer
}

// reading passes only GET and HEAD to h, and forbids clients to cache the answer or to guess its type.
func reading(h http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "no-store")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", "GET, HEAD")
			http.Error(w, "only GET and HEAD", http.StatusMethodNotAllowed)
			return
		}
		h(w, r)
	})
}

func list(source Source, more []Source) []Source { return append([]Source{source}, more...) }
