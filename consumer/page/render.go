package page

import (
	"bytes"
	"embed"
	"encoding/json"
	"fmt"
	"hash/maphash"
	"html/template"
	"io/fs"
	"strings"
	"sync"
	"time"

	"github.com/kielgo/kiel/internal/plain"
)

//go:embed assets
var files embed.FS

// parse parses the templates without their line breaks: a part of the page is one line, and so is an event.
func parse() (*template.Template, error) {
	t := template.New("page").Funcs(template.FuncMap{"stamp": stamp})
	for _, name := range []string{"page.html", "partitions.html"} {
		text, err := fs.ReadFile(files, "assets/"+name)
		if err != nil {
			return nil, err
		}
		if _, err := t.Parse(strings.ReplaceAll(string(text), "\n", "")); err != nil {
			return nil, err
		}
	}
	return t, nil
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

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
const (
	headPart   = "partitions"
	chosenPart = "chosen"
	gridPart   = "grid"
)

func parts() []string {
	return []string{"say", "lead", "facts", "findings", headPart, chosenPart, gridPart, "members", "changes", "foot"}
}

// renderer renders snapshots. Its mu is held while something is rendered: one processor at most does so, however many watch.
type renderer struct {
	templates *template.Template
	seed      maphash.Seed
	stale     int // the age of a look in seconds from which it is old

	mu          sync.Mutex
	now, before map[any]fragment // cells and rows that this snapshot, and the one before, have shown
}

// fragment is a partition in the grid or in the table, as HTML: before and behind what a view adds to the link.
type fragment struct{ start, end []byte }

// turn begins a new snapshot: what the one before the last has shown is forgotten.
func (r *renderer) turn() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.now, r.before = map[any]fragment{}, r.now
}

// partition renders a cell or a row, unless that was done. r.mu is held.
func (r *renderer) partition(name string, data any, v view) (template.HTML, error) {
	f, ok := r.now[data]
	if !ok {
		f, ok = r.before[data]
	}
	if !ok {
		html, err := r.render(name, data)
		if err != nil {
			return "", err
		}
		const target = `#partition"` // the link is the first attribute, and its names are escaped: nothing else can be that before it
		i := max(bytes.Index(html, []byte(target)), 0)
		f = fragment{html[:i], html[i:]}
	}
	r.now[data] = f
	return template.HTML(string(f.start) + template.HTMLEscapeString(v.beside()) + string(f.end)), nil //nolint:gosec // the template has escaped it
}

func (r *renderer) render(name string, data any) ([]byte, error) {
	var b bytes.Buffer
	if err := r.templates.ExecuteTemplate(&b, name, data); err != nil {
		return nil, err
	}
	return visible(b.Bytes()), nil
}

// part is a part of the page as HTML, in one line.
type part struct {
	html []byte
	sum  uint64 // of html: viewers keep it, and not the HTML
}

// snapshot is what the page shows from one look to the next. It does not change but for what it keeps of what was rendered.
type snapshot struct {
	*model

	renderer *renderer
	common   map[string]*part // parts that are the same in all views
	grids    map[view]*part   // parts with partitions, by the view without the partition that is chosen
	size     int              // bytes of the grids
	json     []byte           // the report; nil before somebody asks for it
}

// maxKept bounds the bytes of the grids that a snapshot keeps. More views are rendered for each viewer.
const maxKept = 8 << 20

func newSnapshot(h *Handler, s *seen) *snapshot {
	h.renderer.turn()
	return &snapshot{model: newModel(h.group, s), renderer: h.renderer, common: map[string]*part{}, grids: map[view]*part{}}
}

// parts returns all parts of the page in a view.
func (s *snapshot) parts(v view) (map[string]*part, error) {
	s.renderer.mu.Lock()
	defer s.renderer.mu.Unlock()
	all := make(map[string]*part, len(parts()))
	for _, name := range parts() {
		var err error
		switch name {
		case headPart:
			all[name], err = s.render(name, s.head(v))
		case chosenPart:
			all[name], err = s.render(name, s.chosen(v))
		case gridPart:
			all[name], err = s.gridIn(v)
		default:
			all[name], err = s.once(name)
		}
		if err != nil {
			return nil, err
		}
	}
	return all, nil
}

func (s *snapshot) once(name string) (p *part, err error) {
	if s.common[name] == nil {
		if s.common[name], err = s.render(name, s.model); err != nil {
			return nil, err
		}
	}
	return s.common[name], nil
}

func (s *snapshot) gridIn(v view) (*part, error) {
	v.partition = ""
	if p := s.grids[v]; p != nil {
		return p, nil
	}
	data, err := s.grid(v, s.renderer)
	if err != nil {
		return nil, err
	}
	p, err := s.render(gridPart, data)
	if err == nil && s.size+len(p.html) <= maxKept {
		s.grids[v], s.size = p, s.size+len(p.html)
	}
	return p, err
}

func (s *snapshot) render(name string, data any) (*part, error) {
	html, err := s.renderer.render(name, data)
	if err != nil {
		return nil, err
	}
	return &part{html: html, sum: maphash.Bytes(s.renderer.seed, html)}, nil
}

// reportJSON returns the report as JSON.
func (s *snapshot) reportJSON() ([]byte, error) {
	s.renderer.mu.Lock()
	defer s.renderer.mu.Unlock()
	if s.json == nil {
		text, err := json.MarshalIndent(s.report, "", "  ")
		if err != nil {
			return nil, err
		}
		lines := bytes.Split(append(text, '\n'), []byte("\n"))
		for i := range lines {
			lines[i] = visible(lines[i]) // which is the same in JSON
		}
		s.json = bytes.Join(lines, []byte("\n"))
	}
	return s.json, nil
}

// visible returns a text in which nothing is hidden or turned around: names and texts are anybody's. The templates have nothing
// of the kind, nor line breaks.
func visible(text []byte) []byte {
	if !bytes.ContainsFunc(text, plain.Hidden) {
		return text
	}
	return []byte(plain.Text(string(text)))
}

// whole is what the template of the whole page shows.
type whole struct {
	Title  string
	Group  string
	Events string
	JSON   string
	Age    string // in seconds
	Stale  string // the age in seconds from which it is old
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
		Title: s.Title, Group: s.Group, Events: v.link("events"), JSON: "report.json", Age: s.age(now), Stale: fmt.Sprint(s.renderer.stale), At: s.at, AtText: s.at.Format(time.TimeOnly), Topics: s.Topics,
		Parts: map[string]template.HTML{},
	}
	for name, p := range all {
		w.Parts[name] = template.HTML(p.html) //nolint:gosec // the templates have escaped it
	}
	return s.renderer.render("page", w)
}

// age returns how many seconds ago the look was.
func (s *snapshot) age(now time.Time) string {
	return fmt.Sprintf("%.1f", max(now.Sub(s.at), 0).Seconds())
}

// news returns the events for a viewer who has parts with these sums, in pieces that viewers share, and the sums that the viewer
// has then.
func (s *snapshot) news(v view, has map[string]uint64, now time.Time) (events [][]byte, have map[string]uint64, err error) {
	all, err := s.parts(v)
	if err != nil {
		return nil, nil, err
	}
	have = make(map[string]uint64, len(all))
	for _, name := range parts() {
		have[name] = all[name].sum
		if had, ok := has[name]; !ok || had != have[name] {
			events = append(events, []byte("event: part-"+name+"\ndata: "), all[name].html, []byte("\n\n"))
		}
	}
	head, err := json.Marshal(map[string]string{"age": s.age(now), "title": string(visible([]byte(s.Title))), "at": s.at.Format(time.TimeOnly), "stamp": stamp(s.at)})
	if err != nil {
		return nil, nil, err
	}
	return append(events, fmt.Appendf(nil, "event: look\ndata: %s\n\n", head)), have, nil
}
