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
// so many connections may stand beyond the reserved places, and be silent for so long, before they make room. A client on a
// machine that has no processor free takes a tenth of a second between the connection and its first byte.
const (
	moment    = 250 * time.Millisecond
	newcomers = 256
)

// makeRoom gives l, a probe's connection for which v was full, a reserved place, and tells who has lost theirs for it:
// those that ask for nothing. It fails when all who hold one are being served.
func (e *endpoint) makeRoom(l *life, v verdict) (in bool, yield []*life) {
	idle, young := idlers(e.book.reserved(), time.Now())
	for _, old := range idle {
		if e.book.crowded() && old.idles() && e.book.evict(old) {
			yield = append(yield, old)
		}
	}
	if e.book.squeeze(l, v) {
		return true, yield
	}
	for _, old := range young {
		if old.idles() && e.book.evict(old) {
			return e.book.squeeze(l, v), append(yield, old)
		}
	}
	return false, yield
}

// idlers are those of whom no request has been heard: idle whose request was begun and dawdles, then who has been silent
// for more than a moment; young who has not. Each the oldest first.
func idlers(all []*life, now time.Time) (idle, young []*life) {
	var silent []*life
	for _, l := range all {
		switch {
		case l.asked.Load() || l.heard.Load() == heardAll:
		case l.heard.Load() == heardPart:
			idle = append(idle, l)
		case now.Sub(l.since) > moment:
			silent = append(silent, l)
		default:
			young = append(young, l)
		}
	}
	return append(idle, silent...), young
}

// idles tells whether l may make room: nothing of a whole request is on the way from it. What is fresh is looked at first: once it is not, it
// has been heard.
func (l *life) idles() bool {
	fresh := l.fresh()
	heard := l.heard.Load()
	return heard == heardPart || heard == heardNothing && !fresh
}

// fresh tells whether bytes have come that nobody has looked at: they wait in the kernel, or a Read has taken them from there and
// its goroutine waits for a processor.
func (l *life) fresh() (some bool) {
	l.control(func(fd int) {
		info, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
		some = err == nil && info.Bytes_received > uint64(l.seen.Load())
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
