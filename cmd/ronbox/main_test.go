package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"go.uber.org/goleak"

	"ronbox/appliance/host/hosttest"
	"ronbox/cmd/ronbox/cli"
	"ronbox/cmd/ronbox/server/initdir"
	"ronbox/httpapi/client"
	edgeapi "ronbox/httpapi/wire/edge"
	nodeapi "ronbox/httpapi/wire/node"
	registryapi "ronbox/httpapi/wire/registry"
	rewarderapi "ronbox/httpapi/wire/rewarder"
	walletapi "ronbox/httpapi/wire/wallet"
)

// binary is the program under test, built once.
var binary string

// disk is a folder for temporary files that must be on a disk, not in memory.
var disk string

var (
	kills = flag.Int("kills", 5,
		"how often TestKill9 kills the node; make check has it 50 times, make kill as often as one likes")
	tours = flag.Bool("tour", false, "run the tours too")
)

// killCycles returns the number of kills, or of other faults, in a test: few if TestKill9 has a few
// kills (make test), usual if it has 50 (make check), and a share of its kills if it has a thousand
// or more.
func killCycles(few, usual, share int) int {
	switch {
	case *kills >= 1000:
		return *kills / share
	case *kills >= 50:
		return usual
	}
	return few
}

func TestMain(m *testing.M) {
	flag.Parse()
	_ = flag.Set("test.parallel", "4") // parallel tests mostly wait
	os.Exit(buildAndRun(m))
}

func buildAndRun(m *testing.M) int {
	if file := os.Getenv(armedFile); file != "" {
		return serveArmed(file)
	}
	if flag.Lookup("test.fuzz").Value.String() != "" { // fuzz workers do not run the binary
		return m.Run()
	}
	disk = hosttest.InMemory()
	dir, err := os.MkdirTemp(disk, "rb")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	binary = filepath.Join(dir, "ronbox")
	build := exec.Command("go", "build", "-buildvcs=false", "-ldflags", "-s -w", "-o", binary, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0") // as `make build` does, without its version
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build: %v\n%s", err, out)
		return 1
	}
	code := m.Run()
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

// result is the outcome of one command line.
type result struct {
	code           int
	stdout, stderr string
}

// ronbox runs a command line inside the test process.
func ronbox(t testing.TB, args ...string) result { return ronboxIn(t, t.Context(), "", args...) }

func ronboxIn(t testing.TB, ctx context.Context, stdin string, args ...string) result {
	t.Helper()
	return ronboxWith(t, ctx, os.Environ(), stdin, args...)
}

func ronboxWith(t testing.TB, ctx context.Context, env []string, stdin string, args ...string) result {
	t.Helper()
	var out, errs bytes.Buffer
	a := cli.New(strings.NewReader(stdin), &out, &errs, build())
	a.Env = env
	code := a.Run(ctx, root(a), args)
	return result{code, out.String(), errs.String()}
}

// spawn runs a command line in a separate process. The binary is always built without the race
// detector, which makes checking a whole log ten times slower.
func spawn(t testing.TB, args ...string) (r result) {
	t.Helper()
	var out, errs bytes.Buffer
	cmd := exec.CommandContext(t.Context(), binary, args...)
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return result{cmd.ProcessState.ExitCode(), out.String(), errs.String()}
}

// must runs a command line that has to succeed and decodes its --json document into doc, unless doc
// is nil.
func must(t testing.TB, doc any, args ...string) result {
	t.Helper()
	r := ronbox(t, args...)
	if r.code != cli.ExitDone {
		t.Fatalf("ronbox %v: exit %d\n%s%s", args, r.code, r.stdout, r.stderr)
	}
	if doc != nil {
		decode(t, r.stdout, doc)
	}
	return r
}

func decode(t testing.TB, text string, into any) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), into); err != nil {
		t.Fatalf("not the JSON it should be: %v\n%s", err, text)
	}
}

// The --json output of the verbs, as far as tests read it.
type (
	appliedStates struct {
		Version     uint64 `json:"version"`
		PayloadB3   string `json:"payload_b3"`
		CommittedAt string `json:"committed_at"`
		Hash        string `json:"hash"`
		Results     []struct {
			File    string `json:"file"`
			Version uint64 `json:"version"`
			Put     int    `json:"put"`
			Changed bool   `json:"changed"`
		} `json:"results"`
	}
	batchResult struct {
		Rows     int   `json:"rows"`
		Accepted int   `json:"accepted"`
		Refused  []any `json:"refused"`
		Resumed  bool  `json:"resumed"`
	}
	configChanges struct {
		Changes []nodeapi.ConfigChange `json:"changes"`
	}
)

// box is the data directory of a dev node. Its path is short enough for a socket.
type box struct {
	dir     string
	key     string
	genesis string
	env     []string
}

// skipRaceOnly skips a test under -short, which is used with the race detector: the detector does
// not cover the node, which is another process.
func skipRaceOnly(t testing.TB) {
	t.Helper()
	if hosttest.UnderRace() {
		t.Skip("what counts is another process, or one goroutine: `make test` runs this")
	}
}

// patience bounds the wait for an event that must happen. A busy machine is slow; on a broken one
// the event never happens.
const patience = 2 * time.Minute

// patient settings let a node tolerate the slow disk of a busy machine without stalls, late answers,
// a drain that hangs or cancelled tasks that are slow to return.
var patient = []string{
	"RONBOX_LEDGER__STALL_AFTER=2s",
	"RONBOX_WALLET__REQ_TIMEOUT=30s",
	"RONBOX_SERVER__READ_TIMEOUT=1m",
	"RONBOX_SERVER__WRITE_TIMEOUT=1m",
	"RONBOX_REGISTRY__TIMEOUTS__PROPOSE=5s",
	"RONBOX_REGISTRY__TIMEOUTS__APPROVE=5s",
	"RONBOX_REGISTRY__TIMEOUTS__COMMIT=5s",
	"RONBOX_NODE__DRAIN_CAP=30s",
	"RONBOX_NODE__ABORT_GRACE=5s",
	"RONBOX_REGISTRY__DRAIN_DEADLINE=30s",
	"RONBOX_EDGE__DRAIN_DEADLINE=5s",
	"RONBOX_INDEX__DRAIN_DEADLINE=5s",
	"RONBOX_REWARDER__DRAIN_DEADLINE=5s",
	"RONBOX_REWARDER__READ_TIMEOUT=1m",
}

func newBox(t testing.TB) *box {
	t.Helper()
	return newBoxIn(t, "")
}

// newDiskBox returns a box on disk, for tests that inspect the files after the node was killed.
func newDiskBox(t testing.TB) *box {
	t.Helper()
	return newBoxIn(t, disk)
}

func newBoxIn(t testing.TB, parent string) *box {
	t.Helper()
	dir, err := os.MkdirTemp(parent, "rb")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	b := &box{dir: filepath.Join(dir, "d"), env: append(os.Environ(), patient...)}
	b.env = append(b.env, "RONBOX_SERVER__BIND=127.0.0.1:0", "RONBOX_LOG__LEVEL=warn")
	var made initdir.Result
	must(t, &made, "--data-dir", b.dir, "init", "--dev", "--json")
	b.key, b.genesis = made.SignerKey, made.Genesis
	return b
}

// args prepends the flags that select the box to a verb.
func (b *box) args(verb ...string) []string { return append([]string{"--data-dir", b.dir}, verb...) }

// process is a running node.
type process struct {
	cmd    *exec.Cmd
	stderr *bytes.Buffer
	done   chan struct{}
}

// start runs `serve` and waits until the node is ready for reads.
func (b *box) start(t testing.TB, args ...string) *process {
	t.Helper()
	p := b.launch(t, args...)
	b.awaitReady(t, p)
	return p
}

func (b *box) launch(t testing.TB, args ...string) *process {
	t.Helper()
	p := b.prepare(args...)
	b.run(t, p)
	return p
}

// prepare creates the process of `serve`. run captures its output unless the caller redirected it.
func (b *box) prepare(args ...string) *process {
	return &process{
		cmd:    exec.Command(binary, b.args(append([]string{"serve"}, args...)...)...),
		stderr: &bytes.Buffer{},
		done:   make(chan struct{}),
	}
}

// run starts a process that is killed at the end of the test.
func (b *box) run(t testing.TB, p *process) {
	t.Helper()
	p.cmd.Env = b.env
	if p.cmd.Stderr == nil {
		p.cmd.Stdout, p.cmd.Stderr = p.stderr, p.stderr
	}
	p.begin(t, &syscall.SysProcAttr{})
}

// begin starts the process, which is killed at the end of the test.
func (p *process) begin(t testing.TB, attr *syscall.SysProcAttr) {
	t.Helper()
	attr.Pdeathsig = syscall.SIGKILL
	p.cmd.SysProcAttr = attr
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = p.cmd.Wait() // the exit code is read from ProcessState
		close(p.done)
	}()
	t.Cleanup(func() { _ = p.cmd.Process.Kill(); <-p.done })
}

// awaitReady polls the socket, because a node that has not started yet offers no event to wait for.
func (b *box) awaitReady(t testing.TB, p *process) {
	t.Helper()
	b.awaitPlane(t, p, "read")
}

// awaitPlane waits until the node is ready for the requests of a plane, "read" or "write".
func (b *box) awaitPlane(t testing.TB, p *process, plane string) {
	t.Helper()
	c := b.client(t)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	limit := time.After(patience)
	for {
		if r, err := c.Ready(t.Context(), "", plane); err == nil && r.Ready {
			return
		}
		select {
		case <-tick.C:
		case <-p.done:
			t.Fatalf("serve ended with %d\n%s", p.code(), p.stderr)
		case <-limit:
			t.Fatalf("not ready to %s after %s\n%s", plane, patience, p.stderr)
		}
	}
}

func (b *box) client(t testing.TB) *apiClient {
	t.Helper()
	c, err := client.New(client.Options{Socket: filepath.Join(b.dir, "admin.sock"), Timeout: patience})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return &apiClient{
		c,
		nodeapi.NewClient(c),
		registryapi.NewClient(c),
		walletapi.NewClient(c),
		edgeapi.NewClient(c),
		rewarderapi.NewClient(c),
	}
}

// apiClient has the methods of all services.
type (
	nodeAPI     = nodeapi.Client
	registryAPI = registryapi.Client
	walletAPI   = walletapi.Client
	edgeAPI     = edgeapi.Client
	rewarderAPI = rewarderapi.Client

	apiClient struct {
		*client.Client
		nodeAPI
		registryAPI
		walletAPI
		edgeAPI
		rewarderAPI
	}
)

// signal sends sig and waits until the process ends.
func (p *process) signal(t testing.TB, sig os.Signal) int {
	t.Helper()
	if err := p.cmd.Process.Signal(sig); err != nil {
		t.Fatal(err)
	}
	p.await(t, sig)
	return p.code()
}

// await waits until the process ends; why is the expected cause.
func (p *process) await(t testing.TB, why any) {
	t.Helper()
	select {
	case <-p.done:
	case <-time.After(patience):
		t.Fatalf("still there %s after %v\n%s", patience, why, p.stderr)
	}
}

func (p *process) code() int { return p.cmd.ProcessState.ExitCode() }

// states returns the files of the eight real desired states, in order.
func states(t testing.TB) []string {
	t.Helper()
	files, err := filepath.Glob("../../testdata/registry/*.ndjson")
	if err != nil || len(files) != 8 {
		t.Fatalf("found %d states: %v", len(files), err)
	}
	return files
}
