package appliance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"
	"unicode"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sys/unix"

	"ronbox/appliance/flow"
	"ronbox/appliance/obs"
	"ronbox/appliance/systemd"
)

// sampleEvery is the pace of the health gate.
const sampleEvery = 250 * time.Millisecond

// scrapeEvery is how often the metrics are gathered to see that they can be: a gathering costs a millisecond.
const scrapeEvery = 5 * time.Second

// firstSampleWithin bounds firstSample: a node that waits for its genesis stays degraded.
const firstSampleWithin = 50 * time.Millisecond

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

// storageReady is the store's own health, which has its own patience.
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

// runHealthGate samples the probes that are due, and wakes the supervisor when the node is degraded or healed.
func (n *Node) runHealthGate(ctx context.Context) error {
	defer n.healthTick.Stop()
	for {
		n.sample()
		n.manager.feed(n.store.CommitAge())
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-n.healthTick.C():
		}
	}
}

// firstSample samples before the gate opens, and gives the tasks that have just been started a moment to show that they run,
// so that readyz does not begin with a guess.
func (n *Node) firstSample() {
	pollFor(firstSampleWithin, func() bool {
		n.sample()
		healthy, _ := n.healthy.Load()
		return healthy
	})
}

func (n *Node) sample() {
	n.board.Sample(time.Now())
	healthy := !n.board.Report("", "").Degraded
	if was, _ := n.healthy.Load(); was != healthy {
		n.healthy.Store(healthy)
	}
}

// escalated shows a task that keeps failing as a readiness key of its service. A vital task takes writes away; the rest only
// degrade the node.
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
	return slices.ContainsFunc(n.catalog.Tasks(), func(t flow.Task) bool { return t.Service == service && t.Name == task && t.Vital })
}

// manager notifies the service manager of the node's states. Without one it does nothing.
type manager struct {
	log   hclog.Logger
	every time.Duration // how often it wants to be fed, 0: never
	fed   atomic.Int64  // when it was last fed, ns since born; owned by the health gate
	born  time.Time
	asked atomic.Int64 // when a longer start was last asked for, ns since born
	up    atomic.Bool  // READY=1 was sent, STOPPING=1 was not
	left  atomic.Bool  // STOPPING=1 was sent
}

func newManager(log hclog.Logger) *manager {
	return &manager{log: log, every: systemd.WatchdogInterval(), born: time.Now()}
}

// notify sends a state. A manager that does not listen is no fault of the node's.
func (m *manager) notify(state string) {
	if err := systemd.Notify(state); err != nil {
		m.log.Debug("service manager was not told", "state", state, "reason", err.Error())
	}
}

func (m *manager) serving(status string) {
	m.up.Store(true)
	m.notify("READY=1\nSTATUS=" + status)
}

// reloading and ready frame a reload; the manager wants the time on the clock that it compares with.
func (m *manager) reloading() {
	var now unix.Timespec
	if !m.up.Load() {
		return // it waits for the end of the start, or of the stop
	}
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return
	}
	m.notify(fmt.Sprintf("RELOADING=1\nMONOTONIC_USEC=%d", now.Nano()/1000))
}

func (m *manager) ready() {
	if m.up.Load() {
		m.notify("READY=1")
	}
}

func (m *manager) status(text string) { m.notify("STATUS=" + text) }

// stopping sends once that the node stops, and how long that may take at most.
func (m *manager) stopping(reason string, within time.Duration) {
	m.up.Store(false)
	if m.left.Swap(true) {
		return
	}
	m.notify("STOPPING=1\nSTATUS=Draining: " + oneLine(reason))
	m.notify(fmt.Sprintf("EXTEND_TIMEOUT_USEC=%d", within.Microseconds()))
}

// oneLine makes a person's words one line: to the manager each line is a message of its own.
func oneLine(text string) string {
	const most = 200 // bytes, what a status page shows
	text = strings.Join(strings.FieldsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }), " ")
	return strings.ToValidUTF8(text[:min(len(text), most)], "")
}

// A long start asks for this much more time, this often.
const (
	extendBy    = 60 * time.Second
	extendEvery = 5 * time.Second
)

// extend asks for more time to start, and shows how far it is.
func (m *manager) extend(status string) {
	now, last := int64(time.Since(m.born)), m.asked.Load()
	if last != 0 && now-last < int64(extendEvery) || !m.asked.CompareAndSwap(last, max(now, 1)) {
		return
	}
	m.notify(fmt.Sprintf("EXTEND_TIMEOUT_USEC=%d\nSTATUS=%s", extendBy.Microseconds(), status))
}

// feed feeds the watchdog at half of the interval that is wanted, while commits get through: age is how long the current one has been
// running.
func (m *manager) feed(age time.Duration) {
	if m.every == 0 || age > m.every/2 {
		return
	}
	if now := int64(time.Since(m.born)); now-m.fed.Load() >= int64(m.every/2)-int64(sampleEvery) {
		m.fed.Store(now)
		m.notify("WATCHDOG=1")
	}
}
