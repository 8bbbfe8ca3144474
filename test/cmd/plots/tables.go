package main

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/kielgo/kiel/allocfn"
	"github.com/kielgo/kiel/test/bench/functions"
)

// fill puts the tables between their marks.
func fill(text []byte, tables map[string]string) ([]byte, error) {
	for name, table := range tables {
		_, after, ok := bytes.Cut(text, []byte("<!-- begin "+name+" "))
		end := []byte("<!-- end " + name + " -->")
		if !ok || !bytes.Contains(after, end) {
			return nil, fmt.Errorf("the page has no marks for %s", name)
		}
		begin := len(text) - len(after)
		begin += bytes.IndexByte(after, '\n') + 1
		until := bytes.Index(text, end)
		text = bytes.Join([][]byte{text[:begin], []byte(table), text[until:]}, nil)
	}
	return text, nil
}

// tables returns what stands between the marks, by their names.
func tables(t functions.Times, m functions.Movements) map[string]string {
	return map[string]string{
		"figures":  figures(t, m),
		"movement": movementTable(m.Moves),
		"switches": switchesTable(m.Switches),
		"times":    timesTable(t.Times),
		"machine":  machine(t),
	}
}

// rows returns the names of the functions in the order of the page.
func rows() []string {
	var names []string
	for _, f := range allocfn.All() {
		names = append(names, f.Title)
	}
	return names
}

// figures is the short table.
func figures(t functions.Times, m functions.Movements) string {
	var b strings.Builder
	header(&b, "function", "moved: one of 10 joins · leaves", "one of 100", "one of 1,000", "spread in total · in a topic",
		"2,000 × 100,000", "10,000 × 1,000,000")
	for _, name := range rows() {
		fmt.Fprintf(&b, "| `%s` ", name)
		for _, size := range functions.MoveSizes() {
			moves := find(m.Moves, name, size)
			fmt.Fprintf(&b, "| %s · %s ", percent(moves.Share(moves.Join)), percent(moves.Share(moves.Leave)))
		}
		moves := find(m.Moves, name, functions.MoveSizes()[1])
		fmt.Fprintf(&b, "| %s · %s ", grouped(moves.Spread), grouped(moves.TopicSpread))
		for _, size := range []functions.Size{functions.Sizes()[2], functions.Sizes()[4]} {
			fmt.Fprintf(&b, "| %s ", timeOf(t.Times, name, size))
		}
		b.WriteString("|\n")
	}
	b.WriteString("| least possible ")
	for _, size := range functions.MoveSizes() {
		moves := find(m.Moves, "Balanced", size)
		least := func(r functions.Ratio) string {
			return percent(float64(r.Least) / float64(moves.Seeds) / float64(size.Partitions))
		}
		fmt.Fprintf(&b, "| %s · %s ", least(moves.Join), least(moves.Leave))
	}
	b.WriteString("| | | |\n")
	return b.String()
}

func find(all []functions.Moves, name string, s functions.Size) functions.Moves {
	for _, m := range all {
		if m.Function == name && m.Members == s.Members && m.Partitions == s.Partitions {
			return m
		}
	}
	return functions.Moves{Seeds: 1, Partitions: 1}
}

func timeOf(all []functions.Time, name string, s functions.Size) string {
	for _, t := range all {
		if t.Library == "kiel" && t.Name == name && t.Size() == s {
			return duration(t.Min)
		}
	}
	return "–"
}

func percent(share float64) string {
	switch {
	case share >= 0.0995:
		return fmt.Sprintf("%.0f %%", 100*share)
	case share >= 0.00995:
		return fmt.Sprintf("%.1f %%", 100*share)
	}
	return fmt.Sprintf("%.2f %%", 100*share)
}

// duration has three digits.
func duration(ns int64) string {
	ms := float64(ns) / 1e6
	switch {
	case ms >= 10_000:
		return fmt.Sprintf("%.1f s", ms/1000)
	case ms >= 1_000:
		return fmt.Sprintf("%.2f s", ms/1000)
	case ms >= 100:
		return fmt.Sprintf("%.0f ms", ms)
	case ms >= 10:
		return fmt.Sprintf("%.1f ms", ms)
	case ms >= 1:
		return fmt.Sprintf("%.2f ms", ms)
	}
	return fmt.Sprintf("%.3f ms", ms)
}

// header begins a table.
func header(b *strings.Builder, columns ...string) {
	fmt.Fprintf(b, "| %s |\n|%s\n", strings.Join(columns, " | "), strings.Repeat("---|", len(columns)))
}

// movementTable is what moves as a multiple of the least, a column per size.
func movementTable(all []functions.Moves) string {
	var b strings.Builder
	columns := []string{"function"}
	for _, s := range functions.MoveSizes() {
		seeds := find(all, rows()[0], s).Seeds
		columns = append(columns, fmt.Sprintf("%s × %s, %d seeds", grouped(s.Members), grouped(s.Partitions), seeds))
	}
	header(&b, append(columns, "spread in total · in a topic")...)
	for _, name := range append(rows(), functions.FranzGo) {
		fmt.Fprintf(&b, "| %s |", name)
		var spreads []string
		for _, s := range functions.MoveSizes() {
			m := find(all, name, s)
			fmt.Fprintf(&b, " %s · %s |", ratio(m.Join), ratio(m.Leave))
			spreads = append(spreads, grouped(m.Spread)+" · "+grouped(m.TopicSpread))
		}
		fmt.Fprintf(&b, " %s |\n", strings.Join(spreads, ", "))
	}
	return b.String()
}

// ratio is the mean and the worst, with three digits or more.
func ratio(r functions.Ratio) string {
	return fmt.Sprintf("%s [%s]", digits(float64(r.Mean)/1000), digits(float64(r.Worst)/1000))
}

func digits(x float64) string {
	switch {
	case x >= 100:
		return grouped(int(x + 0.5))
	case x >= 10:
		return fmt.Sprintf("%.1f", x)
	}
	return fmt.Sprintf("%.2f", x)
}

// switchesTable tells which part moves between the first function and others.
func switchesTable(all []functions.Switch) string {
	var b strings.Builder
	columns := []string{"between", "and"}
	sizes := functions.MoveSizes()[:2]
	for _, s := range sizes {
		columns = append(columns, grouped(s.Members)+" × "+grouped(s.Partitions))
	}
	header(&b, columns...)
	for _, s := range all {
		if s.To != rows()[0] {
			continue
		}
		if s.Members == sizes[0].Members {
			fmt.Fprintf(&b, "| `%s` | `%s` |", s.To, s.From)
		}
		fmt.Fprintf(&b, " %s |", percent(float64(s.Moved)/1000))
		if s.Members == sizes[1].Members {
			b.WriteString("\n")
		}
	}
	return b.String()
}

// timesTable has the least and the median of each contestant, a column per size.
func timesTable(all []functions.Time) string {
	var b strings.Builder
	columns := []string{""}
	for _, s := range functions.Sizes() {
		columns = append(columns, grouped(s.Members)+" × "+grouped(s.Partitions))
	}
	header(&b, append(columns, "allocations, MB at the largest")...)
	var names []string
	cells := make(map[string]map[functions.Size]functions.Time)
	for _, t := range all {
		name := t.Library + " " + t.Name
		if cells[name] == nil {
			names = append(names, name)
			cells[name] = make(map[functions.Size]functions.Time)
		}
		cells[name][t.Size()] = t
	}
	for _, name := range names {
		var last functions.Time
		fmt.Fprintf(&b, "| %s |", name)
		for _, s := range functions.Sizes() {
			t, ok := cells[name][s]
			if !ok {
				b.WriteString(" – |")
				continue
			}
			last = t
			fmt.Fprintf(&b, " %s · %s |", duration(t.Min), duration(t.Median))
		}
		fmt.Fprintf(&b, " %s, %.1f |\n", grouped(int(last.Allocs)), float64(last.Bytes)/1e6)
	}
	return b.String()
}

func machine(t functions.Times) string {
	most := make(map[functions.Size]int)
	for _, one := range t.Times {
		most[one.Size()] = max(most[one.Size()], one.Rounds)
	}
	var rounds []string
	for _, size := range functions.Sizes() {
		rounds = append(rounds, fmt.Sprint(most[size]))
	}
	m := t.Machine
	return fmt.Sprintf("Times: %s, %d cores, %s, %s, franz-go %s, sarama %s, on %s, in %s rounds.\n",
		m.CPU, m.Cores, m.System, m.Go, m.Versions["franz-go"], m.Versions["sarama"], m.Date, strings.Join(rounds, ", "))
}
