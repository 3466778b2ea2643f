package main

import (
	"fmt"
	"slices"
)

// Dimensions of the picture, in units of its viewBox.
const (
	width, height = 1120, 690

	stripX     = 176 // left edge of the strips of slots
	slotWidth  = 68
	slotHeight = 64
	stripWidth = slots * slotWidth
	topStrip   = 158 // top of the coarsest level's strip
	stripGap   = 148 // from the top of one level's strip to the next

	dotY = 50 // from the upper edge of a slot to the timers in it

	queueX     = 792 // left edge of the bucket queue's panel
	queueWidth = 296
)

// style defines one colour for each level, and crimson for the example timer. The background is
// drawn and light, because an image in a README does not know the theme of its page.
const style = `
text { font-family: system-ui, -apple-system, "Segoe UI", Helvetica, Arial, sans-serif; font-size: 15px; fill: #2b2f36; }
.paper { fill: #fdfcf9; stroke: #d9d5cb; }
.title { font-size: 22px; font-weight: 600; }
.head { font-size: 17px; font-weight: 600; }
.note { fill: #5c6370; font-size: 14px; }
.mono, .index, .range { font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace; }
.index { font-size: 12px; fill: #7a808c; }
.range { font-size: 13px; }
.bold { font-weight: 600; }
.hot { fill: #b3124f; font-weight: 600; }
.badge { fill: #b3124f; }
.number { fill: #ffffff; font-size: 14px; font-weight: 700; }
.timer { fill: #d6336c; stroke: #8f0f40; stroke-width: 1.5; }
.trace { fill: #ffffff; stroke: #d6336c; stroke-width: 1.8; stroke-dasharray: 3 2.4; }
.other { fill: #8b919c; }
.waits { fill: #ffffff; stroke: #2b2f36; stroke-width: 1.8; }
.arrow { fill: none; stroke: #b3124f; stroke-width: 2.2; marker-end: url(#tip); }
.edge { fill: none; stroke: #8b919c; stroke-width: 1.6; }
.pointer { fill: none; stroke: #5c6370; stroke-width: 1.3; }
.panel { fill: #f4f2ec; stroke: #d9d5cb; }
.past { fill: #f1efe9; stroke: #c9c5bb; }
.faint { fill: #a9adb5; }
.l0 { fill: #fff0dc; stroke: #c77714; } .zoom0 { fill: #fff0dc; opacity: 0.75; } .name0 { fill: #a35f0b; }
.l1 { fill: #dcf3ee; stroke: #1c8572; } .zoom1 { fill: #dcf3ee; opacity: 0.75; } .name1 { fill: #116453; }
.l2 { fill: #e6e9fb; stroke: #5463c4; } .zoom2 { fill: #e6e9fb; opacity: 0.75; } .name2 { fill: #3c4aa6; }
.here { stroke-width: 2.6; }
`

// picture returns the whole SVG document.
func picture() string {
	c := new(canvas)
	c.open("svg", "xmlns", "http://www.w3.org/2000/svg", "viewBox", fmt.Sprintf("0 0 %d %d", width, height),
		"width", width, "height", height, "role", "img", "aria-labelledby", "what how")
	c.WriteString(">\n<title id=\"what\">The levels of a timing wheel</title>\n")
	fmt.Fprintf(c, "<desc id=\"how\">Three levels of %d slots each. A timer with deadline %d moves from level 2 to level 1 "+
		"to level 0 and runs at tick %d. A heap of the non-empty buckets drives the clock.</desc>\n", slots, deadline, deadline)
	c.WriteString("<style>" + style + "</style>\n")
	c.WriteString(`<defs><marker id="tip" viewBox="0 0 10 10" refX="8" refY="5" markerWidth="7" markerHeight="7" orient="auto-start-reverse">` +
		`<path d="M0 0 L10 5 L0 10 z" fill="#b3124f"/></marker></defs>` + "\n")
	c.box(1, 1, width-2, height-2, 14, "paper")
	drawTitle(c)
	for level := levels - 1; level >= 0; level-- {
		drawStrip(c, level)
	}
	drawSteps(c)
	drawDistant(c)
	drawQueue(c)
	drawLegend(c)
	c.WriteString("</svg>\n")
	return c.String()
}

// top returns the upper edge of a level's strip. The coarsest level is on top.
func top(level int) int { return topStrip + (levels-1-level)*stripGap }

// slotX returns the left edge of a slot.
func slotX(slot int) int { return stripX + slot*slotWidth }

// drawTitle writes the title and how the slots of the example timer follow from its deadline.
func drawTitle(c *canvas) {
	c.text(32, 46, "title", "start", "How a timer moves down the levels")
	c.spans(32, 74, "note",
		[2]string{"", "a timer with "},
		[2]string{"hot", fmt.Sprintf("deadline %d", deadline)},
		[2]string{"", fmt.Sprintf(" = %d·%d + %d·%d + %d: slot %d of level 2, then slot %d of level 1, then slot %d of level 0",
			slotOf(deadline, 2), slotTicks(2), slotOf(deadline, 1), slotTicks(1), slotOf(deadline, 0),
			slotOf(deadline, 2), slotOf(deadline, 1), slotOf(deadline, 0))})
}

// drawStrip draws a level: its name, its slots, and a cone from the slot of the example timer to
// the whole next finer level.
func drawStrip(c *canvas, level int) {
	y := top(level)
	if level > 0 {
		x := slotX(slotOf(deadline, level))
		c.path(fmt.Sprint("zoom", level-1), "M%d %d H%d L%d %d H%d z",
			x, y+slotHeight, x+slotWidth, stripX+stripWidth, top(level-1), stripX)
	}
	c.text(32, y+22, fmt.Sprint("head name", level), "start", fmt.Sprint("level ", level))
	c.text(32, y+42, "note", "start", plural(slotTicks(level), "tick")+" a slot")
	c.text(32, y+60, "note", "start", fmt.Sprintf("spans %d", spanTicks(level)))
	lap := now - now%spanTicks(level)
	for slot := range slots {
		drawSlot(c, level, slot, lap+slot*slotTicks(level))
	}
	drawRingMark(c, stripX+stripWidth+20, y+slotHeight/2)
}

// drawSlot draws a slot whose first tick is begin. A slot behind the clock is grey, because it
// belongs to the next lap.
func drawSlot(c *canvas, level, slot, begin int) {
	x, y := slotX(slot), top(level)
	class, label, index := fmt.Sprint("l", level), "range", "index"
	if begin+slotTicks(level) <= now {
		class, label, index = "past", "range faint", "index faint"
	}
	c.box(x, y, slotWidth, slotHeight, 0, class)
	c.text(x+6, y+15, index, "start", fmt.Sprint(slot))
	ticks := fmt.Sprint(begin)
	if level > 0 {
		ticks = fmt.Sprintf("%d–%d", begin, begin+slotTicks(level)-1)
	}
	c.text(x+slotWidth/2, y+34, label, "middle", ticks)
	dot := x + slotWidth/2 - 14
	for _, other := range others {
		if levelOf(other, now) == level && slotOf(other, level) == slot {
			c.circle(dot, y+dotY, 6, "other")
			dot += 18
		}
	}
}

// drawRingMark draws a small circular arrow, which shows that a strip is a ring.
func drawRingMark(c *canvas, x, y int) {
	c.path("pointer", "M%d %d a9 9 0 1 1 -2 -11", x+9, y)
	c.path("pointer", "M%d %d l-1 -7 m1 7 l-7 -1", x+7, y-11)
}

// drawSteps draws the example timer in all its slots, and the steps between them.
func drawSteps(c *canvas) {
	last := levels - 1
	x := timerX(last)
	c.path("arrow", "M%d %d V%d", x, top(last)-27, top(last)-2)
	drawStep(c, stripX+12, top(last)-40, 1, armed, fmt.Sprintf("AfterFunc, %d ticks ahead", deadline-armed))
	c.circle(x, top(last)+dotY, 7, "trace")
	for level := last - 1; level >= 0; level-- {
		at := expiration(deadline, level+1)
		drawMove(c, level)
		drawStep(c, slotX(4)-14, top(level)-60, levels-level, at,
			fmt.Sprintf("bucket expires, %d ticks left", deadline-at))
		class := "trace"
		if level == levelOf(deadline, now) {
			class = "timer"
		}
		c.circle(timerX(level), top(level)+dotY, 7, class)
	}
	x, y := timerX(0), top(0)+slotHeight
	c.path("arrow", "M%d %d V%d", x, y+1, y+32)
	drawStep(c, x, y+46, levels+1, deadline, "the callback runs")
}

// timerX returns the x coordinate of the example timer in a level.
func timerX(level int) int { return slotX(slotOf(deadline, level)) + slotWidth/2 - 14 }

// drawStep writes one step of the example timer, with its number at x, y.
func drawStep(c *canvas, x, y, number, tick int, what string) {
	c.badge(x, y, number)
	c.spans(x+20, y+5, "", [2]string{"bold", fmt.Sprintf("tick %d: ", tick)}, [2]string{"", what})
}

// drawMove draws the arrow from the example timer's slot in the coarser level to its slot in level.
// The arrow connects the edges of the slots, so that it crosses no text.
func drawMove(c *canvas, level int) {
	fromX, fromY := timerX(level+1), top(level+1)+slotHeight+1
	toX, toY := timerX(level), top(level)-2
	c.path("arrow", "M%d %d C%d %d %d %d %d %d", fromX, fromY, fromX, fromY+52, toX, toY-52, toX, toY)
}

// drawDistant draws a timer beyond the span of the last level.
func drawDistant(c *canvas) {
	last := levels - 1
	slot := slotOf(distant, last)
	x, y := slotX(slot)+slotWidth/2+14, top(last)
	rounds := (distant/slotTicks(last) - now/slotTicks(last)) / slots
	c.circle(x, y+dotY, 7, "waits")
	edge := slotX(slot + 1) // the pointer follows this edge and crosses no text
	c.path("pointer", "M%d %d Q%d %d %d %d V%d Q%d %d %d %d",
		x+7, y+dotY, edge, y+dotY, edge, y+dotY-16, y-4, edge, y-22, x+62, y-22)
	c.spans(x+68, y-29, "note", [2]string{"bold", fmt.Sprintf("deadline %d", distant)}, [2]string{"", fmt.Sprintf(" is beyond %d:", spanTicks(last))})
	c.text(x+68, y-11, "note", "start", fmt.Sprintf("waits here for %d more rounds", rounds))
}

// bucket is a non-empty bucket in the picture.
type bucket struct{ due, level, slot int }

// queue returns the non-empty buckets at the tick of the picture, in the order of a binary heap.
func queue() []bucket {
	var all []bucket
	for _, d := range append([]int{deadline, distant}, others...) {
		level := levelOf(d, now)
		b := bucket{expiration(d, level), level, slotOf(d, level)}
		if !slices.Contains(all, b) {
			all = append(all, b)
		}
	}
	slices.SortFunc(all, func(a, b bucket) int { return a.due - b.due })
	return all
}

// drawQueue draws the heap of buckets and describes what the driver does with its head.
func drawQueue(c *canvas) {
	y := topStrip - 46
	c.box(queueX, y, queueWidth, 506, 10, "panel")
	c.text(queueX+18, y+30, "head", "start", "Queue of buckets")
	c.text(queueX+18, y+51, "note", "start", fmt.Sprintf("a heap by expiration, at tick %d", now))
	places := heapPlaces(y + 92)
	buckets := queue()
	for i := 1; i < len(buckets); i++ {
		parent := places[(i-1)/2]
		c.path("edge", "M%d %d L%d %d", parent[0], parent[1], places[i][0], places[i][1])
	}
	for i, b := range buckets {
		drawBucket(c, places[i], b, i == 0)
	}
	text := y + 308
	for _, line := range []string{
		fmt.Sprintf("The driver sleeps until tick %d,", buckets[0].due),
		"advances the clock to it and",
		"empties that bucket:",
	} {
		c.text(queueX+18, text, "", "start", line)
		text += 22
	}
	text += 6
	for _, line := range [][2]string{
		{"due now:", "run"},
		{"due later:", "move to a finer level"},
		{"further rounds:", "keep"},
	} {
		c.spans(queueX+18, text, "", [2]string{"bold", line[0]}, [2]string{"", " " + line[1]})
		text += 24
	}
	text += 6
	c.text(queueX+18, text, "note", "start", "An empty queue causes no wake-ups:")
	c.text(queueX+18, text+19, "note", "start", "an idle wheel costs nothing.")
}

// heapPlaces returns the centres of the first nodes of a binary tree whose root has the y
// coordinate y.
func heapPlaces(y int) [][2]int {
	middle := queueX + queueWidth/2
	return [][2]int{
		{middle, y},
		{middle - 58, y + 74}, {middle + 70, y + 74},
		{middle - 91, y + 148}, {middle, y + 148}, {middle + 91, y + 148},
	}
}

// drawBucket draws a bucket of the heap in the colour of its level.
func drawBucket(c *canvas, place [2]int, b bucket, head bool) {
	class := fmt.Sprint("l", b.level)
	if head {
		class += " here"
	}
	c.box(place[0]-40, place[1]-24, 80, 48, 9, class)
	c.text(place[0], place[1]-4, "mono bold", "middle", fmt.Sprint(b.due))
	c.text(place[0], place[1]+14, "note", "middle", fmt.Sprintf("L%d slot %d", b.level, b.slot))
}

// drawLegend explains the symbols.
func drawLegend(c *canvas) {
	y := height - 44
	x := 32
	c.circle(x+8, y-5, 7, "timer")
	c.text(x+24, y, "note", "start", "the timer")
	c.circle(x+112, y-5, 7, "trace")
	c.text(x+128, y, "note", "start", "where it was")
	c.circle(x+238, y-5, 6, "other")
	c.text(x+254, y, "note", "start", "other timers")
	c.box(x+358, y-13, 26, 16, 0, "past")
	c.text(x+394, y, "note", "start", "slots behind the clock belong to the next lap")
	c.text(x, y+22, "note", "start", "Each strip is a ring. Levels 1 and 2 are created when a timer first needs them.")
}

func plural(n int, unit string) string {
	if n == 1 {
		return "1 " + unit
	}
	return fmt.Sprint(n, " ", unit, "s")
}
