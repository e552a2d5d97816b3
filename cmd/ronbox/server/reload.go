package server

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"ronbox/appliance/flow"
	"ronbox/cmd/ronbox/server/config"
	"ronbox/cmd/ronbox/server/tokens"
	"ronbox/engines"
	nodehttp "ronbox/httpapi/node"
	nodeapi "ronbox/httpapi/wire/node"
)

// Sources of a reload: values of the label source.
const (
	sourceSignal = "sighup"
	sourceAdmin  = "admin"
)

// reload is a request to read the configuration again. It has a reply if a caller waits for it.
type reload struct {
	source    string
	by        engines.Actor
	corrID    string
	reply     *flow.Reply[nodeapi.Reloaded] // nil for a signal
	older     []*reload                     // requests that it replaces, each with a reply
	forSignal bool                          // it also replaces a signal, which is never withdrawn
}

// Hangup requests a reload, as SIGHUP does. It returns immediately; the outcome is logged.
func (n *Node) Hangup() {
	_ = n.askReload(&reload{source: sourceSignal, by: tokens.Self("sighup")}) // closed: the node drains
}

// Reload reads the configuration again and applies all of it, or keeps the current one and returns
// the reason.
func (n *Node) Reload(ctx context.Context, by engines.Actor, corrID string) (nodeapi.Reloaded, error) {
	r := &reload{source: sourceAdmin, by: by, corrID: corrID, reply: flow.NewReply[nodeapi.Reloaded]()}
	if err := n.askReload(r); err != nil {
		return nodeapi.Reloaded{}, err
	}
	return r.reply.Wait(ctx)
}

// askReload queues r. If the queue is full, r replaces the oldest request and answers it too, also
// with ErrClosed if the queue is closed.
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

// takeOver makes r answer old as well.
func (r *reload) takeOver(old *reload) {
	r.older = append(r.older, old.older...)
	r.forSignal = r.forSignal || old.forSignal || old.reply == nil
	if old.older = nil; old.reply != nil {
		r.older = append(r.older, old)
	}
}

// claim claims the requests with a caller that still waits. It reports whether a caller waits or a
// signal asked for the reload.
func (r *reload) claim() bool {
	r.older = slices.DeleteFunc(r.older, func(one *reload) bool { return !one.reply.Claim() })
	own := r.reply == nil || r.reply.Claim()
	return own || r.forSignal || len(r.older) > 0
}

// answer answers r and every request that it replaces.
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
	reasonSource   = "source"   // the node cannot read its configuration again
	reasonBind     = "bind"     // an address or the socket cannot be listened on
	reasonTLS      = "tls"      // a certificate or key cannot be used
	reasonPrepare  = "prepare"  // another part cannot apply it
)

// read loads the configuration and compares it with the current one. It returns an error if a
// changed key needs a restart.
func (n *Node) read() (next current, changed []config.Change, err error) {
	if n.opt.Load == nil {
		return next, nil, &nodehttp.ReloadError{
			Reason: reasonSource,
			Detail: "this node was started without a way to read it again",
		}
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
		return next, nil, &nodehttp.ReloadError{Reason: reasonRestart, Keys: fixed,
			Detail: "a restart is needed to change " + strings.Join(fixed, ", ")}
	}
	if len(changed) > 0 {
		next.version++
	}
	return next, changed, nil
}

// sourceGone returns an error if the configuration file no longer exists. A missing file must not
// reset every key to its default.
func sourceGone(entries []config.Entry) error {
	path := sourceFile(entries)
	if path == "" {
		return nil
	}
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return &nodehttp.ReloadError{
			Reason: reasonParse,
			Detail: path + " is gone: put it back, an empty one for the defaults",
		}
	}
	return nil
}

// loadError converts the faults of a configuration to a ReloadError: text that cannot be parsed, or
// invalid values.
func loadError(err error) error {
	out := &nodehttp.ReloadError{Reason: reasonValidate, Detail: strings.ReplaceAll(err.Error(), "\n", "; ")}
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

// applyTries is the number of attempts to apply a configuration: immediately, and after 1, 2, 4 and
// 8 s.
const applyTries = 5

// pending is a configuration that was read but could not be applied yet.
type pending struct {
	asked   *reload
	next    current
	changed []config.Change
	tries   int
}

// delay returns the wait before the next attempt, or an hour for nil.
func (p *pending) delay() time.Duration {
	if p == nil {
		return time.Hour
	}
	return time.Second << (p.tries - 1)
}

// runReloader handles queued requests together. If a part cannot apply its configuration it retries
// some seconds later, unless a newer request arrives.
func (n *Node) runReloader(ctx context.Context) error {
	retry := time.NewTimer(n.unapplied.delay())
	defer retry.Stop()
	for {
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
			n.reload(ctx, r)
			retry.Reset(n.unapplied.delay())
		case <-retry.C:
			n.applyAgain(ctx)
			retry.Reset(n.unapplied.delay())
		}
	}
}

// applyAgain tries a configuration again that a part could not apply, if there is one.
func (n *Node) applyAgain(ctx context.Context) {
	if n.unapplied == nil {
		return
	}
	if err := n.apply(ctx, n.unapplied); err == nil || n.unapplied.tries >= applyTries {
		n.unapplied = nil
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

// reload reads and applies once, and answers, unless nobody waits any more. It keeps the
// configuration if it is to be tried again.
func (n *Node) reload(ctx context.Context, r *reload) {
	if !r.claim() {
		return
	}
	n.unapplied = nil
	answered := false
	defer func() { // a panic restarts the task; the waiters get an error
		if !answered {
			r.answer(nodeapi.Reloaded{}, errors.New("the reload panicked"))
		}
	}()
	n.manager.Reloading()
	defer n.manager.Ready()
	next, changed, err := n.read()
	if err != nil {
		n.reloadFailed(r, err, "the old configuration stays in force: correct it, then reload")
	} else {
		p := &pending{asked: r, next: next, changed: changed}
		if err = n.apply(ctx, p); err != nil {
			n.unapplied = p
		}
	}
	answered = true
	r.answer(n.reloaded(next, changed), err)
}

// reloaded is the answer to a request.
func (n *Node) reloaded(next current, changed []config.Change) nodeapi.Reloaded {
	out := nodeapi.Reloaded{Version: next.version, Source: sourceFile(next.entries), Changed: []nodeapi.ConfigChange{}}
	for _, c := range changed {
		out.Changed = append(out.Changed, nodeapi.ConfigChange(c))
	}
	return out
}

// finish counts, logs and audits a configuration that became current.
func (n *Node) finish(ctx context.Context, p *pending) {
	n.metrics.Counter("registry_reload_success_total", "registry", "source", p.asked.source)(1)
	n.log.Info("config_reloaded", "source", p.asked.source, "config_version", p.next.version, "changed", len(p.changed),
		"corr_id", p.asked.corrID)
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

// changesPerRow is the number of changes in one audit row, beside the version. A reload without
// changes writes no row; it may have read a certificate again.
const changesPerRow = 63

func (n *Node) reloadFailed(r *reload, err error, next string) {
	reason, why := reasonParse, err.Error()
	if failed, ok := errors.AsType[*nodehttp.ReloadError](err); ok {
		reason, why = failed.Reason, failed.Detail
	}
	n.metrics.Counter("registry_reload_fail_total", "registry", "reason", reason)(1)
	n.log.Warn("config_reload_failed", "source", r.source, "cause", reason, "reason", why, "next", next, "corr_id",
		r.corrID)
}
