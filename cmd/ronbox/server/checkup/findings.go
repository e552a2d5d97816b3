package checkup

import (
	"strings"

	"ronbox/appliance/clock"
	"ronbox/appliance/flow"
	"ronbox/appliance/host"
	"ronbox/appliance/obs"
	"ronbox/cmd/ronbox/server/config"
	"ronbox/cmd/ronbox/server/initdir"
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
