package server

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"ronbox/appliance/flow"
	"ronbox/appliance/obs"
	"ronbox/cmd/ronbox/server/process"
	"ronbox/store"
)

// sampleEvery is the sampling interval of the health gate.
const sampleEvery = 250 * time.Millisecond

// calmSamples is the number of samples without a commit and without a change of health after which
// the health gate samples once a second.
const calmSamples = 20

// scrapeEvery is the interval of the check that metrics can be gathered, at which the recorder of
// the series gathers them.
const scrapeEvery = 5 * time.Second

// firstSampleWithin bounds firstSample.
const firstSampleWithin = 50 * time.Millisecond

// keyClock fails while the wall clock and the clock of the node differ.
const keyClock = "clock_ok"

// keyAmnesia fails for a while after an attempt to write to the disk of a node in amnesia mode.
const keyAmnesia = "amnesia_ok"

// probes returns the node's own probes.
func (n *Node) probes() []obs.Probe {
	rows := []obs.Probe{
		{Service: ownService, Key: "config_loaded", Hard: true, Plane: obs.ReadPlane},
		{Service: ownService, Key: "listener_bound", Hard: true, Plane: obs.ReadPlane},
		{
			Service: ownService,
			Key:     "storage_ready",
			Hard:    true,
			Plane:   obs.WritePlane,
			Every:   sampleEvery,
			Bad:     1,
			Good:    1,
			Func:    n.storageReady,
		},
		{
			Service: ownService,
			Key:     "metrics_live",
			Hard:    true,
			Plane:   obs.WritePlane,
			Every:   scrapeEvery,
			Bad:     2,
			Good:    1,
			Func:    func() error { return n.series.Err() },
		},
		{
			Service: ownService,
			Key:     "accept_restore",
			Hard:    true,
			Plane:   obs.WritePlane,
			Every:   sampleEvery,
			Bad:     1,
			Good:    1,
			Func:    n.restoreAccepted,
		},
	}
	rows = append(rows, obs.Probe{
		Service: ownService, Key: keyClock, Plane: obs.WritePlane, Every: sampleEvery, Bad: 1, Good: 1,
		Func: n.clock.Check,
	})
	if n.boot.Amnesia.Enabled {
		rows = append(rows, obs.Probe{Service: ownService, Key: keyAmnesia, Plane: obs.WritePlane})
	}
	return rows
}

// storageReady returns the health of the store, which has its own thresholds.
func (n *Node) storageReady() error {
	if n.store.Info() == nil {
		return process.ErrNotOpen
	}
	return n.store.Health()
}

// onDisk returns ErrAmnesia in amnesia mode for an action that would write to a disk, and shows the
// attempt in the probe table.
func (n *Node) onDisk(what string) error {
	if !n.boot.Amnesia.Enabled {
		return nil
	}
	err := fmt.Errorf("%s: %w", what, store.ErrAmnesia)
	n.board.Set(ownService, keyAmnesia, err)
	return err
}

func (n *Node) restoreAccepted() error {
	info := n.store.Info()
	if info == nil {
		return process.ErrNotOpen
	}
	if info.Restored {
		return fmt.Errorf(
			"restored from incarnation %s: check the data, then `ronbox db accept-restore`",
			info.RestoredFrom,
		)
	}
	return nil
}

// tasks returns the node's own tasks, without the supervisor (Run), the log writer and the tasks of
// the server.
func (n *Node) tasks() []flow.Task { return append(n.watchers(), n.keepers()...) }

// watchers returns the tasks that only observe the node. They also run while it stands by.
func (n *Node) watchers() []flow.Task {
	return append(n.archive.Tasks(), []flow.Task{
		ownTask("health_gate", "samples the probe table", false, n.runHealthGate),
		ownTask(
			"flight_recorder",
			"records while commits take long, and keeps what the scheduler did around a slow one",
			true,
			n.recorder.Run,
		),
		ownTask("series_recorder", "keeps a point of each series every 5 s for an hour", true, n.series.Run),
	}...)
}

// keepers returns the tasks that may commit.
func (n *Node) keepers() []flow.Task {
	return []flow.Task{
		ownTask("reloader", "puts new configurations in force", true, n.runReloader),
		ownTask("janitor", "expiry, key rotation, scheduled snapshots, purges", true, n.janitor.Run),
	}
}

func ownTask(name, doc string, background bool, run func(context.Context) error) flow.Task {
	return flow.Task{
		Service:    ownService,
		Name:       name,
		Count:      1,
		Restart:    flow.Always,
		Background: background,
		Doc:        doc,
		Run:        run,
	}
}

// logWriter returns the task that writes log lines. It is the first to start and the last to end.
func (n *Node) logWriter() flow.Task {
	return flow.Task{
		Service: ownService,
		Name:    "log_writer",
		Count:   1,
		Restart: flow.Always,
		Doc:     "writes the log lines that wait",
		Run:     n.ring.Run,
	}
}

// runHealthGate samples the probes that are due and wakes the supervisor when the node becomes
// degraded or healthy.
func (n *Node) runHealthGate(ctx context.Context) error {
	defer n.healthTick.Stop()
	for calm := 0; ; {
		changed := n.sample()
		n.clock.Watch(n.metrics, ownService, n.log)
		age := n.store.CommitAge()
		n.manager.Feed(age)
		if calm++; changed || age > 0 {
			calm = 0
		}
		if calm < calmSamples {
			n.healthTick.Wake()
		} else {
			n.healthTick.Rest()
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-n.healthTick.C():
		}
	}
}

// firstSample samples before the gate opens. It waits up to firstSampleWithin until the tasks are
// ready, so that the first readyz answer is accurate.
func (n *Node) firstSample() {
	pollFor(firstSampleWithin, func() bool {
		n.sample()
		healthy, _ := n.healthy.Load()
		return healthy
	})
}

// sample samples the probes that are due. It reports whether the node became degraded or healthy.
func (n *Node) sample() (changed bool) {
	n.board.Sample(time.Now())
	healthy := !n.board.Report("", "").Degraded
	was, _ := n.healthy.Load()
	if was != healthy {
		n.healthy.Store(healthy)
	}
	return was != healthy
}

// escalated sets a readiness key for a task that keeps failing. A vital task makes the node not
// ready for writes; any other task only degrades it.
func (n *Node) escalated(service, task string, bad bool) {
	key := "task:" + task
	var cause error
	if bad {
		cause = errors.New("restarted more than 5 times in a minute")
	}
	n.board.Add(obs.Probe{Service: service, Key: key, Hard: n.isVital(service, task), Plane: obs.WritePlane})
	n.board.Set(service, key, cause)
}

func (n *Node) isVital(service, task string) bool {
	return slices.ContainsFunc(
		n.catalog.Tasks(),
		func(t flow.Task) bool { return t.Service == service && t.Name == task && t.Vital },
	)
}
