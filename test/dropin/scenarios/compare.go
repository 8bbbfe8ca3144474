package scenarios

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Finding is a lane of a case in which ours differs from a group of sarama with the same strategies.
type Finding struct {
	Case, Lane string
	// Seen has what was observed on each variant.
	Seen map[Variant][]string
}

// differs reports whether a variant of ours differs from its counterpart.
func (f Finding) differs(ours Variant) bool {
	return !slices.Equal(f.Seen[ours], f.Seen[Counterparts()[ours]])
}

// Compare returns the lanes of a case in which ours is not as its counterpart is.
func Compare(c Case, all map[Variant]Observations) []Finding {
	lanes := map[string]bool{}
	for _, seen := range all {
		for lane := range seen {
			lanes[lane] = true
		}
	}
	var found []Finding
	for _, lane := range slices.Sorted(maps.Keys(lanes)) {
		f := Finding{Case: c.Name, Lane: lane, Seen: map[Variant][]string{}}
		for _, v := range Variants() {
			f.Seen[v] = all[v][lane]
		}
		if f.differs(OursEager) || f.differs(OursIncremental) {
			found = append(found, f)
		}
	}
	return found
}

// Report writes findings as text, with the row that each belongs to.
func Report(found []Finding) string {
	var b strings.Builder
	for _, f := range found {
		fmt.Fprintf(&b, "%s / %s\n", f.Case, f.Lane)
		for _, v := range Variants() {
			text := strings.Join(f.Seen[v], "; ")
			if len(f.Seen[v]) == 0 {
				text = "-"
			}
			fmt.Fprintf(&b, "    %s: %s\n", v, text)
		}
		fmt.Fprintf(&b, "    row: %s\n", rowOf(f))
	}
	return b.String()
}

// rowOf returns the title of the row that a finding belongs to, "none" when there is none.
func rowOf(f Finding) string {
	for _, row := range Rows() {
		if slices.ContainsFunc(row.Findings, func(p Place) bool { return p.matches(f) }) {
			return row.Title
		}
	}
	return "none"
}

// Check returns what is wrong with the rows: findings that have no row, and places of rows at which nothing was found, of the
// cases that ran. Places of any case are looked at if all have run that can.
func Check(found []Finding, runs func(Case) bool, all bool) []string {
	var wrong []string
	for _, f := range found {
		if rowOf(f) == "none" {
			wrong = append(wrong, fmt.Sprintf("no row for a difference:\n%s", Report([]Finding{f})))
		}
	}
	ran := map[string]bool{"*": all}
	for _, c := range Cases() {
		ran[c.Name] = runs(c)
	}
	for _, row := range Rows() {
		for _, p := range row.Findings {
			if ran[p.Case] && !slices.ContainsFunc(found, p.matches) {
				wrong = append(wrong, fmt.Sprintf("row %q names %q / %q, where there is no difference", row.Title, p.Case, p.Lane))
			}
		}
	}
	return wrong
}

// diff returns how the report of a run differs from the file's, but for cases that did not run.
func diff(want, got string, runs func(Case) bool) []string {
	var wrong []string
	before, now := entries(want), entries(got)
	for _, c := range Cases() {
		if !runs(c) {
			maps.DeleteFunc(before, func(head, _ string) bool { return strings.HasPrefix(head, c.Name+" / ") })
		}
	}
	for _, head := range slices.Sorted(maps.Keys(now)) {
		if before[head] != now[head] {
			wrong = append(wrong, fmt.Sprintf("%s\n  was found:\n%s\n  the file has:\n%s", head, now[head], before[head]))
		}
	}
	for _, head := range slices.Sorted(maps.Keys(before)) {
		if _, ok := now[head]; !ok {
			wrong = append(wrong, fmt.Sprintf("%s is in the file, and there is no difference", head))
		}
	}
	return wrong
}

// merge returns the report of a run, with what the file has of cases that did not run.
func merge(file, got string, runs func(Case) bool) string {
	before, now := entries(file), entries(got)
	var b strings.Builder
	for _, c := range Cases() {
		from := before
		if runs(c) {
			from = now
		}
		for _, head := range slices.Sorted(maps.Keys(from)) {
			if strings.HasPrefix(head, c.Name+" / ") {
				b.WriteString(head + "\n" + from[head])
			}
		}
	}
	return b.String()
}

// entries splits a report: the lines of a finding by its first.
func entries(report string) map[string]string {
	out := map[string]string{}
	head := ""
	for line := range strings.Lines(report) {
		if !strings.HasPrefix(line, " ") {
			head = strings.TrimSpace(line)
			line = ""
		}
		out[head] += line
	}
	return out
}
