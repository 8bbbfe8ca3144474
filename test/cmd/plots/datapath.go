package main

import (
	"fmt"
	"math"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg/draw"

	"github.com/kielgo/kiel/test/bench/datapath"
)

// dataPathPicture shows what a message costs each client on the CPU: one plot for each size of messages, in it a line for each
// compression, over the numbers of partitions.
func dataPathPicture(all datapath.Figures) ([]byte, error) {
	legend := newLegend()
	var plots []*plot.Plot
	for i, size := range datapath.Sizes() {
		label := ""
		if i == 0 {
			label = "CPU time of one message"
		}
		p := newPlot(fmt.Sprintf("messages of %s B", grouped(size)), "partitions, compression", label)
		for _, s := range byClient {
			if err := addClient(p, &legend, all, size, s, i == 0); err != nil {
				return nil, err
			}
		}
		logAxis(&p.Y, 190, 8_200, map[float64]string{
			250: "0.25 µs", 500: "0.5 µs", 1000: "1 µs", 2000: "2 µs", 4000: "4 µs", 8000: "8 µs",
		}, 250, 500, 1000, 2000, 4000, 8000)
		p.X.Tick.Marker, p.X.Min, p.X.Max = dataPathTicks()
		plots = append(plots, p)
	}
	return svg(legend, 172, plots...)
}

// clientSeries is how one client looks.
type clientSeries struct {
	series
	client datapath.Client
}

// byClient is in the order of the legend.
var byClient = []clientSeries{
	{series{"", grey, draw.CrossGlyph{}, dashes, 1}, datapath.PartitionConsumer},
	{series{"", black, draw.SquareGlyph{}, dashes, 1}, datapath.SaramaGroup},
	{series{"", purple, draw.BoxGlyph{}, dashes, 1}, datapath.Franz},
	{series{"", blue, draw.CircleGlyph{}, nil, 2}, datapath.Kiel},
	{series{"", orange, draw.TriangleGlyph{}, nil, 1.5}, datapath.KielSarama},
}

// addClient draws a client's lines, of which the legend shows the first.
func addClient(p *plot.Plot, legend *plot.Legend, all datapath.Figures, size int, s clientSeries, first bool) error {
	s.name = s.client.Title()
	for i, compression := range datapath.Compressions() {
		var xys plotter.XYs
		for j, partitions := range datapath.Partitions() {
			if f, ok := all.Of(datapath.Cell{Size: size, Partitions: partitions, Compression: compression}, s.client); ok {
				xys = append(xys, plotter.XY{X: dataPathX(i, j), Y: math.Log10(f.CPU)})
			}
		}
		in := legend
		if !first || i > 0 {
			in = nil
		}
		if len(xys) == 0 {
			continue
		}
		if err := s.add(p, in, xys); err != nil {
			return err
		}
	}
	return nil
}

// dataPathX is where the points of a compression and a number of partitions are: those of one compression stand together.
func dataPathX(compression, partitions int) float64 { return float64(compression*4 + partitions) }

// dataPathTicks returns the ticks of the axis and its ends. The compression stands below the middle of its partitions.
func dataPathTicks() (ticks plot.ConstantTicks, least, most float64) {
	for i, compression := range datapath.Compressions() {
		for j, partitions := range datapath.Partitions() {
			label := fmt.Sprint(partitions, "\n ")
			if j == len(datapath.Partitions())/2 {
				label += compression
			}
			ticks = append(ticks, plot.Tick{Value: dataPathX(i, j), Label: label})
		}
	}
	return ticks, -0.5, ticks[len(ticks)-1].Value + 0.5
}

// dataPathTables returns the tables of the page, by their names.
func dataPathTables(all datapath.Figures) map[string]string {
	return map[string]string{
		"goal": goalTable(all),
		"cpu":  cellsTable(all, func(f datapath.Figure) string { return grouped(int(f.CPU + 0.5)) }),
		"rate": cellsTable(all, func(f datapath.Figure) string { return grouped(int(f.Rate/1000 + 0.5)) }),
		"memory": cellsTable(all, func(f datapath.Figure) string {
			return fmt.Sprintf("%.2f · %s · %s", f.Allocs, grouped(int(f.Bytes+0.5)), megabytes(f.Memory))
		}),
		"machine": dataPathMachine(all),
	}
}

// goalTable has all figures of the cell that has goals.
func goalTable(all datapath.Figures) string {
	var b strings.Builder
	header(&b, "client", "CPU, ns", "least – most", "× franz-go's", "messages/s", "allocations", "bytes allocated", "MB resident")
	franz, _ := all.Of(datapath.Goal(), datapath.Franz)
	for _, c := range datapath.Clients() {
		f, ok := all.Of(datapath.Goal(), c)
		if !ok {
			continue
		}
		fmt.Fprintf(&b, "| %s | %s | %s – %s | %.2f | %s | %.3f | %s | %s |\n", c.Title(), grouped(int(f.CPU+0.5)), grouped(int(f.LeastCPU+0.5)),
			grouped(int(f.MostCPU+0.5)), f.CPU/franz.CPU, grouped(int(f.Rate)/1000*1000), f.Allocs, grouped(int(f.Bytes+0.5)), megabytes(f.Memory))
	}
	return b.String()
}

// cellsTable has a row for each cell and a column for each client.
func cellsTable(all datapath.Figures, text func(datapath.Figure) string) string {
	var b strings.Builder
	columns := []string{"bytes × partitions, compression"}
	for _, c := range datapath.Clients() {
		columns = append(columns, c.Title())
	}
	header(&b, columns...)
	for _, cell := range datapath.Cells() {
		fmt.Fprintf(&b, "| %s × %d, %s |", grouped(cell.Size), cell.Partitions, cell.Compression)
		for _, c := range datapath.Clients() {
			if f, ok := all.Of(cell, c); ok {
				fmt.Fprintf(&b, " %s |", text(f))
			} else {
				b.WriteString(" – |")
			}
		}
		b.WriteString("\n")
	}
	return b.String()
}

func megabytes(bytes int64) string { return fmt.Sprintf("%.0f", float64(bytes)/1e6) }

func dataPathMachine(all datapath.Figures) string {
	rounds := 0
	for _, f := range all.Figures {
		rounds = max(rounds, f.Rounds)
	}
	m := all.Machine
	return fmt.Sprintf("%s, %d cores for clients and servers together, %s, %s, Kafka %s, franz-go %s, sarama %s, on %s, medians of %d rounds.\n",
		m.CPU, m.Cores, m.System, m.Go, all.Kafka, m.Versions["franz-go"], m.Versions["sarama"], m.Date, rounds)
}
