package page

import (
	"bytes"
	"errors"
	"net/http"
	"path"
	"strings"
	"time"
)

// policy is the Content-Security-Policy: the page's own files alone.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// ServeHTTP serves the page, and what it links to.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	for name, value := range map[string]string{
		"Content-Security-Policy": policy, "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "Cache-Control": "no-store",
		"Cross-Origin-Resource-Policy": "same-origin", "Cross-Origin-Opener-Policy": "same-origin",
	} {
		w.Header().Set(name, value)
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "only GET and HEAD", http.StatusMethodNotAllowed)
		return
	}
	name := ""
	if !strings.HasSuffix(r.URL.Path, "/") && r.URL.Path != "" {
		name = path.Base(r.URL.Path)
	}
	file, isFile := h.assets[name]
	switch {
	case isFile:
		w.Header().Set("Content-Type", file.kind)
		http.ServeContent(w, r, name, time.Time{}, bytes.NewReader(file.data))
	case name == "":
		h.page(w, r)
	case name == "events":
		h.events(w, r)
	case name == "report.json":
		h.report(w, r)
	default:
		http.NotFound(w, r)
	}
}

// firstLook is how long a request waits for the first look.
const firstLook = 5 * time.Second

// now returns the newest snapshot, and waits for the first one. It returns nil, and answers, if there is none.
func (h *Handler) now(w http.ResponseWriter, r *http.Request) *snapshot {
	h.ask()
	timer := time.NewTimer(firstLook)
	defer timer.Stop()
	for {
		s, newer := h.snapshots.Watch()
		if s != nil {
			return s
		}
		select {
		case <-newer:
			continue
		case <-r.Context().Done():
		case <-h.ended:
			http.Error(w, "this page has ended with its process's part that looks at the group", http.StatusServiceUnavailable)
			return nil
		case <-timer.C:
		}
		w.Header().Set("Refresh", "2") // for people; others read the status
		http.Error(w, "looking at the group: ZooKeeper and Kafka have not answered yet, or Run of this page was not called", http.StatusServiceUnavailable)
		return nil
	}
}

func (h *Handler) page(w http.ResponseWriter, r *http.Request) {
	s := h.now(w, r)
	if s == nil {
		return
	}
	body, err := s.page(viewOf(r.URL.Query()), time.Now())
	if err != nil {
		http.Error(w, "the page can't be made: "+err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	answer(w, body)
}

// answer writes a whole answer. A client that has gone, or is too slow, gets none.
func answer(w http.ResponseWriter, body []byte) {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(slowestPage)) // where that can be set
	_, _ = w.Write(body)                                                            //nolint:gosec // html/template or encoding/json has escaped it
}

// report answers with the report as JSON.
func (h *Handler) report(w http.ResponseWriter, r *http.Request) {
	s := h.now(w, r)
	if s == nil {
		return
	}
	if s.report == nil {
		http.Error(w, s.err.Error(), http.StatusServiceUnavailable)
		return
	}
	body, err := s.reportJSON()
	if err != nil {
		http.Error(w, "encode the report: "+err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	answer(w, body)
}

const (
	heartbeat = 15 * time.Second // between events, when there is nothing new
	slowest   = 10 * time.Second // for a viewer to take what is new

	slowestPage = time.Minute      // for a viewer to take a page
	streamLife  = 10 * time.Minute // of a stream: then the browser asks anew, and the user's login is asked, too
)

// events serves what is new as it comes.
func (h *Handler) events(w http.ResponseWriter, r *http.Request) {
	leave, ok := h.enter()
	if !ok {
		w.Header().Set("Retry-After", "10")
		http.Error(w, "too many viewers", http.StatusServiceUnavailable)
		return
	}
	defer leave()
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no") // proxies pass events on at once
	if r.Method == http.MethodHead {
		return
	}
	h.ask()
	to := viewer{rc: http.NewResponseController(w), w: w}
	_ = to.rc.SetReadDeadline(time.Time{}) // a server's time-outs are for requests that end
	v, has := viewOf(r.URL.Query()), map[string]uint64(nil)
	beat := time.NewTicker(heartbeat)
	defer beat.Stop()
	life := time.NewTimer(streamLife)
	defer life.Stop()
	for {
		s, newer := h.snapshots.Watch()
		if s != nil {
			events, have, err := s.news(v, has, time.Now())
			if err != nil || to.send(events...) != nil {
				return
			}
			has = have
		}
		select {
		case <-newer:
		case <-beat.C:
			if to.send([]byte(": alive\n\n")) != nil {
				return
			}
		case <-life.C:
			return
		case <-r.Context().Done():
			return
		case <-h.ended:
			return
		}
	}
}

// viewer is who is served what is new.
type viewer struct {
	rc *http.ResponseController
	w  http.ResponseWriter
}

// send writes events and passes them on.
func (v viewer) send(events ...[]byte) error {
	if err := v.rc.SetWriteDeadline(time.Now().Add(slowest)); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	for _, b := range events {
		if _, err := v.w.Write(b); err != nil { //nolint:gosec // html/template has escaped it
			return err
		}
	}
	return v.rc.Flush()
}
