package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"regexp"
	"strings"
	"time"
)

// options are what the command line says.
type options struct {
	n       int // how many mutants are tried; 0: all
	seed    uint64
	list    bool
	json    bool
	timeout time.Duration
	least   float64 // per cent
	p       int     // how many at a time
	first   string  // the tests that are run before all others
	guards  []string
	targets []string
}

const usage = `usage: ronmutate [flags] package[:file,file...] ...

Changes the code in one place at a time and sees whether the package's tests notice.

`

// maxAtATime bounds -p: each mutant is a build and a test run, which use several cores of their own.
const maxAtATime = 2

func parse(args []string, out io.Writer) (*options, error) {
	o, guards := &options{}, ""
	f := flag.NewFlagSet("ronmutate", flag.ContinueOnError)
	f.SetOutput(out)
	f.Usage = func() {
		_, _ = io.WriteString(out, usage)
		f.PrintDefaults()
	}
	f.IntVar(&o.n, "n", 60, "how many mutants are drawn; 0 tries all")
	f.Uint64Var(&o.seed, "seed", 0, "what they are drawn by; 0 takes one and prints it")
	f.BoolVar(&o.list, "list", false, "print all mutants and try none")
	f.BoolVar(&o.json, "json", false, "print one line of JSON a mutant, and the rest to stderr")
	f.DurationVar(&o.timeout, "timeout", 2*time.Minute, "tests that take longer have killed the mutant; never less than five times what they take without one")
	f.Float64Var(&o.least, "least", 85, "the `share` in per cent that must be killed")
	f.IntVar(&o.p, "p", 1, "how many are tried at a time: 1 or 2")
	f.StringVar(&o.first, "first", "", "run the tests that this `regexp` names first, and the others only if those notice nothing")
	f.StringVar(&guards, "tests", "", "further `packages`, with commas, whose tests guard the code")
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	o.targets, o.guards = f.Args(), strings.FieldsFunc(guards, func(r rune) bool { return r == ',' })
	if o.seed == 0 {
		o.seed = 1 + rand.Uint64N(1_000_000) // short enough to be typed
	}
	return o, o.check()
}

func (o *options) check() error {
	_, err := regexp.Compile(o.first)
	switch {
	case err != nil:
		return fmt.Errorf("-first: %w", err)
	case len(o.targets) == 0:
		return errors.New("no package: name one, as in ronmutate ./engines/ledger:rules.go")
	case o.n < 0:
		return errors.New("-n: less than none; 0 tries all")
	case o.p < 1 || o.p > maxAtATime:
		return fmt.Errorf("-p: want 1 to %d", maxAtATime)
	case o.timeout <= 0:
		return errors.New("-timeout: want more than zero")
	case o.least < 0 || o.least > 100:
		return errors.New("-least: want 0 to 100, per cent")
	}
	return nil
}
