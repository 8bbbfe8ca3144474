package page

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kielgo/kiel/consumer/inspect"
	"github.com/kielgo/kiel/status"
)

// model is what the templates show of a snapshot.
type model struct {
	*seen

	Group       string
	Title       string
	Verdict     string
	Bad         bool   // there is a problem, or nothing can be said
	Well        bool   // there is none, and all could be seen
	Lead        string // the sentence behind the verdict
	Topics      string
	Asked       string
	Old         string // when the members and partitions were so, if that is not now
	Facts       []fact
	Blind       []string // what the page can't see
	Findings    []card
	Unshown     int // findings that are not among them
	Members     []memberRow
	MoreMembers int // that are not among them
	Changes     []changeRow
	about       map[string]string // the words of findings, by partition
}

type fact struct {
	Name, Value, More string
	Bad               bool
}

type card struct {
	inspect.Finding

	Note   bool
	Effect string
	All    string // the objects, if there are several
}

type memberRow struct {
	Name, Letter, Colour string
	Since                *time.Time
	SinceText            string
	Owned                string
	Rate, Waiting        string
	Process, State       string
	Bad                  bool
}

type changeRow struct {
	At       time.Time
	AtText   string
	Text     string
	Duration string
}

// newModel makes the model of what is seen.
func newModel(group string, s *seen) *model {
	m := &model{seen: s, Group: group, about: map[string]string{}}
	r := s.report
	if r == nil {
		m.Verdict, m.Bad, m.Lead, m.Asked = "not seen", true, "the group can't be looked at: "+s.err.Error(), "nothing"
	} else {
		m.Verdict, m.Bad, m.Lead, m.Asked = r.Verdict(), r.Problems() > 0, m.lead(), r.Asked()
		m.Well = !m.Bad && r.Complete()
		m.Findings, m.Unshown = m.cards()
		m.Blind = blind(r)
	}
	m.Changes = changeRows(s)
	m.Title = m.Verdict + " · " + group + " · kiel"
	if k := s.kept; k != nil {
		if k != r {
			m.Old = inspect.Clock(k.At, s.at)
		}
		m.Topics = topicsOf(k)
		m.findAbout()
		m.Facts = m.facts()
		m.Members, m.MoreMembers = m.members()
	}
	return m
}

func changeRows(s *seen) (rows []changeRow) {
	for _, c := range s.changes {
		row := changeRow{At: c.first, AtText: inspect.Clock(c.first, s.at), Text: c.String()}
		if d := c.last.Sub(c.first); c.count > 1 && d >= 100*time.Millisecond {
			row.Duration = fmt.Sprintf("in %.1fs", d.Seconds())
		}
		rows = append(rows, row)
	}
	return rows
}

// lead returns what is to be read first: the first problem, or that there is none.
func (m *model) lead() string {
	r := m.report
	for _, f := range r.Findings {
		if f.Severity != inspect.Problem {
			continue
		}
		s := f.About() + ": " + clause(f.Text) + inspect.Since(f.Since, r.At)
		if f.Waiting > 0 {
			s += fmt.Sprintf(", %d wait", f.Waiting)
		}
		if n := r.Problems(); n > 1 {
			s += fmt.Sprintf("; and %d more", n-1)
		}
		return s
	}
	owned, total := owners(r)
	return fmt.Sprintf("%d members own %d of %d partitions", len(r.Members), owned, total)
}

// clause returns the first clause of a text.
func clause(text string) string {
	for _, end := range []string{": ", "; "} {
		text, _, _ = strings.Cut(text, end)
	}
	return text
}

func owners(r *inspect.Report) (owned, total int) {
	for i := range r.Partitions {
		if r.Partitions[i].State == status.Owned {
			owned++
		}
	}
	return owned, len(r.Partitions)
}

func topicsOf(r *inspect.Report) string {
	counts, names := map[string]int{}, []string{}
	for i := range r.Partitions {
		t := r.Partitions[i].Topic
		if counts[t] == 0 {
			names = append(names, t)
		}
		counts[t]++
	}
	const most = 5
	var words []string
	for _, t := range names[:min(len(names), most)] {
		words = append(words, fmt.Sprintf("%s %d", t, counts[t]))
	}
	if more := len(names) - most; more > 0 {
		words = append(words, fmt.Sprintf("and %d topics more", more))
	}
	return strings.Join(words, ", ")
}

// blind returns what the page can't see.
func blind(r *inspect.Report) (words []string) {
	asked := false
	for _, a := range r.Answers {
		asked = asked || a.State == inspect.Failed
		if a.State == inspect.Failed {
			words = append(words, a.Member+" did not answer ("+a.Error+"): what its handlers do is not known")
		}
	}
	silent := 0
	for _, a := range r.Answers {
		if a.State == inspect.NotAsked {
			silent++
		}
	}
	if len(r.Answers) == 0 {
		silent = len(r.Members)
	}
	const few = 4
	if len(words) > few {
		words = append(words[:few], fmt.Sprintf("and %d members more did not answer", len(words)-few))
	}
	switch {
	case silent > 0 && asked:
		words = append(words, fmt.Sprintf("%d members say no address at which they could be asked what their handlers do", silent))
	case silent > 0:
		words = append(words, fmt.Sprintf("%d of %d members were not asked what their handlers do: a handler that fails or hangs there shows as a partition that stands still", silent, len(r.Members)))
	}
	if r.Window == 0 && r.Kafka.State == inspect.OK {
		words = append(words, "what stands still is not known yet: it takes two looks, some seconds apart")
	}
	if r.Kafka.State == inspect.NotAsked {
		words = append(words, "Kafka was not asked: how far the partitions are is not known")
	}
	for _, missed := range slices.Concat(r.ZooKeeper.Missed, r.Kafka.Missed) {
		words = append(words, "not seen: "+missed)
	}
	return words
}

func (m *model) cards() (cards []card, more int) {
	const most = 200
	all := m.report.Findings
	for _, f := range all[:min(len(all), most)] {
		cards = append(cards, m.card(f))
	}
	return cards, len(all) - len(cards)
}

func (m *model) card(f inspect.Finding) card {
	c := card{Finding: f, Note: f.Severity == inspect.Note, Effect: f.Effect(m.at)}
	if len(f.Objects) > 1 {
		c.All = strings.Join(f.Objects, ", ")
		if f.More > 0 {
			c.All += fmt.Sprintf(" and %d more", f.More)
		}
	}
	return c
}

// findAbout finds which partitions findings are about.
func (m *model) findAbout() {
	for i := range m.kept.Partitions {
		if p := &m.kept.Partitions[i]; p.Fault != "" {
			m.about[partitionOf(p)] = words(p.Fault)
		} else if p.State == status.Blocked {
			m.about[partitionOf(p)] = words(inspect.Kind(status.PersistentClaim))
		}
	}
	if m.report == nil {
		return
	}
	topics := map[string]string{}
	for _, f := range m.report.Findings {
		if f.Severity != inspect.Problem {
			continue
		}
		switch f.Kind {
		case inspect.TopicRefused, inspect.TopicMissing, inspect.Kind(status.UnwantedTopic):
			for _, t := range f.Objects {
				topics[t] = words(f.Kind)
			}
		default:
			for _, o := range f.Objects {
				m.about[o] = words(f.Kind)
			}
		}
	}
	for i := range m.kept.Partitions {
		if p := &m.kept.Partitions[i]; topics[p.Topic] != "" && m.about[partitionOf(p)] == "" {
			m.about[partitionOf(p)] = topics[p.Topic]
		}
	}
}

// words returns a kind of finding as words.
func words(k inspect.Kind) string { return strings.ReplaceAll(string(k), "-", " ") }

func (m *model) facts() (facts []fact) {
	k := m.kept
	owned, total := owners(k)
	facts = append(facts, fact{Name: "members", Value: fmt.Sprint(len(k.Members)), Bad: len(k.Members) == 0},
		fact{Name: "owned", Value: fmt.Sprint(owned), More: fmt.Sprintf("of %d", total), Bad: owned < total})
	var oldest *inspect.Partition
	waiting, rate, unknown := int64(-1), -1.0, 0
	for i := range k.Partitions {
		p := &k.Partitions[i]
		if p.Kafka == nil || p.Kafka.Waiting < 0 {
			unknown++
			continue
		}
		waiting = max(waiting, 0) + p.Kafka.Waiting
		if p.Kafka.Oldest != nil && (oldest == nil || p.Kafka.Oldest.Before(*oldest.Kafka.Oldest)) {
			oldest = p
		}
		if k.Window > 0 && p.Kafka.Moved >= 0 {
			rate = max(rate, 0) + float64(p.Kafka.Moved)/k.Window
		}
	}
	switch {
	case waiting > 0 && oldest != nil:
		name := partitionOf(oldest)
		facts = append(facts, fact{Name: "behind", Value: inspect.Age(*oldest.Kafka.Oldest, k.At), More: "at " + name, Bad: m.about[name] != ""})
		fallthrough
	case waiting > 0:
		facts = append(facts, fact{Name: "waiting", Value: fmt.Sprint(waiting), More: strings.TrimSpace("messages " + notKnown(unknown))})
	case waiting == 0:
		facts = append(facts, fact{Name: "waiting", Value: "0", More: notKnown(unknown)})
	}
	if rate >= 0 {
		facts = append(facts, fact{Name: "committed", Value: fmt.Sprintf("%.1f", rate), More: "a second"})
	}
	if r := m.report; r != nil {
		for _, s := range []struct {
			name string
			is   inspect.Source
		}{{"ZooKeeper", r.ZooKeeper}, {"Kafka", r.Kafka}} {
			facts = append(facts, fact{Name: s.name, Value: words(inspect.Kind(s.is.State)), Bad: s.is.State == inspect.Failed})
		}
	}
	if len(m.Changes) > 0 {
		facts = append(facts, fact{Name: "last change", Value: m.Changes[0].AtText})
	}
	return facts
}

// notKnown says of how many partitions a sum lacks something.
func notKnown(partitions int) string {
	if partitions == 0 {
		return ""
	}
	return fmt.Sprintf("(of %d partitions not known)", partitions)
}

// maxMembers is how many members are shown.
const maxMembers = 300

// members returns the rows of members, and how many it leaves out: if there are too many, those with a problem go before the
// others.
func (m *model) members() (rows []memberRow, more int) {
	k := m.kept
	sums := memberSums(k)
	for i := range k.Members {
		one := &k.Members[i]
		row := memberRow{Name: one.Name, Owned: "-", Rate: "-", Waiting: "-", Process: one.Host, Since: one.Since, SinceText: "-"}
		row.State, row.Bad = m.stateOf(one.Name)
		row.Letter, row.Colour = m.owner(one.Name)
		if one.PID > 0 {
			row.Process += fmt.Sprintf(":%d", one.PID)
		}
		if one.Since != nil {
			row.SinceText = inspect.Clock(*one.Since, m.at)
		}
		if one.Owned != nil && len(one.Functions) > 0 && k.Claims {
			row.Owned = fmt.Sprint(*one.Owned)
		}
		if s := sums[one.Name]; s != nil {
			row.Waiting = fmt.Sprint(s.waiting)
			if s.known {
				row.Rate = fmt.Sprintf("%.1f", s.rate)
			}
		}
		rows = append(rows, row)
	}
	if more = len(rows) - maxMembers; more > 0 {
		slices.SortStableFunc(rows, func(a, b memberRow) int { return cmp.Compare(rank(a), rank(b)) })
		return rows[:maxMembers], more
	}
	return rows, 0
}

// rank is smaller for members that are to be shown first.
func rank(row memberRow) int {
	switch {
	case row.Bad:
		return 0
	case row.State != "":
		return 1
	default:
		return 2
	}
}

// memberSum is what a member's partitions have together.
type memberSum struct {
	rate    float64
	waiting int64
	known   bool // whether the rate is
}

func memberSums(k *inspect.Report) map[string]*memberSum {
	of := map[string]*memberSum{}
	for i := range k.Partitions {
		p := &k.Partitions[i]
		if p.Owner == "" || p.Kafka == nil || p.Kafka.Waiting < 0 {
			continue
		}
		if of[p.Owner] == nil {
			of[p.Owner] = &memberSum{}
		}
		s := of[p.Owner]
		s.waiting += p.Kafka.Waiting
		if k.Window > 0 && p.Kafka.Moved >= 0 {
			s.rate, s.known = s.rate+float64(p.Kafka.Moved)/k.Window, true
		}
	}
	return of
}

// stateOf returns what the findings say of a member, and whether it did not answer.
func (m *model) stateOf(name string) (state string, bad bool) {
	if m.report == nil {
		return "", false
	}
	var parts []string
	for _, f := range m.report.Findings {
		about := f.Member == name || f.Severity == inspect.Problem && f.Concerns(name)
		if !about || f.Severity != inspect.Problem {
			continue
		}
		part := words(f.Kind)
		if f.About() != name {
			part += ": " + f.About()
		}
		parts, bad = append(parts, part), true
	}
	for _, a := range m.report.Answers {
		if a.Member == name && a.State == inspect.Failed {
			parts = append(parts, "did not answer: "+a.Error)
		}
	}
	return strings.Join(parts, " · "), bad
}

const colours = 10

// owner returns the letter and the class of the colour of a member.
func (m *model) owner(name string) (letter, colour string) {
	n, ok := m.letters[name]
	if !ok {
		return "–", "nobody"
	}
	return letterOf(n), fmt.Sprintf("o%d", n%colours)
}
