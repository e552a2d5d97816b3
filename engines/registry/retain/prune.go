package retain

import (
	"context"
	"errors"
	"fmt"
	"time"

	"ronbox/appliance/flow"
	"ronbox/engines/registry/checkpoint"
	"ronbox/engines/registry/document"
	"ronbox/engines/registry/tables"
	"ronbox/store"
)

// Bounds of the pruner.
const (
	maxRetentionCmds = 8                     // queued cycles; each handles what the cycles before it have left
	prunePause       = 50 * time.Millisecond // between commands, so that they do not keep the committer busy
)

// Run is one run of the pruner task.
type Run struct {
	retainer *Retainer
	from     uint64 // version that the sweep has reached
	swept    bool   // every row that may go is deleted
	told     string // the last reason logged
}

// Begin returns a run of the pruner task.
func (rt *Retainer) Begin() *Run {
	return &Run{retainer: rt, swept: rt.head().MinVersion <= 1}
}

// runPruner runs a cycle of retention for each archived checkpoint. First it finishes a cycle that
// a crash has interrupted.
func (rt *Retainer) runPruner(ctx context.Context) error {
	p := rt.Begin()
	if _, reason, err := rt.coverOf(ctx, rt.head()); err == nil && reason == "" &&
		rt.deps.Keeper.Policy().Name != All {
		if err := p.sweep(ctx); err != nil {
			return err
		}
	}
	for {
		_, err := rt.cmd.Recv(ctx)
		if errors.Is(err, flow.ErrClosed) {
			return nil // drained
		}
		if err == nil {
			err = p.Cycle(ctx)
		}
		if err != nil {
			return err
		}
	}
}

// Cycle makes the plan, stores the signed statement, and only then deletes.
func (p *Run) Cycle(ctx context.Context) error {
	if sweeps, err := p.State(ctx); err != nil || !sweeps {
		return err
	}
	return p.sweep(ctx)
}

// State makes the plan and, if more may go, stores the signed statement. It reports whether rows
// may be deleted.
func (p *Run) State(ctx context.Context) (sweeps bool, err error) {
	plan, over, err := p.retainer.Plan(ctx)
	if err != nil {
		return false, fmt.Errorf("plan retention: %w", err)
	}
	switch plan.Reason {
	case "":
		if err := p.state(ctx, plan, over); err != nil {
			return false, fmt.Errorf("retention from version %d on: %w", plan.Next, err)
		}
	case keepPolicy:
		return false, nil
	case keepNotDue:
		p.told = ""
	default:
		p.skip(plan.Reason)
		return false, nil
	}
	return true, nil
}

// skip counts a skipped cycle, and logs its reason once.
func (p *Run) skip(reason string) {
	if p.retainer.m.skipped[reason](1); p.told != reason {
		p.retainer.deps.Log.Warn("retention.skipped", "reason", reason)
	}
	p.told = reason
}

// state signs and stores the statement of a plan. Once it is synced, readers see that the versions
// before are pruned.
func (p *Run) state(ctx context.Context, plan document.RetentionPlan, over checkpoint.Signed) error {
	rt := p.retainer
	said, audit, err := rt.statement(ctx, plan, over)
	if err != nil {
		return err
	}
	key, err := rt.deps.Keeper.Key(rt.head())
	if err != nil {
		return err
	}
	note, err := key.SignText(said.Text())
	if err != nil {
		return err
	}
	put := tables.PutRetention{Min: said.Min, Audit: audit, Size: said.Size, Segment: rt.segment, Note: note}
	_, err = store.Commit(ctx, rt.deps.Store, store.Bulk, put, func(struct{}) {
		now := rt.deps.Published.State.Load()
		rt.deps.Published.State.Store(now.Bounded(put.Min, now.View.CheckpointSize))
	})
	if err == nil {
		p.swept, p.told = false, ""
		rt.deps.Log.Info("retention.pruned", "min_version", plan.Next, "versions", plan.Versions, "checkpoint",
			over.Size)
	}
	return err
}

// sweep deletes slice by slice until nothing is left to delete.
func (p *Run) sweep(ctx context.Context) error {
	for !p.swept {
		if more, err := p.Slice(ctx); err != nil || !more {
			return err
		}
		t := time.NewTimer(prunePause)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return context.Cause(ctx)
		}
	}
	return nil
}

// Slice deletes one slice. It reports whether there was one.
func (p *Run) Slice(ctx context.Context) (more bool, err error) {
	var c tables.PruneSlice
	err = p.retainer.deps.Reader.View(ctx, func(r store.Reader) (err error) {
		c, err = tables.NextSlice(r, p.from)
		return err
	})
	p.swept = c.Keys() == 0
	if err != nil || p.swept {
		return false, err
	}
	if _, err := store.Commit(ctx, p.retainer.deps.Store, store.Bulk, c,
		func(tree tables.TreeRow) { p.retainer.deps.Published.Tree.Store(&tree) }); err != nil {
		return false, fmt.Errorf("prune from version %d on: %w", p.from, err)
	}
	if n := len(c.Versions); n > 0 {
		p.from = c.Versions[n-1].Version + 1
	}
	p.retainer.m.versions(len(c.Versions))
	p.retainer.m.keys(c.Keys())
	return true, nil
}
