package server

import (
	"runtime"

	"ronbox/appliance/flow"
	"ronbox/appliance/obs"
	"ronbox/cmd/ronbox/server/wiring"
	nodeapi "ronbox/httpapi/wire/node"
)

// Sizes of the node's own channels.
const (
	reloadCap = 16   // queued reload requests; more collapse into the newest
	auditCap  = 1024 // audit rows that a slow reader may lag
)

// declare creates the node's own channels, and declares those that are hidden in a library or have
// a second name.
func (n *Node) declare() {
	n.declareCells()
	n.declareQueues()
	n.healthTick = flow.Every(n.catalog, flow.Spec{
		Service: ownService, Name: "health_tick", Consumers: []string{"health_gate"}, Doc: "samples the probe table",
	}, sampleEvery)
	n.catalog.DeclareTask(flow.Task{
		Service: ownService,
		Name:    "supervisor",
		Count:   1,
		Restart: flow.Never,
		Doc:     "starts, restarts and joins all tasks; the lifecycle",
	})
}

// declareCells creates the watches.
func (n *Node) declareCells() {
	everyone := []string{"*"}
	n.phase = flow.NewWatch(n.catalog, flow.Spec{
		Service: ownService, Name: "lifecycle", Producers: []string{"supervisor"}, Consumers: everyone,
		Doc: "the phase the node is in",
	}, flow.Booting)
	for _, s := range wiring.All() {
		if s.IsOn(n.boot) && s.Drain != nil {
			n.catalog.Declare(flow.Spec{
				Service:   s.Name,
				Name:      "shutdown_rx",
				Kind:      flow.KindWatch,
				Cap:       1,
				Policy:    flow.LastWins,
				Producers: []string{"node.supervisor"},
				Consumers: everyone,
				Doc:       "node.lifecycle by the " + s.Name + "'s name",
			})
		}
	}
	n.config = flow.NewWatch(n.catalog, flow.Spec{
		Service: ownService, Name: "cfg", Producers: []string{"reloader"}, Consumers: everyone,
		Doc: "the configuration in force",
	}, current{version: 1, cfg: n.boot, entries: n.opt.Entries})
	n.healthy = flow.NewWatch(n.catalog, flow.Spec{
		Service: ownService, Name: "readiness", Producers: []string{"health_gate"}, Consumers: []string{"supervisor"},
		Doc: "whether every probe holds",
	}, false)
}

// declareQueues creates the queues and the broadcast.
func (n *Node) declareQueues() {
	n.reloads = flow.NewQueue[*reload](n.catalog, flow.Spec{
		Service: "registry", Name: "cfg_reload_tx", Cap: reloadCap, Policy: flow.Collapse,
		Producers: []string{flow.HTTP}, Consumers: []string{"node.reloader"},
		Doc: "requests to reload, by SIGHUP too; those that wait together get one answer, that of the newest",
	})
	n.audited = flow.NewBroadcast[nodeapi.AuditRow](n.catalog, flow.Spec{
		Service: ownService, Name: "audit_tx", Cap: auditCap, Policy: flow.DropOldest,
		Producers: []string{"store.committer"}, Consumers: []string{flow.HTTP},
		Doc: "audit rows once they are synced; a reader that is overrun reads the file",
	})
	n.catalog.DeclareHeld(flow.Spec{
		Service:   ownService,
		Name:      "log",
		Kind:      flow.KindQueue,
		Cap:       obs.RingCap(),
		Policy:    "drop newest",
		Producers: []string{"*"},
		Consumers: []string{"log_writer"},
		Doc:       "log lines, in bytes; a line without room is counted and dropped",
	}, n.ring.State)
	n.catalog.Declare(flow.Spec{
		Service: ownService, Name: "spans", Kind: flow.KindQueue, Cap: obs.SpanCap(), Policy: "drop newest",
		Producers: []string{"*"}, Doc: "spans on their way to the collector; one without room is counted and dropped",
	})
}

// describe registers the metrics of the build, the lifecycle phase and the configuration, and
// counters that must be present at 0.
func (n *Node) describe() {
	n.metrics.Set("ronbox_build_info", ownService, "version", n.build.Version, "commit", n.build.Commit, "go",
		runtime.Version())(
		1,
	)
	version := func() float64 {
		now, _ := n.config.Load()
		return float64(now.version)
	}
	n.metrics.Gauge("config_version", ownService, version)
	n.metrics.Gauge("registry_config_version", "registry", version)
	for p := flow.Booting; p <= flow.Poisoned; p++ {
		n.metrics.Gauge("lifecycle_state", ownService, func() float64 {
			if now, _ := n.phase.Load(); now == p {
				return 1
			}
			return 0
		}, "state", p.String())
	}
	for _, reason := range []string{reasonParse, reasonValidate, reasonRestart, reasonSource, reasonBind, reasonTLS,
		reasonPrepare} {
		n.metrics.Counter("registry_reload_fail_total", "registry", "reason", reason)
	}
	for _, source := range []string{sourceSignal, sourceAdmin} {
		n.metrics.Counter("registry_reload_success_total", "registry", "source", source)
	}
	n.describeAmnesia()
	n.describeServices()
	n.clock.Describe(n.metrics, ownService)
}

// describeAmnesia registers the metrics of amnesia mode.
func (n *Node) describeAmnesia() {
	on := map[bool]float64{true: 1}
	n.metrics.Set("amnesia_mode", ownService, "status", "on")(on[n.boot.Amnesia.Enabled])
	n.metrics.Set("amnesia_mode", ownService, "status", "off")(on[!n.boot.Amnesia.Enabled])
	for _, s := range wiring.All() {
		if s.Cache != "" {
			n.metrics.Counter("amnesia_purge_total", ownService, "kind", s.Cache)
		}
	}
}
