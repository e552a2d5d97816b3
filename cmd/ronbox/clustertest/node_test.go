package clustertest

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"ronbox/appliance/host/hosttest"
	"ronbox/httpapi/client"
)

// patience bounds the wait for an event that must happen, however slow the machine is.
const patience = 2 * time.Minute

// askWithin bounds one request of the load. It is shorter than a pause of the leader, so that a
// client asks another node meanwhile.
const askWithin = 2 * time.Second

// node is one node and its process. Only the goroutine of the test starts and ends the process.
type node struct {
	name string
	dir  string // its data directory
	http string // host:port of its clients
	env  []string
	path string   // of the binary
	with []string // a command that runs the process, with its arguments; nil: none
	proc *process
}

// process is one life of a node. A re-exec does not end it.
type process struct {
	cmd  *exec.Cmd
	log  *logTail
	done chan struct{}
}

// logTail keeps the end of a log.
type logTail struct {
	mu  sync.Mutex
	buf bytes.Buffer // guarded by mu
}

const logKept = 64 << 10

func (l *logTail) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.buf.Write(p)
	if over := l.buf.Len() - logKept; over > 0 {
		l.buf.Next(over)
	}
	return len(p), nil
}

func (l *logTail) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// newNode returns a node without a data directory and without a process. Its settings let it tolerate
// the slow disk of a busy machine without stalls, late answers, or a drain that has to abort.
func newNode(t testing.TB, name string, env ...string) *node {
	t.Helper()
	parent, err := os.MkdirTemp("", "rc")
	must(t, err)
	n := &node{name: name, dir: filepath.Join(parent, "d"), http: hosttest.FreeAddr(t), path: binary(t)}
	n.env = append(os.Environ(),
		"RONBOX_SERVER__BIND="+n.http,
		"RONBOX_LOG__LEVEL=info",
		"RONBOX_WALLET__LIMITS__RATE_PER_SECOND=1000000",
		"RONBOX_WALLET__LIMITS__BURST=1000000",
		"RONBOX_LEDGER__STALL_AFTER=2s",
		"RONBOX_REGISTRY__TIMEOUTS__PROPOSE=5s",
		"RONBOX_REGISTRY__TIMEOUTS__APPROVE=5s",
		"RONBOX_REGISTRY__TIMEOUTS__COMMIT=5s",
		"RONBOX_NODE__DRAIN_CAP=30s",
		"RONBOX_NODE__ABORT_GRACE=5s",
		"RONBOX_REGISTRY__DRAIN_DEADLINE=30s",
		"RONBOX_EDGE__DRAIN_DEADLINE=5s",
		"RONBOX_INDEX__DRAIN_DEADLINE=5s",
		"RONBOX_REWARDER__DRAIN_DEADLINE=5s",
	)
	n.env = append(n.env, "_RONBOX_CLOCK="+n.clockFile())
	n.env = append(n.env, env...)
	t.Cleanup(func() {
		n.kill()
		if t.Failed() && n.proc != nil {
			t.Logf("the end of the log of %s:\n%s", n.name, n.proc.log)
		}
		_ = os.RemoveAll(parent)
	})
	return n
}

// clockFile returns the path of the file that turns the wall clock of the node.
func (n *node) clockFile() string { return filepath.Join(filepath.Dir(n.dir), "clock") }

// turn turns the wall clock of the node by an offset.
func (n *node) turn(t testing.TB, by time.Duration) {
	t.Helper()
	must(t, os.WriteFile(n.clockFile()+".new", []byte(by.String()), 0o600))
	must(t, os.Rename(n.clockFile()+".new", n.clockFile()))
}

// ronbox runs a command of the node and returns its output.
func (n *node) ronbox(ctx context.Context, args ...string) (string, error) {
	return n.command(ctx, append([]string{"--data-dir", n.dir}, args...)...)
}

// remote runs a command that reaches the node by its URL.
func (n *node) remote(ctx context.Context, tokenFile string, args ...string) (string, error) {
	return n.command(ctx, append([]string{"--url", "http://" + n.http, "--token-file", tokenFile}, args...)...)
}

func (n *node) command(ctx context.Context, args ...string) (string, error) {
	ctx, stop := context.WithTimeout(ctx, patience)
	defer stop()
	var out, errs strings.Builder
	cmd := exec.CommandContext(ctx, n.path, args...)
	cmd.Env, cmd.Stdout, cmd.Stderr = n.env, &out, &errs
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("ronbox %s: %w\n%s%s", strings.Join(args, " "), err, out.String(),
			errs.String())
	}
	return out.String(), nil
}

// must runs a command of the node that has to succeed, and decodes its --json document into doc,
// unless doc is nil.
func (n *node) must(t testing.TB, doc any, args ...string) {
	t.Helper()
	out, err := n.ronbox(t.Context(), args...)
	must(t, err)
	if doc != nil {
		decode(t, out, doc)
	}
}

func decode(t testing.TB, text string, into any) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), into); err != nil {
		t.Fatalf("not the JSON that it should be: %v\n%s", err, text)
	}
}

// launch starts `serve`.
func (n *node) launch(t testing.TB) {
	t.Helper()
	p := &process{log: &logTail{}, done: make(chan struct{})}
	args := slices.Concat(n.with, []string{n.path, "--data-dir", n.dir, "serve"})
	p.cmd = exec.Command(args[0], args[1:]...)
	p.cmd.Env, p.cmd.Stdout, p.cmd.Stderr = n.env, p.log, p.log
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	must(t, p.cmd.Start())
	go func() {
		_ = p.cmd.Wait() // the exit code is read from ProcessState
		close(p.done)
	}()
	n.proc = p
}

// signal sends sig to the process of the node.
func (n *node) signal(sig syscall.Signal) { _ = n.proc.cmd.Process.Signal(sig) }

// kill kills the process of the node, if there is one, and waits for its end.
func (n *node) kill() {
	if n.proc != nil {
		n.signal(syscall.SIGKILL)
		<-n.proc.done
	}
}

// stop ends the process in order and returns its exit code.
func (n *node) stop(t testing.TB) int {
	t.Helper()
	n.signal(syscall.SIGTERM)
	return n.ended(t)
}

// ended waits until the process has ended and returns its exit code.
func (n *node) ended(t testing.TB) int {
	t.Helper()
	select {
	case <-n.proc.done:
		return n.proc.cmd.ProcessState.ExitCode()
	case <-time.After(patience):
		t.Fatalf("%s has not ended after %s", n.name, patience)
		return 0
	}
}

// running reports whether the node has a process.
func (n *node) running() bool {
	if n.proc == nil {
		return false
	}
	select {
	case <-n.proc.done:
		return false
	default:
		return true
	}
}

// client returns a client of the node's URL.
func (n *node) client(t testing.TB, token string, within time.Duration) *client.Client {
	t.Helper()
	c, err := client.New(client.Options{URL: "http://" + n.http, Token: token, Timeout: within})
	must(t, err)
	t.Cleanup(c.Close)
	return c
}

// socket returns a client of the node's admin socket.
func (n *node) socket(t testing.TB) *client.Client { return n.socketFor(t, askWithin) }

// socketFor returns a client of the node's admin socket for requests that may take long.
func (n *node) socketFor(t testing.TB, within time.Duration) *client.Client {
	t.Helper()
	c, err := client.New(client.Options{Socket: filepath.Join(n.dir, "admin.sock"), Timeout: within})
	must(t, err)
	t.Cleanup(c.Close)
	return c
}

// until waits for a condition that no event announces. It fails the test if a node ends meanwhile.
func until(t testing.TB, what string, nodes []*node, so func() bool) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	limit := time.After(patience)
	for !so() {
		for _, n := range nodes {
			if n.proc != nil && !n.running() {
				t.Fatalf("%s: %s ended with %d", what, n.name, n.ended(t))
			}
		}
		select {
		case <-tick.C:
		case <-limit:
			t.Fatalf("%s: not after %s", what, patience)
		}
	}
}
