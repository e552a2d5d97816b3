package server

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"ronbox/appliance/flow"
	"ronbox/appliance/host"
	"ronbox/cmd/ronbox/server/config"
	"ronbox/engines"
	"ronbox/engines/ledger/record"
)

// checkNode returns the findings that only the running node can make.
func (n *Node) checkNode() []host.Finding {
	found := []host.Finding{n.checkReady(), n.checkTasks()}
	found = append(found, n.series.Findings(float64(n.store.BytesLeft()))...)
	found = append(found, n.checkBackup(), checkClock(n.clock.Status()))
	found = append(found, n.checkDecimals()...)
	if m := n.part(); m != nil {
		found = append(found, m.Findings()...)
	}
	return append(found, n.checkFleet()...)
}

// CheckReady is the name of the finding about the readiness of the running node.
const CheckReady = "readiness"

func (n *Node) checkReady() host.Finding {
	f := host.Finding{Check: CheckReady, Level: host.OK, Seen: "ready for reads and writes"}
	r := n.server.Report("", "")
	if len(r.Missing) == 0 {
		return f
	}
	var causes []string
	for _, key := range r.Missing {
		causes = append(causes, key+": "+r.Causes[key])
	}
	f.Level, f.Seen, f.Advice = host.Warn, "degraded: "+strings.Join(causes, "; "), "correct the causes that are named"
	if !r.WriteReady {
		f.Level, f.Seen = host.Bad, "not ready for writes: "+strings.Join(causes, "; ")
	}
	return f
}

// checkTasks warns of tasks that wait for a restart after a failure.
func (n *Node) checkTasks() host.Finding {
	var failing []string
	for _, t := range n.sup.Tasks() {
		if t.State == flow.LifeBackoff {
			failing = append(failing, t.Service+"."+t.Task)
		}
	}
	if failing == nil {
		return host.Finding{Check: "tasks", Level: host.OK, Seen: "all tasks run"}
	}
	return host.Finding{
		Check: "tasks", Level: host.Warn, Seen: "waiting for a restart after a failure: " + strings.Join(failing, ", "),
		Advice: "see the last error in `ronbox debug tasks`, and the log",
	}
}

// checkDecimals warns of wallet.decimals, and of decimals in the configuration that the ledger does
// not have: they are set once.
func (n *Node) checkDecimals() []host.Finding {
	cfg := n.conf().Wallet
	var seen, advice []string
	if len(cfg.Decimals) > 0 {
		seen = append(seen, "wallet.decimals is set, and the ledger has the decimals of assets")
		advice = append(advice, "remove wallet.decimals from the configuration: the next release refuses it")
	}
	for _, op := range cfg.Declarations(n.declared) {
		has, declared := n.ledger().Decimals(op.Asset)
		if op.Code == record.OpScale && declared && engines.AmountOf(0, uint64(has)) != op.Amount {
			seen = append(seen, fmt.Sprintf(
				"%s has %d decimals in the ledger, %s in the configuration", op.Asset, has, op.Amount))
			advice = append(advice, fmt.Sprintf("write %s:%d in wallet.assets: decimals are set once", op.Asset, has))
		}
	}
	if len(seen) == 0 {
		return nil
	}
	return []host.Finding{{
		Check: "decimals", Level: host.Warn, Seen: strings.Join(seen, "; "), Advice: strings.Join(advice, "; "),
	}}
}

// checkBackup warns if no snapshots are scheduled, or if they fail or are overdue.
func (n *Node) checkBackup() host.Finding {
	every := n.conf().Store.SnapshotEvery
	f := host.Finding{Check: "backup", Level: host.OK}
	switch {
	case n.boot.Amnesia.Enabled:
		f.Seen = "nothing to back up: the node keeps its data in memory (amnesia.enabled)"
		return f
	case n.standsBy():
		f.Seen = "the node that leads the cluster takes the scheduled snapshots"
		return f
	case every == 0 && IsDev(n.boot):
		f.Seen = "no snapshots are scheduled (store.snapshot_every), and none are needed: this is a dev node"
		return f
	case every == 0:
		f.Level, f.Seen = host.Warn, "no snapshots are scheduled: a lost disk loses everything"
		f.Advice = `set store.snapshot_every = "1d" in ` + config.FileName + ", then `ronbox config reload`"
		return f
	}
	return n.backup.Finding()
}

// IsDev reports whether init --dev has made the node: it holds keys that only such a node has.
func IsDev(cfg *config.Config) bool {
	return slices.ContainsFunc([]string{config.SignerName, config.PolicyKeyName}, func(name string) bool {
		_, err := os.Lstat(cfg.Path(name))
		return err == nil
	})
}
