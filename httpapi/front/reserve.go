package front

import (
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// What has been heard of a connection before its first request is whole.
const (
	heardNothing int32 = iota
	heardPart
	heardAll
)

// hear notes what a read brought. A probe comes in one piece; what ends otherwise is a request that dawdles.
func (l *life) hear(b []byte) {
	if l.over == letIn || len(b) == 0 {
		return
	}
	if n := len(b); n >= 4 && string(b[n-4:]) == "\r\n\r\n" {
		l.heard.Store(heardAll)
		return
	}
	l.heard.Store(heardPart)
}

// A probe's client is given a moment to say its word, even while a flood from its own address claims place after place:
// so many connections may stand beyond the reserved places, and be silent for so long, before they make room.
const (
	moment    = 20 * time.Millisecond
	newcomers = 256
)

// makeRoom gives l, a probe's connection for which v was full, a reserved place, and tells who has lost theirs for it:
// those that ask for nothing. It fails when all who hold one are being served.
func (e *endpoint) makeRoom(l *life, v verdict) (in bool, yield []*life) {
	idle, young := idlers(e.book.reserved(), time.Now())
	for _, old := range idle {
		if e.book.crowded() && e.book.evict(old) {
			yield = append(yield, old)
		}
	}
	if e.book.squeeze(l, v) {
		return true, yield
	}
	for _, old := range young {
		if e.book.evict(old) {
			return e.book.squeeze(l, v), append(yield, old)
		}
	}
	return false, yield
}

// idlers are those who have no request on the way: idle whose request was begun and dawdles, then who has been silent
// for more than a moment; young who has not. Each the oldest first. One whose first bytes wait to be read is none of them.
func idlers(all []*life, now time.Time) (idle, young []*life) {
	var silent []*life
	for _, l := range all {
		switch {
		case l.asked.Load() || l.heard.Load() == heardAll:
		case l.heard.Load() == heardPart:
			idle = append(idle, l)
		case l.waiting():
		case now.Sub(l.since) > moment:
			silent = append(silent, l)
		default:
			young = append(young, l)
		}
	}
	return append(idle, silent...), young
}

// waiting tells whether the kernel has bytes of the connection that nobody has read.
func (l *life) waiting() (some bool) {
	l.control(func(fd int) {
		n, err := unix.IoctlGetInt(fd, unix.SIOCINQ)
		some = err == nil && n > 0
	})
	return some
}

// roomy tells whether the kernel takes a few bytes for the client at once.
func (l *life) roomy() (room bool) {
	l.control(func(fd int) {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}, 0)
		room = err == nil && n > 0
	})
	return room
}

// control calls f with the descriptor, if there still is one.
func (l *life) control(f func(fd int)) {
	if sc, ok := l.raw.(syscall.Conn); ok {
		if raw, err := sc.SyscallConn(); err == nil {
			_ = raw.Control(func(fd uintptr) { f(int(fd)) })
		}
	}
}
