package load

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"ronbox/cmd/ronbox/server"
	"ronbox/cmd/ronbox/server/config"
	"ronbox/cmd/ronbox/server/initdir"
	"ronbox/cmd/ronbox/server/process"
	"ronbox/engines/ledger"
	nodeapi "ronbox/httpapi/wire/node"
	"ronbox/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience bounds each wait of a test. The awaited event usually takes milliseconds.
const patience = time.Minute

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// devConfig returns the configuration of a new dev node. The name of its directory does not contain
// the name of the test, because socket paths have at most 107 bytes.
func devConfig(t *testing.T) *config.Config {
	t.Helper()
	dir, err := os.MkdirTemp("", "ronbox")
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	cfg := config.Default()
	cfg.Node.DataDir = dir + "/data"
	_, err = server.Init(t.Context(), cfg, initdir.Options{Dev: true})
	must(t, err)
	return loaded(t, cfg)
}

// loaded returns the configuration that serve loads from the directory, with a free port and long
// deadlines for a busy machine.
func loaded(t *testing.T, cfg *config.Config) *config.Config {
	t.Helper()
	out, err := config.Load(config.LoadOptions{
		DataDir: cfg.Node.DataDir,
		Env: []string{
			"RONBOX_SERVER__BIND=127.0.0.1:0",
			"RONBOX_LEDGER__STALL_AFTER=2s",
			"RONBOX_NODE__ABORT_GRACE=5s",
		},
	})
	must(t, err)
	return out
}

// node is a node that runs in this process.
type node struct {
	*server.Node
	t    *testing.T
	stop context.CancelFunc
	exit chan int
}

// serve starts a node and returns when it is ready.
func serve(t *testing.T, cfg *config.Config) *node {
	t.Helper()
	one, err := server.New(cfg, server.Build{Version: "test"}, server.Options{})
	must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	n := &node{one, t, cancel, make(chan int, 1)}
	up := make(chan struct{})
	one.OnRunning(func(nodeapi.Status) { close(up) })
	go func() { n.exit <- one.Run(ctx) }()
	select {
	case <-up:
	case code := <-n.exit:
		t.Fatalf("exit %d before serving", code)
	case <-time.After(patience):
		t.Fatal("the node does not serve")
	}
	return n
}

// halt drains the node and expects a clean exit.
func (n *node) halt() {
	n.t.Helper()
	n.stop()
	if code := <-n.exit; code != process.ExitClean {
		n.t.Fatalf("exit %d, want 0", code)
	}
}

// verified expects the ledger in the file of a stopped node to verify.
func verified(t *testing.T, cfg *config.Config) {
	t.Helper()
	report, err := store.Verify(t.Context(), cfg.Path(config.DatabaseName), nil, ledger.Checks(), nil)
	must(t, err)
	if !report.OK {
		t.Errorf("checked and found bad: %s", report.Problem)
	}
}

// helperRole is the environment variable that selects the role of a helper.
const helperRole = "RONBOX_TEST_ROLE"

// peer is the other side of a benchmark, in another process.
type peer struct {
	line string // its first line of output
	end  func()
}

// helper runs this test binary as the other side of a benchmark.
func helper(b testing.TB, role string) peer {
	b.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestHelper$")
	cmd.Env = append(os.Environ(), helperRole+"="+role)
	in, err := cmd.StdinPipe()
	must(b, err)
	out, err := cmd.StdoutPipe()
	must(b, err)
	must(b, cmd.Start())
	said := bufio.NewReader(out)
	line, err := said.ReadString('\n')
	must(b, err)
	return peer{strings.TrimSpace(line), func() {
		_ = in.Close()
		rest, _ := io.ReadAll(said)
		if err := cmd.Wait(); err != nil {
			b.Errorf("%v\n%s", err, rest)
		}
	}}
}

// TestHelper is the body of a helper. It returns when its input ends.
func TestHelper(t *testing.T) {
	switch os.Getenv(helperRole) {
	case "bank":
		beBank(t)
	case "bank-verified":
		verified(t, beBank(t))
	case "bare":
		beBare(t)
	}
}

// beBank serves a node whose clients have no rate limit. It returns the configuration of the node
// after the node has stopped.
func beBank(t *testing.T) *config.Config {
	cfg := devConfig(t)
	cfg.Log.Level = "error" // the other side keeps every line
	cfg.Wallet.Limits.RatePerSecond, cfg.Wallet.Limits.Burst = 1_000_000, 1_000_000
	cfg.Ledger.StallAfter = config.Default().Ledger.StallAfter
	token, err := os.ReadFile(cfg.Path(config.TokenName))
	must(t, err)
	n := serve(t, cfg)
	fmt.Println(n.Addr(), os.Getpid(), strings.TrimSpace(string(token)))
	_, _ = io.Copy(io.Discard, os.Stdin)
	n.halt()
	return cfg
}
