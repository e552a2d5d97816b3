package server

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"ronbox/appliance/flow"
	"ronbox/cmd/ronbox/server/tokens"
	"ronbox/httpapi"
	"ronbox/httpapi/front"
	"ronbox/store"
)

// Run runs the node once and returns the exit code. The end of ctx is the first stop signal: the
// node drains. Run blocks until every task has ended.
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

// step applies an event to the lifecycle and publishes the new phase.
func (n *Node) step(e event) action {
	was := n.state
	after, do := next(was, e)
	n.state = after
	if after.phase != was.phase {
		n.phase.Store(after.phase)
		n.log.Info("lifecycle", "from", was.phase.String(), "to", after.phase.String())
		n.manager.status(after.phase.String())
	}
	return do
}

// open locks the file, then binds the sockets. Nothing before the lock affects a node that runs on
// the same directory.
func (n *Node) open(ctx context.Context) event {
	n.log.Info("starting", "data_dir", n.boot.Node.DataDir, "pid", os.Getpid(), "version", n.build.Version)
	for _, w := range n.boot.Warnings {
		n.log.Warn("config", "reason", w)
	}
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
	err := n.server.Listen(ctx)
	if errors.Is(err, syscall.EADDRINUSE) {
		err = portTaken{err, occupantOf(ctx, n.boot)}
	}
	if err != nil {
		return listenError{err}
	}
	return nil
}

// openFile locks and opens the file.
func (n *Node) openFile(ctx context.Context) error {
	err := n.store.Open(ctx)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w in %s", errNoDatabase, n.boot.Node.DataDir)
	}
	return err
}

// bootProgress reports a long start to the service manager.
func (n *Node) bootProgress(stage string, done, total int64) {
	status := stage
	if total > 0 {
		status = fmt.Sprintf("%s: %d %%", stage, 100*done/total)
	}
	n.manager.extend(status)
}

// recover recovers the state of every part and starts the tasks.
func (n *Node) recover(ctx context.Context) event {
	if err := n.store.Prepare(ctx); err != nil {
		return n.bootFailed(ctx, err)
	}
	n.sup.Start(n.store.Tasks()...)
	if !n.boot.Amnesia.Enabled {
		n.sweep()
	}
	if err := n.recoverParts(ctx); err != nil {
		return n.bootFailed(ctx, err)
	}
	if err := n.ensureEngines(ctx); err != nil {
		return n.bootFailed(ctx, err)
	}
	n.startEngines()
	n.firstSample()
	n.sup.Start(n.countLives(n.tasks()...)...)
	return event{kind: evRecovered}
}

func (n *Node) recoverParts(ctx context.Context) error {
	secret, err := n.secret(ctx)
	if err != nil {
		return err
	}
	if err := n.Load(ctx, secret); err != nil {
		return err
	}
	return n.recoverEngines(ctx)
}

// secret reads the node secret. If the file does not exist, it appends an audit row and creates a
// secret. All older tokens then become invalid.
func (n *Node) secret(ctx context.Context) ([]byte, error) {
	if n.boot.Amnesia.Enabled {
		return tokens.DrawSecret()
	}
	path := n.boot.Path(SecretName)
	secret, err := tokens.ReadSecret(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return secret, err
	}
	if secret, err = tokens.DrawSecret(); err != nil {
		return nil, err
	}
	if err := n.AddSecret(ctx, secret, tokens.AuditEvent("auth.secret_made", self("serve"), "", nil)); err != nil {
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

// serve opens the gate.
func (n *Node) serve() {
	n.server.SetGate(httpapi.GateOpen)
	n.log.Info("serving", "url", n.server.URL(), "socket", n.server.SocketPath(), "boot_ms", n.uptime().Milliseconds())
	n.manager.serving("Serving " + n.server.URL())
	if n.onRunning != nil {
		n.onRunning(n.Status())
	}
}

// wait returns the next event of a serving node.
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

// taskDied is called by the supervisor, which has logged the error, when a task that must not end
// has ended.
func (n *Node) taskDied(service, task string, _ error) {
	n.died.ask(service + "." + task)
}

// fatal returns the event of a failed disk or of a bug.
func (n *Node) fatal() event {
	if err := n.store.Err(); err != nil && !errors.Is(err, store.ErrDied) {
		if errors.Is(err, store.ErrCorrupt) {
			return event{kind: evPoisoned, code: ExitCorrupt}
		}
		return event{kind: evPoisoned}
	}
	return event{kind: evFailed, code: ExitInternal}
}

// bootFailed logs why the node does not start. A stop signal during the boot is not a failure.
func (n *Node) bootFailed(ctx context.Context, err error) event {
	if ctx.Err() != nil && (errors.Is(err, context.Canceled) || errors.Is(err, store.ErrUnknown)) {
		return event{kind: evDrain}
	}
	v := classify(err)
	n.log.Error("start failed", "reason", strings.ReplaceAll(err.Error(), "\n", "; "), "next", v.next)
	if errors.Is(err, store.ErrPoisoned) {
		return n.fatal()
	}
	return event{kind: evFailed, code: v.code}
}

// uptime returns the time since Run began.
func (n *Node) uptime() time.Duration { return n.now().Sub(n.started) }

// Exit codes of Run.
const (
	ExitClean    = 0  // stopped, everything drained
	ExitAborted  = 10 // stopped, some task had to be aborted
	ExitCorrupt  = 65 // the data cannot be trusted
	ExitInternal = 70 // a bug: the committer died
	ExitStorage  = 74 // a sync failed; the next boot reads the disk
	ExitLocked   = 75 // another process has the file
	ExitDenied   = 77 // permissions
	ExitConfig   = 78 // configuration or schema
)

var (
	errNoDatabase = errors.New("no database")
	errListen     = errors.New("cannot listen") // matches every listenError
)

// listenError is an error of opening an address or the socket.
type listenError struct{ error }

func (e listenError) Unwrap() error { return e.error }

func (e listenError) Is(target error) bool { return target == errListen }

// outcome is the exit code of a failed start and the advice to the operator.
type outcome struct {
	code int
	next string
}

// classify returns the outcome of the first row that matches err.
func classify(err error) outcome {
	for _, s := range services() {
		if s.outcome != nil {
			if out, own := s.outcome(err); own {
				return out
			}
		}
	}
	if name, ok := errors.AsType[*net.DNSError](err); ok && !name.IsNotFound {
		return outcome{ExitInternal, "start again once names can be resolved, or use an address"}
	}
	if taken, ok := errors.AsType[portTaken](err); ok {
		return outcome{ExitLocked, taken.by.advice}
	}
	for _, row := range outcomes() {
		if errors.Is(err, row.is) {
			return row.outcome
		}
	}
	return outcome{ExitInternal, "start again; if it happens again, report a bug with these log lines"}
}

type outcomeRow struct {
	is error
	outcome
}

func outcomes() []outcomeRow {
	const (
		own     = "run as the user that owns the data directory, and let that user write there"
		room    = "make room on the disk or raise store.max_bytes, then start again"
		disk    = "check the disk, then start again: acknowledged writes are on it"
		address = "correct server.bind or uds.path"
	)
	return []outcomeRow{
		{store.ErrLocked, outcome{ExitLocked, "stop that process, or use another data directory"}},
		{
			syscall.EADDRINUSE,
			outcome{
				ExitLocked,
				"stop the process that listens there, or set server.bind (RONBOX_SERVER__BIND) to a free port",
			},
		},
		{store.ErrCorrupt, outcome{ExitCorrupt, "keep the file, and restore a snapshot with `ronbox db restore`"}},
		{
			tokens.ErrExposed,
			outcome{ExitDenied, "chmod 600 it; if someone has read it, move it away: a new one invalidates all tokens"},
		},
		{
			front.ErrCertificate,
			outcome{
				ExitConfig,
				"correct tls.cert_path and tls.key_path; only the node may be able to read the key",
			},
		},
		{
			front.ErrPlaintext,
			outcome{
				ExitConfig,
				"set tls.enabled with a certificate, or bind 127.0.0.1 behind a proxy, or set server.plaintext = true",
			},
		},
		{fs.ErrPermission, outcome{ExitDenied, own}},
		{syscall.EROFS, outcome{ExitDenied, own}},
		{store.ErrSchema, outcome{ExitConfig, "use the release that wrote the file, or a newer one"}},
		{
			store.ErrClustered,
			outcome{
				ExitConfig,
				"make it a node alone with the release that wrote the file: `ronbox cluster leave --last`",
			},
		},
		{store.ErrNetwork, outcome{ExitConfig, "move the data directory to a local disk"}},
		{errNoDatabase, outcome{ExitConfig, "make a node with `ronbox init`, or correct --data-dir"}},
		{errUnfinished, outcome{ExitConfig, "run the same `ronbox init` again: it starts over"}},
		{
			tokens.ErrSecret,
			outcome{ExitConfig, "restore node.key from its backup, or move it away: a new one invalidates all tokens"},
		},
		{
			errSwap,
			outcome{
				ExitConfig,
				"swapoff -a, or MemorySwapMax=0 or LimitMEMLOCK=infinity in the unit, or set amnesia.allow_swap",
			},
		},
		{
			errForgets,
			outcome{ExitConfig, "start it with `ronbox serve` without init; create tokens over its socket"},
		},
		{errListen, outcome{ExitConfig, address}},
		{syscall.ENOTDIR, outcome{ExitConfig, "correct --data-dir"}},
		{store.ErrDied, outcome{ExitInternal, disk}},
		{store.ErrPoisoned, outcome{ExitStorage, disk}},
		{store.ErrFull, outcome{ExitStorage, room}},
		{syscall.ENOSPC, outcome{ExitStorage, room}},
		{syscall.EDQUOT, outcome{ExitStorage, room}},
		{syscall.EIO, outcome{ExitStorage, disk}},
	}
}
