package registry

import (
	"context"
	"errors"
	"fmt"
	"time"

	"ronbox/appliance/flow"
	"ronbox/engines/registry/checkpoint"
	"ronbox/engines/registry/tables"
	"ronbox/store"
)

// Bounds of the pruner.
const (
	maxRetentionCmds = 8                     // queued cycles; each handles what the cycles before it have left
	prunePause       = 50 * time.Millisecond // between commands, so that they do not keep the committer busy
)

// pruner is one run of the pruner task.
type pruner struct {
	e     *Engine
	from  uint64 // version that the sweep has reached
	swept bool   // every row that may go is deleted
	told  string // the last reason logged
}

// runPruner runs a cycle of retention for each archived checkpoint. First it finishes a cycle that
// a crash has interrupted.
func (e *Engine) runPruner(ctx context.Context) error {
	p := &pruner{e: e, swept: e.Head().MinVersion <= 1}
	if _, reason, err := e.coverOf(ctx, e.Head()); err == nil && reason == "" &&
		e.live().Retention.Policy != RetainAll {
		if err := p.sweep(ctx); err != nil {
			return err
		}
	}
	for {
		_, err := e.retentionCmd.Recv(ctx)
		if errors.Is(err, flow.ErrClosed) {
			return nil // drained
		}
		if err == nil {
			err = p.cycle(ctx)
		}
		if err != nil {
			return err
		}
	}
}

// cycle makes the plan, stores the signed statement, and only then deletes.
func (p *pruner) cycle(ctx context.Context) error {
	plan, over, err := p.e.planRetention(ctx)
	if err != nil {
		return fmt.Errorf("plan retention: %w", err)
	}
	switch plan.Reason {
	case "":
		if err := p.state(ctx, plan, over); err != nil {
			return fmt.Errorf("retention from version %d on: %w", plan.Next, err)
		}
	case keepPolicy:
		return nil
	case keepNotDue:
		p.told = ""
	default:
		p.skip(plan.Reason)
		return nil
	}
	return p.sweep(ctx)
}

// skip counts a skipped cycle, and logs its reason once.
func (p *pruner) skip(reason string) {
	if p.e.m.pruneSkipped[reason](1); p.told != reason {
		p.e.log.Warn("retention.skipped", "reason", reason)
	}
	p.told = reason
}

// state signs and stores the statement of a plan. Once it is synced, readers see that the versions
// before are pruned.
func (p *pruner) state(ctx context.Context, plan RetentionPlan, over checkpoint.Signed) error {
	e := p.e
	said, audit, err := e.statement(ctx, plan, over)
	if err != nil {
		return err
	}
	key, err := e.logKey(e.Head())
	if err != nil {
		return err
	}
	note, err := key.SignText(said.Text())
	if err != nil {
		return err
	}
	put := tables.PutRetention{Min: said.Min, Audit: audit, Size: said.Size, Segment: e.segment, Note: note}
	_, err = store.Commit(ctx, e.store, store.Bulk, put, func(struct{}) {
		now := e.pub.State.Load()
		e.pub.State.Store(now.Bounded(put.Min, now.View.CheckpointSize))
	})
	if err == nil {
		p.swept, p.told = false, ""
		e.log.Info("retention.pruned", "min_version", plan.Next, "versions", plan.Versions, "checkpoint", over.Size)
	}
	return err
}

// sweep deletes slice by slice until nothing is left to delete.
func (p *pruner) sweep(ctx context.Context) error {
	for !p.swept {
		if err := p.slice(ctx); err != nil || p.swept {
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

// slice deletes one slice.
func (p *pruner) slice(ctx context.Context) error {
	var c tables.PruneSlice
	err := p.e.View(ctx, func(r store.Reader) (err error) {
		c, err = tables.NextSlice(r, p.from)
		return err
	})
	p.swept = c.Keys() == 0
	if err != nil || p.swept {
		return err
	}
	if _, err := store.Commit(ctx, p.e.store, store.Bulk, c,
		func(tree tables.TreeRow) { p.e.pub.Tree.Store(&tree) }); err != nil {
		return fmt.Errorf("prune from version %d on: %w", p.from, err)
	}
	if n := len(c.Versions); n > 0 {
		p.from = c.Versions[n-1].Version + 1
	}
	p.e.m.prunedVersions(len(c.Versions))
	p.e.m.prunedKeys(c.Keys())
	return nil
}
