package main

import (
	"fmt"
	"image/color"
	"math"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/kielgo/kiel/test/bench/functions"
)

// movementPicture shows which part of all partitions changes hands, against the number of members.
func movementPicture(curve []functions.Moves) ([]byte, error) {
	join := newPlot("one member joins", "members before", "partitions that change hands")
	leave := newPlot("one member leaves", "members before", "")
	legend := newLegend()
	for _, s := range byFunction {
		var joins, leaves plotter.XYs
		for _, m := range curve {
			if m.Function == s.name {
				joins = append(joins, logs(float64(m.Members), m.Share(m.Join)))
				leaves = append(leaves, logs(float64(m.Members), m.Share(m.Leave)))
			}
		}
		if err := s.add(join, &legend, joins); err != nil {
			return nil, err
		}
		if err := s.add(leave, nil, leaves); err != nil {
			return nil, err
		}
	}
	var least [2]plotter.XYs
	for _, m := range curve {
		if m.Function == "Balanced" {
			for i, r := range []functions.Ratio{m.Join, m.Leave} {
				share := float64(r.Least) / float64(m.Seeds) / float64(m.Partitions)
				least[i] = append(least[i], logs(float64(m.Members), share))
			}
		}
	}
	bound := series{name: "least possible", color: grey, dash: dashes, width: 1.5}
	if err := bound.add(join, &legend, least[0]); err != nil {
		return nil, err
	}
	if err := bound.add(leave, nil, least[1]); err != nil {
		return nil, err
	}
	for _, p := range []*plot.Plot{join, leave} {
		logAxis(&p.X, 1.8, 1_150, nil, 2, 5, 10, 30, 100, 300, 1_000)
		logAxis(&p.Y, 0.0008, 1.1, map[float64]string{
			0.001: "0.1 %", 0.003: "0.3 %", 0.01: "1 %", 0.03: "3 %", 0.1: "10 %", 0.3: "30 %", 1: "100 %",
		}, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1)
	}
	return svg(legend, legendWidth, join, leave)
}

// spreadPicture shows how uneven plans are, against the size of topics.
func spreadPicture(all []functions.Spread) ([]byte, error) {
	topic := newPlot("within one topic", "partitions of each topic", "most of a member, less the least")
	total := newPlot("over all topics", "partitions of each topic", "")
	legend := newLegend()
	for i, s := range byFunction {
		s.width = 0                                            // marks alone: lines would cover those at 1
		beside := math.Pow(1.09, float64(i-len(byFunction)/2)) // many are equal: put them side by side
		var means, worsts, totals plotter.XYs
		for _, r := range all {
			if r.Function == s.name {
				x := float64(r.TopicSize) * beside
				means = append(means, logs(x, float64(r.TopicMean)/1000))
				worsts = append(worsts, logs(x, float64(r.TopicWorst)))
				totals = append(totals, logs(x, float64(r.Mean)/1000))
			}
		}
		if err := bars(topic, s.color, means, worsts); err != nil {
			return nil, err
		}
		if err := s.add(topic, &legend, means); err != nil {
			return nil, err
		}
		if err := s.add(total, nil, totals); err != nil {
			return nil, err
		}
	}
	for _, p := range []*plot.Plot{topic, total} {
		logAxis(&p.X, 2.8, 1_450, nil, 4, 10, 40, 100, 250, 1_000)
		logAxis(&p.Y, 0.85, 400, nil, 1, 2, 5, 10, 20, 50, 100, 200)
	}
	return svg(legend, legendWidth, topic, total)
}

// bars draws thin lines from each mean up to the worst.
func bars(p *plot.Plot, c color.Color, means, worsts plotter.XYs) error {
	for i := range means {
		line, err := plotter.NewLine(plotter.XYs{means[i], worsts[i]})
		if err != nil {
			return err
		}
		line.LineStyle = draw.LineStyle{Color: c, Width: vg.Points(0.75)}
		p.Add(line)
	}
	return nil
}

// timePicture shows what a plan takes at each size, ours and peers'.
func timePicture(all []functions.Time) ([]byte, error) {
	p := newPlot("", "members × partitions", "time of one plan, least of the rounds")
	legend := newLegend()
	for _, s := range []struct {
		series
		library, contestant string
	}{
		{series{"sarama sticky", grey, draw.TriangleGlyph{}, dashes, 1}, "sarama", "sticky, fresh"},
		{series{"sarama round robin", black, draw.PlusGlyph{}, dashes, 1}, "sarama", "round robin"},
		{series{"sarama range", red, draw.CrossGlyph{}, dashes, 1}, "sarama", "range"},
		{series{"franz-go sticky, join", purple, draw.BoxGlyph{}, dashes, 1}, "franz-go", "sticky, join"},
		{series{"franz-go sticky, fresh", purple, draw.SquareGlyph{}, dashes, 1}, "franz-go", "sticky, fresh"},
		{series{"Rendezvous", orange, draw.RingGlyph{}, nil, 1}, "kiel", "Rendezvous"},
		{series{"TopicBalanced", green, draw.SquareGlyph{}, nil, 1}, "kiel", "TopicBalanced"},
		{series{"Balanced, texts to maps", blue, draw.RingGlyph{}, dots, 1.5}, "kiel", "Balanced, from texts to maps"},
		{series{"Balanced", blue, draw.CircleGlyph{}, nil, 2}, "kiel", "Balanced"},
		{series{"Range", red, draw.CrossGlyph{}, nil, 1}, "kiel", "Range"},
		{series{"RoundRobin", black, draw.PlusGlyph{}, nil, 1}, "kiel", "RoundRobin"},
	} {
		var xys plotter.XYs
		for i, size := range functions.Sizes() {
			for _, t := range all {
				if t.Library == s.library && t.Name == s.contestant && t.Size() == size {
					xys = append(xys, plotter.XY{X: float64(i), Y: math.Log10(float64(t.Min) / 1e6)})
				}
			}
		}
		if len(xys) == 0 {
			return nil, fmt.Errorf("no times of %s %s", s.library, s.contestant)
		}
		if err := s.add(p, &legend, xys); err != nil {
			return nil, err
		}
	}
	var ticks plot.ConstantTicks
	for i, size := range functions.Sizes() {
		ticks = append(ticks, plot.Tick{Value: float64(i), Label: grouped(size.Members) + "\n× " + grouped(size.Partitions)})
	}
	p.X.Tick.Marker = ticks
	p.X.Min, p.X.Max = -0.2, float64(len(ticks))-0.8
	logAxis(&p.Y, 0.005, 60_000, map[float64]string{
		0.01: "0.01 ms", 0.1: "0.1 ms", 1: "1 ms", 10: "10 ms", 100: "100 ms", 1000: "1 s", 10_000: "10 s",
	}, 0.01, 0.1, 1, 10, 100, 1000, 10_000)
	return svg(legend, 165, p)
}

// grouped returns n with commas.
func grouped(n int) string {
	if n < 1000 {
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("%s,%03d", grouped(n/1000), n%1000)
}
