package page

import (
	"bytes"
	"embed"
	"encoding/json"
	"fmt"
	"html/template"
	"io/fs"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/kielgo/kiel/internal/plain"
)

//go:embed assets
var files embed.FS

func parse() (*template.Template, error) {
	return template.New("page").Funcs(template.FuncMap{
		"stamp": func(t time.Time) string { return t.UTC().Format(time.RFC3339) },
	}).ParseFS(files, "assets/*.html")
}

// asset is a file that the page links to.
type asset struct {
	data []byte
	kind string
}

func loadAssets() (map[string]asset, error) {
	all := map[string]asset{}
	for name, kind := range map[string]string{
		"page.css": "text/css; charset=utf-8", "page.js": "text/javascript; charset=utf-8", "icon.svg": "image/svg+xml",
	} {
		data, err := fs.ReadFile(files, "assets/"+name)
		if err != nil {
			return nil, err
		}
		all[name] = asset{data, kind}
	}
	return all, nil
}

// The parts of the page that are replaced when they change. Each is a template and, behind "part-", the id of an element.
const partitionsPart = "partitions"

func parts() []string {
	return []string{"say", "lead", "facts", "findings", partitionsPart, "members", "changes", "foot"}
}

// snapshot is what the page shows from one look to the next. It does not change but for what it keeps of what it has rendered.
type snapshot struct {
	*model

	templates *template.Template

	mu       sync.Mutex // held while something is rendered: one processor at most does so
	common   map[string]*part
	rendered map[view]*part // the partitions, as views show them
}

// part is a part of the page as HTML, and as an event for those who have an older one.
type part struct {
	html  []byte
	event []byte
}

// maxRendered is how many views a snapshot keeps.
const maxRendered = 200

func newSnapshot(h *Handler, s *seen) *snapshot {
	return &snapshot{model: newModel(h.group, s), templates: h.templates, common: map[string]*part{}, rendered: map[view]*part{}}
}

// parts returns all parts of the page in a view.
func (s *snapshot) parts(v view) (map[string]*part, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make(map[string]*part, len(parts()))
	for _, name := range parts() {
		var err error
		if name == partitionsPart {
			all[name], err = s.partitionsIn(v)
		} else {
			all[name], err = s.once(name)
		}
		if err != nil {
			return nil, err
		}
	}
	return all, nil
}

func (s *snapshot) once(name string) (*part, error) {
	if s.common[name] == nil {
		p, err := s.render(name, s.model)
		if err != nil {
			return nil, err
		}
		s.common[name] = p
	}
	return s.common[name], nil
}

func (s *snapshot) partitionsIn(v view) (*part, error) {
	if p := s.rendered[v]; p != nil {
		return p, nil
	}
	p, err := s.render(partitionsPart, s.partitions(v))
	if err == nil && len(s.rendered) < maxRendered {
		s.rendered[v] = p
	}
	return p, err
}

func (s *snapshot) render(name string, data any) (*part, error) {
	var b bytes.Buffer
	if err := s.templates.ExecuteTemplate(&b, name, data); err != nil {
		return nil, err
	}
	p := &part{html: visible(b.Bytes())}
	event, err := json.Marshal(map[string]string{"id": "part-" + name, "html": string(p.html)})
	if err != nil {
		return nil, err
	}
	p.event = fmt.Appendf(nil, "event: part\ndata: %s\n\n", event)
	return p, nil
}

// visible returns a text in which nothing is hidden or turned around: names and texts are anybody's. The templates have nothing of the kind.
func visible(text []byte) []byte {
	hidden := func(r rune) bool { return r != '\n' && (r == utf8.RuneError || plain.Hidden(r)) }
	if !bytes.ContainsFunc(text, hidden) {
		return text
	}
	var b strings.Builder
	for _, r := range string(text) {
		if hidden(r) {
			b.WriteString(plain.Text(string(r)))
		} else {
			b.WriteRune(r)
		}
	}
	return []byte(b.String())
}

// whole is what the template of the whole page shows.
type whole struct {
	Title  string
	Group  string
	Events string
	JSON   string
	Age    string // in seconds
	At     time.Time
	AtText string
	Topics string
	Parts  map[string]template.HTML
}

// page renders the whole page in a view.
func (s *snapshot) page(v view, now time.Time) ([]byte, error) {
	all, err := s.parts(v)
	if err != nil {
		return nil, err
	}
	w := whole{
		Title: s.Title, Group: s.Group, Events: v.link("events"), JSON: "report.json", Age: s.age(now), At: s.at, AtText: s.at.Format(time.TimeOnly), Topics: s.Topics,
		Parts: map[string]template.HTML{},
	}
	for name, p := range all {
		w.Parts[name] = template.HTML(p.html) //nolint:gosec // the templates have escaped it
	}
	var b bytes.Buffer
	if err := s.templates.ExecuteTemplate(&b, "page", w); err != nil {
		return nil, err
	}
	return visible(b.Bytes()), nil
}

// age returns how many seconds ago the look was.
func (s *snapshot) age(now time.Time) string {
	return fmt.Sprintf("%.1f", max(now.Sub(s.at), 0).Seconds())
}

// news returns the events for a viewer who has these parts, and what the viewer has then.
func (s *snapshot) news(v view, has map[string]*part, now time.Time) (events []byte, have map[string]*part, err error) {
	have, err = s.parts(v)
	if err != nil {
		return nil, nil, err
	}
	for _, name := range parts() {
		if old := has[name]; old == nil || !bytes.Equal(old.html, have[name].html) {
			events = append(events, have[name].event...)
		}
	}
	head, err := json.Marshal(map[string]string{"age": s.age(now), "title": string(visible([]byte(s.Title))), "at": s.at.Format(time.TimeOnly)})
	if err != nil {
		return nil, nil, err
	}
	return fmt.Appendf(events, "event: look\ndata: %s\n\n", head), have, nil
}
