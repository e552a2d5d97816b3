package process

import (
	"fmt"
	"strings"
	"sync/atomic"
	"time"
	"unicode"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sys/unix"

	"ronbox/appliance/systemd"
)

// Manager notifies the service manager of the state of the node. Without a service manager it does
// nothing.
type Manager struct {
	log   hclog.Logger
	every time.Duration // watchdog interval; 0: none
	beat  time.Duration // of the calls of Feed
	fed   atomic.Int64  // last watchdog notification, ns since born; owned by the caller of Feed
	born  time.Time
	asked atomic.Int64 // last request for more start time, ns since born
	up    atomic.Bool  // READY=1 was sent, STOPPING=1 was not
	left  atomic.Bool  // STOPPING=1 was sent
}

// NewManager returns a Manager whose Feed is called once in each beat.
func NewManager(log hclog.Logger, beat time.Duration) *Manager {
	return &Manager{log: log, every: systemd.WatchdogInterval(), beat: beat, born: time.Now()}
}

// notify sends a state. A failure is only logged.
func (m *Manager) notify(state string) {
	if err := systemd.Notify(state); err != nil {
		m.log.Debug("service manager was not notified", "state", state, "reason", err.Error())
	}
}

// Serving announces that the node serves.
func (m *Manager) Serving(status string) {
	m.up.Store(true)
	m.notify("READY=1\nSTATUS=" + status)
}

// Reloading announces a reload, which Ready ends. The service manager needs the time of its own
// clock.
func (m *Manager) Reloading() {
	var now unix.Timespec
	if !m.up.Load() {
		return // the node is starting or stopping
	}
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return
	}
	m.notify(fmt.Sprintf("RELOADING=1\nMONOTONIC_USEC=%d", now.Nano()/1000))
}

// Ready ends a reload.
func (m *Manager) Ready() {
	if m.up.Load() {
		m.notify("READY=1")
	}
}

// Status shows what the node does.
func (m *Manager) Status(text string) { m.notify("STATUS=" + text) }

// Stopping announces once that the node stops, and how long that may take.
func (m *Manager) Stopping(reason string, within time.Duration) {
	m.up.Store(false)
	if m.left.Swap(true) {
		return
	}
	m.notify("STOPPING=1\nSTATUS=Draining: " + oneLine(reason))
	m.notify(fmt.Sprintf("EXTEND_TIMEOUT_USEC=%d", within.Microseconds()))
}

// oneLine joins text to one line, because each line is a separate message to the service manager.
func oneLine(text string) string {
	const most = 200 // bytes that a status page shows
	text = strings.Join(strings.FieldsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }), " ")
	return strings.ToValidUTF8(text[:min(len(text), most)], "")
}

// Extension of a long start, and interval of the requests for it.
const (
	extendBy    = 60 * time.Second
	extendEvery = 5 * time.Second
)

// Extend requests more time to start and shows the progress.
func (m *Manager) Extend(status string) {
	now, last := int64(time.Since(m.born)), m.asked.Load()
	if last != 0 && now-last < int64(extendEvery) || !m.asked.CompareAndSwap(last, max(now, 1)) {
		return
	}
	m.notify(fmt.Sprintf("EXTEND_TIMEOUT_USEC=%d\nSTATUS=%s", extendBy.Microseconds(), status))
}

// Feed notifies the watchdog at half of its interval while commits make progress. age is the age of
// the current commit.
func (m *Manager) Feed(age time.Duration) {
	if m.every == 0 || age > m.every/2 {
		return
	}
	if now := int64(time.Since(m.born)); now-m.fed.Load() >= int64(m.every/2)-int64(m.beat) {
		m.fed.Store(now)
		m.notify("WATCHDOG=1")
	}
}
