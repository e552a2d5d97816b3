package appliance

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"slices"
	"strings"

	"ronbox/appliance/config"
	"ronbox/appliance/flow"
	"ronbox/engines"
	"ronbox/httpapi"
	"ronbox/httpapi/wire"
)

// Where a reload is asked from: values of the label source.
const (
	sourceSignal = "sighup"
	sourceAdmin  = "admin"
)

// reload is one request for the configuration to be read again. Whoever waits has a reply.
type reload struct {
	source string
	by     engines.Actor
	corrID string
	reply  *flow.Reply[wire.Reloaded] // nil for a signal
	older  []*reload                  // those that it stands for, each with a reply
	owed   bool                       // it stands for a signal, which nobody takes back
}

// Hangup asks for a reload, as SIGHUP does. It returns at once; the log tells what came of it.
func (n *Node) Hangup() {
	_ = n.askReload(&reload{source: sourceSignal, by: self("sighup")}) // closed: the node drains
}

// Reload reads the configuration again and puts it in force whole, or leaves the old one in force and says why.
func (n *Node) Reload(ctx context.Context, by engines.Actor, corrID string) (wire.Reloaded, error) {
	r := &reload{source: sourceAdmin, by: by, corrID: corrID, reply: flow.NewReply[wire.Reloaded]()}
	if err := n.askReload(r); err != nil {
		return wire.Reloaded{}, err
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
			r.answer(wire.Reloaded{}, err)
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
	r.owed = r.owed || old.owed || old.reply == nil
	if old.older = nil; old.reply != nil {
		r.older = append(r.older, old)
	}
}

// claim begins the work, for those who still wait for it. It says whether there is anyone, or a signal.
func (r *reload) claim() bool {
	r.older = slices.DeleteFunc(r.older, func(one *reload) bool { return !one.reply.Claim() })
	own := r.reply == nil || r.reply.Claim()
	return own || r.owed || len(r.older) > 0
}

// answer tells everyone that r stands for.
func (r *reload) answer(done wire.Reloaded, err error) {
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

// read loads the configuration and compares it with the one in force. Keys that only a restart changes refuse it.
func (n *Node) read() (next inForce, changed []config.Change, err error) {
	if n.opt.Load == nil {
		return next, nil, &httpapi.ReloadError{Reason: reasonSource, Detail: "this node was started without a way to read it again"}
	}
	now, _ := n.config.Load()
	if err := sourceGone(now.entries); err != nil {
		return next, nil, err
	}
	next = inForce{version: now.version}
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
		return next, nil, &httpapi.ReloadError{Reason: reasonRestart, Keys: fixed,
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
		return &httpapi.ReloadError{Reason: reasonParse, Detail: path + " is gone: put it back, an empty one for the defaults"}
	}
	return nil
}

// loadError sorts the faults of a configuration: text that cannot be read, or values that are not allowed.
func loadError(err error) error {
	out := &httpapi.ReloadError{Reason: reasonValidate, Detail: strings.ReplaceAll(err.Error(), "\n", "; ")}
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
