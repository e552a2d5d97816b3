package registry

import (
	"context"
	"time"

	"ronbox/engines/registry/checkpoint"
	"ronbox/engines/registry/document"
	"ronbox/engines/registry/retain"
	"ronbox/engines/registry/tables"
)

// Retention returns the plan of the next cycle of retention.
func (e *Engine) Retention(ctx context.Context) (document.RetentionPlan, error) {
	p, _, err := e.retain.Plan(ctx)
	return p, err
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
