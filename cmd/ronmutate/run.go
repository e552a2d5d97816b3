package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"

	"ronbox/appliance/flow"
)

// The exit codes.
const (
	exitEnough      = 0
	exitTooFew      = 1
	exitFailed      = 2
	exitInterrupted = 130
)

// run is the command.
func run(ctx context.Context, dir string, args []string, stdout, stderr io.Writer) int {
	err := command(ctx, dir, args, stdout, stderr)
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
		return exitEnough
	case ctx.Err() != nil:
		_, _ = fmt.Fprintln(stderr, "ronmutate: interrupted")
		return exitInterrupted
	case errors.Is(err, errTooFew):
		return exitTooFew
	}
	_, _ = fmt.Fprintln(stderr, "ronmutate:", err)
	return exitFailed
}

func command(ctx context.Context, dir string, args []string, stdout, stderr io.Writer) (err error) {
	o, err := parse(args, stderr)
	if err != nil {
		return err
	}
	of, err := targets(ctx, dir, o.targets)
	if err != nil {
		return err
	}
	all, err := gather(of)
	if err != nil {
		return err
	}
	r := &report{o: o, all: len(all), out: stdout, say: stdout}
	if o.json {
		r.say = stderr
	}
	if o.list {
		return r.list(all)
	}
	if err := r.begin(); err != nil {
		return err
	}
	l, err := openLab(ctx, o, dir, of, r.say)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.close()) }()
	tried := (&trial{lab: l, report: r, todo: draw(all, o.seed), want: o.n}).run(ctx)
	return errors.Join(tried, r.end())
}

// gather lists the mutants of all targets.
func gather(of []target) (all []mutant, err error) {
	for i := range of {
		found, err := of[i].mutants()
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	if len(all) == 0 {
		return nil, errors.New("nothing to change in these files")
	}
	return all, nil
}

// trial hands out mutants in the order they were drawn in until enough of them compile. All of it is owned by the leg that does so.
type trial struct {
	lab    *lab
	report *report
	todo   []mutant
	want   int // 0: all
	next   int // in todo
	busy   int // mutants that are tried now
	valid  int // that compile
	orders *flow.Queue[order]
	done   *flow.Queue[verdict]
}

type order struct {
	m      *mutant
	number int
}

// run tries as many mutants at a time as wanted, and joins all it has started.
func (t *trial) run(ctx context.Context) error {
	p := t.report.o.p
	c := flow.NewCatalog(nil, nil)
	spec := flow.Spec{Service: "mutate", Cap: p, Policy: flow.Wait}
	spec.Name = "todo"
	t.orders = flow.NewQueue[order](c, spec)
	spec.Name = "done"
	t.done = flow.NewQueue[verdict](c, spec)
	return flow.Fan(ctx, 1+p, func(ctx context.Context, leg int) error {
		if leg == 0 {
			defer t.orders.Close()
			return t.manage(ctx)
		}
		return t.work(ctx)
	})
}

// manage has never more mutants tried than could still be wanted, so that which of them count does not depend on which is done first.
func (t *trial) manage(ctx context.Context) error {
	for {
		for t.next < len(t.todo) && t.busy < t.orders.Cap() && (t.want == 0 || t.valid+t.busy < t.want) {
			if err := t.orders.Send(ctx, order{&t.todo[t.next], t.next}); err != nil {
				return err
			}
			t.next, t.busy = t.next+1, t.busy+1
		}
		if t.busy == 0 {
			return nil
		}
		v, err := t.done.Recv(ctx)
		if err != nil {
			return err
		}
		if t.busy--; !v.none {
			t.valid++
		}
		if err := t.report.add(v); err != nil {
			return err
		}
	}
}

// work tries mutants until there are no more.
func (t *trial) work(ctx context.Context) error {
	for {
		o, err := t.orders.Recv(ctx)
		if errors.Is(err, flow.ErrClosed) {
			return nil
		} else if err != nil {
			return err
		}
		v, err := t.lab.try(ctx, o.m, o.number)
		if err != nil {
			return err
		}
		if err := t.done.Send(ctx, v); err != nil {
			return err
		}
	}
}
