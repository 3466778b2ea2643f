package main

import (
	"fmt"
	"html"
	"strings"
)

// canvas collects the elements of an SVG picture.
type canvas struct{ strings.Builder }

// element writes an element. attributes are pairs of a key and a value.
func (c *canvas) element(name string, attributes ...any) {
	c.open(name, attributes...)
	c.WriteString("/>\n")
}

func (c *canvas) open(name string, attributes ...any) {
	c.WriteString("<" + name)
	for i := 0; i < len(attributes); i += 2 {
		fmt.Fprintf(c, ` %s="%s"`, attributes[i], html.EscapeString(fmt.Sprint(attributes[i+1])))
	}
}

// text writes s with its baseline at y. class selects the font, and anchor is start, middle or end.
func (c *canvas) text(x, y int, class, anchor, s string) {
	c.open("text", "x", x, "y", y, "class", class, "text-anchor", anchor)
	c.WriteString(">" + html.EscapeString(s) + "</text>\n")
}

// spans writes pieces of text on one line. A piece is a class and a text.
func (c *canvas) spans(x, y int, class string, pieces ...[2]string) {
	c.open("text", "x", x, "y", y, "class", class, "xml:space", "preserve")
	c.WriteString(">")
	for _, piece := range pieces {
		fmt.Fprintf(c, `<tspan class="%s">%s</tspan>`, piece[0], html.EscapeString(piece[1]))
	}
	c.WriteString("</text>\n")
}

func (c *canvas) box(x, y, w, h, radius int, class string) {
	c.element("rect", "x", x, "y", y, "width", w, "height", h, "rx", radius, "class", class)
}

func (c *canvas) circle(x, y, r int, class string) {
	c.element("circle", "cx", x, "cy", y, "r", r, "class", class)
}

// path writes a path. format and args are as for fmt.Sprintf, for its d attribute.
func (c *canvas) path(class, format string, args ...any) {
	c.element("path", "d", fmt.Sprintf(format, args...), "class", class)
}

// badge writes the number of a step.
func (c *canvas) badge(x, y, number int) {
	c.circle(x, y, 12, "badge")
	c.text(x, y+5, "number", "middle", fmt.Sprint(number))
}
