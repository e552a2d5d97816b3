package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"ronbox/httpapi/client"
	"ronbox/httpapi/wire"
)

// maxRepeats is how often one request is made, after refusals and lost answers that allow it.
const maxRepeats = 6

// repeater makes requests that may be repeated. It belongs to one goroutine.
type repeater struct {
	sleep    func(ctx context.Context, d time.Duration) error
	retrying func(format string, args ...any)
	forEver  bool // a node that has answered once is waited for until somebody ends it

	met bool // the node has answered once
}

// repeat calls until it works, is refused for good, or has been tried maxRepeats times in vain. A node that never answered
// is not waited for.
func (r *repeater) repeat(ctx context.Context, what string, call func() error) error {
	for n := 0; ; n++ {
		err := call()
		if err == nil || ctx.Err() != nil {
			r.met = true
			return err
		}
		r.met = r.met || !errors.Is(err, client.ErrNotReachable) // something was sent
		if !r.met || !heals(err) || n >= maxRepeats-1 && !r.forEver {
			return err
		}
		wait := pause(err, n)
		r.retrying("%s: %v; again in %s", what, err, wait.Round(time.Millisecond))
		if err := r.sleep(ctx, wait); err != nil {
			return err
		}
	}
}

// The causes that wait for a person, as the node names them.
const (
	causeRestored  = "restored"
	causeNoGenesis = "no_genesis"
	causeSafeMode  = "safe_mode"
)

// heals tells whether waiting can help.
func heals(err error) bool {
	if p, ok := errors.AsType[*wire.Problem](err); ok {
		switch p.Details["cause"] {
		case causeRestored, causeNoGenesis, causeSafeMode:
			return false
		}
	}
	return client.Retryable(err)
}

// pause is what the node asked for, but 2 s at most since a person waits, or 100 ms doubled with each try up to that;
// and up to half more, so that those refused together do not come back together.
func pause(err error, n int) time.Duration {
	const most = 2 * time.Second
	d := min(100*time.Millisecond<<min(n, maxRepeats), most)
	if p, ok := errors.AsType[*wire.Problem](err); ok && p.RetryAfter > 0 {
		d = min(time.Duration(p.RetryAfter)*time.Second, most)
	}
	return d + rand.N(d/2)
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
		return nil
	}
}

// repeater tells a person what it waits for.
func (a *app) repeater() repeater { return repeater{sleep: sleep, retrying: a.say} }
