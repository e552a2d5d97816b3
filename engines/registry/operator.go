package registry

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"

	"ronbox/appliance/b3"
	"ronbox/appliance/flow"
	"ronbox/engines"
	"ronbox/engines/registry/document"
	"ronbox/engines/registry/export"
	"ronbox/engines/registry/follow"
	"ronbox/engines/registry/rverify"
	"ronbox/engines/registry/seal"
	"ronbox/engines/registry/tables"
	"ronbox/store"
)

// CheckpointNow signs and archives HEAD at once. Errors: flow.ErrBusy, *NotReadyError, ErrConflict
// if the signers admit no log key of this node.
func (e *Engine) CheckpointNow(ctx context.Context) (seal.Checkpoint, error) {
	if err := e.Follows(); err != nil {
		return seal.Checkpoint{}, err
	}
	return e.seal.CheckpointNow(ctx)
}

// HighWater returns the mark, and whether the log may be extended.
func (e *Engine) HighWater(ctx context.Context) (document.HighWater, error) {
	out, err := e.seal.HighWater(ctx)
	if e.follow != nil {
		out.Follow = e.follow.Status()
	}
	if err == nil {
		out.Retention, err = e.Retention(ctx)
	}
	return out, err
}

// Adopt accepts the log of this file as the newest one, by order of an operator. Writes and
// signatures go on, and the objections of witnesses so far are settled. The audit log gets a
// record. It returns ErrConflict if neither the guard nor a witness objects.
func (e *Engine) Adopt(ctx context.Context, actor engines.Actor, corrID string) error {
	if err := e.Follows(); err != nil {
		return err
	}
	return e.seal.Adopt(ctx, actor, corrID)
}

// Retention returns the plan of the next cycle of retention.
func (e *Engine) Retention(ctx context.Context) (document.RetentionPlan, error) {
	p, _, err := e.retain.Plan(ctx)
	return p, err
}

// CatchUp copies the versions and audit records that this file has lost from another copy of its
// log. It verifies the copy first, from genesis on. It ends a rollback once the log reaches the
// high-water mark. It returns ErrConflict if the fork guard is not tripped.
func (e *Engine) CatchUp(ctx context.Context, actor engines.Actor, src rverify.LogReader,
	corrID string) (out document.CaughtUp, err error) {
	if err := e.Follows(); err != nil {
		return out, err
	}
	if e.seal.Tripped() == nil {
		return out, fmt.Errorf("catch up: %w: nothing is missing", document.ErrConflict)
	}
	st := e.pub.State.Load()
	out.From, out.To = st.View.Head.Version, st.View.Head.Version
	if err := e.checkSource(ctx, st, src); err != nil {
		return out, fmt.Errorf("catch up: %w", err)
	}
	last, _, err := src.AuditHead()
	if err != nil {
		return out, fmt.Errorf("catch up: %w: %w", document.ErrSource, err)
	}
	if st.Audit.Seq >= last {
		return out, fmt.Errorf(
			"catch up: %w: nothing newer there: it ends with version %d and audit record %d, as this log does",
			document.ErrSource,
			out.From,
			last,
		)
	}
	for at := st.Audit.Seq; at < last; at = e.pub.State.Load().Audit.Seq {
		n, err := e.pipeline.Replay(ctx, src, last, actor, corrID)
		if err != nil {
			return out, err
		}
		out.To, out.Records = e.Head().Head.Version, out.Records+n
	}
	if _, found, err := e.seal.CheckMark(ctx, e.Head(), e.pub.Latest.Load() != nil); err != nil {
		return out, err
	} else if found != nil && found.Reason != seal.RollbackNoMark {
		e.seal.Trip(found)
		return out, found.Err()
	}
	for _, o := range e.seal.Objections().Open() {
		switch {
		case o.Size > out.To:
			return out, fmt.Errorf("catch up: %w: it ends with version %d, and %w", document.ErrSource, out.To, &o)
		case o.Size <= out.From: // it contradicts the versions of this file
			return out, fmt.Errorf(
				"catch up: %w: no later version settles that %w; "+
					"have an operator adopt the log, or restore the other one",
				document.ErrSource,
				&o,
			)
		}
	}
	return out, e.seal.Accept(ctx, false, actor, corrID)
}

// CatchUpFrom is CatchUp from a path on this disk: the directory of an export, or a database file
// that no node has open, such as a snapshot.
func (e *Engine) CatchUpFrom(ctx context.Context, actor engines.Actor,
	path, corrID string) (out document.CaughtUp, err error) {
	info, err := os.Stat(path)
	if err != nil {
		return out, fmt.Errorf("%w: %w", document.ErrSource, err)
	}
	if info.IsDir() {
		src, err := export.Open(path)
		if err != nil {
			return out, fmt.Errorf("%w: %w", document.ErrSource, err)
		}
		return e.CatchUp(ctx, actor, src, corrID)
	}
	r, err := store.OpenReader(path)
	if err != nil {
		return out, fmt.Errorf("%w: %w", document.ErrSource, err)
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	err = r.View(ctx, func(rd store.Reader) error {
		out, err = e.CatchUp(ctx, actor, tables.NewSource(rd), corrID)
		return err
	})
	return out, err
}

// checkSource verifies the copy and that this log is a prefix of it.
func (e *Engine) checkSource(ctx context.Context, st *tables.State, src rverify.LogReader) error {
	if src.Followed() {
		return fmt.Errorf("%w: it is a copy of a follower, whose audit records are not verified", document.ErrSource)
	}
	h, err := src.Horizon()
	if err != nil {
		return fmt.Errorf("%w: %w", document.ErrSource, err)
	}
	if h != nil && st.View.Head.Version < h.Min {
		return fmt.Errorf("%w: it is pruned up to version %d, and this log ends with %d: take a copy from before that",
			document.ErrSource, h.Min-1, st.View.Head.Version)
	}
	report, err := rverify.Verify(ctx, src,
		rverify.Options{Genesis: st.View.GenesisB3, Fan: flow.Fan, Jobs: runtime.GOMAXPROCS(0)})
	if err != nil {
		return err
	}
	if report.Problem != nil {
		return fmt.Errorf("%w: %w", document.ErrSource, report.Problem)
	}
	own := st.View.Head
	if report.Head.Version < own.Version {
		return fmt.Errorf("%w: it holds %d versions, this log %d", document.ErrSource, report.Head.Version, own.Version)
	}
	if own.Version > 0 {
		if raw, err := src.Entry(own.Version); err != nil || b3.Sum(raw) != own.Hash {
			return fmt.Errorf("%w: its version %d is another one", document.ErrSource, own.Version)
		}
	}
	if st.Audit.Seq == 0 {
		return nil
	}
	for _, raw := range src.Audit(st.Audit.Seq, st.Audit.Seq) {
		if b3.Sum(raw) == st.Audit.B3 {
			return nil
		}
	}
	return fmt.Errorf("%w: its audit record %d is another one", document.ErrSource, st.Audit.Seq)
}

// BeginFrom copies the log of an export in a directory to a follower that has no version yet. The
// log is verified as that of the hub is. Call it after Recover and before the tasks run. The error
// is a *FollowFault if the log is not to be believed.
func (e *Engine) BeginFrom(ctx context.Context, dir string) error {
	if e.Follows() == nil || e.Head().Head.Version > 0 {
		return fmt.Errorf("begin from an export: %w: only a follower without a version can", document.ErrConflict)
	}
	hub, err := follow.OpenExport(dir)
	if err != nil {
		return err
	}
	run, err := e.follow.Of(hub).Begin(ctx)
	if err != nil {
		return err
	}
	return run.Round(ctx)
}
