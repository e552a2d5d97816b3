package checkup

import (
	"fmt"
	"strings"

	"ronbox/appliance/clock"
	"ronbox/appliance/flow"
	"ronbox/appliance/host"
	"ronbox/appliance/obs"
	"ronbox/cmd/ronbox/server/config"
	"ronbox/cmd/ronbox/server/initdir"
	"ronbox/engines/archive"
	"ronbox/engines/archive/target"
	nodeapi "ronbox/httpapi/wire/node"
)

// Ready is the name of the finding about the readiness of the running node.
const Ready = "readiness"

// Readiness judges the readiness of the running node.
func Readiness(r obs.Report) host.Finding {
	f := host.Finding{Check: Ready, Level: host.OK, Seen: "ready for reads and writes"}
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

// Tasks warns of tasks that wait for a restart after a failure.
func Tasks(all []flow.TaskState) host.Finding {
	var failing []string
	for _, t := range all {
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

// Clock judges the clock of the node.
func Clock(s clock.Status) host.Finding {
	f := host.Finding{Check: "node_clock", Level: host.OK}
	if f.Seen, f.Advice = s.Explain(); s.State != clock.OK {
		f.Level = host.Warn
	}
	return f
}

// Backup warns if no snapshots are scheduled. If they are, it returns scheduled, the finding about
// them. standsBy reports that the node is a member that does not lead.
func Backup(cfg *config.Config, standsBy bool, scheduled func() host.Finding) host.Finding {
	every := cfg.Store.SnapshotEvery
	f := host.Finding{Check: "backup", Level: host.OK}
	switch {
	case cfg.Amnesia.Enabled:
		f.Seen = "nothing to back up: the node keeps its data in memory (amnesia.enabled)"
		return f
	case standsBy:
		f.Seen = "the node that leads the cluster takes the scheduled snapshots"
		return f
	case every == 0 && initdir.IsDev(cfg):
		f.Seen = "no snapshots are scheduled (store.snapshot_every), and none are needed: this is a dev node"
		return f
	case every == 0:
		f.Level, f.Seen = host.Warn, "no snapshots are scheduled: a lost disk loses everything"
		f.Advice = `set store.snapshot_every = "1d" in ` + config.FileName + ", then `ronbox config reload`"
		return f
	}
	return scheduled()
}

// Archive judges the archive of the running node. A node without a target has no such finding.
func Archive(s nodeapi.Archive) []host.Finding {
	if s.Target == "" {
		return nil
	}
	f := host.Finding{Check: "archive", Level: host.Bad, Advice: s.Advice}
	f.Seen = fmt.Sprintf("%s: command %d of %d is in %s", s.State, s.SentSeq, s.Seq, s.Target)
	switch archive.State(s.State) {
	case archive.StateOK:
		f.Level = host.OK
		if s.Advice != "" { // the log is sent, and something else has failed
			f.Level = host.Warn
		}
	case archive.StateStarting, archive.StateBehind:
		f.Level = host.Warn
	}
	if s.LastError != "" {
		f.Seen += ": " + s.LastError
	}
	return []host.Finding{f}
}

// Closing warns of a closing of a period of the ledger that has failed.
func Closing(s nodeapi.LedgerClosing) []host.Finding {
	if s.Error == "" {
		return nil
	}
	f := host.Finding{Check: "ledger_close", Level: host.Warn, Seen: "a period of the ledger is not closed: " + s.Error}
	f.Advice = "correct the cause, then run `ronbox ledger close`; with ledger.retention the node tries again"
	if s.State != "failed" { // it waits
		f.Advice = "it is closed once that can be told; `ronbox ledger close --cancel` ends it"
	} else if row := nodeapi.Refusals.Find(s.Reason, ""); row != nil {
		f.Advice = row.Advice(map[string]any{"path": s.File})
	}
	return []host.Finding{f}
}

// checkArchive says what a node without an archive loses, and warns of a target on the disk of the
// data.
func checkArchive(cfg *config.Config) []host.Finding {
	to := cfg.Archive.Target
	switch {
	case cfg.Amnesia.Enabled, target.IsS3(to):
		return nil
	case to == "":
		seen := "off: changes since the last snapshot are lost with the disk (archive.target)"
		return []host.Finding{{Check: "archive", Level: host.OK, Seen: seen}}
	}
	f := host.Finding{Check: "archive_target", Level: host.OK, Seen: "it is on another disk than the data"}
	dir, err := target.Dir(to)
	same := false
	if err == nil {
		same, err = host.SameDisk(dir, cfg.Node.DataDir)
	}
	switch {
	case err != nil:
		f.Level, f.Seen = host.Warn, "cannot be told: "+err.Error()
		f.Advice = "run doctor as the user of the node; `ronbox archive check` tries the target"
	case same:
		f.Level, f.Seen = host.Warn, dir+" is on the disk of the data: one fault takes both"
		f.Advice = "mount another disk there, or let archive.target name a directory of another disk or a bucket"
	}
	return []host.Finding{f}
}
