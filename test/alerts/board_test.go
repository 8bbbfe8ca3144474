package alerts_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A panel of the board, or one of its rows, which has no targets.
type panel struct {
	ID          int
	Type, Title string
	GridPos     struct{ X, Y, W, H int }
	Datasource  struct{ UID string }
	Targets     []struct{ RefID, Expr string }
}

type board struct {
	UID, Title string
	Templating struct {
		List []struct{ Name, Query string }
	}
	Panels []panel
}

func readBoard(t *testing.T) board {
	t.Helper()
	var b board
	d := json.NewDecoder(bytes.NewReader(read(t, "deploy", "grafana", "dashboards", "kiel.json")))
	if err := d.Decode(&b); err != nil {
		t.Fatal(err)
	}
	return b
}

// query returns a panel's expression as Prometheus gets it from Grafana.
func query(expr, group, interval string) string {
	return strings.NewReplacer("$group", group, "$job", ".+", "$__rate_interval", interval).Replace(expr)
}

func TestBoard(t *testing.T) {
	b := readBoard(t)
	if b.UID != "kiel" || len(b.Panels) == 0 {
		t.Fatalf("the board is %q and has %d panels", b.UID, len(b.Panels))
	}
	ids := map[int]bool{}
	taken := map[[2]int]string{}
	var rules strings.Builder
	rules.WriteString("groups:\n- name: panels\n  rules:\n")
	for _, p := range b.Panels {
		if ids[p.ID] || p.ID == 0 {
			t.Errorf("%s: its id %d is another panel's", p.Title, p.ID)
		}
		ids[p.ID] = true
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				if other := taken[[2]int{x, y}]; other != "" || x >= 24 {
					t.Fatalf("%s: it stands on %q, or outside", p.Title, other)
				}
				taken[[2]int{x, y}] = p.Title
			}
		}
		if p.Type == "row" {
			continue
		}
		if p.Datasource.UID != "${datasource}" || len(p.Targets) == 0 {
			t.Errorf("%s: data source %q, %d queries", p.Title, p.Datasource.UID, len(p.Targets))
		}
		for _, target := range p.Targets {
			expr := query(target.Expr, "g", "1m")
			if strings.Contains(expr, "$") || !strings.Contains(expr, `group="g"`) {
				t.Errorf("%s: a query has an unknown variable, or is not of one group: %s", p.Title, expr)
			}
			fmt.Fprintf(&rules, "  - {record: panel_%d_%s, expr: '%s'}\n", p.ID, target.RefID, expr)
		}
	}
	// promtool parses expressions of rules, and no others without a server.
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "panels.yml"), []byte(rules.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := promtool(t, dir, "check", "rules", "panels.yml"); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
