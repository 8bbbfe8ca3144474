package alerts_test

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"
	vgdraw "gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
)

var inBraces = regexp.MustCompile(`{{(\w+)}}`)

// legend names a line as Grafana does.
func legend(format string, labels map[string]string) string {
	return inBraces.ReplaceAllStringFunc(format, func(s string) string { return labels[s[2:len(s)-2]] })
}

// draw makes a picture of each row of the board: what its panels show, as lines, two beside each other.
func draw(t *testing.T, dir string, b board, lines map[int][]line) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	var rows [][]panel
	for _, p := range b.Panels {
		if p.Type == "row" {
			rows = append(rows, nil)
			continue
		}
		last := len(rows) - 1
		rows[last] = append(rows[last], p)
	}
	for i, row := range rows {
		picture(t, filepath.Join(dir, fmt.Sprintf("row-%d.png", i+1)), row, lines)
	}
}

func picture(t *testing.T, path string, row []panel, lines map[int][]line) {
	t.Helper()
	const width, height = 460, 210 // points of a panel
	down := (len(row) + 1) / 2
	img := vgimg.New(2*width, vg.Length(down*height))
	tiles := vgdraw.Tiles{Rows: down, Cols: 2, PadX: vg.Points(12), PadY: vg.Points(8)}
	canvas := vgdraw.New(img)
	for i, p := range row {
		plotOf(t, p, lines[p.ID]).Draw(tiles.At(canvas, i%2, i/2))
	}
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := (vgimg.PngCanvas{Canvas: img}).WriteTo(f); err != nil {
		t.Error(err)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
}

func plotOf(t *testing.T, p panel, lines []line) *plot.Plot {
	t.Helper()
	out := plot.New()
	out.Title.Text = fmt.Sprintf("%s [%s]", p.Title, p.FieldConfig.Defaults.Unit)
	out.Legend.Top, out.Legend.Left = true, true
	out.X.Tick.Marker = plot.TimeTicks{Format: "04:05"}
	for i, l := range lines {
		var points plotter.XYs
		for _, v := range l.Values {
			if !math.IsNaN(v.V) {
				points = append(points, plotter.XY{X: v.At, Y: v.V})
			}
		}
		if len(points) == 0 {
			continue
		}
		drawn, err := plotter.NewLine(points)
		if err != nil {
			t.Fatal(err)
		}
		drawn.Color, drawn.StepStyle = plotutil.Color(i), plotter.PostStep
		out.Add(drawn)
		if len(lines) <= 8 {
			out.Legend.Add(l.Labels["legend"], drawn)
		}
	}
	out.Y.Min, out.Y.Max = 0, max(out.Y.Max, 1e-3)
	return out
}
