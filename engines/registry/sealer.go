package registry

import (
	"context"
	"time"

	"ronbox/appliance/flow"
	"ronbox/engines"
	"ronbox/engines/registry/document"
	"ronbox/engines/registry/record"
	"ronbox/engines/registry/seal"
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
	_, err := k.e.submit(ctx, k.e.approvals, adoptReq{incarnation: incarnation, settle: settle}, actor, corrID)
	return err
}

// Committed returns a subscription to the versions, which ends with the pipeline.
func (k sealKeeper) Committed(consumer string) *flow.Subscription[document.Update] {
	return k.e.committed.Subscribe(consumer)
}

// Prune sends the last archived checkpoint to the pruner.
func (k sealKeeper) Prune(size uint64) { k.e.retain.Ask(size) }

// Span begins the span of a checkpoint of HEAD.
func (k sealKeeper) Span(ctx context.Context, head record.Head) (context.Context, func(error)) {
	ctx, span := k.e.span(ctx, "checkpoint", "")
	span.about("", head.Version, head.PayloadB3)
	return ctx, span.end
}
