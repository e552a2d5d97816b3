package flow

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime/debug"
	"time"
)

// Restart is the supervisor's rule for a task after Run has returned.
type Restart int

// The restart rules. Before draining, a task with Always is restarted whenever Run returns, and one
// with OneShot unless Run returns nil. A task with Never is not restarted: Hooks.Died is called,
// unless Run returns ErrOver.
const (
	Always Restart = iota
	OneShot
	Never
)

// String returns the rule as the catalogue prints it.
func (r Restart) String() string {
	switch r {
	case Always:
		return "always"
	case OneShot:
		return "one-shot"
	case Never:
		return "never"
	}
	return fmt.Sprintf("restart(%d)", int(r))
}

// Task is a function that an engine lists and the supervisor runs, Count times at once. Run returns
// nil when it has drained, and the cause of ctx soon after ctx ends. A restarted Run reads its
// state again.
type Task struct {
	Service    string
	Name       string // singular: "worker"; value of the labels kind and task
	Count      int    // instances; 0 means 1
	Restart    Restart
	Background bool     // cancelled as soon as the process drains
	Vital      bool     // while it does not run, writes are not answered
	Lanes      []string // queues of other services that it sends to, by full name: "store.work"
	Doc        string
	Run        func(ctx context.Context) error
}

func (t Task) normal() Task {
	t.Count = max(t.Count, 1)
	return t
}

// PanicError is a recovered panic with its stack.
type PanicError struct {
	Value any
	Stack []byte
}

func (e *PanicError) Error() string {
	return fmt.Sprintf("panic: %v", e.Value)
}

// Unwrap returns the value of the panic if it is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// errGoexit is the result of a Run that calls runtime.Goexit.
var errGoexit = errors.New("flow: task called runtime.Goexit")

// guard calls f and passes its result to tell, exactly once: the error of f, a *PanicError if f
// panics, or errGoexit. A panic with a *PanicError keeps its stack.
func guard(f func() error, tell func(error)) {
	err := errGoexit
	defer func() {
		if v := recover(); v != nil {
			err = asPanic(v)
		}
		tell(err)
	}()
	err = f()
}

func asPanic(v any) *PanicError {
	if p, ok := v.(*PanicError); ok {
		return p
	}
	return &PanicError{Value: v, Stack: debug.Stack()}
}

// Restart backoff: delays are drawn from 100 to 400 ms and doubled per recent restart, up to 5 s.
// The sixth restart within a minute escalates.
const (
	restartLo     = 100 * time.Millisecond
	restartHi     = 400 * time.Millisecond
	restartMost   = 5 * time.Second
	restartWindow = time.Minute
	restartLimit  = 5
)

// restartDelay returns a delay after n recent restarts: min(5 s, U[100, 400] ms × 2ⁿ).
func restartDelay(n int) time.Duration {
	base := restartLo + rand.N(restartHi-restartLo+1)
	return time.Duration(min(float64(restartMost), math.Ldexp(float64(base), n)))
}

// verdict decides how an instance continues after Run has returned.
type verdict int

const (
	finished  verdict = iota // ended regularly
	cancelled                // stopped by its context
	died                     // must not be restarted
	restarts
)

// judge returns the verdict. err is the result of Run, draining is true if the service is draining,
// and stopped is true if the context of the instance has ended.
func judge(r Restart, err error, draining, stopped bool) verdict {
	_, panicked := err.(*PanicError)
	switch {
	case r == Never && panicked:
		return died
	case r == Never && errors.Is(err, ErrOver):
		return finished
	case err == nil && (r == OneShot || draining || stopped):
		return finished
	case stopped:
		return cancelled
	case r == Never:
		return died
	}
	return restarts
}

// restartLog holds the times of an instance's restarts within the last minute, oldest first.
type restartLog struct {
	times []time.Time
}

// recent drops restarts older than a minute and returns the number that is left.
func (l *restartLog) recent(now time.Time) int {
	old := 0
	for old < len(l.times) && now.Sub(l.times[old]) >= restartWindow {
		old++
	}
	l.times = l.times[old:]
	return len(l.times)
}

// add records a restart and reports whether there are too many.
func (l *restartLog) add(now time.Time) (escalate bool) {
	l.times = append(l.times, now)
	return l.recent(now) > restartLimit
}
