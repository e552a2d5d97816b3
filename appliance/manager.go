package appliance

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

// manager is what the node says to the service manager. Without one it says nothing.
type manager struct {
	log   hclog.Logger
	every time.Duration // how often it wants to hear that the node lives, 0: never
	fed   atomic.Int64  // when it was last told, ns since born; owned by the health gate
	born  time.Time
	asked atomic.Int64 // when a longer start was last asked for, ns since born
	up    atomic.Bool  // READY=1 was said, STOPPING=1 was not
	left  atomic.Bool  // STOPPING=1 was said
}

func newManager(log hclog.Logger) *manager {
	return &manager{log: log, every: systemd.WatchdogInterval(), born: time.Now()}
}

// say tells a state. A manager that does not listen is no fault of the node's.
func (m *manager) say(state string) {
	if err := systemd.Notify(state); err != nil {
		m.log.Debug("service manager was not told", "state", state, "reason", err.Error())
	}
}

func (m *manager) serving(status string) {
	m.up.Store(true)
	m.say("READY=1\nSTATUS=" + status)
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
	m.say(fmt.Sprintf("RELOADING=1\nMONOTONIC_USEC=%d", now.Nano()/1000))
}

func (m *manager) ready() {
	if m.up.Load() {
		m.say("READY=1")
	}
}

func (m *manager) status(text string) { m.say("STATUS=" + text) }

// stopping says once that the node stops, and how long that may take where more than the usual was configured.
func (m *manager) stopping(reason string, within time.Duration) {
	m.up.Store(false)
	if m.left.Swap(true) {
		return
	}
	m.say("STOPPING=1\nSTATUS=Draining: " + oneLine(reason))
	m.say(fmt.Sprintf("EXTEND_TIMEOUT_USEC=%d", within.Microseconds()))
}

// oneLine keeps what a person has said from being more than that: each line is a word of its own to the manager.
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
	m.say(fmt.Sprintf("EXTEND_TIMEOUT_USEC=%d\nSTATUS=%s", extendBy.Microseconds(), status))
}

// feed says that the node lives, at half of the interval that is wanted, while commits get through: age is how long the
// one in hand has been running.
func (m *manager) feed(age time.Duration) {
	if m.every == 0 || age > m.every/2 {
		return
	}
	if now := int64(time.Since(m.born)); now-m.fed.Load() >= int64(m.every/2)-int64(sampleEvery) {
		m.fed.Store(now)
		m.say("WATCHDOG=1")
	}
}
