package server

import (
	"encoding/json"
	"flag"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"ronbox/appliance/host/hosttest"
	"ronbox/appliance/systemd"
	"ronbox/appliance/unit"
	"ronbox/cmd/ronbox/server/config"
	"ronbox/cmd/ronbox/server/process"
	nodeapi "ronbox/httpapi/wire/node"
)

// All parts of the node write to one log, under their names.
func TestEveryPartLogs(t *testing.T) {
	cfg, _ := devConfig(t)
	r := start(t, cfg)
	crashed := r.crashed()
	r.halt()
	crashed.Log.Level = "trace"
	r = start(t, crashed)
	r.receipt("/v1/transfer", "k", pay("alice", "bob", "1", 1))
	r.halt()
	seen := map[string]bool{}
	for line := range strings.Lines(r.log.String()) {
		var v struct{ Service, Event string }
		must(t, json.Unmarshal([]byte(line), &v))
		seen[v.Service+" "+v.Event] = true
	}
	for _, want := range []string{
		"node serving", "store unclean_boot", "registry recovery.done", "ledger recovery.done",
		"wallet wallet.transfer.accepted", "wallet http.request",
	} {
		if !seen[want] {
			t.Errorf("no line of %s\n%s", want, r.log)
		}
	}
}

// Spans that a collector does not accept are logged and counted.
func TestLostSpansAreTold(t *testing.T) {
	cfg, _ := devConfig(t)
	cfg.OTel.Exporter, cfg.OTel.Endpoint = "otlp", "http://"+hosttest.FreeAddr(t)
	r := start(t, cfg)
	r.mustPut(r.socket(), signer(t, cfg), 2, "traced")
	r.halt()
	if lost := r.metric("queue_dropped_total", "queue", "spans"); lost == 0 ||
		!strings.Contains(r.log.String(), "spans lost") {
		t.Errorf("%v spans are counted as lost\n%s", lost, r.log)
	}
}

// A socket that the service manager has opened is the one that the node serves on.
func TestServesOnAnInheritedSocket(t *testing.T) {
	cfg, _ := devConfig(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	r := launchWith(t, cfg, Options{inherited: map[string]net.Listener{systemd.HTTPName: l}}).begin()
	if r.Addr() != l.Addr().String() {
		t.Errorf("it serves on %s, not on %s", r.Addr(), l.Addr())
	}
	r.halt()
}

// A socket of the service manager that other hosts reach without TLS is refused as a bind is.
func TestInheritedPlaintextIsRefused(t *testing.T) {
	cfg, _ := devConfig(t)
	l, err := net.Listen("tcp", "0.0.0.0:0")
	must(t, err)
	defer func() { _ = l.Close() }()
	r := launchWith(t, cfg, Options{inherited: map[string]net.Listener{systemd.HTTPName: l}})
	if code := r.end(); code != process.ExitConfig || !strings.Contains(r.log.String(), "server.plaintext") {
		t.Errorf("exit %d, want %d\n%s", code, process.ExitConfig, r.log)
	}
}

// openMetrics reports whether a scrape that asks for OpenMetrics gets them.
func (r *rig) openMetrics() bool {
	r.t.Helper()
	req, err := http.NewRequestWithContext(r.t.Context(), http.MethodGet, "http://"+r.Addr()+"/metrics", nil)
	must(r.t, err)
	req.Header.Set("Accept", "application/openmetrics-text; version=1.0.0")
	resp, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(req)
	must(r.t, err)
	_ = resp.Body.Close()
	return strings.HasPrefix(resp.Header.Get("Content-Type"), "application/openmetrics-text")
}

// verbNode performs an action that is normally audited, on a node without auditing.
func (r *rig) verbNode() {
	r.t.Helper()
	if _, err := r.socket().
		Mint(r.t.Context(), nodeapi.MintRequest{Sub: "quiet", Scopes: []string{"registry.propose"}}); err != nil {
		r.t.Error(err)
	}
}

// The audit and metrics settings apply from the start.
func TestBootConfigurationHolds(t *testing.T) {
	cfg, _ := devConfig(t)
	before := len(auditRows(t, cfg))
	cfg.Audit.Enabled, cfg.Metrics.OpenMetrics = false, true
	r := start(t, cfg)
	r.verbNode()
	if !r.openMetrics() {
		t.Error("the metrics are no OpenMetrics")
	}
	if spec := r.v1("GET", "/openapi.json", "", ""); !strings.Contains(spec.body, `"version":"test"`) {
		t.Errorf("the version is not in the description of the API: %.200s", spec.body)
	}
	r.halt()
	if after := len(auditRows(t, cfg)); after != before {
		t.Errorf("%d audit rows, were %d", after, before)
	}
}

// The ledger uses the configured stall_after.
func TestStallAfterIsTheConfigured(t *testing.T) {
	t.Parallel()
	cfg, _ := devConfig(t)
	cfg.Ledger.StallAfter = unit.Duration(1234 * time.Millisecond)
	r := start(t, cfg)
	if got := r.v1("POST", "/v1/transfer", "i", pay("alice", "bob", "1", 1)); got.status != http.StatusOK {
		t.Fatalf("a payment while the disk is fast: %d %s", got.status, got.body)
	}
	release := r.holdStore()
	late := make(chan struct{})
	go func() {
		defer close(late)
		r.v1("POST", "/v1/transfer", "k", pay("alice", "bob", "1", 2))
	}()
	r.await("the wallet to find its ledger stalled", func() bool {
		return strings.Contains(r.board.Report("wallet", "").Causes["wallet.ledger_ready"], "1.234s")
	})
	got := r.v1("POST", "/v1/transfer", "l", pay("alice", "bob", "1", 3))
	if got.status != http.StatusServiceUnavailable || !strings.Contains(got.body, "1.234s (ledger.stall_after)") {
		t.Errorf("a payment meanwhile: %d %s", got.status, got.body)
	}
	release()
	<-late
	r.halt()
}

var update = flag.Bool("update", false, "write golden files and generated blocks")

const goldenTopology = "../../../testdata/golden/topology.md"

// defaultTopologies are those of the default configuration.
func defaultTopologies(t *testing.T) []Topology {
	t.Helper()
	cfg := config.Default()
	cfg.Wallet.Workers, cfg.Index.Resolver.Workers = 2, 16 // not as many as this machine has cores for
	all, err := Topologies(cfg, Build{})
	must(t, err)
	return all
}

// The golden file lists all tasks, channels and locks of the program.
func TestTopologyGolden(t *testing.T) {
	all := defaultTopologies(t)
	c := all[0].Catalog
	mermaid := func(text string) string { return "```mermaid\n" + strings.TrimSpace(text) + "\n```\n" }
	golden(t, goldenTopology, mermaid(c.Overview())+"\n"+TopologyTables(all)+"\n## The first as a graph\n\n"+mermaid(c.Mermaid()))
}

// golden expects the file to match the declarations.
func golden(t *testing.T, path, want string) {
	t.Helper()
	if *update {
		must(t, os.WriteFile(path, []byte(want), 0o644))
	}
	got, err := os.ReadFile(path)
	must(t, err)
	if string(got) != want {
		t.Errorf("%s differs from the declarations: run the test with -update and read the diff", path)
	}
}

// The queues, buses and cells of the services' concurrency documents are there, with their bounds;
// what waits above the work lane fits into it.
func TestTopologyHasTheChannels(t *testing.T) {
	n, err := New(config.Default(), Build{}, Options{})
	must(t, err)
	caps := map[string]int{}
	for _, s := range n.Catalog().Specs() {
		caps[s.Service+"."+s.Name] = s.Cap
	}
	for name, want := range map[string]int{
		"registry.proposals_tx": 512, "registry.approvals_tx": 512, "registry.committed_tx": 1024,
		"registry.shutdown_rx": 1,
		"wallet.work_tx":       512, "wallet.events_tx": 1024, "wallet.shutdown_rx": 1, "ledger.ledger_bus": 1024,
		"node.lifecycle": 1, "store.control": 64, "store.work": 2048, "store.bulk": 16,
	} {
		if caps[name] != want {
			t.Errorf("%s has cap %d, want %d", name, caps[name], want)
		}
	}
	waiting := caps["registry.proposals_tx"] + caps["registry.approvals_tx"] + caps["wallet.work_tx"]
	if caps["store.work"] <= waiting {
		t.Errorf("the work lane holds %d, less than the %d that can be waiting above it", caps["store.work"], waiting)
	}
}

// Every producer and consumer that a declaration names exists.
func TestTopologyNamesRealTasks(t *testing.T) {
	for _, topology := range defaultTopologies(t) {
		if err := topology.Catalog.Check(); err != nil {
			t.Errorf("%s: %v", topology.Title, err)
		}
	}
}

// The topologies beyond the default have the tasks and queues of the fleet, a follower and a member.
func TestTopologiesCoverEveryKindOfNode(t *testing.T) {
	all := defaultTopologies(t)
	for i, want := range map[int][]string{
		1: {"fleet.viewer", "fleet.view_tick", "registry.follower", "registry.heard"},
		2: {"cluster.acceptor", "cluster.leadership", "cluster.hello", "cluster.peer_server", "cluster.raft_conns"},
	} {
		var names []string
		for _, task := range all[i].Catalog.Tasks() {
			names = append(names, task.Service+"."+task.Name)
		}
		for _, spec := range all[i].Catalog.Specs() {
			names = append(names, spec.Service+"."+spec.Name)
		}
		for _, name := range want {
			if !slices.Contains(names, name) {
				t.Errorf("%s: no %s", all[i].Title, name)
			}
		}
	}
}
