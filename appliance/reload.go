package appliance

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"ronbox/appliance/config"
	"ronbox/appliance/flow"
	"ronbox/appliance/tokens"
	"ronbox/engines"
	nodeapi "ronbox/httpapi/node"
)

// Where a reload is asked from: values of the label source.
const (
	sourceSignal = "sighup"
	sourceAdmin  = "admin"
)

// reload is one request for the configuration to be read again. A caller that waits has a reply.
type reload struct {
	source    string
	by        engines.Actor
	corrID    string
	reply     *flow.Reply[nodeapi.Reloaded] // nil for a signal
	older     []*reload                     // those that it stands for, each with a reply
	forSignal bool                          // it stands for a signal too, which is never withdrawn
}

// Hangup asks for a reload, as SIGHUP does. It returns at once; the outcome is in the log.
func (n *Node) Hangup() {
	_ = n.askReload(&reload{source: sourceSignal, by: self("sighup")}) // closed: the node drains
}

// Reload reads the configuration again and applies it whole, or keeps the current one and returns the reason.
func (n *Node) Reload(ctx context.Context, by engines.Actor, corrID string) (nodeapi.Reloaded, error) {
	r := &reload{source: sourceAdmin, by: by, corrID: corrID, reply: flow.NewReply[nodeapi.Reloaded]()}
	if err := n.askReload(r); err != nil {
		return nodeapi.Reloaded{}, err
	}
	return r.reply.Wait(ctx)
}

// askReload queues r. Into a full queue it goes in the place of the oldest, which gets the same answer: also that it came
// too late, when the queue was closed meanwhile.
func (n *Node) askReload(r *reload) error {
	for {
		err := n.reloads.TrySend(r)
		if err == nil {
			return nil
		}
		if !errors.Is(err, flow.ErrBusy) {
			r.answer(nodeapi.Reloaded{}, err)
			return err
		}
		select {
		case old, ok := <-n.reloads.C():
			if ok {
				r.takeOver(old)
			}
		default: // the reloader was faster
		}
	}
}

// takeOver has r answered for old too.
func (r *reload) takeOver(old *reload) {
	r.older = append(r.older, old.older...)
	r.forSignal = r.forSignal || old.forSignal || old.reply == nil
	if old.older = nil; old.reply != nil {
		r.older = append(r.older, old)
	}
}

// claim begins the work for the requests that are still waited for. It reports whether there are any, or a signal.
func (r *reload) claim() bool {
	r.older = slices.DeleteFunc(r.older, func(one *reload) bool { return !one.reply.Claim() })
	own := r.reply == nil || r.reply.Claim()
	return own || r.forSignal || len(r.older) > 0
}

// answer answers every request that r stands for.
func (r *reload) answer(done nodeapi.Reloaded, err error) {
	for _, one := range append(r.older, r) {
		switch {
		case one.reply == nil:
		case err != nil:
			one.reply.Fail(err)
		default:
			one.reply.Answer(done)
		}
	}
}

// Reasons of a failed reload: values of the label reason.
const (
	reasonParse    = "parse"    // the file or a variable cannot be read
	reasonValidate = "validate" // a value is not allowed
	reasonRestart  = "restart"  // a key needs a restart
	reasonSource   = "source"   // the node was started without one
	reasonBind     = "bind"     // an address or the socket cannot be listened on
	reasonTLS      = "tls"      // a certificate or key cannot be used
	reasonPrepare  = "prepare"  // another part cannot take it
)

// read loads the configuration and compares it with the current one. Keys that only a restart changes refuse it.
func (n *Node) read() (next current, changed []config.Change, err error) {
	if n.opt.Load == nil {
		return next, nil, &nodeapi.ReloadError{Reason: reasonSource, Detail: "this node was started without a way to read it again"}
	}
	now, _ := n.config.Load()
	if err := sourceGone(now.entries); err != nil {
		return next, nil, err
	}
	next = current{version: now.version}
	if next.cfg, next.entries, err = n.opt.Load(); err != nil {
		return next, nil, loadError(err)
	}
	changed = config.Diff(now.cfg, next.cfg)
	var fixed []string
	for _, c := range changed {
		if c.Reload == config.ReloadRestart {
			fixed = append(fixed, c.Key)
		}
	}
	if len(fixed) > 0 {
		return next, nil, &nodeapi.ReloadError{Reason: reasonRestart, Keys: fixed,
			Detail: "a restart is needed to change " + strings.Join(fixed, ", ")}
	}
	if len(changed) > 0 {
		next.version++
	}
	return next, changed, nil
}

// sourceGone refuses to take a file that is no more for the wish to have every default.
func sourceGone(entries []config.Entry) error {
	path := sourceFile(entries)
	if path == "" {
		return nil
	}
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return &nodeapi.ReloadError{Reason: reasonParse, Detail: path + " is gone: put it back, an empty one for the defaults"}
	}
	return nil
}

// loadError sorts the faults of a configuration: text that cannot be read, or values that are not allowed.
func loadError(err error) error {
	out := &nodeapi.ReloadError{Reason: reasonValidate, Detail: strings.ReplaceAll(err.Error(), "\n", "; ")}
	for _, f := range config.Faults(err) {
		if f.Key == "" {
			out.Reason = reasonParse
			continue
		}
		out.Keys = append(out.Keys, f.Key)
	}
	if len(out.Keys) == 0 {
		out.Reason = reasonParse
	}
	return out
}

// applyTries is how often a configuration that was read is applied: at once, and after 1, 2, 4, 8 s.
const applyTries = 5

// pending is a configuration that was read and could not be applied yet.
type pending struct {
	asked   *reload
	next    current
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
				r.answer(nodeapi.Reloaded{}, flow.ErrClosed)
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
		r.answer(nodeapi.Reloaded{}, flow.ErrClosed)
	}
}

// reload reads and applies once, and answers. It returns the configuration to be tried again, if any.
func (n *Node) reload(ctx context.Context, r *reload) (again *pending) {
	answered := false
	defer func() { // a panic restarts the task; the waiters get an error
		if !answered {
			r.answer(nodeapi.Reloaded{}, errors.New("the reload panicked"))
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

// reloaded is the answer to a request.
func (n *Node) reloaded(next current, changed []config.Change) nodeapi.Reloaded {
	out := nodeapi.Reloaded{Version: next.version, Source: sourceFile(next.entries), Changed: []nodeapi.ConfigChange{}}
	for _, c := range changed {
		out.Changed = append(out.Changed, nodeapi.ConfigChange(c))
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
		failed := &nodeapi.ReloadError{Reason: prepareReason(err), Detail: err.Error()}
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

// prepareReason is the label of a part's fault; the detail names the part.
func prepareReason(err error) string {
	if _, network := errors.AsType[*net.OpError](err); network {
		return reasonBind
	}
	if strings.Contains(err.Error(), "tls.") {
		return reasonTLS
	}
	return reasonPrepare
}

// finish counts, logs and audits a configuration that has just become current.
func (n *Node) finish(ctx context.Context, p *pending) {
	n.metrics.Counter("registry_reload_success_total", "registry", "source", p.asked.source)(1)
	n.log.Info("config_reloaded", "source", p.asked.source, "config_version", p.next.version, "changed", len(p.changed), "corr_id", p.asked.corrID)
	ctx = context.WithoutCancel(ctx) // it is current, even if the node drains
	n.ensureAgain(ctx)
	for some := range slices.Chunk(p.changed, changesPerRow) {
		detail := map[string]string{"version": strconv.FormatUint(p.next.version, 10)}
		for _, c := range some {
			detail[c.Key] = c.From + " -> " + c.To
		}
		n.note(ctx, tokens.AuditEvent("config.reloaded", p.asked.by, p.asked.corrID, detail))
	}
}

// changesPerRow is the room of a row of the audit chain, beside the version. Where nothing has changed there is none: only a
// certificate may have been read again.
const changesPerRow = 63

func (n *Node) reloadFailed(r *reload, err error, next string) {
	reason, why := reasonParse, err.Error()
	if failed, ok := errors.AsType[*nodeapi.ReloadError](err); ok {
		reason, why = failed.Reason, failed.Detail
	}
	n.metrics.Counter("registry_reload_fail_total", "registry", "reason", reason)(1)
	n.log.Warn("config_reload_failed", "source", r.source, "cause", reason, "reason", why, "next", next, "corr_id", r.corrID)
}

// parts are the pieces that take a new configuration, in the order in which they are prepared: the likeliest to fail, last,
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

// part is one piece of the node that takes a new configuration while it runs.
type part struct {
	name string
	// prepare does all that can fail. swap makes the new configuration current: it cannot fail and does not wait. undo
	// releases all that prepare has made. Exactly one of the two is called, once.
	prepare func(ctx context.Context, next *config.Config) (swap, undo func(), err error)
}

// prepareAll prepares every part, in order. If one fails, or ctx ends, those before it are undone, the last one first.
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

// inPlace is a part whose new values are simply stored.
func inPlace(name string, store func(next *config.Config)) part {
	return part{name, func(_ context.Context, next *config.Config) (swap, undo func(), err error) {
		return func() { store(next) }, func() {}, nil
	}}
}
