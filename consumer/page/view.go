package page

import (
	"net/url"
	"strings"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/consumer/inspect"
	"github.com/kielgo/kiel/internal/plain"
)

// view is what a viewer has chosen to see of the partitions.
type view struct {
	table     bool
	query     string // in the names of partitions and owners; empty for all
	partition string // of which all is told; empty for none
}

const maxQuery = 100 // bytes

// viewOf reads a view from the parameters of a request. What is not valid is left out.
func viewOf(q url.Values) view {
	v := view{table: q.Get("view") == "table", query: strings.TrimSpace(strings.ToValidUTF8(q.Get("q"), ""))}
	if len(v.query) > maxQuery {
		v.query = strings.ToValidUTF8(v.query[:maxQuery], "")
	}
	if tp, err := kiel.ParsePartition(q.Get("partition")); err == nil {
		v.partition = tp.String()
	}
	return v
}

// link returns a relative address of the page, or of what is beside it.
func (v view) link(name string) string {
	q := url.Values{}
	if v.table {
		q.Set("view", "table")
	}
	if v.query != "" {
		q.Set("q", v.query)
	}
	if v.partition != "" {
		q.Set("partition", v.partition)
	}
	if len(q) > 0 {
		return name + "?" + q.Encode()
	}
	if name == "" {
		return "./"
	}
	return name
}

// beside returns what a link to a partition has for the rest of the view, behind the partition.
func (v view) beside() string {
	v.partition = ""
	if _, rest, ok := strings.Cut(v.link(""), "?"); ok {
		return "&" + rest
	}
	return ""
}

// The bounds of what is shown of partitions.
const (
	maxAll   = 2000 // partitions of a group above which those alone are shown that a finding is about
	maxFound = 500  // partitions that are shown of a search, or with a finding
)

// partitionOf returns the name of a partition.
func partitionOf(p *inspect.Partition) string {
	return kiel.Partition{Topic: p.Topic, ID: p.Partition.Partition}.String()
}

// matches reports whether a partition's name or its owner has the query's text, in the letters in which it is shown.
func (v view) matches(p *inspect.Partition) bool {
	return v.query == "" || strings.Contains(plain.Text(partitionOf(p)), v.query) || strings.Contains(plain.Text(p.Owner), v.query)
}

// choose returns the partitions that a view shows, and how many it leaves out for want of room. about has those with a finding.
func (v view) choose(all []inspect.Partition, about map[string]string) (shown []*inspect.Partition, left int) {
	few := len(all) <= maxAll
	for i := range all {
		p := &all[i]
		switch {
		case v.query != "" && !v.matches(p), v.query == "" && !few && about[partitionOf(p)] == "":
		case !few && len(shown) == maxFound:
			left++
		default:
			shown = append(shown, p)
		}
	}
	return shown, left
}
