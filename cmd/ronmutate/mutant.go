package main

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
)

// kind says what is changed.
type kind string

const (
	negate   kind = "negate"   // a condition: if x, if !(x)
	compare  kind = "compare"  // a comparison for its neighbour: <, <=
	logic    kind = "logic"    // &&, ||
	compute  kind = "compute"  // +, -; and so on
	constant kind = "constant" // an integer by one
	boolean  kind = "boolean"  // true, false
	drop     kind = "drop"     // a statement that assigns or calls is not there
	succeed  kind = "succeed"  // an error that is returned is nil
	branch   kind = "branch"   // break, continue
)

// mutant is one change of one file.
type mutant struct {
	Package string `json:"package"`
	File    string `json:"file"` // from the folder of the module
	Line    int    `json:"line"`
	Kind    kind   `json:"kind"`
	Before  string `json:"before"`
	After   string `json:"after"`

	path       string // of the file
	start, end int    // the bytes that are replaced
	text       string // by this
}

func (m *mutant) String() string {
	return fmt.Sprintf("%s:%d  %s  %s", m.File, m.Line, m.Kind, m.change())
}

func (m *mutant) change() string {
	return m.Before + " → " + cmp.Or(m.After, "nothing")
}

// apply is the source with the change.
func (m *mutant) apply(src []byte) []byte {
	return slices.Concat(src[:m.start], []byte(m.text), src[m.end:])
}

// show fills Before and After from the piece of source around the change, both on one line.
func (m *mutant) show(src []byte, from, to int) {
	from, to = min(from, m.start), max(to, m.end)
	head, tail := string(src[from:m.start]), string(src[m.end:to])
	head, tail = line(head), line(tail)
	if n := len(head); n > shown {
		head = "…" + strings.ToValidUTF8(head[n-shown:], "")
	}
	if len(tail) > shown {
		tail = strings.ToValidUTF8(tail[:shown], "") + "…"
	}
	m.Before = strings.TrimSpace(head + line(string(src[m.start:m.end])) + tail)
	m.After = strings.TrimSpace(head + m.text + tail)
	if m.Kind == drop {
		m.After = ""
	}
}

// shown is how many bytes are shown on each side of a change: enough to know the place, and few enough for a line.
const shown = 60

var blanks = strings.NewReplacer("\n", " ", "\t", " ")

// line is s with each run of white space as one blank; what stands at its ends stays apart from its neighbours.
func line(s string) string {
	s = blanks.Replace(s)
	for strings.Contains(s, "  ") {
		s = strings.ReplaceAll(s, "  ", " ")
	}
	return s
}

// draw puts mutants into the order in which the seed tries them.
func draw(all []mutant, seed uint64) []mutant {
	drawn := slices.Clone(all)
	r := rand.New(rand.NewPCG(seed, 0))
	r.Shuffle(len(drawn), func(i, k int) { drawn[i], drawn[k] = drawn[k], drawn[i] })
	return drawn
}
