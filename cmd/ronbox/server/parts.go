package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"

	"ronbox/appliance/flow"
	"ronbox/cmd/ronbox/server/config"
	"ronbox/httpapi/front"
	nodehttp "ronbox/httpapi/node"
)

// apply prepares every part and then swaps them all, or changes nothing.
func (n *Node) apply(ctx context.Context, p *pending) error {
	p.tries++
	swap, err := prepareAll(ctx, n.parts(), p.next.cfg)
	if ctx.Err() != nil && err != nil {
		p.tries = applyTries
		return flow.ErrClosed // the node drains
	}
	if err != nil {
		failed := &nodehttp.ReloadError{Reason: prepareReason(err), Detail: err.Error()}
		then := "the old configuration stays in force: correct the fault, then reload"
		if p.tries < applyTries {
			then = fmt.Sprintf("the old configuration stays in force, it is tried again in %s", p.delay())
			failed.Detail += fmt.Sprintf(" (it is tried again in %s)", p.delay())
		}
		n.reloadFailed(p.asked, failed, then)
		return failed
	}
	swap()
	n.config.Store(p.next)
	n.finish(ctx, p)
	return nil
}

// prepareReason returns the label of a failed part; the detail names the part.
func prepareReason(err error) string {
	if _, network := errors.AsType[*net.OpError](err); network || errors.Is(err, front.ErrPlaintext) {
		return reasonBind
	}
	if errors.Is(err, front.ErrCertificate) {
		return reasonTLS
	}
	return reasonPrepare
}

// parts returns the parts that apply a new configuration, in the order in which they are prepared.
// The part most likely to fail comes last, so that little has to be undone.
func (n *Node) parts() []part {
	return []part{
		inPlace("log", func(c *config.Config) { n.levels.Set(c.Log) }),
		inPlace("clock", func(c *config.Config) { n.clock.SetConfig(c.Node.Clock()) }),
		inPlace("metrics", func(c *config.Config) { n.metrics.Configure(c.Metrics) }),
		inPlace("auth", func(c *config.Config) { n.auth.SetConfig(c.Auth) }),
		inPlace("store", func(c *config.Config) { n.store.SetConfig(c.Store); n.store.SetAudit(c.Audit) }),
		inPlace("archive", n.archive.Reload),
		inPlace("engines", n.reloadEngines),
		{"index", n.services.PrepareIndex},
		{"otel", func(ctx context.Context, c *config.Config) (swap, undo func(), err error) {
			return n.tracer.Prepare(ctx, c.OTel)
		}},
		{"server", func(ctx context.Context, c *config.Config) (swap, undo func(), err error) {
			return n.server.Prepare(ctx, n.settings(c))
		}},
	}
}

// part is a part of the node that applies a new configuration while it runs.
type part struct {
	name string
	// prepare does everything that can fail. swap makes the new configuration current; it cannot
	// fail and does not block. undo releases everything that prepare created. Exactly one of swap
	// and undo is called, once.
	prepare func(ctx context.Context, next *config.Config) (swap, undo func(), err error)
}

// prepareAll prepares every part in order. If one fails or ctx ends, the prepared parts are undone
// in reverse order.
func prepareAll(ctx context.Context, parts []part, next *config.Config) (swap func(), err error) {
	var swaps, undos []func()
	for _, p := range parts {
		s, u, err := p.prepare(ctx, next)
		if err == nil {
			swaps, undos = append(swaps, s), append(undos, u)
			err = ctx.Err()
		}
		if err != nil {
			for _, undo := range slices.Backward(undos) {
				undo()
			}
			return nil, fmt.Errorf("%s: %w", p.name, err)
		}
	}
	return func() {
		for _, swap := range swaps {
			swap()
		}
	}, nil
}

// inPlace returns a part that only stores the new values.
func inPlace(name string, store func(next *config.Config)) part {
	return part{name, func(_ context.Context, next *config.Config) (swap, undo func(), err error) {
		return func() { store(next) }, func() {}, nil
	}}
}
