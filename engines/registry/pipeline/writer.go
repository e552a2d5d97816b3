package pipeline

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"

	"github.com/oklog/ulid/v2"

	"ronbox/appliance/flow"
	"ronbox/engines/registry/document"
	"ronbox/engines/registry/tables"
	"ronbox/engines/registry/views"
)

// Writer makes the calls of the outside: it does the work that needs no queue on the goroutine of
// the caller, and leaves the decision to the pipeline. It also reads the proposals. Its methods are
// safe for concurrent use.
type Writer struct {
	pipeline *Pipeline
	deps     Deps
	slots    *flow.Slots // one for each processor: work on a caller's goroutine
}

// NewWriter returns a writer that calls p.
func NewWriter(p *Pipeline) *Writer {
	return &Writer{
		pipeline: p, deps: p.deps,
		slots: flow.NewSlots(p.deps.Catalog, flow.Spec{
			Service: tables.Service, Name: "checks", Policy: flow.WaitDeadline, Producers: []string{flow.HTTP},
			Doc: "proposals and approvals that are parsed, hashed and verified at one time; late: no effect",
		}),
	}
}

// Follows returns a *document.FollowerError if the node follows another one, else nil.
func (w *Writer) Follows() error {
	if w.pipeline.cfg.Hub == nil {
		return nil
	}
	return &document.FollowerError{Hub: w.pipeline.cfg.Hub()}
}

// ready returns the reason why the registry takes no writes, or nil.
func (w *Writer) ready() error { return w.deps.Keeper.Ready() }

// rule returns the limits in force.
func (w *Writer) rule() Rule { return w.deps.Keeper.Rule() }

// livingProposal returns the live proposal of an id, or an error if it has ended or the registry
// takes no writes.
func (w *Writer) livingProposal(ctx context.Context, id string) (*tables.Proposal, error) {
	prop, how, known, err := w.find(ctx, id)
	if err == nil {
		err = w.ready()
	}
	if err == nil && prop == nil {
		err = endedError(id, how, known)
	}
	return prop, err
}

// find returns the live proposal of an id. If there is none, it returns the outcome, and known is
// true if the outcome is stored.
func (w *Writer) find(ctx context.Context,
	id string) (prop *tables.Proposal, how tables.DoneRow, known bool, err error) {
	pid, err := tables.ParseID(id)
	if err != nil {
		return nil, how, false, err
	}
	prop = w.deps.Published.State.Load().Live[pid]
	if prop == nil {
		how, known, err = views.RowOf(ctx, w.deps.Reader, tables.DoneOutcome, pid)
	}
	return prop, how, known, err
}

// newID returns a new proposal id. It begins with the time, so that ids sort by age.
func (w *Writer) newID() (ulid.ULID, error) {
	id, err := ulid.New(ulid.Timestamp(w.deps.Keeper.Now()), rand.Reader)
	if err != nil {
		return id, fmt.Errorf("draw a proposal id: %w", err)
	}
	return id, nil
}

// workSlot waits for a slot in which a caller may parse, hash and verify. The slots keep callers
// from starving the rest of the node.
func (w *Writer) workSlot(ctx context.Context) (release func(), err error) {
	err = w.slots.Acquire(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		w.pipeline.m.timeouts(1)
		return nil, &document.TimeoutError{Op: "work"}
	}
	return w.slots.Release, err
}
