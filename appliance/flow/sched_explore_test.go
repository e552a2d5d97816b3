//go:build flowsched

package flow

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A failing schedule is printed; with this it runs again: go test -tags flowsched -run
// 'TestSchedule…/…' -args -schedule 0102.
var replayed = flag.String("schedule", "", "run this schedule of the scenario named by -run, instead of all")

// The limits of the scenarios are what there is time for at each commit.
var deeper = flag.Int("deeper", 1, "run so many times as many schedules")

// mostPreemptions bounds how often a schedule takes the turn from a thread that could have gone on.
// Few bugs need more than two.
const mostPreemptions = 3

// scenario sets up shared state and threads, and returns the law that must hold after all threads
// have ended. It is called for each schedule.
type scenario func(w *world) (law func() error)

// world is a scenario under one schedule.
type world struct {
	*schedule
	ctx    context.Context // ends when the schedule has failed
	cancel context.CancelCauseFunc
	begins []beginning
	err    error // the first breach
}

type beginning struct {
	name string
	run  func()
}

// thread adds a thread that runs f. As after any wait, it goes on to its first point at once.
// Threads of one name are alike: it does not matter which of them moves first.
func (w *world) thread(name string, f func()) {
	w.begins = append(w.begins, beginning{name, f})
}

// clock adds a thread that lets d pass, whatever the others are at.
func (w *world) clock(d time.Duration) {
	w.thread("clock", func() { w.sleep(d) })
}

// check notes a breach of a law.
func (w *world) check(ok bool, format string, args ...any) {
	if !ok {
		w.breach(fmt.Errorf(format, args...))
	}
}

func (w *world) breach(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil {
		w.err = err
	}
}

// decision is one of n, where something could be decided.
type decision struct {
	n, took int
	stay    bool   // 0 was to go on with the same thread
	sum     uint64 // of the trace so far
}

// prefix is how a schedule begins; after it, it takes 0 wherever it can.
type prefix struct {
	took []uint8
	sum  uint64 // of the trace where it ends, 0 if not known
}

// errDiverged is returned if a schedule cannot be repeated, because something else than the
// schedule decides.
var errDiverged = errors.New("the schedule does not run again as it ran")

// runSchedule runs sc as p says. The breach is nil if all laws hold.
func runSchedule(t *testing.T, sc scenario, p prefix) (made []decision, trace []string, breach error) {
	w := &world{}
	w.schedule = newSchedule(func(n int, stay bool) int {
		d := decision{n: n, stay: stay, sum: w.sum}
		if i := len(made); i < len(p.took) {
			d.took = int(p.took[i])
			if d.took >= n || (i == len(p.took)-1 && p.sum != 0 && p.sum != d.sum) {
				w.breach(errDiverged)
				d.took = 0
			}
		}
		made = append(made, d)
		return d.took
	})
	w.ctx, w.cancel = context.WithCancelCause(t.Context())
	defer w.cancel(nil)
	law := sc(w)
	exploring.Store(w.schedule)
	defer exploring.Store(nil)
	for _, b := range w.begins {
		w.start(b.name, func() {
			if err := quiet(b.run); err != nil {
				w.breach(fmt.Errorf("%s: %w", b.name, err))
			}
		})
	}
	if err := w.run(); err != nil {
		w.breach(err)
		w.cancel(err) // so that those who wait leave
		if w.run() != nil {
			panic(fmt.Sprintf("flow: schedule %s: %v; and threads are stuck: %s", spell(made), err, w.where()))
		}
	}
	exploring.Store(nil)
	if w.err == nil {
		w.err = law()
	}
	return made, w.trace, w.err
}

// quiet runs f and returns its panic.
func quiet(f func()) (err error) {
	guard(func() error { f(); return nil }, func(e error) { err = e })
	return err
}

// explored is what an exploration has found.
type explored struct {
	ran      [mostPreemptions + 1]int // schedules, by preemptions
	cut      bool                     // there were more than the limit
	schedule string                   // the first that failed
	trace    []string
	breach   error
}

func (e explored) count() (n int) {
	for _, of := range e.ran {
		n += of
	}
	return n
}

// explore runs the schedules of sc, those with few preemptions first, until one fails or limit have
// run. Each number of preemptions gets half of the rest, the last one all of it. If there are more
// schedules, it draws a fixed sample.
func explore(t *testing.T, sc scenario, limit int) (e explored) {
	synctest.Test(t, func(t *testing.T) {
		var work [mostPreemptions + 2][]prefix
		work[0] = []prefix{{}}
		draw := rand.New(rand.NewPCG(1, 2))
		for k := range mostPreemptions + 1 {
			most := limit - e.count()
			if k < mostPreemptions {
				most = (most + 1) / 2
			}
			for ; len(work[k]) > 0; most-- {
				if most == 0 {
					e.cut = true
					break
				}
				p := take(&work[k], most, draw)
				made, trace, breach := runSchedule(t, sc, p)
				e.ran[k]++
				if breach != nil {
					e.schedule, e.trace, e.breach = spell(made), trace, breach
					return
				}
				alternatives(made, len(p.took), &work[k], &work[k+1])
				thin(&work[k+1], 2*limit)
			}
		}
	})
	return e
}

// take removes the last, or any if there are more than can be taken.
func take(all *[]prefix, most int, draw *rand.Rand) prefix {
	last := len(*all) - 1
	if len(*all) > most {
		i := draw.IntN(len(*all))
		(*all)[i], (*all)[last] = (*all)[last], (*all)[i]
	}
	p := (*all)[last]
	*all = (*all)[:last]
	return p
}

// alternatives adds what else could have been decided from the decision no. from on: to more if
// that takes the turn from a thread, else to same.
func alternatives(made []decision, from int, same, more *[]prefix) {
	took := make([]uint8, len(made))
	for i, d := range made {
		took[i] = uint8(d.took)
	}
	for i := from; i < len(made); i++ {
		to := same
		if made[i].stay {
			to = more
		}
		for other := 1; other < made[i].n; other++ {
			*to = append(*to, prefix{took: append(slices.Clone(took[:i]), uint8(other)), sum: made[i].sum})
		}
	}
}

// thin drops every second until there are no more than most.
func thin(all *[]prefix, most int) {
	for len(*all) > most {
		kept := (*all)[:0]
		for i := 0; i < len(*all); i += 2 {
			kept = append(kept, (*all)[i])
		}
		*all = kept
	}
}

const digits = "0123456789abcdefghijklmnopqrstuvwxyz"

// spell encodes decisions as a string, without trailing zeros.
func spell(made []decision) string {
	var b strings.Builder
	for _, d := range made {
		b.WriteByte(digits[d.took])
	}
	return strings.TrimRight(b.String(), "0") + "." // never empty
}

// read is the reverse of spell.
func read(s string) (p prefix, err error) {
	for _, c := range strings.TrimSuffix(s, ".") {
		i := strings.IndexRune(digits, c)
		if i < 0 {
			return p, fmt.Errorf("a schedule is written with %s, not %q", digits, c)
		}
		p.took = append(p.took, uint8(i))
	}
	return p, nil
}

// runAgain runs sc as a string that spell has written says.
func runAgain(t *testing.T, sc scenario, s string) (trace []string, breach error) {
	p, err := read(s)
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) { _, trace, breach = runSchedule(t, sc, p) })
	return trace, breach
}

// holds explores sc, and fails with the schedule that breaks its law, or if fewer than least were
// there to explore.
func holds(t *testing.T, sc scenario, least, limit int) {
	t.Helper()
	if *replayed != "" {
		if trace, breach := runAgain(t, sc, *replayed); breach != nil {
			t.Fatalf("schedule %s: %v\n%s", *replayed, breach, strings.Join(trace, "\n"))
		}
		return
	}
	e := explore(t, sc, limit**deeper)
	t.Logf("%d schedules, %v by preemptions, more: %v", e.count(), e.ran, e.cut)
	if e.breach != nil {
		t.Fatalf("schedule %s: %v\n%s", e.schedule, e.breach, strings.Join(e.trace, "\n"))
	}
	if e.count() < least {
		t.Errorf("%d schedules are suspiciously few, want %d", e.count(), least)
	}
}

// breaks explores a twin of sc that has a bug, and fails unless a schedule shows it and shows it
// again.
func breaks(t *testing.T, sc scenario, want string) {
	t.Helper()
	e := explore(t, sc, 20_000)
	if e.breach == nil || !strings.Contains(e.breach.Error(), want) {
		t.Fatalf("%d schedules: %v, want %q\n%s", e.count(), e.breach, want, strings.Join(e.trace, "\n"))
	}
	trace, breach := runAgain(t, sc, e.schedule)
	if breach == nil || breach.Error() != e.breach.Error() || !slices.Equal(trace, e.trace) {
		t.Errorf("schedule %s gave %v, and again %v", e.schedule, e.breach, breach)
	}
	t.Logf("schedule %d, %s: %v", e.count(), e.schedule, e.breach)
}
