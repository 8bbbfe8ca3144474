package main

import (
	"bytes"
	"image/color"
	"math"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// Colours of Okabe and Ito, which people who do not see all colours can tell apart.
var (
	blue    = color.RGBA{0x00, 0x72, 0xb2, 0xff}
	green   = color.RGBA{0x00, 0x9e, 0x73, 0xff}
	purple  = color.RGBA{0xcc, 0x79, 0xa7, 0xff}
	sky     = color.RGBA{0x56, 0xb4, 0xe9, 0xff}
	orange  = color.RGBA{0xe6, 0x9f, 0x00, 0xff}
	red     = color.RGBA{0xd5, 0x5e, 0x00, 0xff}
	black   = color.RGBA{0x00, 0x00, 0x00, 0xff}
	grey    = color.RGBA{0x80, 0x80, 0x80, 0xff}
	hairs   = color.RGBA{0xe0, 0xe0, 0xe0, 0xff}
	dashes  = []vg.Length{vg.Points(5), vg.Points(3)}
	dots    = []vg.Length{vg.Points(1.5), vg.Points(2.5)}
	regular = font.Font{Typeface: "Liberation", Variant: "Sans"}
)

// family is what browsers are asked for: fonts of the same widths as the one that the pictures are laid out with.
const family = `font-family:'Liberation Sans',Arial,Helvetica,sans-serif`

// series is how one line looks.
type series struct {
	name  string
	color color.Color
	glyph draw.GlyphDrawer
	dash  []vg.Length
	width float64 // of the line; 0 is none
}

// byFunction is how the functions look in all pictures, in the order of legends.
var byFunction = []series{
	{"RoundRobin", black, draw.PlusGlyph{}, nil, 1},
	{"Range", red, draw.CrossGlyph{}, nil, 1},
	{"CoPartitioned", purple, draw.TriangleGlyph{}, nil, 1},
	{"TopicBalanced", green, draw.SquareGlyph{}, nil, 1},
	{"Balanced", blue, draw.CircleGlyph{}, nil, 2},
	{"Rendezvous", orange, draw.RingGlyph{}, nil, 1},
	{"Ordinal", sky, draw.PyramidGlyph{}, nil, 1},
}

func (s series) line() draw.LineStyle {
	return draw.LineStyle{Color: s.color, Width: vg.Points(s.width), Dashes: s.dash}
}

// add draws a line with a mark at each point, and puts it in the legend. Points at zero, which logarithmic axes do not have, are
// left out.
func (s series) add(p *plot.Plot, legend *plot.Legend, xys plotter.XYs) error {
	xys = slices.DeleteFunc(xys, func(xy plotter.XY) bool { return math.IsInf(xy.Y, -1) })
	line, marks, err := plotter.NewLinePoints(xys)
	if err != nil {
		return err
	}
	line.LineStyle = s.line()
	marks.GlyphStyle = draw.GlyphStyle{Color: s.color, Radius: vg.Points(3), Shape: s.glyph}
	var parts []plot.Thumbnailer
	if s.width > 0 {
		p.Add(line)
		parts = append(parts, line)
	}
	if s.glyph != nil {
		p.Add(marks)
		parts = append(parts, marks)
	}
	if legend != nil {
		legend.Add(s.name, parts...)
	}
	return nil
}

// newPlot returns an empty plot with a grid.
func newPlot(title, x, y string) *plot.Plot {
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = title, x, y
	for _, f := range []*font.Font{
		&p.Title.TextStyle.Font, &p.X.Label.TextStyle.Font, &p.Y.Label.TextStyle.Font,
		&p.X.Tick.Label.Font, &p.Y.Tick.Label.Font,
	} {
		*f = font.From(regular, 10)
	}
	p.Title.TextStyle.Font.Size = 11
	p.Title.Padding = vg.Points(6)
	grid := plotter.NewGrid()
	grid.Horizontal.Color, grid.Vertical.Color = hairs, hairs
	p.Add(grid)
	return p
}

func newLegend() plot.Legend {
	l := plot.NewLegend()
	l.TextStyle.Font = font.From(regular, 10)
	l.Top, l.Left = true, true
	l.ThumbnailWidth = vg.Points(24)
	l.Padding = vg.Points(3)
	return l
}

// logAxis gives an axis of decimal logarithms these labelled ticks and lines. It is one of logarithms, and not logarithmic,
// because plot makes room for labels at the wrong end of those.
func logAxis(a *plot.Axis, least, most float64, labels map[float64]string, ticks ...float64) {
	a.Min, a.Max = math.Log10(least), math.Log10(most)
	var all plot.ConstantTicks
	for _, v := range ticks {
		label, ok := labels[v]
		if !ok {
			label = grouped(int(v))
		}
		all = append(all, plot.Tick{Value: math.Log10(v), Label: label})
	}
	a.Tick.Marker = all
}

// logs returns a point for two axes of logarithms.
func logs(x, y float64) plotter.XY { return plotter.XY{X: math.Log10(x), Y: math.Log10(y)} }

const (
	pictureWidth  = 690 // points; 920 pixels
	pictureHeight = 300
	legendWidth   = 112
)

// svg draws plots side by side and the legend beside them.
func svg(legend plot.Legend, legendWidth vg.Length, plots ...*plot.Plot) ([]byte, error) {
	c := vgsvg.NewWith(vgsvg.UseWH(pictureWidth, pictureHeight))
	all := draw.New(c)
	all.SetColor(color.White)
	all.Fill(all.Path())
	left := draw.Crop(all, vg.Points(4), -legendWidth, vg.Points(4), -vg.Points(4))
	tiles := draw.Tiles{Rows: 1, Cols: len(plots), PadX: vg.Points(12)}
	for i, p := range plots {
		p.Draw(tiles.At(left, i, 0))
	}
	legend.Draw(draw.Crop(all, pictureWidth-legendWidth+vg.Points(8), 0, 0, -vg.Points(26)))
	var out bytes.Buffer
	if _, err := c.WriteTo(&out); err != nil {
		return nil, err
	}
	return bytes.ReplaceAll(out.Bytes(), []byte("font-family:Liberation Sans"), []byte(family)), nil
}
