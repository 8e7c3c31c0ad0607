package result

import (
	"image/color"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// Figure is a plot of named lines, in order.
type Figure struct {
	Title, File, X, Y string
	LogX              bool
	Ticks             []plot.Tick
	names             []string
	lines             []plotter.XYs
}

// Line adds a line.
func (f *Figure) Line(name string, points plotter.XYs) {
	f.names, f.lines = append(f.names, name), append(f.lines, points)
}

// Colours that people with any colour vision can tell apart (Okabe and Ito).
var colours = []color.RGBA{
	{0x00, 0x72, 0xb2, 0xff}, {0xd5, 0x5e, 0x00, 0xff}, {0x00, 0x9e, 0x73, 0xff}, {0xcc, 0x79, 0xa7, 0xff}, {0xe6, 0x9f, 0x00, 0xff},
}

func (f *Figure) draw(path string) error {
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = f.Title, f.X, f.Y
	p.BackgroundColor = color.White
	p.Legend.Top, p.Legend.Left = false, false
	p.Add(plotter.NewGrid())
	if f.LogX {
		p.X.Scale = plot.LogScale{}
	}
	if f.Ticks != nil {
		p.X.Tick.Marker = plot.ConstantTicks(f.Ticks)
	}
	for i, points := range f.lines {
		line, dots, err := plotter.NewLinePoints(points)
		if err != nil {
			return err
		}
		line.Color, line.Width = colours[i%len(colours)], vg.Points(1.5)
		dots.Color, dots.Shape, dots.Radius = line.Color, draw.CircleGlyph{}, vg.Points(2)
		p.Add(line)
		if len(points) < 20 {
			p.Add(dots)
		}
		p.Legend.Add(f.names[i], line)
	}
	return p.Save(16*vg.Centimeter, 10*vg.Centimeter, path)
}
