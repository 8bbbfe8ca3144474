package chaos_test

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
)

var figuresFile = flag.String("figures", "", "`file` for a table of each scenario's figures, in Markdown")

// numbers are the scenarios that are tests of this package, see its comment.
var numbers = []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 19, 20, 21, 22, 23, 24, 28}

// table gathers the figures of all scenarios.
var table figureTable

type figureTable struct {
	mu   sync.Mutex
	rows []figures
}

func (t *figureTable) add(row figures) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.rows = append(t.rows, row)
}

// missing lists the scenarios that have reported nothing.
func (t *figureTable) missing() []int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(numbers), func(n int) bool {
		return slices.ContainsFunc(t.rows, func(row figures) bool { return row.scenario == n })
	})
}

// write writes the table to the file that was asked for.
func (t *figureTable) write() error {
	if *figuresFile == "" {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	slices.SortFunc(t.rows, func(a, b figures) int {
		return cmp.Or(cmp.Compare(a.scenario, b.scenario), cmp.Compare(a.name, b.name))
	})
	var b strings.Builder
	fmt.Fprintf(&b, "| | test | %s |\n|%s\n", strings.Join(figureNames[:], " | "), strings.Repeat("---|", 2+len(figureNames)))
	for _, row := range t.rows {
		fmt.Fprintf(&b, "| %d | %s | %s |\n", row.scenario, row.name, strings.Join(row.values[:], " | "))
	}
	if err := os.WriteFile(*figuresFile, []byte(b.String()), 0o600); err != nil {
		return fmt.Errorf("figures: %w", err)
	}
	return nil
}
