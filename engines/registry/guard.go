package registry

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"ronbox/engines"
	"ronbox/engines/registry/checkpoint"
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

// checkGuard looks for signs that the file is not the newest copy of its log.
//
// A follower has no guard: it does not extend the log, and reads again what its file has lost.
func (e *Engine) checkGuard(ctx context.Context, head *HeadView) (*Rollback, error) {
	if e.follow != nil {
		_, err := e.loadObjections(ctx)
		return nil, err
	}
	info := e.store.Info()
	var adopted []byte
	var signed bool
	err := e.View(ctx, func(r store.Reader) error {
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
	objected, err := e.loadObjections(ctx)
	if err != nil {
		return nil, err
	}
	if err := e.raiseMark(ctx, head); err != nil {
		return nil, err
	}
	mark, found, err := e.checkMark(ctx, head, signed)
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

// checkMark compares the log with the high-water file.
func (e *Engine) checkMark(ctx context.Context, head *HeadView,
	signed bool) (mark checkpoint.Tree, found *Rollback, err error) {
	if e.mark.Path == "" {
		return mark, nil, nil
	}
	keys, err := e.LogKeys(ctx)
	if err != nil {
		return mark, nil, err
	}
	s, err := e.readMark(keys)
	switch {
	case errors.Is(err, fs.ErrNotExist) && !signed:
		return mark, nil, nil
	case errors.Is(err, fs.ErrNotExist):
		return mark, &Rollback{
			Reason: RollbackNoMark,
			Detail: "the log has signed checkpoints, but " + e.mark.Path + " is missing",
		}, nil
	case err != nil:
		return mark, &Rollback{Reason: RollbackBadMark, Detail: err.Error()}, nil
	}
	mark = s.Tree
	if mark.Size > min(head.Head.Version, e.pub.Tree.Load().Size) {
		return mark, &Rollback{Reason: RollbackOlder, Mark: mark, Detail: fmt.Sprintf(
			"%s names a log of %d versions, the file has %d", e.mark.Path, mark.Size, head.Head.Version)}, nil
	}
	root, err := e.Root(ctx, mark.Size)
	if errors.Is(err, logtree.ErrTile) {
		return mark, nil, fmt.Errorf("%w: %w", store.ErrCorrupt, err)
	}
	if err == nil && root != mark.Root {
		found = &Rollback{Reason: RollbackFork, Mark: mark, Detail: fmt.Sprintf(
			"%s names root %s for %d versions, the file has %s: two logs under one name",
			e.mark.Path,
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
func (e *Engine) raiseMark(ctx context.Context, head *HeadView) error {
	if !e.replicated || e.mark.Path == "" {
		return nil
	}
	var note []byte
	err := e.View(ctx, func(r store.Reader) error {
		note, _ = tables.MetaRaw.Get(r, tables.KeyCheckpoint)
		return nil
	})
	if err != nil || note == nil {
		return err
	}
	keys, err := e.LogKeys(ctx)
	if err != nil {
		return err
	}
	latest, err := keys.Open(note)
	if err != nil {
		return nil // the checkpointor reports it
	}
	mark, err := e.readMark(keys)
	missing := errors.Is(err, fs.ErrNotExist)
	if err != nil && !missing || latest.Size <= mark.Size || !e.agrees(ctx, head, latest.Tree) ||
		!missing && !e.agrees(ctx, head, mark.Tree) {
		return nil
	}
	return e.mark.Write(latest)
}

// agrees reports whether t is a tree of this log.
func (e *Engine) agrees(ctx context.Context, head *HeadView, t checkpoint.Tree) bool {
	if t.Size > min(head.Head.Version, e.pub.Tree.Load().Size) {
		return false
	}
	root, err := e.Root(ctx, t.Size)
	return err == nil && root == t.Root
}

// readMark reads the high-water mark.
func (e *Engine) readMark(keys checkpoint.Keys) (s checkpoint.Signed, err error) {
	raw, err := e.mark.Read()
	if err != nil {
		return s, err
	}
	if s, err = keys.Open(raw); err != nil {
		return s, fmt.Errorf("%s: %w", e.mark.Path, err)
	}
	return s, nil
}

// trip stops all writes and signatures.
func (e *Engine) trip(why *Rollback) {
	e.guard.Store(why)
	e.m.forkGuard(1)
	e.log.Error("forkguard.tripped", "reason", why.Reason, "detail", why.Detail)
	e.board.Set(service, keyForkGuard, why.err())
}

func (e *Engine) untrip() {
	e.guard.Store(nil)
	e.m.forkGuard(0)
	e.board.Set(service, keyForkGuard, nil)
}

func (r *Rollback) err() error {
	if r == nil {
		return nil
	}
	return &NotReadyError{Cause: CauseRollback, Detail: r.Detail}
}

// HighWater returns the mark, and whether the log may be extended.
func (e *Engine) HighWater(ctx context.Context) (HighWater, error) {
	head := e.Head().Head
	out := HighWater{Path: e.mark.Path, Version: head.Version, Hash: head.Hash}
	if why := e.guard.Load(); why != nil {
		out.Rollback, out.Reason, out.Detail = true, why.Reason, why.Detail
	}
	out.Objections = e.objections.Load().Shown()
	if e.follow != nil {
		out.Follow = e.follow.Status()
	}
	var err error
	if out.Retention, err = e.Retention(ctx); err != nil || out.Path == "" {
		return out, err
	}
	keys, err := e.LogKeys(ctx)
	if err != nil {
		return out, err
	}
	if s, err := e.readMark(keys); err == nil && s.Size > 0 { // checkMark reports a fault of the mark
		out.MarkSize, out.MarkRoot = s.Size, s.Root.String()
		if !s.At.IsZero() {
			out.MarkAt = record.FormatTime(s.At)
		}
	}
	return out, nil
}

// Adopt accepts the log of this file as the newest one, by order of an operator. Writes and
// signatures go on, and the objections of witnesses so far are settled. The audit log gets a
// record. It returns ErrConflict if neither the guard nor a witness objects.
func (e *Engine) Adopt(ctx context.Context, actor engines.Actor, corrID string) error {
	if err := e.Follows(); err != nil {
		return err
	}
	if e.guard.Load() == nil && len(e.objections.Load().Open()) == 0 {
		return fmt.Errorf("adopt: %w: the log already accepts writes", ErrConflict)
	}
	if e.guard.Load() == nil {
		return e.settle(ctx, actor, corrID)
	}
	return e.adopt(ctx, adoptReq{settle: true}, actor, corrID)
}

// settle settles the objections of witnesses while the guard is not tripped. Checkpoint and mark
// stay, because the checkpointor runs concurrently.
func (e *Engine) settle(ctx context.Context, actor engines.Actor, corrID string) error {
	if _, err := e.submit(ctx, e.approvals, adoptReq{settle: true}, actor, corrID); err != nil {
		return err
	}
	why, err := e.loadObjections(ctx)
	if now := e.guard.Load(); err == nil && why == nil && now != nil && now.Reason == RollbackWitness {
		e.untrip() // it has tripped meanwhile because of the settled objections
	}
	return err
}

func (e *Engine) adopt(ctx context.Context, req adoptReq, actor engines.Actor, corrID string) error {
	req.incarnation = e.store.Info().Incarnation
	if _, err := e.submit(ctx, e.approvals, req, actor, corrID); err != nil {
		return err
	}
	if e.mark.Path != "" {
		if err := e.mark.Remove(); err != nil {
			return err // the guard stays: the next boot would find the old mark
		}
	}
	e.pub.Latest.Store(nil) // the next checkpoint is the first of the adopted log
	switch why, err := e.loadObjections(ctx); {
	case err != nil:
		return err
	case why != nil: // a witness has objected meanwhile
		e.trip(why)
		return why.err()
	}
	e.untrip()
	if _, err := e.CheckpointNow(ctx); err != nil && !errors.Is(err, ErrConflict) { // the next tick tries again
		e.log.Warn("checkpoint.refused", "reason", err.Error())
	}
	return nil
}

// adoptReq ends a rollback.
type adoptReq struct {
	incarnation string // "": the log is not in question, and settle is set
	settle      bool   // settle the objections of witnesses, not delete them
}

func (adoptReq) name() string { return "adopt" }

func (r adoptReq) describe(rec *record.Audit) {}

func (r adoptReq) decide(p *plan, j *job) (answer, error) {
	p.add(j, tables.AdoptOp{Incarnation: r.incarnation, Settle: r.settle}, j.audit(tables.EventAdopted))
	p.sweepOrphans() // a replay cannot end them: its records must be consecutive
	return answer{}, nil
}

// passesGuard reports whether a request may run while the guard is tripped.
func passesGuard(r request) bool {
	switch r.(type) {
	case adoptReq, replayReq:
		return true
	}
	return false
}
