package main

import (
	"fmt"
	"math"
	"strings"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg/draw"

	"github.com/kielgo/kiel/test/bench/moves"
)

// movesPicture shows how long partitions stand still when they move: a row for each client, in it a mark at the median and a line
// to the worst, for a join and for a leave.
func movesPicture(all moves.Figures) ([]byte, error) {
	legend := newLegend()
	everywhere := newPlot("until every moved partition has a message", "", "")
	gap := newPlot("gap of one moved partition", "", "")
	for i, s := range []series{
		{name: "a member joins", color: blue, glyph: draw.CircleGlyph{}},
		{name: "a member leaves", color: orange, glyph: draw.TriangleGlyph{}},
	} {
		change := []string{moves.Join, moves.Leave}[i]
		var ends, gaps, worstEnds, worstGaps plotter.XYs
		for j, c := range moves.Clients() {
			f, ok := all.Find(c, change)
			if !ok {
				return nil, fmt.Errorf("no figures of %s, %s", c, change)
			}
			y := float64(len(moves.Clients())-j) + 0.12 - 0.24*float64(i)
			point := func(d time.Duration) plotter.XY {
				return plotter.XY{X: math.Log10(float64(d.Microseconds()) / 1000), Y: y}
			}
			ends, worstEnds = append(ends, point(f.Everywhere.Median)), append(worstEnds, point(f.Everywhere.Worst))
			gaps, worstGaps = append(gaps, point(f.Gap.Median)), append(worstGaps, point(f.Gap.Worst))
		}
		for _, each := range []struct {
			p              *plot.Plot
			legend         *plot.Legend
			medians, worst plotter.XYs
		}{{everywhere, &legend, ends, worstEnds}, {gap, nil, gaps, worstGaps}} {
			if err := bars(each.p, s.color, each.medians, each.worst); err != nil {
				return nil, err
			}
			if err := s.add(each.p, each.legend, each.medians); err != nil {
				return nil, err
			}
		}
	}
	var names plot.ConstantTicks
	for j, c := range moves.Clients() {
		names = append(names, plot.Tick{Value: float64(len(moves.Clients()) - j), Label: c.Title()})
	}
	for i, p := range []*plot.Plot{everywhere, gap} {
		p.Y.Min, p.Y.Max = 0.5, float64(len(names))+0.5
		p.Y.Tick.Marker = names
		if i > 0 {
			p.Y.Tick.Marker = plot.ConstantTicks{}
		}
		p.Y.Width, p.Y.Tick.Length = 0, 0
		logAxis(&p.X, 9, 12_000, map[float64]string{
			10: "10 ms", 30: "", 100: "100 ms", 300: "", 1000: "1 s", 3000: "", 10_000: "10 s",
		}, 10, 30, 100, 300, 1000, 3000, 10_000)
	}
	return svg(legend, 125, everywhere, gap)
}

// movesTables returns the tables of the page, by their names.
func movesTables(all moves.Figures) map[string]string {
	var b strings.Builder
	header(&b, "group", "all moved partitions have a message: join", "leave", "gap of a moved partition: join", "leave",
		"longest gap of one that stays: join", "leave", "messages repeated, missed")
	for _, c := range moves.Clients() {
		join, _ := all.Find(c, moves.Join)
		leave, _ := all.Find(c, moves.Leave)
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s | %s | %d, %d |\n", c.Title(), timesOf(join.Everywhere), timesOf(leave.Everywhere),
			timesOf(join.Gap), timesOf(leave.Gap), timesOf(join.Stays), timesOf(leave.Stays), join.Repeated+leave.Repeated, join.Missed+leave.Missed)
	}
	m := all.Machine
	return map[string]string{
		"moves": b.String(),
		"moves-machine": fmt.Sprintf("%s, %d cores for members and servers together, %s, %s, Kafka %s, ZooKeeper %s, franz-go %s, sarama %s, on %s.\n"+
			"%d partitions with a message each %v, %d rounds.\n",
			m.CPU, m.Cores, m.System, m.Go, all.Kafka, all.ZooKeeper, m.Versions["franz-go"], m.Versions["sarama"], m.Date, all.Partitions, all.Every, all.Rounds),
	}
}

// timesOf is the median and the worst in milliseconds.
func timesOf(s moves.Spread) string {
	return grouped(int(s.Median.Milliseconds())) + ", " + grouped(int(s.Worst.Milliseconds()))
}
