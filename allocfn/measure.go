package allocfn

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/kielgo/kiel/internal/operr"
)

// Plan is an input and the assignment that an allocation function made of it.
type Plan struct {
	Input      Input
	Assignment Assignment
}

// Movement says what it takes to go from one plan to another; see [Measure].
type Movement struct {
	Total      Change   // over all topics; its Topic is empty
	Topics     []Change // each topic of either plan, sorted byte by byte
	Members    [2]int   // the numbers of members, before and after
	LowerBound int      // the least number of moves to any perfectly balanced plan
}

// Change compares two plans in one topic, or in all of them.
type Change struct {
	Topic         string
	Before, After Load
	Kept          int // partitions that are in both plans and had an owner before
	Moved         int // partitions of Kept that have another owner after, or none
}

// Load says how the partitions of a topic, or all of them, are spread over all members of a plan.
type Load struct {
	Partitions  int
	Least, Most int // the partitions of the member with the fewest, and of that with the most
	// Even says that each member's count is less than one away from its exact share by weights, which for equal weights is a
	// spread of at most one.
	Even bool
}

// Spread returns the difference between Most and Least.
func (l Load) Spread() int { return l.Most - l.Least }

// Measure compares two plans: how evenly each spreads the partitions, how many of them change hands, and how few could have.
//
// Members and partitions are identified by their names, wherever they stand in a plan. A partition counts as moved when it is in
// both plans, has an owner before and another one or none after; partitions that are only in one plan do not count.
//
// The lower bound is the least that a function can move to reach a perfectly even plan, even if it knows the plan before. Even
// and the bound go by the members' weights; take the weights out of the inputs when the function that made the plans does not
// look at them. Weights above 2^31-1 count as 2^31-1. The bound does not consider topics: a plan that is even in each topic may
// have to move more, and one that is less than even may move less.
//
// Measure returns an error that names the plan if its input is not as documented, or if [Check] refuses its assignment. It makes
// one pass over each plan.
func Measure(before, after Plan) (Movement, error) {
	b, err := newCounter(before)
	if err != nil {
		return Movement{}, operr.New("allocfn", "measure", "the plan before", err)
	}
	a, err := newCounter(after)
	if err != nil {
		return Movement{}, operr.New("allocfn", "measure", "the plan after", err)
	}
	m := Movement{
		Total:   Change{Before: b.load(b.order), After: a.load(a.order)},
		Members: [2]int{len(b.counts), len(a.counts)},
	}
	home := b.indicesIn(a)
	has := make([]int, len(a.counts)) // how many partitions each member could keep
	for b.more() || a.more() {
		topic := nextTopic(b, a)
		old, now := b.take(topic), a.take(topic)
		c := Change{Topic: topic, Before: b.load(old), After: a.load(now)}
		for len(b.counts) > 0 && len(old) > 0 && len(now) > 0 {
			i, k := old[0], now[0]
			x, y := b.in.Partitions[i].ID, a.in.Partitions[k].ID
			if x <= y {
				old = old[1:]
			}
			if y <= x {
				now = now[1:]
			}
			if x != y {
				continue
			}
			c.Kept++
			owner := home[b.owners[i]]
			if owner >= 0 {
				has[owner]++
			}
			if owner < 0 || a.owners[k] != owner {
				c.Moved++
			}
		}
		m.Total.Kept += c.Kept
		m.Total.Moved += c.Moved
		m.Topics = append(m.Topics, c)
	}
	m.LowerBound = m.Total.Kept - a.keepable(has)
	return m, nil
}

// String returns the figures of all topics together in one line.
func (m Movement) String() string {
	t := m.Total
	return fmt.Sprintf("%d of %d partitions moved (at least %d), members %d to %d, spread %d to %d",
		t.Moved, t.Kept, m.LowerBound, m.Members[0], m.Members[1], t.Before.Spread(), t.After.Spread())
}

// WriteTo writes a table of all topics to w, and the line of String below it. It quotes names that are not plain text.
func (m Movement) WriteTo(w io.Writer) (int64, error) {
	var text strings.Builder
	t := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "TOPIC\tPARTITIONS\tPER MEMBER\tSPREAD\tMOVED") //nolint:errcheck // a Builder never fails
	for _, c := range append(slices.Clip(m.Topics), m.Total) {
		name := "(all)"
		if c.Topic != "" {
			name = readable(c.Topic)
		}
		b, a := c.Before, c.After
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%d\n", name, fromTo(b.Partitions, a.Partitions), //nolint:errcheck // as above
			fromTo(fmt.Sprintf("%d-%d", b.Least, b.Most), fmt.Sprintf("%d-%d", a.Least, a.Most)),
			fromTo(b.Spread(), a.Spread()), c.Moved)
	}
	t.Flush() //nolint:errcheck // as above
	text.WriteString(m.String() + "\n")
	n, err := io.WriteString(w, text.String())
	return int64(n), err
}

func fromTo[V comparable](before, after V) string {
	if before == after {
		return fmt.Sprint(after)
	}
	return fmt.Sprintf("%v > %v", before, after)
}

// readable returns s as it is when that is safe to print.
func readable(s string) string {
	if q := quote(s); q != `"`+s+`"` {
		return q
	}
	return s
}
