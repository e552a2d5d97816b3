package seal

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"ronbox/engines"
	"ronbox/engines/registry/checkpoint"
	"ronbox/engines/registry/document"
	"ronbox/engines/registry/logtree"
	"ronbox/engines/registry/record"
	"ronbox/engines/registry/tables"
	"ronbox/store"
)

// Reasons of a Rollback.
const (
	RollbackRestored = "restored"        // the file was restored from a snapshot; it may lack versions
	RollbackOlder    = "older"           // the high-water mark names a longer log
	RollbackFork     = "fork"            // the mark has another root for a size of this log
	RollbackNoMark   = "mark_missing"    // the log has signed checkpoints, but no mark
	RollbackBadMark  = "mark_unreadable" // the mark exists but is not a checkpoint of this log
)

// Rollback is the reason why the log must not be extended: a new version might be the second one of
// its number. Reads go on. A catch-up ends it, or an operator who adopts the log as it is.
type Rollback struct {
	Reason string
	Detail string
	Mark   checkpoint.Tree // zero if there is no readable mark
}

// Check looks for signs that the file is not the newest copy of its log.
//
// A follower has no guard: it does not extend the log, and reads again what its file has lost.
func (sl *Sealer) Check(ctx context.Context, head *tables.HeadView) (*Rollback, error) {
	if sl.cfg.Copy {
		_, err := sl.loadObjections(ctx)
		return nil, err
	}
	info := sl.deps.Store.Info()
	var adopted []byte
	var signed bool
	err := sl.deps.Reader.View(ctx, func(r store.Reader) error {
		var known bool
		adopted, known = tables.MetaAdopted.Get(r, tables.KeyAdopted)
		if !known {
			adopted, _ = tables.MetaRaw.Get(r, tables.KeyAdoptedOld)
		}
		_, signed = tables.MetaRaw.Get(r, tables.KeyCheckpoint)
		return nil
	})
	if err != nil {
		return nil, err
	}
	objected, err := sl.loadObjections(ctx)
	if err != nil {
		return nil, err
	}
	if err := sl.raiseMark(ctx, head); err != nil {
		return nil, err
	}
	mark, found, err := sl.CheckMark(ctx, head, signed)
	switch {
	case err != nil || found != nil && found.Reason != RollbackNoMark:
		return found, err
	case objected != nil:
		return objected, nil
	}
	if info.RestoredFrom != "" && string(adopted) != info.Incarnation && head.Head.Version > 0 {
		return &Rollback{Reason: RollbackRestored, Mark: mark, Detail: fmt.Sprintf(
			"the file was restored from a snapshot of incarnation %s, which may have committed more than version %d",
			info.RestoredFrom,
			head.Head.Version,
		)}, nil
	}
	return found, nil
}

// CheckMark compares the log with the high-water file.
func (sl *Sealer) CheckMark(ctx context.Context, head *tables.HeadView,
	signed bool) (mark checkpoint.Tree, found *Rollback, err error) {
	if sl.cfg.Mark.Path == "" {
		return mark, nil, nil
	}
	keys, err := sl.deps.Reader.LogKeys(ctx)
	if err != nil {
		return mark, nil, err
	}
	s, err := sl.readMark(keys)
	switch {
	case errors.Is(err, fs.ErrNotExist) && !signed:
		return mark, nil, nil
	case errors.Is(err, fs.ErrNotExist):
		return mark, &Rollback{
			Reason: RollbackNoMark,
			Detail: "the log has signed checkpoints, but " + sl.cfg.Mark.Path + " is missing",
		}, nil
	case err != nil:
		return mark, &Rollback{Reason: RollbackBadMark, Detail: err.Error()}, nil
	}
	mark = s.Tree
	if mark.Size > min(head.Head.Version, sl.deps.Published.Tree.Load().Size) {
		return mark, &Rollback{Reason: RollbackOlder, Mark: mark, Detail: fmt.Sprintf(
			"%s names a log of %d versions, the file has %d", sl.cfg.Mark.Path, mark.Size, head.Head.Version)}, nil
	}
	root, err := sl.deps.Reader.Root(ctx, mark.Size)
	if errors.Is(err, logtree.ErrTile) {
		return mark, nil, fmt.Errorf("%w: %w", store.ErrCorrupt, err)
	}
	if err == nil && root != mark.Root {
		found = &Rollback{Reason: RollbackFork, Mark: mark, Detail: fmt.Sprintf(
			"%s names root %s for %d versions, the file has %s: two logs under one name",
			sl.cfg.Mark.Path,
			mark.Root,
			mark.Size,
			root,
		)}
	}
	return mark, found, err
}

// raiseMark sets the mark to the latest checkpoint in a replicated file, which another node may
// have signed, if there is no mark or the checkpoint extends it. Otherwise checkMark judges the
// mark.
func (sl *Sealer) raiseMark(ctx context.Context, head *tables.HeadView) error {
	if !sl.cfg.Replicated || sl.cfg.Mark.Path == "" {
		return nil
	}
	var note []byte
	err := sl.deps.Reader.View(ctx, func(r store.Reader) error {
		note, _ = tables.MetaRaw.Get(r, tables.KeyCheckpoint)
		return nil
	})
	if err != nil || note == nil {
		return err
	}
	keys, err := sl.deps.Reader.LogKeys(ctx)
	if err != nil {
		return err
	}
	latest, err := keys.Open(note)
	if err != nil {
		return nil // the checkpointor reports it
	}
	mark, err := sl.readMark(keys)
	missing := errors.Is(err, fs.ErrNotExist)
	if err != nil && !missing || latest.Size <= mark.Size || !sl.agrees(ctx, head, latest.Tree) ||
		!missing && !sl.agrees(ctx, head, mark.Tree) {
		return nil
	}
	return sl.cfg.Mark.Write(latest)
}

// agrees reports whether t is a tree of this log.
func (sl *Sealer) agrees(ctx context.Context, head *tables.HeadView, t checkpoint.Tree) bool {
	if t.Size > min(head.Head.Version, sl.deps.Published.Tree.Load().Size) {
		return false
	}
	root, err := sl.deps.Reader.Root(ctx, t.Size)
	return err == nil && root == t.Root
}

// readMark reads the high-water mark.
func (sl *Sealer) readMark(keys checkpoint.Keys) (s checkpoint.Signed, err error) {
	raw, err := sl.cfg.Mark.Read()
	if err != nil {
		return s, err
	}
	if s, err = keys.Open(raw); err != nil {
		return s, fmt.Errorf("%s: %w", sl.cfg.Mark.Path, err)
	}
	return s, nil
}

// Trip stops all writes and signatures.
func (sl *Sealer) Trip(why *Rollback) {
	sl.m.forkGuard(1)
	sl.guard.Store(why)
	sl.deps.Log.Error("forkguard.tripped", "reason", why.Reason, "detail", why.Detail)
	sl.deps.Board.Set(tables.Service, KeyForkGuard, why.Err())
}

func (sl *Sealer) untrip() {
	sl.guard.Store(nil)
	sl.m.forkGuard(0)
	sl.deps.Board.Set(tables.Service, KeyForkGuard, nil)
}

// Err returns r as a *NotReadyError, nil for no rollback.
func (r *Rollback) Err() error {
	if r == nil {
		return nil
	}
	return &document.NotReadyError{Cause: document.CauseRollback, Detail: r.Detail}
}

// HighWater returns the mark, and whether the log may be extended.
func (sl *Sealer) HighWater(ctx context.Context) (document.HighWater, error) {
	head := sl.head().Head
	out := document.HighWater{Path: sl.cfg.Mark.Path, Version: head.Version, Hash: head.Hash}
	if why := sl.guard.Load(); why != nil {
		out.Rollback, out.Reason, out.Detail = true, why.Reason, why.Detail
	}
	out.Objections = sl.objections.Load().Shown()
	if out.Path == "" {
		return out, nil
	}
	keys, err := sl.deps.Reader.LogKeys(ctx)
	if err != nil {
		return out, err
	}
	if s, err := sl.readMark(keys); err == nil && s.Size > 0 { // checkMark reports a fault of the mark
		out.MarkSize, out.MarkRoot = s.Size, s.Root.String()
		if !s.At.IsZero() {
			out.MarkAt = record.FormatTime(s.At)
		}
	}
	return out, nil
}

// Adopt accepts the log of this file as the newest one, by order of an operator. Writes and
// signatures go on, and the objections of witnesses so far are settled. The audit log gets a
// record. It returns document.ErrConflict if neither the guard nor a witness objects.
func (sl *Sealer) Adopt(ctx context.Context, actor engines.Actor, corrID string) error {
	if sl.guard.Load() == nil && len(sl.objections.Load().Open()) == 0 {
		return fmt.Errorf("adopt: %w: the log already accepts writes", document.ErrConflict)
	}
	if sl.guard.Load() == nil {
		return sl.settle(ctx, actor, corrID)
	}
	return sl.Accept(ctx, true, actor, corrID)
}

// settle settles the objections of witnesses while the guard is not tripped. Checkpoint and mark
// stay, because the checkpointor runs concurrently.
func (sl *Sealer) settle(ctx context.Context, actor engines.Actor, corrID string) error {
	if err := sl.signing.Acquire(ctx); err != nil {
		return err
	}
	defer sl.signing.Release()
	if err := sl.deps.Keeper.Adopt(ctx, "", true, actor, corrID); err != nil {
		return err
	}
	why, err := sl.loadObjections(ctx)
	if now := sl.guard.Load(); err == nil && why == nil && now != nil && now.Reason == RollbackWitness {
		sl.untrip() // it has tripped meanwhile because of the settled objections
	}
	return err
}

// Accept accepts the log of this file as the newest one, and ends a rollback. With settle it
// settles the objections of witnesses, else it deletes them.
func (sl *Sealer) Accept(ctx context.Context, settle bool, actor engines.Actor, corrID string) error {
	if err := sl.readmit(ctx, settle, actor, corrID); err != nil {
		return err
	}
	// the next tick tries again
	if _, err := sl.CheckpointNow(ctx); err != nil && !errors.Is(err, document.ErrConflict) {
		sl.deps.Log.Warn("checkpoint.refused", "reason", err.Error())
	}
	return nil
}

// readmit is Accept without the checkpoint after it, which is the first of the adopted log. Neither
// a signature nor an objection is under way meanwhile.
func (sl *Sealer) readmit(ctx context.Context, settle bool, actor engines.Actor, corrID string) error {
	if err := sl.signing.Acquire(ctx); err != nil {
		return err
	}
	defer sl.signing.Release()
	err := sl.deps.Keeper.Adopt(ctx, sl.deps.Store.Info().Incarnation, settle, actor, corrID)
	if err != nil {
		return err
	}
	if sl.cfg.Mark.Path != "" {
		if err := sl.cfg.Mark.Remove(); err != nil {
			return err // the guard stays: the next boot would find the old mark
		}
	}
	switch why, err := sl.loadObjections(ctx); {
	case err != nil:
		return err
	case why != nil: // a witness has objected meanwhile
		sl.Trip(why)
		return why.Err()
	}
	sl.untrip()
	return nil
}
