package appliance

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"ronbox/appliance/flow"
	"ronbox/appliance/host"
	"ronbox/httpapi"
	"ronbox/store"
)

// Run lives the node's one life and returns the exit code. The end of ctx is the first stop signal: the node drains.
// Run blocks until nothing is left running.
func (n *Node) Run(ctx context.Context) (exit int) {
	base := context.WithoutCancel(ctx)
	n.started = n.now()
	n.sup = flow.NewSupervisor(base, n.catalog, flow.Hooks{Escalated: n.escalated, Died: n.taskDied})
	defer n.sup.Close()
	n.sup.Start(n.logWriter())
	defer context.AfterFunc(ctx, func() { n.drain.ask("signal") })()
	for e := n.open(ctx); ; {
		switch n.step(e) {
		case actRecover:
			e = n.recover(ctx)
		case actServe:
			n.serve()
			e = n.wait()
		case actNone:
			e = n.wait()
		case actDrain:
			e = n.drainServices(base)
		case actAbort:
			e = n.abortServices(base)
		case actStop:
			e = n.stop(base)
		case actDie:
			n.die(base)
			return n.state.exit
		case actEnd:
			return n.state.exit
		}
	}
}

// step moves the lifecycle and tells everyone.
func (n *Node) step(e event) action {
	was := n.state
	after, do := next(was, e)
	n.state = after
	if after.phase != was.phase {
		n.cell.Store(after.phase)
		n.log.Info("lifecycle", "from", was.phase.String(), "to", after.phase.String())
		n.manager.status(after.phase.String())
	}
	return do
}

// open takes the file, then the sockets. Nothing it does before it has the file can hurt a node that runs there.
func (n *Node) open(ctx context.Context) event {
	n.log.Info("starting", "data_dir", n.boot.Node.DataDir, "pid", os.Getpid(), "version", n.build.Version)
	n.limits()
	if err := n.openParts(ctx); err != nil {
		return n.bootFailed(ctx, err)
	}
	n.sup.Start(n.server.Tasks()...)
	n.board.Set(ownService, "config_loaded", nil)
	n.board.Set(ownService, "listener_bound", nil)
	if n.boot.Amnesia.Enabled {
		n.board.Set(ownService, keyAmnesia, nil)
	}
	return event{kind: evOpened}
}

// limits takes what the machine gives, and says what it gives too little of.
func (n *Node) limits() {
	l, err := host.ReadLimits()
	if err != nil {
		n.log.Warn("limits are not known", "reason", err.Error())
	}
	files, memory, err := host.Raise(l)
	if err != nil {
		n.log.Warn("limits were not raised", "reason", err.Error())
	}
	n.log.Debug("limits", "files", files, "memory_limit", memory, "cores", l.Cores)
	for _, f := range host.Glance(needs(n.boot)) {
		if f.Level != host.OK {
			n.log.Warn("host", "check", f.Check, "seen", f.Seen, "next", f.Advice)
		}
	}
}

func (n *Node) openParts(ctx context.Context) error {
	if err := n.forgetful(); err != nil {
		return err
	}
	if err := finished(n.boot); err != nil {
		return err
	}
	if err := n.openFile(ctx); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(n.boot.SocketPath()), 0o700); err != nil {
		return listenError{fmt.Errorf("admin socket: %w", err)}
	}
	if err := n.server.Listen(ctx); err != nil {
		return listenError{err}
	}
	return nil
}

// openFile takes the file.
func (n *Node) openFile(ctx context.Context) error {
	err := n.store.Open(ctx)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w in %s", errNoDatabase, n.boot.Node.DataDir)
	}
	return err
}

// bootProgress tells the service manager that a long start goes on.
func (n *Node) bootProgress(stage string, done, total int64) {
	status := stage
	if total > 0 {
		status = fmt.Sprintf("%s: %d %%", stage, 100*done/total)
	}
	n.manager.extend(status)
}

// recover brings every part's state back and starts the tasks.
func (n *Node) recover(ctx context.Context) event {
	if err := n.store.Prepare(ctx); err != nil {
		return n.bootFailed(ctx, err)
	}
	n.sup.Start(n.store.Tasks()...)
	if !n.boot.Amnesia.Enabled {
		n.removeCopies()
	}
	if err := n.recoverParts(ctx); err != nil {
		return n.bootFailed(ctx, err)
	}
	if err := n.declareAssets(ctx); err != nil {
		return n.bootFailed(ctx, err)
	}
	n.startEngines()
	n.settle()
	n.sup.Start(n.counted(n.tasks()...)...)
	return event{kind: evRecovered}
}

func (n *Node) recoverParts(ctx context.Context) error {
	secret, err := n.secret(ctx)
	if err != nil {
		return err
	}
	if err := n.keys.load(ctx, n.store, secret, n.now()); err != nil {
		return err
	}
	return n.recoverEngines(ctx)
}

// secret reads the node secret. A node without one makes it, on the audit chain first: every older token is void by it.
func (n *Node) secret(ctx context.Context) ([]byte, error) {
	if n.boot.Amnesia.Enabled {
		return ramSecret()
	}
	path := n.boot.Path(SecretName)
	secret, err := readSecret(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return secret, err
	}
	note := auditNote{auditEvent("auth.secret_made", self("serve"), "", nil)}
	if _, err := store.Commit(ctx, n.store, store.Control, note); err != nil {
		return nil, fmt.Errorf("audit node secret: %w", err)
	}
	n.log.Warn("node secret was missing, made a new one", "file", path, "effect", "older tokens are void",
		"next", "mint new ones with `ronbox token mint`, or stop the node and put the old file back")
	return makeSecret(path)
}

// counted has the tasks count the lives that they are in the middle of, however long ago they were told to end. Of the
// node's own only those that are told count: the others go on to the end.
func (n *Node) counted(ts ...flow.Task) []flow.Task {
	out := slices.Clone(ts)
	for i := range out {
		if out[i].Service == ownService && !out[i].Background {
			continue
		}
		run := out[i].Run
		out[i].Run = func(ctx context.Context) error {
			n.inside.Add(1)
			defer n.inside.Add(-1)
			return run(ctx)
		}
	}
	return out
}

// serve opens the gate.
func (n *Node) serve() {
	n.server.SetGate(httpapi.GateOpen)
	n.log.Info("serving", "url", n.server.URL(), "socket", n.server.SocketPath(), "boot_ms", n.uptime().Milliseconds())
	n.manager.serving("Serving " + n.server.URL())
	if n.onRunning != nil {
		n.onRunning(n.Status())
	}
}

// wait gives the next thing that happens to a node that serves.
func (n *Node) wait() event {
	for {
		healthy, changed := n.healthy.Load()
		if healthy == (n.state.phase == flow.Degraded) {
			return event{kind: map[bool]eventKind{true: evHealed, false: evDegraded}[healthy]}
		}
		select {
		case <-n.store.Failed():
			return n.fatal()
		case <-n.died.asked:
			return n.fatal()
		case <-n.abort.asked:
			return event{kind: evAbort}
		case <-n.drain.asked:
			return event{kind: evDrain}
		case <-changed:
		}
	}
}

// taskDied is told by the supervisor, which has logged it, of a task that must not end.
func (n *Node) taskDied(service, task string, _ error) {
	n.died.ask(service + "." + task)
}

// fatal tells a failed disk from a bug.
func (n *Node) fatal() event {
	if err := n.store.Err(); err != nil && !errors.Is(err, store.ErrDied) {
		return event{kind: evPoisoned}
	}
	return event{kind: evFailed, code: ExitInternal}
}

// bootFailed logs why the node does not start; a stop signal while it boots is no failure.
func (n *Node) bootFailed(ctx context.Context, err error) event {
	if ctx.Err() != nil && (errors.Is(err, context.Canceled) || errors.Is(err, store.ErrUnknown)) {
		return event{kind: evDrain}
	}
	v := judge(err)
	n.log.Error("start failed", "reason", strings.ReplaceAll(err.Error(), "\n", "; "), "next", v.next)
	if errors.Is(err, store.ErrPoisoned) {
		return n.fatal()
	}
	return event{kind: evFailed, code: v.code}
}

// uptime is since Run began.
func (n *Node) uptime() time.Duration { return n.now().Sub(n.started) }
