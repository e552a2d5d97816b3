package server

import (
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"time"

	"ronbox/appliance/flow"
	"ronbox/appliance/host"
	"ronbox/cmd/ronbox/server/config"
	"ronbox/engines"
	"ronbox/engines/ledger/record"
	nodehttp "ronbox/httpapi/node"
	"ronbox/store"
)

// Bounds of the findings about the running node.
const (
	fullSoon    = 14 * 24 * time.Hour // warned of before the file is full
	leastGrowth = 10 * time.Minute    // of observation before the growth is extrapolated
	slowP99     = time.Second         // of commits
)

// checkNode returns the findings that only the running node can make.
func (n *Node) checkNode() []host.Finding {
	points, _ := n.series.points()
	found := []host.Finding{
		n.checkReady(),
		n.checkTasks(),
		checkCommits(points),
		checkGrowth(points, float64(n.store.BytesLeft())),
		n.checkBackup(),
		checkClock(n.clock.Status()),
	}
	found = append(found, n.checkDecimals()...)
	if m, ok := n.member.(*membership); ok {
		found = append(found, m.findings()...)
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

// checkCommits warns if commits took long within the last hour.
func checkCommits(points []point) host.Finding {
	f := host.Finding{Check: "commits", Level: host.OK, Seen: "there were none in the last hour"}
	slowest := math.NaN()
	for i := range points {
		if p99 := points[i][columnP99]; !math.IsNaN(p99) && !(p99 <= slowest) {
			slowest = p99
		}
	}
	if math.IsNaN(slowest) {
		return f
	}
	f.Seen = fmt.Sprintf("99 %% of the commits in the slowest 5 s of the last hour took up to %.1f ms", slowest)
	if slowest >= float64(slowP99/time.Millisecond) {
		f.Level, f.Advice = host.Warn, "look for other load on the disk: a commit waits for two syncs"
	}
	return f
}

// checkGrowth estimates when the file is full from the growth of the last hour. room is the number
// of bytes left, negative if unknown.
func checkGrowth(points []point, room float64) host.Finding {
	f := host.Finding{Check: "growth", Level: host.OK}
	first, last := -1, -1
	for i := range points {
		if math.IsNaN(points[i][columnUsed]) {
			continue
		}
		if last = i; first < 0 {
			first = i
		}
	}
	span := time.Duration(last-first) * seriesEvery
	if room < 0 || span < leastGrowth {
		f.Seen = fmt.Sprintf("not known: the node has watched the file for %s, and needs %s", span, leastGrowth)
		return f
	}
	grown := points[last][columnUsed] - points[first][columnUsed]
	if grown <= 0 {
		f.Seen = fmt.Sprintf("the file has not grown in %s", span)
		return f
	}
	hours := room / grown * span.Hours()
	when := fmt.Sprintf("in %.0f d", hours/24)
	switch {
	case hours < 48:
		when = fmt.Sprintf("in %.0f h", hours)
	case hours > 24*365*10:
		when = "in more than 10 years"
	}
	f.Seen = fmt.Sprintf("file full %s, if it grows on as in the last %s (%.1f MiB)", when, span, grown/(1<<20))
	if hours < fullSoon.Hours() {
		f.Level, f.Advice = host.Warn, "raise store.max_bytes or make room on the disk before then"
	}
	return f
}

// checkBackup warns if no snapshots are scheduled, or if they fail or are overdue.
func (n *Node) checkBackup() host.Finding {
	every := n.snapshotEvery()
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
	if failed := n.snapshotFault(); failed != nil {
		return brokenBackup(failed)
	}
	last := n.due.backup.Load()
	if last == 0 || last == n.started.UnixNano() { // the start stands for a snapshot until there is one
		return checkBackup(every, n.now().Sub(n.started), false)
	}
	return checkBackup(every, n.now().Sub(time.Unix(0, last)), true)
}

// IsDev reports whether init --dev has made the node: it holds keys that only such a node has.
func IsDev(cfg *config.Config) bool {
	return slices.ContainsFunc([]string{config.SignerName, config.PolicyKeyName}, func(name string) bool {
		_, err := os.Lstat(cfg.Path(name))
		return err == nil
	})
}

// brokenBackup warns that scheduled snapshots fail.
func brokenBackup(err error) host.Finding {
	f := host.Finding{Check: "backup", Level: host.Warn, Seen: "scheduled snapshots fail: " + err.Error()}
	f.Advice = "correct the cause, then take one with `ronbox db snapshot DIR`"
	if dir, ok := errors.AsType[*nodehttp.SnapshotDirError](err); ok {
		f.Advice = "store.snapshot_dir: " + dir.Next(dir.Error()) + "; then take one there with `ronbox db snapshot`"
	}
	if errors.Is(err, store.ErrFull) {
		f.Advice = "make room, or let store.snapshot_dir name a folder on another disk; the two newest stay"
	}
	return f
}

// checkBackup judges the time since the last snapshot, or since the start of the node if none was
// taken.
func checkBackup(every, since time.Duration, taken bool) host.Finding {
	f := host.Finding{Check: "backup", Level: host.OK}
	age := max(0, since).Round(time.Second)
	f.Seen = fmt.Sprintf("no snapshot for %s; one is due every %s", age, every)
	if taken {
		f.Seen = fmt.Sprintf("the last snapshot is %s old, one is due every %s", age, every)
	}
	if since > 2*every {
		f.Level, f.Advice = host.Warn, "see why in the log (snapshot), and take one with `ronbox db snapshot DIR`"
	}
	return f
}
