package flow

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
)

// Restart says what the supervisor does when a life of a task ends.
type Restart int

// The restart rules. Before draining, Always takes every end for a failure; a OneShot may end with nil; a Never is not started again and
// its end, whatever it is, is told to Hooks.Died.
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

// Task is a function that an engine lists and the supervisor runs, Count times at once. Run returns nil when it has drained, and the
// cause of ctx soon after that ends. A restarted Run reads its state anew.
type Task struct {
	Service    string
	Name       string // singular: "worker"; the value of the labels kind and task
	Count      int    // instances; 0 means 1
	Restart    Restart
	Background bool     // cancelled at once when the process drains
	Vital      bool     // no write is answered while it does not run
	Lanes      []string // queues of other services that it sends to, by their full names: "store.work"
	Doc        string
	Run        func(ctx context.Context) error
}

func (t Task) normal() Task {
	t.Count = max(t.Count, 1)
	return t
}

// PanicError is a panic turned into an error, with the stack it happened on.
type PanicError struct {
	Value any
	Stack []byte
}

func (e *PanicError) Error() string {
	return fmt.Sprintf("panic: %v", e.Value)
}

// Unwrap returns the panic's value if it was an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// errGoexit is the end of a life by runtime.Goexit.
var errGoexit = errors.New("flow: task called runtime.Goexit")

// guard calls f and hands its outcome to tell, exactly once, even if f ends its goroutine: its error, or a panic as a *PanicError. A panic
// that already is one keeps its stack.
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
