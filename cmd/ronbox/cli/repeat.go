package cli

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"ronbox/httpapi/client"
	"ronbox/httpapi/wire"
)

// MaxTries is how often one request is made, after refusals and lost answers that allow it.
const MaxTries = 6

// Repeater makes requests that may be repeated. It belongs to one goroutine.
type Repeater struct {
	Sleep    func(ctx context.Context, d time.Duration) error
	Retrying func(format string, args ...any)
	ForEver  bool // a node that has answered once is waited for until somebody ends it

	met bool // the node has answered once
}

// Repeat calls until it works, is refused for good, or has failed MaxTries times. A node that never answered
// is not waited for.
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

// The causes of a refusal that only a person can end, as the node names them.
const (
	causeRestored  = "restored"
	causeNoGenesis = "no_genesis"
	causeSafeMode  = "safe_mode"
)

// Transient reports whether err may pass by itself.
func Transient(err error) bool {
	if p, ok := errors.AsType[*wire.Problem](err); ok {
		switch p.Details["cause"] {
		case causeRestored, causeNoGenesis, causeSafeMode:
			return false
		}
	}
	return client.Retryable(err)
}

// pause is the wait that the node asked for, but 2 s at most since a person waits, or 100 ms doubled with each try up to that;
// and up to half more, so that those refused together do not come back together.
func pause(err error, n int) time.Duration {
	const most = 2 * time.Second
	d := min(100*time.Millisecond<<min(n, MaxTries), most)
	if p, ok := errors.AsType[*wire.Problem](err); ok && p.RetryAfter > 0 {
		d = min(time.Duration(p.RetryAfter)*time.Second, most)
	}
	return d + rand.N(d/2)
}

// Repeater is a repeater that says what it waits for.
func (a *App) Repeater() Repeater { return Repeater{Sleep: client.Sleep, Retrying: a.Say} }

// Final holds an error that a Repeater must not wait out. It does not unwrap.
type Final struct{ Err error }

func (e *Final) Error() string { return e.Err.Error() }

// Following are the options of a stream that goes on after an event.
func (a *App) Following(after string, tries int) client.StreamOptions {
	return client.StreamOptions{LastEventID: after, Tries: tries, Reconnect: func(cause error, delay time.Duration) {
		a.Say("stream broke (%v), again in %s", cause, delay.Round(time.Millisecond))
	}}
}

// UntilCtrlC is the result of a verb that follows: nil when Ctrl-C ended it, else err.
func UntilCtrlC(ctx context.Context, err error) error {
	if errors.Is(context.Cause(ctx), context.Canceled) {
		return nil
	}
	return err
}
