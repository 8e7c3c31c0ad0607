package main

import (
	"image/color"
	"math"
	"slices"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// figure is a plot: lines by name, in order.
type figure struct {
	title, file, x, y string
	names             []string
	lines             []plotter.XYs
	logX              bool
	ticks             []plot.Tick
}

func (f *figure) line(name string, points plotter.XYs) {
	f.names, f.lines = append(f.names, name), append(f.lines, points)
}

// Colours that people with any sight can tell apart (Okabe and Ito).
var colours = []color.RGBA{
	{0x00, 0x72, 0xb2, 0xff}, {0xd5, 0x5e, 0x00, 0xff}, {0x00, 0x9e, 0x73, 0xff}, {0xcc, 0x79, 0xa7, 0xff}, {0xe6, 0x9f, 0x00, 0xff},
}

func (f *figure) draw(path string) error {
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = f.title, f.x, f.y
	p.BackgroundColor = color.White
	p.Legend.Top, p.Legend.Left = false, false
	p.Add(plotter.NewGrid())
	if f.logX {
		p.X.Scale = plot.LogScale{}
	}
	if f.ticks != nil {
		p.X.Tick.Marker = plot.ConstantTicks(f.ticks)
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

// quantile of durations, which it sorts.
func quantile(d []time.Duration, q float64) time.Duration {
	if len(d) == 0 {
		return 0
	}
	slices.Sort(d)
	return d[min(int(math.Ceil(q*float64(len(d))))-1+btoi(q == 0), len(d)-1)]
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// distribution is the line of a cumulative distribution, in milliseconds.
func distribution(d []time.Duration) plotter.XYs {
	var xys plotter.XYs
	for i := 1; i < 200; i++ {
		q := float64(i) / 200
		xys = append(xys, plotter.XY{X: float64(quantile(d, q)) / float64(time.Millisecond), Y: q})
	}
	return xys
}

func median(v []float64) float64 {
	slices.Sort(v)
	return v[len(v)/2]
}
