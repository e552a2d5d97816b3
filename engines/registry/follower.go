package registry

import (
	"context"
	"fmt"
	"time"

	"ronbox/engines/registry/checkpoint"
	"ronbox/engines/registry/document"
	"ronbox/engines/registry/follow"
)

// Follows returns a *FollowerError if the node follows another one, else nil.
func (e *Engine) Follows() error {
	if e.follow == nil {
		return nil
	}
	return &document.FollowerError{Hub: e.follow.URL()}
}

// Age returns the time since the hub signed the newest checkpoint that was read. It is false on a
// node that follows no other, and before the first checkpoint.
func (e *Engine) Age() (age time.Duration, known bool) {
	if e.follow == nil {
		return 0, false
	}
	return e.follow.Age()
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

// followKeeper is the Keeper of the follower.
type followKeeper struct{ e *Engine }

// Rule returns the limits in force.
func (k followKeeper) Rule() follow.Rule {
	cfg := k.e.live()
	rule := k.e.followRule
	rule.MaxAge = cfg.Follow.MaxAge.D()
	rule.ArchiveEvery, rule.EveryVersions = cfg.Storage.CheckpointInterval.D(), uint64(cfg.Checkpoint.EveryVersions)
	return rule
}

// Sound returns the reason why the log here must not be extended, or nil.
func (k followKeeper) Sound() error { return k.e.sound() }

// Begun publishes that the log has a genesis.
func (k followKeeper) Begun() { k.e.board.Set(service, keyHasGenesis, k.e.hasGenesis()) }

// Checkpointed publishes a checkpoint of the hub.
func (k followKeeper) Checkpointed(s checkpoint.Signed, archived bool) {
	k.e.seal.Copied(s, archived)
}

// Publish makes a synced step visible: first the checkpoint and the state, then the events. It runs
// in the committer and must not wait.
func (k followKeeper) Publish(s follow.Step) {
	e := k.e
	signers := e.Head().Signers
	e.pub.Tree.Store(&s.Tree)
	if s.Note != nil {
		e.pub.Latest.Store(s.Note)
	}
	e.pub.State.Store(s.Next.Bounded(s.Next.View.MinVersion, e.pub.Covered()))
	for _, ev := range s.Events {
		e.committed.Publish(ev)
		e.m.commitSeconds(s.Took.Seconds())
	}
	e.m.updates["accepted"](len(s.Events))
	e.m.commits(len(s.Events))
	if signers != s.Next.View.Signers {
		e.m.signers(s.Next.View.Signers)
	}
}
