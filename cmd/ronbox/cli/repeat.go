package cli

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"ronbox/httpapi/client"
	"ronbox/httpapi/wire"
)

// MaxTries bounds the attempts of one request.
const MaxTries = 6

// Repeater retries requests. Only one goroutine may use it.
type Repeater struct {
	Sleep    func(ctx context.Context, d time.Duration) error
	Retrying func(format string, args ...any)
	ForEver  bool // keep waiting for a node that has answered once

	met bool // the node has answered once
}

// Repeat calls until the call succeeds, is refused permanently, or has failed MaxTries times. It
// does not wait for a node that has never answered.
func (r *Repeater) Repeat(ctx context.Context, what string, call func() error) error {
	for n := 0; ; n++ {
		err := call()
		if err == nil || ctx.Err() != nil {
			r.met = true
			return err
		}
		r.met = r.met || !errors.Is(err, client.ErrNotReachable) // something was sent
		if !r.met || !Transient(err) || n >= MaxTries-1 && !r.ForEver {
			return err
		}
		wait := pause(err, n)
		r.Retrying("%s: %v; again in %s", what, err, wait.Round(time.Millisecond))
		if err := r.Sleep(ctx, wait); err != nil {
			return err
		}
	}
}

// Causes of a refusal that only an operator can end, as named by the node.
const (
	causeRestored  = "restored"
	causeNoGenesis = "no_genesis"
	causeSafeMode  = "safe_mode"
	causeRollback  = "rollback_detected"
)

// causeNoRoute is the cause of a 404 for a path without a route, or with a hidden one.
const causeNoRoute = "no_route"

// Transient reports whether a retry may succeed.
func Transient(err error) bool {
	if p, ok := errors.AsType[*wire.Problem](err); ok {
		switch p.Details["cause"] {
		case causeRestored, causeNoGenesis, causeSafeMode, causeRollback:
			return false
		}
	}
	return client.Retryable(err)
}

// pause returns the wait before retry n: the node's Retry-After, or 100 ms doubled with each
// attempt, at most 2 s. A random part of up to half of it is added, so that clients do not retry in
// step.
func pause(err error, n int) time.Duration {
	const most = 2 * time.Second
	d := min(100*time.Millisecond<<min(n, MaxTries), most)
	if p, ok := errors.AsType[*wire.Problem](err); ok && p.RetryAfter > 0 {
		d = min(time.Duration(p.RetryAfter)*time.Second, most)
	}
	return d + rand.N(d/2)
}

// Repeater returns a Repeater that reports its waits.
func (a *App) Repeater() Repeater { return Repeater{Sleep: client.Sleep, Retrying: a.Say} }

// Final wraps an error that a Repeater must not retry. It does not unwrap.
type Final struct{ Err error }

func (e *Final) Error() string { return e.Err.Error() }

// Following returns the options of a stream that continues after an event.
func (a *App) Following(after string, tries int) client.StreamOptions {
	return client.StreamOptions{LastEventID: after, Tries: tries, Reconnect: func(cause error, delay time.Duration) {
		a.Say("stream broke (%v), again in %s", cause, delay.Round(time.Millisecond))
	}}
}

// UntilCtrlC returns the result of a verb that follows a stream: nil if Ctrl-C ended it, else err.
func UntilCtrlC(ctx context.Context, err error) error {
	if errors.Is(context.Cause(ctx), context.Canceled) {
		return nil
	}
	return err
}
