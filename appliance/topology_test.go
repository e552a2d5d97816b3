package appliance

import (
	"flag"
	"os"
	"strings"
	"testing"

	"ronbox/appliance/config"
)

var update = flag.Bool("update", false, "write golden files and generated blocks")

const goldenTopology = "../testdata/golden/topology.md"

// topology is what `ronbox debug topology` prints of a node with the default configuration.
func topology(t *testing.T) (table, picture string) {
	t.Helper()
	cfg := config.Default()
	cfg.Wallet.Workers = 2 // not as many as this machine has cores
	n, err := New(cfg, Build{}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	return n.Catalog().Markdown(), n.Catalog().Mermaid()
}

// Whatever task, channel or lock the program gains or loses shows in the golden file.
func TestTopologyGolden(t *testing.T) {
	table, picture := topology(t)
	golden(t, goldenTopology, table+"\n```mermaid\n"+strings.TrimSpace(picture)+"\n```\n")
}

// golden wants the file to be what the declarations make it.
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

// The queues, buses and cells of the services' concurrency documents are there, with their bounds; what waits above the work
// lane fits into it.
func TestTopologyHasTheChannels(t *testing.T) {
	n, err := New(config.Default(), Build{}, Options{})
	must(t, err)
	caps := map[string]int{}
	for _, s := range n.Catalog().Specs() {
		caps[s.Service+"."+s.Name] = s.Cap
	}
	for name, want := range map[string]int{
		"registry.proposals_tx": 512, "registry.approvals_tx": 512, "registry.committed_tx": 1024, "registry.shutdown_rx": 1,
		"wallet.work_tx": 512, "wallet.events_tx": 1024, "wallet.shutdown_rx": 1, "ledger.ledger_bus": 1024,
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
