package main

import (
	"fmt"
	"io"
	"time"
)

const (
	progressAfter = time.Second            // shorter work shows nothing
	progressFrame = 100 * time.Millisecond // redraw of a terminal line
	progressLine  = 10 * time.Second       // a line when no terminal looks
)

// progress shows long work on stderr: one line redrawn on a terminal, else a line per 10 s. It has no clock of its
// own: the work calls it.
type progress struct {
	w     io.Writer // nil: silent
	tty   bool
	now   func() time.Time
	unit  func(int64) string
	stage string
	began time.Time // of the stage
	shown time.Time
	drawn bool // the terminal line holds something
}

// progress starts to show work counted in bytes or, with count, in things.
func (a *app) progress(unit func(int64) string) *progress {
	p := &progress{w: a.stderr, tty: terminal(a.stderr), now: a.now, unit: unit}
	if a.flags.quiet {
		p.w = nil
	}
	return p
}

// begin names the stage that the next figures belong to.
func (p *progress) begin(stage string) {
	p.stage, p.began = stage, p.now()
	p.shown = p.began
}

// during begins the stage if it is another one than before.
func (p *progress) during(stage string) {
	if stage != "" && stage != p.stage {
		p.begin(stage)
	}
}

// at shows done of total, if it is time to; a total of 0 is not known.
func (p *progress) at(done, total int64) {
	t := p.now()
	every := progressLine
	if p.tty {
		every = progressFrame
	}
	if p.w == nil || t.Sub(p.began) < progressAfter || t.Sub(p.shown) < every {
		return
	}
	p.shown = t
	line := p.line(done, total, t.Sub(p.began))
	if p.tty {
		fmt.Fprintf(p.w, "\r\x1b[K%s", line)
		p.drawn = true
		return
	}
	fmt.Fprintln(p.w, line)
}

// end clears the terminal line.
func (p *progress) end() {
	if p.drawn {
		fmt.Fprint(p.w, "\r\x1b[K")
		p.drawn = false
	}
}

func (p *progress) line(done, total int64, took time.Duration) string {
	rate := float64(done) / took.Seconds()
	if total <= 0 {
		return fmt.Sprintf("%s  %s  %s/s", p.stage, p.unit(done), p.unit(int64(rate)))
	}
	eta := "?"
	if rate > 0 {
		left := time.Duration(float64(total-done) / rate * float64(time.Second))
		eta = left.Round(time.Second).String()
	}
	percent := min(100, 100*float64(done)/float64(total))
	return fmt.Sprintf("%s  %3.0f %%  %s of %s  %s/s  %s left", p.stage, percent, p.unit(done), p.unit(total), p.unit(int64(rate)), eta)
}

// countUnit shows things, byteUnit bytes.
func countUnit(n int64) string { return fmt.Sprint(n) }

func byteUnit(n int64) string {
	const step = 1024
	if n < step {
		return fmt.Sprintf("%d B", n)
	}
	v, i := float64(n)/step, 0
	for v >= step && i < len("KMGT")-1 {
		v, i = v/step, i+1
	}
	return fmt.Sprintf("%.1f %ciB", v, "KMGT"[i])
}
