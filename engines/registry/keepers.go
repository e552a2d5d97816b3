package registry

import (
	"context"
	"time"

	"ronbox/appliance/flow"
	"ronbox/engines"
	"ronbox/engines/registry/checkpoint"
	"ronbox/engines/registry/document"
	"ronbox/engines/registry/follow"
	"ronbox/engines/registry/pipeline"
	"ronbox/engines/registry/record"
	"ronbox/engines/registry/retain"
	"ronbox/engines/registry/seal"
	"ronbox/engines/registry/tables"
	"ronbox/engines/registry/trace"
)

// pipelineConfig returns the configuration of the pipeline. f is nil unless the node follows
// another.
func pipelineConfig(cfg Config, f *follow.Follower) pipeline.Config {
	out := pipeline.Config{
		Proposals: cfg.Queues.Proposals, Approvals: cfg.Queues.Approvals, Genesis: cfg.Bootstrap.TrustRootsHash,
	}
	if f != nil {
		out.Hub = f.URL
	}
	return out
}

// pipelineKeeper is the Keeper of the pipeline.
type pipelineKeeper struct{ e *Engine }

// Now returns the time of what is stored.
func (k pipelineKeeper) Now() time.Time { return k.e.now() }

// Wall returns the time of what others sign.
func (k pipelineKeeper) Wall() time.Time { return k.e.wall() }

// Rule returns the limits in force.
func (k pipelineKeeper) Rule() pipeline.Rule {
	cfg := k.e.live()
	p := cfg.Proposals
	return pipeline.Rule{
		Propose: cfg.Timeouts.Propose.D(), Approve: cfg.Timeouts.Approve.D(), Commit: cfg.Timeouts.Commit.D(),
		MaxSkew: cfg.Approvals.MaxSkew.D(), TTL: p.TTL.D(), MaxPending: p.MaxPending, MaxPerCap: p.MaxPerCap,
		MaxStack: p.MaxStack, MaxBytes: p.MaxBytes.Bytes(),
	}
}

// Origin returns the name of the log.
func (k pipelineKeeper) Origin() string { return k.e.Origin() }

// Ready returns the reason why the registry takes no writes, or nil.
func (k pipelineKeeper) Ready() error { return k.e.ready() }

// Tripped reports whether the fork guard is tripped.
func (k pipelineKeeper) Tripped() bool { return k.e.seal.Tripped() != nil }

// Running publishes at once that jobs are taken: the first sample may have been taken before.
func (k pipelineKeeper) Running() { k.e.board.Set(service, keyCommitReady, k.e.sound()) }

// Begun publishes that the log has a genesis.
func (k pipelineKeeper) Begun() { k.e.board.Set(service, keyHasGenesis, k.e.hasGenesis()) }

// Publish sends synced versions.
func (k pipelineKeeper) Publish(before *tables.HeadView, versions []document.Update, took time.Duration) {
	k.e.announce(before, versions, took)
}

// sealKeeper is the Keeper of the sealer.
type sealKeeper struct{ e *Engine }

// Now returns the time of what is stored.
func (k sealKeeper) Now() time.Time { return k.e.now() }

// Wall returns the time of what others sign.
func (k sealKeeper) Wall() time.Time { return k.e.wall() }

// Rule returns the limits in force.
func (k sealKeeper) Rule() seal.Rule {
	cfg := k.e.live()
	return seal.Rule{
		Interval: cfg.Storage.CheckpointInterval.D(), EveryVersions: uint64(cfg.Checkpoint.EveryVersions),
		Witness: cfg.Witness.Enabled, WitnessTimeout: cfg.Witness.Timeout.D(),
		WitnessInterval: cfg.Witness.Interval.D(),
	}
}

// Sound returns the reason why the log must not be extended, but for the fork guard.
func (k sealKeeper) Sound() error { return k.e.sound() }

// Ready is Sound with the fork guard.
func (k sealKeeper) Ready() error { return k.e.ready() }

// Adopt adopts the log, if an incarnation is given, and settles or deletes the objections.
func (k sealKeeper) Adopt(ctx context.Context, incarnation string, settle bool, actor engines.Actor,
	corrID string) error {
	return k.e.pipeline.Adopt(ctx, incarnation, settle, actor, corrID)
}

// Committed returns a subscription to the versions, which ends with the pipeline.
func (k sealKeeper) Committed(consumer string) *flow.Subscription[document.Update] {
	return k.e.committed.Subscribe(consumer)
}

// Prune sends the last archived checkpoint to the pruner.
func (k sealKeeper) Prune(size uint64) { k.e.retain.Ask(size) }

// Span begins the span of a checkpoint of HEAD.
func (k sealKeeper) Span(ctx context.Context, head record.Head) (context.Context, func(error)) {
	ctx, span := trace.Start(ctx, k.e.tracer, "checkpoint", "")
	span.About("", head.Version, head.PayloadB3)
	return ctx, span.End
}

// retainKeeper is the Keeper of the retainer.
type retainKeeper struct{ e *Engine }

// Now returns the time of what is stored.
func (k retainKeeper) Now() time.Time { return k.e.now() }

// Policy returns the policy in force.
func (k retainKeeper) Policy() retain.Policy {
	cfg := k.e.live().Retention
	return retain.Policy{Name: cfg.Policy, MaxAge: cfg.MaxAge.D(), MaxCount: uint64(cfg.MaxCount)}
}

// Ready returns the reason why the registry takes no writes, or nil.
func (k retainKeeper) Ready() error { return k.e.ready() }

// Key returns the log key of the node, or an error if the signers of a HEAD do not admit it.
func (k retainKeeper) Key(head *tables.HeadView) (*checkpoint.Key, error) { return k.e.seal.Key(head) }

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
	before := e.Head()
	e.pub.Tree.Store(&s.Tree)
	if s.Note != nil {
		e.pub.Latest.Store(s.Note)
	}
	e.pub.State.Store(s.Next.Bounded(s.Next.View.MinVersion, e.pub.Covered()))
	e.announce(before, s.Events, s.Took)
}
