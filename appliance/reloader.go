package appliance

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"ronbox/appliance/config"
	"ronbox/appliance/flow"
	"ronbox/httpapi"
	"ronbox/httpapi/wire"
)

// applyTries is how often a configuration that was read is tried to be put in force: at once, and after 1, 2, 4, 8 s.
const applyTries = 5

// pending is a configuration that was read and could not be put in force yet.
type pending struct {
	asked   *reload
	next    inForce
	changed []config.Change
	tries   int
}

// delay is how long to wait before the next try.
func (p *pending) delay() time.Duration { return time.Second << (p.tries - 1) }

// runReloader takes the requests that wait together as one. A part that cannot take its configuration is asked again some
// seconds later, unless a newer request comes first.
func (n *Node) runReloader(ctx context.Context) error {
	var again *pending
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		timer.Stop()
		if again != nil {
			timer.Reset(again.delay())
		}
		select {
		case <-ctx.Done():
			n.refuseReloads()
			return context.Cause(ctx)
		case r, ok := <-n.reloads.C():
			if !ok {
				return nil // drained
			}
			if n.collapse(r); ctx.Err() != nil {
				r.answer(wire.Reloaded{}, flow.ErrClosed)
				continue
			}
			if r.claim() {
				again = n.reload(ctx, r)
			}
		case <-timer.C:
			if err := n.apply(ctx, again); err == nil || again.tries == applyTries {
				again = nil
			}
		}
	}
}

// collapse takes over all that wait.
func (n *Node) collapse(r *reload) {
	for {
		select {
		case newer, ok := <-n.reloads.C():
			if !ok {
				return
			}
			r.takeOver(newer)
		default:
			return
		}
	}
}

// refuseReloads answers those that came too late.
func (n *Node) refuseReloads() {
	for _, r := range n.reloads.Discard("the node drains") {
		r.answer(wire.Reloaded{}, flow.ErrClosed)
	}
}

// reload reads and applies once, and answers. It gives what is to be tried again.
func (n *Node) reload(ctx context.Context, r *reload) (again *pending) {
	answered := false
	defer func() { // a panic restarts the task; who waits hears that it failed
		if !answered {
			r.answer(wire.Reloaded{}, errors.New("the reload panicked"))
		}
	}()
	n.manager.reloading()
	defer n.manager.ready()
	next, changed, err := n.read()
	if err != nil {
		n.reloadFailed(r, err, "the old configuration stays in force: correct it, then reload")
	} else {
		again = &pending{asked: r, next: next, changed: changed}
		if err = n.apply(ctx, again); err == nil {
			again = nil
		}
	}
	answered = true
	r.answer(n.reloaded(next, changed), err)
	return again
}

// reloaded is the answer to who asked.
func (n *Node) reloaded(next inForce, changed []config.Change) wire.Reloaded {
	out := wire.Reloaded{Version: next.version, Source: sourceFile(next.entries), Changed: []wire.ConfigChange{}}
	for _, c := range changed {
		out.Changed = append(out.Changed, wire.ConfigChange(c))
	}
	return out
}

// apply prepares every part and then swaps them all, or changes nothing.
func (n *Node) apply(ctx context.Context, p *pending) error {
	p.tries++
	swap, err := prepareAll(ctx, n.parts(), p.next.cfg)
	if ctx.Err() != nil && err != nil {
		p.tries = applyTries
		return flow.ErrClosed // the node drains
	}
	if err != nil {
		failed := &httpapi.ReloadError{Reason: prepareReason(err), Detail: err.Error()}
		then := "the old configuration stays in force: correct what is wrong, then reload"
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

// prepareReason is the label of what a part could not do; the detail names the part.
func prepareReason(err error) string {
	if _, network := errors.AsType[*net.OpError](err); network {
		return reasonBind
	}
	if strings.Contains(err.Error(), "tls.") {
		return reasonTLS
	}
	return reasonPrepare
}

// finish tells everyone of the configuration that has just come into force.
func (n *Node) finish(ctx context.Context, p *pending) {
	n.metrics.Counter("registry_reload_success_total", "registry", "source", p.asked.source)(1)
	n.log.Info("config_reloaded", "source", p.asked.source, "config_version", p.next.version, "changed", len(p.changed), "corr_id", p.asked.corrID)
	ctx = context.WithoutCancel(ctx) // it is in force, even if the node drains
	n.redeclareAssets(ctx)
	for some := range slices.Chunk(p.changed, changesPerRow) {
		detail := map[string]string{"version": strconv.FormatUint(p.next.version, 10)}
		for _, c := range some {
			detail[c.Key] = c.From + " -> " + c.To
		}
		n.note(ctx, auditEvent("config.reloaded", p.asked.by, p.asked.corrID, detail))
	}
}

// changesPerRow is what a row of the audit chain takes, beside the version. Where nothing has changed there is none: only a
// certificate may have been read again.
const changesPerRow = 63

func (n *Node) reloadFailed(r *reload, err error, next string) {
	reason, why := reasonParse, err.Error()
	if failed, ok := errors.AsType[*httpapi.ReloadError](err); ok {
		reason, why = failed.Reason, failed.Detail
	}
	n.metrics.Counter("registry_reload_fail_total", "registry", "reason", reason)(1)
	n.log.Warn("config_reload_failed", "source", r.source, "cause", reason, "reason", why, "next", next, "corr_id", r.corrID)
}

// parts are the pieces that take a new configuration, in the order in which they are prepared: what can fail most, last,
// so that little has to be undone.
func (n *Node) parts() []part {
	return []part{
		inPlace("log", func(c *config.Config) { n.levels.Set(c.Log) }),
		inPlace("metrics", func(c *config.Config) { n.metrics.Configure(c.Metrics) }),
		inPlace("auth", func(c *config.Config) { n.auth.SetConfig(c.Auth) }),
		inPlace("store", func(c *config.Config) { n.store.SetConfig(c.Store); n.store.SetAudit(c.Audit) }),
		inPlace("engines", n.reloadEngines),
		{"otel", func(ctx context.Context, c *config.Config) (swap, undo func(), err error) {
			return n.tracer.Prepare(ctx, c.OTel)
		}},
		{"server", func(ctx context.Context, c *config.Config) (swap, undo func(), err error) {
			return n.server.Prepare(ctx, n.settings(c))
		}},
	}
}
