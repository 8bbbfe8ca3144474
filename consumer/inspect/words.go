package inspect

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kielgo/kiel/status"
)

// The words in which the command kiel and the page of package page show what was found. They have names and texts of others in
// them, which are bounded but not escaped.

// Problems returns how many of the findings are problems.
func (r *Report) Problems() (n int) {
	for _, f := range r.Findings {
		if f.Severity == Problem {
			n++
		}
	}
	return n
}

// Verdict returns "all well", "1 problem", "2 problems", and so on; if none was found and a source is missing, or there was one
// look alone, it says so.
func (r *Report) Verdict() string {
	switch n := r.Problems(); {
	case n == 1:
		return "1 problem"
	case n > 1:
		return fmt.Sprintf("%d problems", n)
	case r.Complete():
		return "all well"
	case r.allSeen():
		return "no problem found at one look"
	default:
		return "no problem found, not all could be seen"
	}
}

// Complete reports whether all sources have shown all that was asked, at two looks: one does not tell what stands still.
func (r *Report) Complete() bool { return r.Window > 0 && r.allSeen() }

func (r *Report) allSeen() bool {
	return r.ZooKeeper.State == OK && r.Kafka.State == OK && r.Claims && len(r.ZooKeeper.Missed)+len(r.Kafka.Missed) == 0 &&
		!slices.ContainsFunc(r.Findings, func(f Finding) bool { return f.Kind == ProgressUnknown }) &&
		!slices.ContainsFunc(r.Answers, func(a Answer) bool { return a.State == Failed })
}

// Asked returns which sources have answered, and what was not seen.
func (r *Report) Asked() string {
	zk := string(r.ZooKeeper.State)
	if len(r.Servers) > 0 {
		up := 0
		for _, s := range r.Servers {
			if s.OK {
				up++
			}
		}
		zk = fmt.Sprintf("%d/%d", up, len(r.Servers))
	}
	words := []string{"ZooKeeper " + zk + ", Kafka " + string(r.Kafka.State)}
	asked, answered := 0, 0
	for _, a := range r.Answers {
		switch a.State {
		case OK:
			answered++
			asked++
		case Failed:
			asked++
			words = append(words, a.Member+" did not answer: "+a.Error)
		case NotAsked:
		}
	}
	if asked > 0 {
		words[0] += fmt.Sprintf(", %d of %d members answered", answered, asked)
		words = words[:min(len(words), 4)] // a few are enough
	}
	for _, missed := range slices.Concat(r.ZooKeeper.Missed, r.Kafka.Missed) {
		words = append(words, "not seen: "+missed)
	}
	return strings.Join(words, "; ")
}

// About names the objects of a finding: one, or the first and how many besides.
func (f Finding) About() string {
	switch n := len(f.Objects) + f.More; n {
	case 0:
		return "the group"
	case 1:
		return f.Objects[0]
	default:
		return fmt.Sprintf("%s +%d more", f.Objects[0], n-1)
	}
}

// Concerns returns whether a finding of Look is about an object, listed in Objects or not.
func (f Finding) Concerns(object string) bool {
	return slices.Contains(f.all, object) || slices.Contains(f.Objects, object)
}

// Effect returns since when something is wrong, and how many messages wait.
func (f Finding) Effect(now time.Time) string {
	var parts []string
	switch {
	case f.Since != nil && f.Kind == MemberWent:
		parts = append(parts, fmt.Sprintf("at %s (%s ago)", Clock(*f.Since, now), Age(*f.Since, now)))
	case f.Since != nil:
		parts = append(parts, fmt.Sprintf("since %s (%s)", Clock(*f.Since, now), Age(*f.Since, now)))
	case f.Severity == Problem && f.Kind != NoGroup:
		parts = append(parts, "since when is not known")
	}
	switch {
	case f.Waiting == 1:
		parts = append(parts, "1 message waits")
	case f.Waiting > 1:
		parts = append(parts, fmt.Sprintf("%d messages wait", f.Waiting))
	}
	return strings.Join(parts, ", ")
}

// Holder returns who owns a partition, and for whom it is planned if that is another.
func (p *Partition) Holder() string {
	switch {
	case p.State != status.Owned && p.Planned != "":
		return "(" + string(p.State) + ", for " + p.Planned + ")"
	case p.State != status.Owned:
		return "(" + string(p.State) + ")"
	case p.Planned != "" && p.Planned != p.Owner:
		return p.Owner + " -> " + p.Planned
	default:
		return p.Owner
	}
}

// Why returns who owns a partition, since when and why, how far it is, and what its handler does, in a line each. The report's
// Kafka is the source of the second.
func (p *Partition) Why(r *Report) (lines []string) {
	first := "no owner"
	if p.State == status.Owned {
		first = fmt.Sprintf("owner %s%s (token %d)", p.Owner, Since(p.Since, r.At), p.Token)
	} else if p.State != status.Free {
		first = "no owner: " + string(p.State) + Since(p.Since, r.At)
	}
	if p.Previous != "" {
		first += ", before " + p.Previous
	}
	if p.Reason != nil {
		first += ", because " + p.Reason.String()
	}
	if p.Planned != "" {
		first += "; planned for " + p.Planned
	}
	lines = append(lines, first)
	if p.WaitsFor != "" {
		lines = append(lines, fmt.Sprintf("%s says that it waits for %s", cmp.Or(p.Owner, p.Planned), p.WaitsFor))
	}
	o := p.Kafka
	if o == nil {
		return append(lines, fmt.Sprintf("offsets are not known: Kafka %s", r.Kafka.State))
	}
	second := fmt.Sprintf("committed %s of %s, %s behind", Number(o.Committed), Number(o.End), Number(o.Waiting))
	if o.Oldest != nil {
		second += fmt.Sprintf(" (%s)", Age(*o.Oldest, r.At))
	}
	if o.Token > 0 && o.Token != p.Token {
		second += fmt.Sprintf("; by an owner before, with token %d", o.Token)
	}
	if o.Error != "" {
		second += "; " + o.Error
	}
	lines = append(lines, second)
	if own := p.Offsets; own != nil {
		lines = append(lines, fmt.Sprintf("handler at %s, marked %s, takes no message since %.1f s", Number(own.Position), Number(own.Marked), own.Stalled))
	}
	return lines
}

// String returns a change as text.
func (c Change) String() string {
	because := ""
	if c.Reason != nil {
		because = " (" + c.Reason.String() + ")"
	}
	switch c.Kind {
	case MemberJoined:
		return c.Member + " joined"
	case MemberGone:
		how := ""
		if c.Reason != nil && c.Reason.Code == status.MemberLeft {
			how = " (left in order)"
		} else if c.Reason != nil && c.Reason.Code == status.MemberGone {
			how = " (did not leave, or the others saw it late)"
		}
		return fmt.Sprintf("%s gone%s, it had %d partitions", c.Member, how, c.Owned)
	case Claimed:
		if c.From == "" || c.From == c.To {
			return c.Partition + " claimed by " + c.To + because
		}
		return c.Partition + " " + c.From + " -> " + c.To + because
	case Blocked:
		return c.Partition + " has a znode without a session in the claim's place (kiel release shows it)"
	default:
		return c.Partition + " has no owner, before " + c.From
	}
}

// Clock returns a moment as texts have it: the time of day in UTC, with the day if it is not that of now.
func Clock(at, now time.Time) string {
	at, now = at.UTC(), now.UTC()
	if at.Format(time.DateOnly) == now.Format(time.DateOnly) {
		return at.Format(time.TimeOnly)
	}
	return at.Format(time.DateTime)
}

// Age returns how old a moment is, in two units.
func Age(at, now time.Time) string {
	switch d := max(now.Sub(at), 0); {
	case d < 10*time.Second:
		return fmt.Sprintf("%.1fs", d.Seconds())
	case d < time.Hour:
		return d.Round(time.Second).String()
	case d < 48*time.Hour:
		return strings.TrimSuffix(d.Round(time.Minute).String(), "0s")
	default:
		return fmt.Sprintf("%dd", int(d.Hours())/24)
	}
}

// Number returns an offset or a number of messages, "-" if it is not known.
func Number(n int64) string {
	if n < 0 {
		return "-"
	}
	return strconv.FormatInt(n, 10)
}

// Since returns " since …", "" if it is not known.
func Since(at *time.Time, now time.Time) string {
	if at == nil {
		return ""
	}
	return " since " + Clock(*at, now)
}
