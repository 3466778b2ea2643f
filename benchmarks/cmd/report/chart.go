package main

import (
	"bytes"
	"image/color"
	"math"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// chart is a line plot with a legend to its right.
type chart struct {
	file  string
	title string
	x, y  axis
	lines []line
}

// line has the figures of one implementation.
type line struct {
	name   string
	points []point
}

type point struct{ x, y float64 }

const (
	chartWidth  = 7.5 * vg.Inch
	chartHeight = 4 * vg.Inch
	legendWidth = 1.35 * vg.Inch
	margin      = 0.1 * vg.Inch
)

// lineStyle is the style of the line of an implementation. The colours suit colour-blind readers,
// and the marks differ too.
type lineStyle struct {
	colour color.RGBA
	mark   draw.GlyphDrawer
	width  vg.Length
}

var lineStyles = map[string]lineStyle{
	"wheel":      {color.RGBA{0, 90, 181, 255}, draw.CircleGlyph{}, 2.5},
	"timeouts":   {color.RGBA{86, 180, 233, 255}, draw.SquareGlyph{}, 1.5},
	"manual":     {color.RGBA{0, 158, 115, 255}, draw.TriangleGlyph{}, 1.5},
	"std":        {color.RGBA{0, 0, 0, 255}, draw.CrossGlyph{}, 2.5},
	"gozero":     {color.RGBA{213, 94, 0, 255}, draw.RingGlyph{}, 1.5},
	"gost":       {color.RGBA{204, 121, 167, 255}, draw.PyramidGlyph{}, 1.5},
	"siddontang": {color.RGBA{190, 150, 0, 255}, draw.PlusGlyph{}, 1.5},
	"russellluo": {color.RGBA{120, 60, 160, 255}, draw.SquareGlyph{}, 1.5},
	"antlabs":    {color.RGBA{140, 20, 60, 255}, draw.TriangleGlyph{}, 1.5},
	"rfyiamcool": {color.RGBA{130, 110, 90, 255}, draw.CircleGlyph{}, 1.5},
	"ouqiang":    {color.RGBA{60, 120, 60, 255}, draw.BoxGlyph{}, 1.5},
}

var otherStyle = lineStyle{color.RGBA{110, 110, 110, 255}, draw.PyramidGlyph{}, 1.5}

// draw returns the chart as SVG.
func (c chart) draw() ([]byte, error) {
	canvas := vgsvg.New(chartWidth, chartHeight)
	if err := c.drawOn(draw.New(canvas)); err != nil {
		return nil, err
	}
	var svg bytes.Buffer
	if _, err := canvas.WriteTo(&svg); err != nil {
		return nil, err
	}
	// Fallback fonts of the same widths.
	return []byte(strings.ReplaceAll(svg.String(), "font-family:Liberation Sans;",
		"font-family:'Liberation Sans',Arial,Helvetica,sans-serif;")), nil
}

func (c chart) drawOn(canvas draw.Canvas) error {
	plot.DefaultFont = font.Font{Typeface: "Liberation", Variant: "Sans"}
	plotter.DefaultFont = plot.DefaultFont
	fillWhite(canvas)
	p := plot.New()
	p.Title.Text = c.title
	p.Title.Padding = vg.Points(8)
	grid := plotter.NewGrid()
	grid.Horizontal.Color, grid.Vertical.Color = color.Gray{215}, color.Gray{215}
	p.Add(grid)
	legend := plot.NewLegend()
	legend.Top, legend.Left, legend.Padding = true, true, vg.Points(4)
	legend.YOffs = -vg.Points(26)
	for _, l := range c.lines {
		path, marks, err := c.plotters(l)
		if err != nil {
			return err
		}
		p.Add(path, marks)
		legend.Add(l.name, path, marks)
	}
	least, most := c.extent()
	c.x.apply(&p.X, least.x, most.x)
	c.y.apply(&p.Y, least.y, most.y)
	inner := draw.Crop(canvas, margin, -margin, margin, -margin)
	width := inner.Max.X - inner.Min.X
	p.Draw(draw.Crop(inner, 0, -legendWidth, 0, 0))
	legend.Draw(draw.Crop(inner, width-legendWidth+margin, 0, 0, 0))
	return nil
}

// extent returns the minima and maxima of both coordinates.
func (c chart) extent() (least, most point) {
	least, most = c.lines[0].points[0], c.lines[0].points[0]
	for _, l := range c.lines {
		for _, p := range l.points {
			least = point{min(least.x, p.x), min(least.y, p.y)}
			most = point{max(most.x, p.x), max(most.y, p.y)}
		}
	}
	return least, most
}

// fillWhite makes the text readable on a dark page.
func fillWhite(canvas draw.Canvas) {
	var path vg.Path
	path.Move(canvas.Min)
	path.Line(vg.Point{X: canvas.Max.X, Y: canvas.Min.Y})
	path.Line(canvas.Max)
	path.Line(vg.Point{X: canvas.Min.X, Y: canvas.Max.Y})
	path.Close()
	canvas.SetColor(color.White)
	canvas.Fill(path)
}

// plotters returns the path and the marks of a line.
func (c chart) plotters(l line) (*plotter.Line, *plotter.Scatter, error) {
	points := make(plotter.XYs, len(l.points))
	for i, p := range l.points {
		points[i] = plotter.XY{X: c.x.at(p.x), Y: c.y.at(p.y)}
	}
	path, marks, err := plotter.NewLinePoints(points)
	if err != nil {
		return nil, nil, err
	}
	style, known := lineStyles[l.name]
	if !known {
		style = otherStyle
	}
	path.Color, path.Width = style.colour, vg.Points(float64(style.width))
	marks.GlyphStyle = draw.GlyphStyle{Color: style.colour, Radius: vg.Points(3.5), Shape: style.mark}
	return path, marks, nil
}

// scale is the scale of an axis.
type scale int

const (
	logarithmic scale = iota
	wholeNumbers
	percents     // from 0 to 100
	symmetricLog // for times: logarithmic on both sides of 0, linear around it
)

// axis is one side of a chart.
type axis struct {
	title string
	scale scale
	label func(float64) string
}

// at returns the position of a value on the axis. The axes of the plot itself are linear, because
// gonum/plot centres the title of an axis at the middle of its values.
func (a axis) at(v float64) float64 {
	switch a.scale {
	case logarithmic:
		return math.Log10(v)
	case symmetricLog:
		return symlog(v)
	default:
		return v
	}
}

// apply configures an axis of a plot for values from least to most.
func (a axis) apply(to *plot.Axis, least, most float64) {
	var ticks []plot.Tick
	switch a.scale {
	case logarithmic:
		least, most = decadeBelow(least), decadeAbove(most)
		if least == most {
			most *= 10
		}
		ticks = a.decades(least, most)
	case wholeNumbers:
		ticks = a.wholes(least, most)
		least, most = least-0.25, most+0.25
	case percents:
		least, most = 0, 100
		ticks = a.quarters(least, most)
	case symmetricLog:
		if least < 0 {
			least = -decadeAbove(max(-least, linearBelow))
		} else {
			least = 0
		}
		most = decadeAbove(max(most, linearBelow))
		ticks = a.signedDecades(least, most)
	}
	for i := range ticks {
		ticks[i].Value = a.at(ticks[i].Value)
	}
	to.Label.Text = a.title
	to.Min, to.Max = a.at(least), a.at(most)
	to.Tick.Marker = plot.ConstantTicks(ticks)
}

// decadeBelow and decadeAbove return a power of ten itself, despite the rounding of its logarithm.
func decadeBelow(v float64) float64 { return math.Pow(10, math.Floor(math.Log10(v)+1e-9)) }
func decadeAbove(v float64) float64 { return math.Pow(10, math.Ceil(math.Log10(v)-1e-9)) }

func (a axis) decades(least, most float64) (ticks []plot.Tick) {
	for decade := least; decade <= most*1.001; decade *= 10 {
		ticks = append(ticks, plot.Tick{Value: decade, Label: a.label(decade)})
		for i := 2.0; i < 10 && i*decade < most; i++ {
			ticks = append(ticks, plot.Tick{Value: i * decade})
		}
	}
	return ticks
}

func (a axis) wholes(least, most float64) (ticks []plot.Tick) {
	for v := math.Ceil(least); v <= most; v++ {
		ticks = append(ticks, plot.Tick{Value: v, Label: a.label(v)})
	}
	return ticks
}

func (a axis) quarters(least, most float64) (ticks []plot.Tick) {
	for v := least; v <= most; v += 25 {
		ticks = append(ticks, plot.Tick{Value: v, Label: a.label(v)})
	}
	return ticks
}

func (a axis) signedDecades(least, most float64) []plot.Tick {
	ticks := []plot.Tick{{Value: 0, Label: "0"}}
	for decade := linearBelow; decade <= max(-least, most)*1.001; decade *= 10 {
		if decade <= most*1.001 {
			ticks = append(ticks, plot.Tick{Value: decade, Label: a.label(decade)})
		}
		if decade <= -least*1.001 {
			ticks = append(ticks, plot.Tick{Value: -decade, Label: a.label(-decade)})
		}
	}
	return ticks
}

// linearBelow is the time below which symlog is linear, in seconds.
const linearBelow = 100e-6

// symlog is the symmetric logarithm: logarithmic on both sides of 0, and linear around it.
func symlog(v float64) float64 {
	if size := math.Abs(v); size > linearBelow {
		return math.Copysign(1+math.Log10(size/linearBelow), v)
	}
	return v / linearBelow
}
