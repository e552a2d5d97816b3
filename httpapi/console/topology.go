package console

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"ronbox/httpapi/wire/node"
)

// Sizes of the drawing of the topology.
const (
	boxWidth   = 120
	boxHeight  = 36
	rowHeight  = 47
	leftColumn = 10
	midColumn  = 290
	endColumn  = 570
)

// drawing is the topology as an SVG draws it: the services, and the queues between them.
type drawing struct {
	Width, Height int
	Boxes         []box
	Lines         []line
}

// box is a service, or the HTTP front.
type box struct {
	Name string
	X, Y int
	Link string
}

// line stands for all queues from one service to another.
type line struct {
	Path    string
	Title   string
	Width   string // of the stroke: more where a queue is fuller
	Full    bool   // one of the queues holds four fifths of its room
	Dropped bool   // one of the queues has refused or dropped something
	fill    float64
}

// draw lays out the declared queues: HTTP on the left, the services in the middle, the store on the
// right.
func draw(queues []node.QueueInfo) drawing {
	lines := map[[2]string]*line{}
	names := map[string]bool{}
	for _, q := range queues {
		if q.Kind != "queue" {
			continue
		}
		for _, producer := range q.Producers {
			from, _, other := strings.Cut(producer, ".")
			if !other && from != "http" || from == q.Service {
				continue // a task of the same service
			}
			names[from], names[q.Service] = true, true
			key := [2]string{from, q.Service}
			if lines[key] == nil {
				lines[key] = &line{}
			}
			lines[key].add(q)
		}
	}
	d := drawing{Width: endColumn + boxWidth + leftColumn}
	at := map[string]box{}
	place := func(name string, x, row int) {
		b := box{Name: name, X: x, Y: leftColumn + row*rowHeight, Link: pageOf(name)}
		at[name] = b
		d.Boxes = append(d.Boxes, b)
	}
	middle := slices.DeleteFunc(sortedKeys(names), func(n string) bool { return n == "http" || n == "store" })
	for row, name := range middle {
		place(name, midColumn, row)
	}
	place("http", leftColumn, max(0, len(middle)-1)/2)
	place("store", endColumn, max(0, len(middle)-1)/2)
	d.Height = 2*leftColumn + max(1, len(middle))*rowHeight
	for key, l := range lines {
		from, to := at[key[0]], at[key[1]]
		l.Path = curve(from, to)
		l.Width = fmt.Sprintf("%.1f", 1.5+6*l.fill)
		d.Lines = append(d.Lines, *l)
	}
	slices.SortFunc(d.Lines, func(a, b line) int { return cmp.Compare(a.Title, b.Title) })
	return d
}

// add notes one queue of the line.
func (l *line) add(q node.QueueInfo) {
	if l.Title != "" {
		l.Title += "\n"
	}
	l.Title += fmt.Sprintf("%s.%s: %d of %d, %d refused or dropped", q.Service, q.Name, q.Len, q.Cap, q.Dropped)
	if q.Cap > 0 {
		l.fill = max(l.fill, float64(q.Len)/float64(q.Cap))
	}
	l.Full = l.Full || l.fill >= 0.8
	l.Dropped = l.Dropped || q.Dropped > 0
}

// curve leads from the right side of a box to the left side of another one, or around the left side
// within a column.
func curve(from, to box) string {
	x1, y1 := from.X+boxWidth, from.Y+boxHeight/2
	x2, y2 := to.X, to.Y+boxHeight/2
	if from.X == to.X {
		x1, x2 = from.X, to.X
		return fmt.Sprintf("M%d %d C%d %d %d %d %d %d", x1, y1, x1-50, y1, x2-50, y2, x2, y2)
	}
	bend := (x2 - x1) / 2
	return fmt.Sprintf("M%d %d C%d %d %d %d %d %d", x1, y1, x1+bend, y1, x2-bend, y2, x2, y2)
}

// pageOf returns the page about a service.
func pageOf(name string) string {
	switch name {
	case "registry", "wallet", "edge", "index":
		return prefix + name
	case "ledger":
		return prefix + "wallet"
	case "rewarder":
		return prefix + "rewards"
	}
	return prefix + "operations"
}

func sortedKeys(m map[string]bool) (out []string) {
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}
