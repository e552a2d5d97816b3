package clustertest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"ronbox/cmd/ronbox/namestest"
	"ronbox/httpapi/client"
	"ronbox/httpapi/wire"
)

// verdict is the outcome of one request.
type verdict int

const (
	done    verdict = iota
	refused         // by a rule of the service, and so for every repetition
	unclear         // the request may have been executed, or may be executed later
	nothing         // the request was not executed
	fault           // an answer that no node of a sound cluster sends
)

// untouched lists the reasons of refusals that promise that nothing was done: no node leads, or the
// node is starting or stopping.
var untouched = []string{"not_leader", "degraded", "draining"}

// verdictOf returns the outcome that err describes. refusal is the reason of a refusal by a rule.
func verdictOf(err error, refusal string) verdict {
	if err == nil {
		return done
	}
	p, problem := errors.AsType[*wire.Problem](err)
	switch {
	case problem && p.Reason == refusal:
		return refused
	case errors.Is(err, client.ErrNotReachable), problem && slices.Contains(untouched, p.Reason):
		return nothing
	case client.Retryable(err), errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return unclear
	}
	return fault
}

// repeat repeats a request until it is done, as a client does that keeps its key. It returns an
// error after patience, and at once if a client may not repeat the request.
func repeat(ctx context.Context, ask func(context.Context) error) error {
	ctx, stop := context.WithTimeout(ctx, patience)
	defer stop()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		err := ask(ctx)
		if v := verdictOf(err, ""); v != nothing && v != unclear {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("not done within %s: %w", patience, err)
		}
	}
}

// service answers the requests of the load. place selects the node that is asked.
type service interface {
	// transfer moves money between two accounts.
	transfer(ctx context.Context, place int, key string, in bankIn) (posted, verdict, error)
	// balance returns the balance, and the last record that it includes.
	balance(ctx context.Context, place int, account int) (amount, seq uint64, err error)
	// name puts, reads or removes a name. It returns the value that a get reads, and whether a
	// removal found a value.
	name(ctx context.Context, place int, key string, in namestest.In) (namestest.Out, verdict, error)
	places() int
}

// posted is the answer to a transfer that was made.
type posted struct {
	receipt  []byte
	seq      uint64 // of the record
	replayed bool   // an earlier request under the same key made it
}

// history records the operations of one round. Times are those of a counter, so that an operation
// that ended before another began has a smaller time.
type history struct {
	clock atomic.Int64
	mu    sync.Mutex
	ops   []porcupine.Operation // guarded by mu
}

func (h *history) now() int64 { return h.clock.Add(1) }

func (h *history) add(id int, in any, call int64, out any, back int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ops = append(h.ops, porcupine.Operation{ClientId: id, Input: in, Call: call, Output: out, Return: back})
}

func (h *history) size() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.ops)
}

// checkWithin bounds the search for an order of a history. Without a fault it takes milliseconds.
const checkWithin = time.Minute

// check returns an error unless the history is linearizable.
func (h *history) check(what string, m porcupine.Model) error {
	got := porcupine.CheckOperationsTimeout(m, h.ops, checkWithin)
	if got == porcupine.Ok {
		return nil
	}
	fault := "are not linearizable"
	if got == porcupine.Unknown {
		fault = fmt.Sprintf("were not decided within %s: too many are open", checkWithin)
	}
	return fmt.Errorf("%d operations on %s %s\n%s", len(h.ops), what, fault, h.stuck(m))
}

// stuck describes the place in the history at which the search for an order ends: the last operations
// of the longest order, and the first ones that do not fit.
func (h *history) stuck(m porcupine.Model) string {
	_, info := porcupine.CheckOperationsVerbose(m, h.ops, checkWithin)
	var longest []porcupine.Operation
	for _, part := range info.PartialLinearizationsOperations() {
		for _, order := range part {
			if len(order) > len(longest) {
				longest = order
			}
		}
	}
	in := map[porcupine.Operation]bool{}
	state := m.Init()
	for _, op := range longest {
		in[op] = true
		_, state = m.Step(state, op.Input, op.Output)
	}
	var text strings.Builder
	list := func(ops []porcupine.Operation) {
		for _, op := range ops {
			fmt.Fprintf(&text, "  %d..%d client %d %+v: %+v\n", op.Call, op.Return, op.ClientId, op.Input, op.Output)
		}
	}
	list(longest[max(0, len(longest)-8):])
	fmt.Fprintf(&text, "state %v after %d operations; the next ones are\n", state, len(longest))
	left := slices.DeleteFunc(slices.Clone(h.ops), func(op porcupine.Operation) bool { return in[op] })
	slices.SortFunc(left, func(a, b porcupine.Operation) int { return cmp.Compare(a.Call, b.Call) })
	list(left[:min(8, len(left))])
	return text.String()
}

// shortPause waits for a moment between two tries.
func shortPause(ctx context.Context, d *rand.Rand, most time.Duration) {
	select {
	case <-time.After(time.Duration(d.Int64N(int64(most)))):
	case <-ctx.Done():
	}
}

// loud collects the first faults of a load, which may be thousands, without the test.
type loud struct {
	mu     sync.Mutex
	faults []error // guarded by mu
}

func (l *loud) fault(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.faults) < 20 {
		l.faults = append(l.faults, fmt.Errorf(format, args...))
	}
}

func (l *loud) err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return errors.Join(l.faults...)
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
