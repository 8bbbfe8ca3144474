package page

import (
	"fmt"
	"html/template"
	"strconv"
	"strings"
	"time"

	"github.com/kielgo/kiel/consumer/inspect"
	"github.com/kielgo/kiel/status"
)

// headModel is what the templates show above the partitions.
type headModel struct {
	Known  bool // whether there is anything to show
	Old    string
	Table  bool
	Query  string
	Other  string // the link to the other form: a table, or a grid
	All    string // the link to all that is not searched
	Search bool   // whether there is enough to search
}

// gridModel is what the templates show of partitions as a grid or as a table.
type gridModel struct {
	Known  bool // whether there is anything to show
	Claims bool
	Query  string
	Few    bool // whether all are shown without a search
	Total  int
	Left   int // how many are left out
	Table  bool
	Topics []topicCells
	Rows   []template.HTML
}

type topicCells struct {
	Topic string
	Cells []template.HTML
}

type cell struct {
	Link, ID, Letter, Class, Label, Behind string
	Bad                                    bool
}

type partitionRow struct {
	Link, Name, Owner, Letter, Colour, Since, Committed, End, Waiting, Behind, Before, Because, Fault string
}

// chosenModel is what the templates show of the partition that was asked for.
type chosenModel struct {
	Chosen  *chosen
	Missing string // the partition if it is not there
}

type chosen struct {
	Name  string
	Lines []string
	Cards []card
	Close string
}

// moved is how long ago a partition has moved if it is shown so.
const moved = 5 * time.Minute

func (m *model) head(v view) *headModel {
	k := m.kept
	if k == nil {
		return &headModel{}
	}
	other, all := v, v
	other.table, all.query = !v.table, ""
	return &headModel{
		Known: true, Old: m.Old, Table: v.table, Query: v.query, Other: other.link(""), All: all.link(""), Search: k.Claims && (len(k.Partitions) > 50 || v.query != ""),
	}
}

// grid returns the partitions that a view shows, which r renders one by one.
func (m *model) grid(v view, r *renderer) (*gridModel, error) {
	k := m.kept
	if k == nil {
		return &gridModel{}, nil
	}
	out := &gridModel{Known: true, Claims: k.Claims, Query: v.query, Few: len(k.Partitions) <= maxAll, Total: len(k.Partitions), Table: v.table}
	if !k.Claims {
		return out, nil
	}
	var shown []*inspect.Partition
	shown, out.Left = v.choose(k.Partitions, m.about)
	for _, p := range shown {
		if v.table {
			html, err := r.partition("row", m.row(p), v)
			if err != nil {
				return nil, err
			}
			out.Rows = append(out.Rows, html)
			continue
		}
		if n := len(out.Topics); n == 0 || out.Topics[n-1].Topic != p.Topic {
			out.Topics = append(out.Topics, topicCells{Topic: p.Topic})
		}
		html, err := r.partition("cell", m.cell(p), v)
		if err != nil {
			return nil, err
		}
		t := &out.Topics[len(out.Topics)-1]
		t.Cells = append(t.Cells, html)
	}
	return out, nil
}

func (m *model) cell(p *inspect.Partition) cell {
	name := partitionOf(p)
	c := cell{Link: view{partition: name}.link(""), ID: strconv.Itoa(int(p.Partition.Partition))}
	owner, class := p.Owner, ""
	c.Letter, class = m.owner(p.Owner)
	switch {
	case p.State == status.Free || p.State == status.Blocked || p.State == status.Owned && p.Owner == "":
		owner, class, c.Letter = "no owner", "nobody", "–"
		if p.State == status.Owned {
			owner, class = "owner not known", "unknown"
		}
		if p.State == status.Blocked {
			owner = "no owner: blocked"
		}
	default:
		owner = "owner " + owner
	}
	label := []string{name, owner}
	if fault := m.about[name]; fault != "" {
		c.Bad, class = true, class+" bad"
		label = append(label, fault)
	}
	if p.Since != nil && p.State == status.Owned && p.Previous != "" && p.Previous != p.Owner && m.at.Sub(*p.Since) < moved {
		class += " moved"
		label = append(label, "moved from "+p.Previous+" since "+inspect.Clock(*p.Since, m.at))
	}
	c.Behind = behind(p, m.kept.At)
	if o := p.Kafka; o != nil && o.Waiting >= 0 {
		label = append(label, fmt.Sprintf("%d wait", o.Waiting))
	}
	c.Class, c.Label = class, strings.Join(label, ", ")
	return c
}

// behind returns how old the first message is that waits.
func behind(p *inspect.Partition, now time.Time) string {
	switch o := p.Kafka; {
	case o == nil || o.Waiting < 0:
		return "?"
	case o.Waiting == 0:
		return "0s"
	case o.Oldest == nil:
		return fmt.Sprintf("%d wait", o.Waiting)
	default:
		return short(now.Sub(*o.Oldest))
	}
}

// short returns a time in one unit or two, for little room.
func short(d time.Duration) string {
	d = max(d, 0)
	switch {
	case d < 10*time.Second:
		return fmt.Sprintf("%.1fs", d.Seconds())
	case d < time.Minute:
		return fmt.Sprintf("%.0fs", d.Seconds())
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", int(d.Minutes()), int(d.Seconds())%60)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
	default:
		return fmt.Sprintf("%dd", int(d.Hours())/24)
	}
}

func (m *model) row(p *inspect.Partition) partitionRow {
	name := partitionOf(p)
	row := partitionRow{
		Link: view{partition: name}.link(""), Name: name, Owner: p.Owner, Since: "-", Committed: "-", End: "-", Waiting: "-", Behind: "-", Before: p.Previous, Fault: m.about[name],
	}
	row.Letter, row.Colour = m.owner(p.Owner)
	if p.State != status.Owned {
		row.Owner, row.Letter, row.Colour = "("+string(p.State)+")", "–", "nobody"
	}
	if p.Since != nil {
		row.Since = inspect.Clock(*p.Since, m.at)
	}
	if p.Reason != nil {
		row.Because = p.Reason.String()
	}
	if o := p.Kafka; o != nil {
		row.Committed, row.End, row.Waiting = inspect.Number(o.Committed), inspect.Number(o.End), inspect.Number(o.Waiting)
		if o.Oldest != nil {
			row.Behind = inspect.Age(*o.Oldest, m.kept.At)
		}
	}
	return row
}

// chosen returns all about the partition that was asked for.
func (m *model) chosen(v view) chosenModel {
	if v.partition == "" || m.kept == nil {
		return chosenModel{}
	}
	for i := range m.kept.Partitions {
		p := &m.kept.Partitions[i]
		if partitionOf(p) != v.partition {
			continue
		}
		c := &chosen{Name: v.partition, Lines: p.Why(m.kept)}
		if m.report != nil {
			for _, f := range m.report.Findings {
				if f.Concerns(v.partition) || f.Concerns(p.Topic) || f.Concerns(p.Owner) {
					c.Cards = append(c.Cards, m.card(f))
				}
			}
		}
		v.partition = ""
		c.Close = v.link("") + "#partitions"
		return chosenModel{Chosen: c}
	}
	return chosenModel{Missing: v.partition}
}
