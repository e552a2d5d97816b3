package server

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
	"ronbox/appliance/systemd"
	"ronbox/cmd/ronbox/server/checkup"
	"ronbox/cmd/ronbox/server/config"
	"ronbox/cmd/ronbox/server/initdir"
	"ronbox/cmd/ronbox/server/process"
	"ronbox/cmd/ronbox/server/tokens"
	"ronbox/cmd/ronbox/server/upkeep"
	"ronbox/cmd/ronbox/server/wiring"
	"ronbox/httpapi"
	"ronbox/store"
)

// Run runs the node once and returns the exit code. The end of ctx is the first stop signal: the
// node drains. Run blocks until every task has ended.
func (n *Node) Run(ctx context.Context) (exit int) {
	base := context.WithoutCancel(ctx)
	n.begun = time.Now()
	n.sup = flow.NewSupervisor(base, n.catalog, flow.Hooks{Escalated: n.escalated, Died: n.taskDied})
	defer n.sup.Close()
	n.sup.Start(n.logWriter())
	defer context.AfterFunc(ctx, func() { n.drain.ask("signal") })()
	for e := n.open(ctx); ; {
		switch n.step(e) {
		case process.ActStandby:
			e = n.standby(ctx)
		case process.ActRecover:
			e = n.recover(ctx)
		case process.ActServe:
			n.serve()
			e = n.wait()
		case process.ActNone:
			e = n.wait()
		case process.ActDrain:
			e = n.drainServices(base)
		case process.ActAbort:
			e = n.abortServices(base)
		case process.ActStop:
			e = n.stop(base)
		case process.ActDie:
			n.die(base)
			return n.state.Exit
		case process.ActRenew:
			e = n.renew(base)
		case process.ActEnd:
			return n.end(ctx)
		}
	}
}

// step applies an event to the lifecycle and publishes the new phase.
func (n *Node) step(e process.Event) process.Action {
	was := n.state
	after, do := process.Next(was, e)
	n.state = after
	if do == process.ActServe {
		n.server.SetGate(httpapi.GateOpen) // first: who sees the phase finds the gate open
	}
	if after.Phase != was.Phase {
		n.phase.Store(after.Phase)
		n.log.Info("lifecycle", "from", was.Phase.String(), "to", after.Phase.String())
		if do != process.ActServe { // serve reports it with READY=1
			n.manager.Status(n.statusLine())
		}
	}
	return do
}

// statusLine describes the phase for the service manager.
func (n *Node) statusLine() string {
	switch p := n.state.Phase; p {
	case flow.Running:
		return "ready, serving " + n.server.URL()
	case flow.Degraded:
		return "degraded, serving " + n.server.URL() + "; `ronbox status` shows the cause"
	default:
		return p.String()
	}
}

// open locks the file, then binds the sockets. Nothing before the lock affects a node that runs on
// the same directory.
func (n *Node) open(ctx context.Context) process.Event {
	n.log.Info("starting", "data_dir", n.boot.Node.DataDir, "pid", os.Getpid(), "version", n.build.Version)
	for _, w := range n.boot.Warnings {
		n.log.Warn("config", "reason", w)
	}
	checkup.Limits(n.boot, n.log)
	if err := n.openParts(ctx); err != nil {
		return n.bootFailed(ctx, err)
	}
	if !n.renewed() {
		n.accept()
	}
	n.board.Set(ownService, "config_loaded", nil)
	n.board.Set(ownService, "listener_bound", nil)
	if n.boot.Amnesia.Enabled {
		n.board.Set(ownService, keyAmnesia, nil)
	}
	if n.member != nil {
		return process.Event{Kind: process.EvEnrolled}
	}
	return process.Event{Kind: process.EvOpened}
}

func (n *Node) openParts(ctx context.Context) error {
	if err := checkup.Forgetful(n.boot); err != nil {
		return err
	}
	if err := errors.Join(initdir.Finished(n.boot), n.unfit); err != nil {
		return err
	}
	if n.member != nil {
		if err := n.member.Fetch(ctx); err != nil {
			return err
		}
	}
	if err := n.openFile(ctx); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(n.boot.SocketPath()), 0o700); err != nil {
		return process.CannotListen(fmt.Errorf("admin socket: %w", err))
	}
	if err := n.server.Listen(ctx); err != nil {
		return process.CannotListen(process.NamingOccupant(ctx, err, n.boot))
	}
	if n.member != nil {
		return n.member.Listen(ctx)
	}
	if l, ok := n.opt.inherited[systemd.PeerName].(*systemd.Kept); ok {
		return l.Close() // of an earlier life as a member
	}
	return nil
}

// openPatience is the time that an open has to return after the node was told to stop.
const openPatience = time.Second

// openFile locks and opens the file. An open may wait for a lock, or for a disk that hangs,
// whatever happens to ctx. Since nothing is written then, a stop does not wait for it.
func (n *Node) openFile(ctx context.Context) error {
	opening, opened := context.WithCancel(context.WithoutCancel(ctx))
	defer opened()
	defer context.AfterFunc(ctx, func() {
		late, stop := context.WithTimeout(opening, openPatience)
		defer stop()
		<-late.Done()
		if opening.Err() == nil && n.opt.Quit != nil {
			n.log.Warn("stopped", "reason", "the database did not open", "file", n.store.Path())
			n.flush(opening)
			n.opt.Quit()
		}
	})()
	err := n.store.Open(ctx)
	if errors.Is(err, fs.ErrNotExist) {
		if n.member != nil {
			return fmt.Errorf("%w in %s", process.ErrNoCopy, n.boot.Node.DataDir)
		}
		return fmt.Errorf("%w in %s", process.ErrNoDatabase, n.boot.Node.DataDir)
	}
	n.started = n.now() // the clock goes on from the file
	return err
}

// renewed reports whether an earlier life has left its sockets to this one.
func (n *Node) renewed() bool {
	for _, l := range n.opt.inherited {
		if _, ok := l.(*systemd.Kept); ok {
			return true
		}
	}
	return false
}

// hushed is the time after which a node that begins its next life accepts, to say that it starts.
const hushed = 3 * time.Second

// accept starts the accept loops. A node that starts anew accepts at once, and refuses what it
// cannot answer yet. One that begins its next life leaves its clients waiting until it can, or for
// hushed.
func (n *Node) accept() { n.accepting.Do(func() { n.sup.Start(n.server.Tasks()...) }) }

// bootProgress reports a long start to the service manager.
func (n *Node) bootProgress(stage string, done, total int64) {
	if n.renewed() && n.Addr() != "" && n.uptime() > hushed {
		n.accept()
	}
	status := stage
	if total > 0 {
		status = fmt.Sprintf("%s: %d %%", stage, 100*done/total)
	}
	n.manager.Extend(status)
}

// prepare makes the file ready and starts the committer.
func (n *Node) prepare(ctx context.Context) error {
	if err := n.store.Prepare(ctx); err != nil {
		return err
	}
	n.archive.Bind(n.store)
	n.sup.Start(n.store.Tasks()...)
	if !n.boot.Amnesia.Enabled {
		upkeep.Sweep(n.boot, n.store, n.log)
	}
	return nil
}

// recover recovers the state of every part and starts the tasks. Whatever a start commits, it
// commits here: a member gets here once it is elected.
func (n *Node) recover(ctx context.Context) process.Event {
	if n.member == nil {
		if err := n.prepare(ctx); err != nil {
			return n.bootFailed(ctx, err)
		}
	} else {
		n.member.Compare(ctx)
		n.clock.Begin(time.Unix(0, n.store.Info().At)) // this life has stamped nothing yet
	}
	n.board.Silence(false)
	if err := n.recoverParts(ctx); err != nil {
		return n.bootFailed(ctx, err)
	}
	if now, _ := n.config.Load(); now.version > 1 {
		n.reloadEngines(now.cfg) // it changed while the node stood by
	}
	if err := n.services.Ensure(ctx); err != nil {
		return n.bootFailed(ctx, err)
	}
	n.startEngines()
	n.firstSample()
	if n.member == nil {
		n.sup.Start(n.countLives(n.watchers()...)...)
	}
	n.sup.Start(n.countLives(n.keepers()...)...)
	return process.Event{Kind: process.EvRecovered}
}

func (n *Node) recoverParts(ctx context.Context) error {
	secret, err := n.secret(ctx)
	if err != nil {
		return err
	}
	if err := n.Load(ctx, secret); err != nil {
		return err
	}
	return n.services.Recover(ctx)
}

// secret reads the node secret. If the file does not exist, it appends an audit row and creates a
// secret. All older tokens then become invalid.
func (n *Node) secret(ctx context.Context) ([]byte, error) {
	if n.boot.Amnesia.Enabled {
		return tokens.DrawSecret()
	}
	path := n.boot.Path(config.SecretName)
	secret, err := tokens.ReadSecret(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return secret, err
	}
	if n.member != nil { // the other members have it, and would refuse to lead with another one
		return nil, fmt.Errorf("%w: %w: copy it from another member", tokens.ErrSecret, err)
	}
	if secret, err = tokens.DrawSecret(); err != nil {
		return nil, err
	}
	made := tokens.AuditEvent("auth.secret_made", tokens.Self("serve"), "", nil)
	if err := n.AddSecret(ctx, secret, made); err != nil {
		return nil, err
	}
	n.log.Warn("node secret was missing, made a new one", "file", path, "effect", "older tokens are invalid",
		"next", "mint new ones with `ronbox token mint`, or stop the node and put the old file back")
	return secret, tokens.WriteSecret(path, secret)
}

// countLives wraps tasks to count those that have not returned, even after they were cancelled. Of
// the node's own tasks only background tasks count: the others run until the end.
func (n *Node) countLives(ts ...flow.Task) []flow.Task {
	out := slices.Clone(ts)
	for i := range out {
		if out[i].Service == ownService && !out[i].Background {
			continue
		}
		run := out[i].Run
		out[i].Run = func(ctx context.Context) error {
			n.liveTasks.Add(1)
			defer n.liveTasks.Add(-1)
			return run(ctx)
		}
	}
	return out
}

// serve accepts connections.
func (n *Node) serve() {
	n.accept()
	n.log.Info("serving", "url", n.server.URL(), "socket", n.server.SocketPath(), "boot_ms", n.uptime().Milliseconds())
	n.manager.Serving(n.statusLine())
	if n.onRunning != nil {
		n.onRunning(n.Status())
	}
}

// wait returns the next event of a serving node.
func (n *Node) wait() process.Event {
	for {
		healthy, changed := n.healthy.Load()
		if healthy == (n.state.Phase == flow.Degraded) {
			if healthy {
				return process.Event{Kind: process.EvHealed}
			}
			return process.Event{Kind: process.EvDegraded}
		}
		select {
		case <-n.deposed():
			return n.deposition()
		case <-n.store.Failed():
			return n.fatal()
		case <-n.died.asked:
			return n.fatal()
		case <-n.abort.asked:
			return process.Event{Kind: process.EvAbort}
		case <-n.drain.asked:
			return process.Event{Kind: process.EvDrain}
		case <-changed:
		}
	}
}

// taskDied is called by the supervisor, which has logged the error, when a task that must not end
// has ended.
func (n *Node) taskDied(service, task string, _ error) { n.died.ask(service + "." + task) }

// fatal returns the event of a failed disk or of a bug.
func (n *Node) fatal() process.Event {
	if err := n.store.Err(); err != nil && !errors.Is(err, store.ErrDied) {
		if errors.Is(err, store.ErrCorrupt) {
			return process.Event{Kind: process.EvPoisoned, Code: process.ExitCorrupt}
		}
		return process.Event{Kind: process.EvPoisoned}
	}
	return process.Event{Kind: process.EvFailed, Code: process.ExitInternal}
}

// bootFailed logs why the node does not start. A stop signal during the boot is not a failure, nor
// is a deposition.
func (n *Node) bootFailed(ctx context.Context, err error) process.Event {
	if n.isDeposed() {
		return n.deposition()
	}
	if ctx.Err() != nil && (errors.Is(err, context.Canceled) || errors.Is(err, store.ErrUnknown)) {
		return process.Event{Kind: process.EvDrain}
	}
	v := n.classify(err)
	n.log.Error("start failed", "reason", strings.ReplaceAll(err.Error(), "\n", "; "), "next", v.Next)
	if errors.Is(err, store.ErrPoisoned) {
		return n.fatal()
	}
	return process.Event{Kind: process.EvFailed, Code: v.Code}
}

// classify returns the outcome of err on this node. A member gets its data from the others.
func (n *Node) classify(err error) process.Outcome {
	v := wiring.OutcomeOf(err)
	if n.member != nil && v.Code == process.ExitCorrupt {
		v.Next = "run `ronbox cluster rejoin --wipe`, then start it again; if no other member has the data, " +
			"keep the directory and see `ronbox cluster recover --help`"
	}
	return v
}

// uptime returns the time since Run began.
func (n *Node) uptime() time.Duration { return time.Since(n.begun) }
