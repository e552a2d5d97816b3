package appliance

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"ronbox/appliance/config"
	"ronbox/appliance/unit"
)

// soakDir names in the environment of a helper the directory of the node that it is to be.
const soakDir = "RONBOX_TEST_SOAK"

// soakConfig is a node whose memory is full after a minute or two: keys count for a minute, and few of them fill a slot.
func soakConfig(t *testing.T, dir string) *config.Config {
	t.Helper()
	cfg := config.Default()
	cfg.Node.DataDir = dir
	cfg = loaded(t, cfg)
	cfg.Log.Level = "error" // the helper keeps every line
	cfg.Store.MaxBytes = 64 << 30
	cfg.Ledger.SlotWidth, cfg.Ledger.SlotMax = unit.Duration(time.Minute), 8192
	cfg.Wallet.IdempotencyTTL = unit.Duration(time.Minute)
	cfg.Wallet.BalanceCacheBytes = 1 << 20
	cfg.Wallet.Limits.RatePerSecond, cfg.Wallet.Limits.Burst = 1_000_000, 1_000_000
	must(t, config.Validate(cfg))
	return cfg
}

// TestSoakNode is the body of the helper: the node, until its input ends.
func TestSoakNode(t *testing.T) {
	dir := os.Getenv(soakDir)
	if dir == "" {
		return
	}
	r := launchWith(t, soakConfig(t, dir), Options{}).begin()
	fmt.Println(r.Addr())
	_, _ = io.Copy(io.Discard, os.Stdin)
	r.halt()
}

// soakNode is that process, life after life. One goroutine starts and ends it.
type soakNode struct {
	t    *testing.T
	dir  string
	addr atomic.Pointer[string] // of the last life
	cmd  *exec.Cmd
	in   io.Closer
	out  *bufio.Reader
}

func (n *soakNode) start() {
	n.t.Helper()
	n.cmd = exec.Command(os.Args[0], "-test.run=^TestSoakNode$", "-test.timeout=0")
	n.cmd.Env = append(os.Environ(), soakDir+"="+n.dir)
	n.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	in, err := n.cmd.StdinPipe()
	must(n.t, err)
	out, err := n.cmd.StdoutPipe()
	must(n.t, err)
	must(n.t, n.cmd.Start())
	n.in, n.out = in, bufio.NewReader(out)
	line, err := n.out.ReadString('\n')
	if err != nil || !strings.Contains(line, ":") {
		rest, _ := io.ReadAll(n.out)
		n.t.Fatalf("the node says %q, %v\n%s", line, err, rest)
	}
	line = strings.TrimSpace(line)
	n.addr.Store(&line)
}

// end stops the node, or kills it.
func (n *soakNode) end(kill bool) {
	n.t.Helper()
	if kill {
		_ = n.cmd.Process.Kill()
	}
	_ = n.in.Close()
	rest, _ := io.ReadAll(n.out)
	if err := n.cmd.Wait(); err != nil && !kill {
		n.t.Fatalf("the node ended with %v\n%s", err, rest)
	}
}

// metric is a series of the node without labels, or with the service alone.
func (n *soakNode) metric(name string) (sum float64) {
	n.t.Helper()
	tr := &http.Transport{DisableKeepAlives: true}
	defer tr.CloseIdleConnections()
	req, err := http.NewRequestWithContext(n.t.Context(), "GET", "http://"+*n.addr.Load()+"/metrics", nil)
	must(n.t, err)
	resp, err := tr.RoundTrip(req)
	must(n.t, err)
	defer func() { _ = resp.Body.Close() }()
	found := false
	for in := bufio.NewScanner(resp.Body); in.Scan(); {
		series, value, _ := strings.Cut(in.Text(), " ")
		if family, _, _ := strings.Cut(series, "{"); family == name {
			var one float64
			_, err := fmt.Sscan(value, &one)
			must(n.t, err)
			sum, found = sum+one, true
		}
	}
	if !found {
		n.t.Fatalf("no %s: %s", name, resp.Status)
	}
	return sum
}
