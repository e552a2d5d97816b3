package cli

import (
	"fmt"
	"io"
	"time"

	"ronbox/appliance/unit"
)

const (
	progressAfter = time.Second            // shorter work shows nothing
	progressFrame = 100 * time.Millisecond // redraw of a terminal line
	progressLine  = 10 * time.Second       // interval of lines without a terminal
)

// Progress shows the progress of long work on stderr: a line redrawn on a terminal, else a line
// every 10 s. It has no timer; the work calls it.
type Progress struct {
	w     io.Writer // nil: silent
	tty   bool
	now   func() time.Time
	Unit  func(int64) string
	stage string
	began time.Time // of the stage
	shown time.Time
	drawn bool // the terminal line is not empty
}

// Progress returns a Progress for a stage, counted with Bytes or Count.
func (a *App) Progress(unit func(int64) string, stage string) *Progress {
	p := &Progress{w: a.Stderr, tty: IsTerminal(a.Stderr), now: a.Now, Unit: unit}
	if a.Flags.Quiet {
		p.w = nil
	}
	p.Begin(stage)
	a.line = p
	return p
}

// clearLine clears the line of a progress on a terminal, so that a message begins a line.
func (a *App) clearLine() {
	if a.line != nil {
		a.line.End()
	}
}

// Silence stops the output.
func (p *Progress) Silence() { p.w = nil }

// Begin starts a stage.
func (p *Progress) Begin(stage string) {
	p.stage, p.began = stage, p.now()
	p.shown = p.began
}

// Stage starts a stage if it differs from the current one.
func (p *Progress) Stage(stage string) {
	if stage != "" && stage != p.stage {
		p.Begin(stage)
	}
}

// At shows done of total if a line is due. A total of 0 is unknown.
func (p *Progress) At(done, total int64) {
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
		_, _ = fmt.Fprintf(p.w, "\r\x1b[K%s", line)
		p.drawn = true
		return
	}
	_, _ = fmt.Fprintln(p.w, line)
}

// Of is At for unsigned numbers.
func (p *Progress) Of(done, total uint64) { p.At(int64(done), int64(total)) }

// End clears the terminal line.
func (p *Progress) End() {
	if p.drawn {
		_, _ = fmt.Fprint(p.w, "\r\x1b[K")
		p.drawn = false
	}
}

func (p *Progress) line(done, total int64, took time.Duration) string {
	rate := float64(done) / took.Seconds()
	if total <= 0 {
		return fmt.Sprintf("%s  %s  %s/s", p.stage, p.Unit(done), p.Unit(int64(rate)))
	}
	eta := "?"
	if rate > 0 {
		left := time.Duration(float64(total-done) / rate * float64(time.Second))
		eta = unit.Short(left.Round(time.Second))
	}
	percent := min(100, 100*float64(done)/float64(total))
	return fmt.Sprintf("%s  %3.0f %%  %s of %s  %s/s  %s left", p.stage, percent, p.Unit(done), p.Unit(total),
		p.Unit(int64(rate)), eta)
}

// Count formats a number of items.
func Count(n int64) string { return fmt.Sprint(n) }

// Bytes formats a number of bytes.
func Bytes(n int64) string {
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
