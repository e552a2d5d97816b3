package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// report prints what became of mutants and sums it up.
type report struct {
	o        *options
	all      int
	out, say io.Writer // verdicts, and words beside them

	killed, timed, none int
	survivors           []verdict
}

// errTooFew is a share of killed mutants that is below the one wanted.
var errTooFew = errors.New("too few mutants killed")

// list prints all mutants.
func (r *report) list(all []mutant) error {
	for i := range all {
		if err := r.line(&all[i], all[i].String()); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(r.say, "%d mutants\n", len(all))
	return err
}

// line prints v as JSON if that is wanted, else as text.
func (r *report) line(v any, text string) error {
	if !r.o.json {
		_, err := fmt.Fprintln(r.out, text)
		return err
	}
	e := json.NewEncoder(r.out)
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

func (r *report) begin() error {
	_, err := fmt.Fprintf(r.say, "seed %d: %d of %d mutants\n", r.o.seed, r.wanted(), r.all)
	return err
}

func (r *report) wanted() int {
	if r.o.n == 0 {
		return r.all
	}
	return min(r.o.n, r.all)
}

func (r *report) tried() int { return r.killed + len(r.survivors) }

// add counts and prints a verdict.
func (r *report) add(v verdict) error {
	word, by := "killed  ", " by "+v.By
	switch {
	case v.none:
		r.none++
		return nil
	case v.Killed:
		r.killed++
	default:
		word, by = "SURVIVED", ""
		r.survivors = append(r.survivors, v)
	}
	if v.By == timeIsOver {
		r.timed++
	}
	return r.line(v, fmt.Sprintf("%3d/%d  %s  %s  (%.1f s%s)", r.tried(), r.wanted(), word, v.mutant, v.Seconds, by))
}

// end prints the summary.
func (r *report) end() error {
	if r.tried() == 0 {
		return errors.New("no mutant was tried to its end")
	}
	share := 100 * float64(r.killed) / float64(r.tried())
	_, err := fmt.Fprintf(r.say, "\nkilled %d of %d mutants: %.1f %% (at least %g %% wanted); survived %d; %d did not compile; %d of the killed by the time limit\n",
		r.killed, r.tried(), share, r.o.least, len(r.survivors), r.none, r.timed)
	if err != nil {
		return err
	}
	for i := range r.survivors {
		if _, err := fmt.Fprintf(r.say, "survived  %s\n", r.survivors[i].mutant); err != nil {
			return err
		}
	}
	if share < r.o.least {
		return errTooFew
	}
	return nil
}
