package main

import (
	"math"

	"gonum.org/v1/plot"
)

// kind says how an axis is scaled.
type kind int

const (
	logarithmic kind = iota
	steps            // whole numbers
	percents         // from 0 to 100
	bothSides        // logarithmic to both sides of 0, for times
)

// axis is one side of a chart.
type axis struct {
	title string
	kind  kind
	label func(float64) string
}

// at is the place of a value on the axis. The plot's own axes are all linear: with other scales gonum/plot
// puts the middle of a title at that of the values, and leaves room for it there.
func (a axis) at(v float64) float64 {
	switch a.kind {
	case logarithmic:
		return math.Log10(v)
	case bothSides:
		return bend(v)
	default:
		return v
	}
}

// apply sets an axis of a plot whose values go from least to most.
func (a axis) apply(to *plot.Axis, least, most float64) {
	var ticks []plot.Tick
	switch a.kind {
	case logarithmic:
		least, most = decadeBelow(least), decadeAbove(most)
		if least == most {
			most *= 10
		}
		ticks = a.decades(least, most)
	case steps:
		ticks = a.wholes(least, most)
		least, most = least-0.25, most+0.25
	case percents:
		least, most = 0, 100
		ticks = a.quarters(least, most)
	case bothSides:
		if least < 0 {
			least = -decadeAbove(max(-least, smallest))
		} else {
			least = 0
		}
		most = decadeAbove(max(most, smallest))
		ticks = a.signedDecades(least, most)
	}
	for i := range ticks {
		ticks[i].Value = a.at(ticks[i].Value)
	}
	to.Label.Text = a.title
	to.Min, to.Max = a.at(least), a.at(most)
	to.Tick.Marker = plot.ConstantTicks(ticks)
}

// Of a decade itself, both are that decade, although its logarithm may be off by a bit.
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
	for decade := smallest; decade <= max(-least, most)*1.001; decade *= 10 {
		if decade <= most*1.001 {
			ticks = append(ticks, plot.Tick{Value: decade, Label: a.label(decade)})
		}
		if decade <= -least*1.001 {
			ticks = append(ticks, plot.Tick{Value: -decade, Label: a.label(-decade)})
		}
	}
	return ticks
}

// smallest is the time up to which bend is linear, in seconds.
const smallest = 100e-6

// bend is logarithmic to both sides of 0, and linear around it.
func bend(v float64) float64 {
	if size := math.Abs(v); size > smallest {
		return math.Copysign(1+math.Log10(size/smallest), v)
	}
	return v / smallest
}
