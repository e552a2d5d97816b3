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

	"ronbox/appliance"
	"ronbox/cmd/ronbox/cli"
	"ronbox/httpapi/client"
	edgeapi "ronbox/httpapi/edge"
	nodeapi "ronbox/httpapi/node"
	registryapi "ronbox/httpapi/registry"
	rewarderapi "ronbox/httpapi/rewarder"
	walletapi "ronbox/httpapi/wallet"
)

// binary is the program under test, built once.
var binary string

var kills = flag.Int("kills", 50, "how often TestKill9 kills the node")

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(buildAndRun(m))
}

func buildAndRun(m *testing.M) int {
	if file := os.Getenv(armedFile); file != "" {
		return serveArmed(file)
	}
	if flag.Lookup("test.fuzz").Value.String() != "" { // each worker would build it, and none runs it
		return m.Run()
	}
	dir, err := os.MkdirTemp("", "rb")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	binary = filepath.Join(dir, "ronbox")
	build := exec.Command("go", "build", "-o", binary, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0") // as `make build` compiles it
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

// result is what one command line gave.
type result struct {
	code           int
	stdout, stderr string
}

// ronbox runs a command line inside the test process.
func ronbox(t testing.TB, args ...string) result { return ronboxIn(t, t.Context(), "", args...) }

func ronboxIn(t testing.TB, ctx context.Context, stdin string, args ...string) result {
	t.Helper()
	var out, errs bytes.Buffer
	a := cli.New(strings.NewReader(stdin), &out, &errs, build())
	code := a.Run(ctx, root(a), args)
	return result{code, out.String(), errs.String()}
}

// spawn runs a command line in a process of its own. Unlike the test, the binary is never built for the race detector,
// under which to check a whole log takes ten times as long.
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

// must runs a command line that has to end well and decodes its --json document into doc, unless that is nil.
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

// What the verbs print with --json, as far as tests read it.
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

// box is a dev node's data directory, short enough for a socket.
type box struct {
	dir     string
	key     string
	genesis string
	env     []string
}

// skipRaceOnly skips a test under -short, which is for the race detector: the node is another process, of which it sees nothing.
func skipRaceOnly(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("the node is another process: `make test` runs this, the race detector sees nothing of it")
	}
}

// patience is how long a test waits for what must happen: a busy machine is slow, a broken one never.
const patience = 2 * time.Minute

// patient settings have a node take a slow disk of a busy machine for that: for no stall, no late answer and no drain that hangs.
var patient = []string{
	"RONBOX_LEDGER__STALL_AFTER=2s", "RONBOX_WALLET__REQ_TIMEOUT=30s", "RONBOX_SERVER__READ_TIMEOUT=1m", "RONBOX_SERVER__WRITE_TIMEOUT=1m",
	"RONBOX_REGISTRY__TIMEOUTS__PROPOSE=5s", "RONBOX_REGISTRY__TIMEOUTS__APPROVE=5s", "RONBOX_REGISTRY__TIMEOUTS__COMMIT=5s",
	"RONBOX_NODE__DRAIN_CAP=30s", "RONBOX_REGISTRY__DRAIN_DEADLINE=30s", "RONBOX_EDGE__DRAIN_DEADLINE=5s", "RONBOX_INDEX__DRAIN_DEADLINE=5s",
	"RONBOX_REWARDER__DRAIN_DEADLINE=5s", "RONBOX_REWARDER__READ_TIMEOUT=1m",
}

func newBox(t testing.TB) *box {
	t.Helper()
	dir, err := os.MkdirTemp("", "rb")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	b := &box{dir: filepath.Join(dir, "d"), env: append(os.Environ(), patient...)}
	b.env = append(b.env, "RONBOX_SERVER__BIND=127.0.0.1:0", "RONBOX_LOG__LEVEL=warn")
	var made appliance.InitResult
	must(t, &made, "--data-dir", b.dir, "init", "--dev", "--json")
	b.key, b.genesis = made.SignerKey, made.Genesis
	return b
}

// args puts the flags that find the box before a verb.
func (b *box) args(verb ...string) []string { return append([]string{"--data-dir", b.dir}, verb...) }

// process is a running node.
type process struct {
	cmd    *exec.Cmd
	stderr *bytes.Buffer
	done   chan struct{}
}

// start runs `serve` and waits until the node is ready to read.
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

// prepare makes the process of `serve`; run keeps its output where nobody has led it elsewhere.
func (b *box) prepare(args ...string) *process {
	return &process{cmd: exec.Command(binary, b.args(append([]string{"serve"}, args...)...)...), stderr: &bytes.Buffer{}, done: make(chan struct{})}
}

// run starts a process that ends with the test.
func (b *box) run(t testing.TB, p *process) {
	t.Helper()
	p.cmd.Env = b.env
	if p.cmd.Stderr == nil {
		p.cmd.Stdout, p.cmd.Stderr = p.stderr, p.stderr
	}
	p.begin(t, &syscall.SysProcAttr{})
}

// begin starts the process; it ends with the test.
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

// awaitReady polls the socket: a node that is not there yet has nothing that could be waited for.
func (b *box) awaitReady(t testing.TB, p *process) {
	t.Helper()
	c := b.client(t)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	limit := time.After(patience)
	for {
		if r, err := c.Ready(t.Context(), "", "read"); err == nil && r.Ready {
			return
		}
		select {
		case <-tick.C:
		case <-p.done:
			t.Fatalf("serve ended with %d\n%s", p.code(), p.stderr)
		case <-limit:
			t.Fatalf("not ready after %s\n%s", patience, p.stderr)
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
	return &apiClient{c, nodeapi.NewClient(c), registryapi.NewClient(c), walletapi.NewClient(c), edgeapi.NewClient(c), rewarderapi.NewClient(c)}
}

// apiClient has the calls of all services.
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

// signal sends sig and waits for the end.
func (p *process) signal(t testing.TB, sig os.Signal) int {
	t.Helper()
	if err := p.cmd.Process.Signal(sig); err != nil {
		t.Fatal(err)
	}
	p.await(t, sig)
	return p.code()
}

// await waits for the end, which why should have brought.
func (p *process) await(t testing.TB, why any) {
	t.Helper()
	select {
	case <-p.done:
	case <-time.After(patience):
		t.Fatalf("still there %s after %v\n%s", patience, why, p.stderr)
	}
}

func (p *process) code() int { return p.cmd.ProcessState.ExitCode() }

// states are the eight real desired states, in order.
func states(t testing.TB) []string {
	t.Helper()
	files, err := filepath.Glob("../../testdata/registry/*.ndjson")
	if err != nil || len(files) != 8 {
		t.Fatalf("found %d states: %v", len(files), err)
	}
	return files
}
