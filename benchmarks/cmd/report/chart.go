package main

import (
	"bytes"
	"image/color"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// chart is a plot of lines with their names to the right of it.
type chart struct {
	file  string
	title string
	x, y  axis
	lines []line
}

// line is the figures of one implementation.
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

// look is how the line of an implementation is drawn. The colours can be told apart by people who do not
// see all of them, and the marks by those who see none.
type look struct {
	colour color.RGBA
	mark   draw.GlyphDrawer
	width  vg.Length
}

var looks = map[string]look{
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

var otherLook = look{color.RGBA{110, 110, 110, 255}, draw.PyramidGlyph{}, 1.5}

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
	// Who has not the font gets one of the same widths.
	return []byte(strings.ReplaceAll(svg.String(), "font-family:Liberation Sans;",
		"font-family:'Liberation Sans',Arial,Helvetica,sans-serif;")), nil
}

func (c chart) drawOn(canvas draw.Canvas) error {
	plot.DefaultFont = font.Font{Typeface: "Liberation", Variant: "Sans"}
	plotter.DefaultFont = plot.DefaultFont
	background(canvas)
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

// extent is the least and the most of both coordinates.
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

// background is white, so that the text can be read on a dark page.
func background(canvas draw.Canvas) {
	var path vg.Path
	path.Move(canvas.Min)
	path.Line(vg.Point{X: canvas.Max.X, Y: canvas.Min.Y})
	path.Line(canvas.Max)
	path.Line(vg.Point{X: canvas.Min.X, Y: canvas.Max.Y})
	path.Close()
	canvas.SetColor(color.White)
	canvas.Fill(path)
}

// plotters are a line and the marks on it.
func (c chart) plotters(l line) (*plotter.Line, *plotter.Scatter, error) {
	points := make(plotter.XYs, len(l.points))
	for i, p := range l.points {
		points[i] = plotter.XY{X: c.x.at(p.x), Y: c.y.at(p.y)}
	}
	path, marks, err := plotter.NewLinePoints(points)
	if err != nil {
		return nil, nil, err
	}
	how, known := looks[l.name]
	if !known {
		how = otherLook
	}
	path.Color, path.Width = how.colour, vg.Points(float64(how.width))
	marks.GlyphStyle = draw.GlyphStyle{Color: how.colour, Radius: vg.Points(3.5), Shape: how.mark}
	return path, marks, nil
}
