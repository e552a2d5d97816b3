package appliance

import (
	"context"
	"errors"
	"fmt"
	"time"

	"ronbox/appliance/flow"
	"ronbox/appliance/obs"
)

// sampleEvery is the pace of the health gate.
const sampleEvery = 250 * time.Millisecond

// scrapeEvery is how often the metrics are gathered to see that they can be: a gathering costs a millisecond.
const scrapeEvery = 5 * time.Second

// settleWithin bounds settle: a node that waits for its genesis stays degraded.
const settleWithin = 50 * time.Millisecond

// keyAmnesia fails for a while after something was to be written to the disk of a node that has none.
const keyAmnesia = "amnesia_ok"

// probes are the node's rows of the probe table.
func (n *Node) probes() []obs.Probe {
	rows := []obs.Probe{
		{Service: ownService, Key: "config_loaded", Hard: true, Plane: obs.ReadPlane},
		{Service: ownService, Key: "listener_bound", Hard: true, Plane: obs.ReadPlane},
		{Service: ownService, Key: "storage_ready", Hard: true, Plane: obs.WritePlane, Every: sampleEvery, Bad: 1, Good: 1, Func: n.storageReady},
		{Service: ownService, Key: "metrics_live", Hard: true, Plane: obs.WritePlane, Every: scrapeEvery, Bad: 2, Good: 1, Func: n.metricsLive},
		{Service: ownService, Key: "accept_restore", Hard: true, Plane: obs.WritePlane, Every: sampleEvery, Bad: 1, Good: 1, Func: n.restoreAccepted},
	}
	if n.boot.Amnesia.Enabled {
		rows = append(rows, obs.Probe{Service: ownService, Key: keyAmnesia, Plane: obs.WritePlane})
	}
	return rows
}

var errNotOpen = errors.New("the database is not open")

// storageReady is the store's own judgement, which has its own patience.
func (n *Node) storageReady() error {
	if n.store.Info() == nil {
		return errNotOpen
	}
	return n.store.Health()
}

func (n *Node) restoreAccepted() error {
	info := n.store.Info()
	if info == nil {
		return errNotOpen
	}
	if info.Restored {
		return fmt.Errorf("restored from incarnation %s: check the data, then `ronbox db accept-restore`", info.RestoredFrom)
	}
	return nil
}

func (n *Node) metricsLive() error {
	_, err := n.metrics.Registry().Gather()
	return err
}

// tasks are the node's own, but for the supervisor, which is Run, the log writer and the server's.
func (n *Node) tasks() []flow.Task {
	task := func(name, doc string, background bool, run func(context.Context) error) flow.Task {
		return flow.Task{Service: ownService, Name: name, Count: 1, Restart: flow.Always, Background: background, Doc: doc, Run: run}
	}
	return []flow.Task{
		task("health_gate", "samples the probe table", false, n.runHealthGate),
		task("reloader", "puts new configurations in force", true, n.runReloader),
		task("janitor", "expiry, key rotation, scheduled snapshots, purges", true, n.runJanitor),
		task("flight_recorder", "records while commits take long, and keeps what the scheduler did around a slow one", true, n.runFlightRecorder),
	}
}

// logWriter runs from the first line to the last.
func (n *Node) logWriter() flow.Task {
	return flow.Task{
		Service: ownService, Name: "log_writer", Count: 1, Restart: flow.Always, Doc: "writes the log lines that wait", Run: n.ring.Run,
	}
}

// runHealthGate samples what is due and tells the supervisor when the node is hurt or well again.
func (n *Node) runHealthGate(ctx context.Context) error {
	defer n.pulse.Stop()
	for {
		n.sample()
		n.manager.feed(n.store.CommitAge())
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-n.pulse.C():
		}
	}
}

// settle samples before the gate opens, and gives the tasks that have just been started a moment to say that they run,
// so that readyz does not begin with a guess.
func (n *Node) settle() {
	late, tick := time.NewTimer(settleWithin), time.NewTicker(time.Millisecond)
	defer late.Stop()
	defer tick.Stop()
	for {
		n.sample()
		if healthy, _ := n.healthy.Load(); healthy {
			return
		}
		select {
		case <-late.C:
			return
		case <-tick.C:
		}
	}
}

func (n *Node) sample() {
	n.board.Sample(time.Now())
	healthy := !n.board.Report("", "").Degraded
	if was, _ := n.healthy.Load(); was != healthy {
		n.healthy.Store(healthy)
	}
}

// escalated shows a task that keeps failing as a readiness key of its service. A task that others wait for takes writes
// away; the rest only degrade the node.
func (n *Node) escalated(service, task string, bad bool) {
	key := "task:" + task
	var cause error
	if bad {
		cause = errors.New("restarted more than 5 times in a minute")
	}
	n.board.Add(obs.Probe{Service: service, Key: key, Hard: vital(service, task), Plane: obs.WritePlane})
	n.board.Set(service, key, cause)
}

// vital tells the tasks without which no write is answered.
func vital(service, task string) bool {
	switch service {
	case serviceRegistry:
		return task == "pipeline"
	case serviceWallet:
		return task == "worker"
	case ownService:
		return task == "http" || task == "admin_http"
	}
	return false
}
