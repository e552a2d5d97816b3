package appliance

import (
	"context"
	"slices"

	"ronbox/appliance/config"
)

// part is one piece of the node that takes a new configuration while it runs.
type part struct {
	name string
	// prepare does all that can fail. swap puts the new configuration in force: it cannot fail and does not wait. undo lets
	// go of what was prepared. Exactly one of the two is called, once.
	prepare func(ctx context.Context, next *config.Config) (swap, undo func(), err error)
}

// prepareError says which part could not take a configuration.
type prepareError struct {
	part string
	err  error
}

func (e *prepareError) Error() string { return e.part + ": " + e.err.Error() }

func (e *prepareError) Unwrap() error { return e.err }

// prepareAll prepares every part, in order. If one fails, or ctx ends, those before it are undone, the last one first.
func prepareAll(ctx context.Context, parts []part, next *config.Config) (swap func(), err error) {
	var swaps, undos []func()
	for _, p := range parts {
		s, u, err := p.prepare(ctx, next)
		if err == nil {
			swaps, undos = append(swaps, s), append(undos, u)
			err = ctx.Err()
		}
		if err != nil {
			for _, undo := range slices.Backward(undos) {
				undo()
			}
			return nil, &prepareError{p.name, err}
		}
	}
	return func() {
		for _, swap := range swaps {
			swap()
		}
	}, nil
}

// inPlace is a part whose new values are simply stored.
func inPlace(name string, store func(next *config.Config)) part {
	return part{name, func(_ context.Context, next *config.Config) (swap, undo func(), err error) {
		return func() { store(next) }, func() {}, nil
	}}
}
