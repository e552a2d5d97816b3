package front

import (
	"runtime"
	"syscall"

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

// letRun is how often makeRoom lets other goroutines run before it takes the place of one that may be about to ask.
const letRun = 4

// makeRoom gives l, a probe's connection for which v was full, the reserved place of one that asks for nothing, and
// tells whose. nil: all who hold one are being served.
func (e *endpoint) makeRoom(l *life, v verdict) (yields *life) {
	for try := range letRun + 1 {
		dawdling, silent := idlers(e.book.reserved())
		if try == letRun {
			dawdling = append(dawdling, silent...)
		}
		for _, old := range dawdling {
			if e.book.replace(old, l, v) {
				return old
			}
		}
		runtime.Gosched()
	}
	return nil
}

// idlers are those whose request was begun and dawdles, and those who are silent, each the oldest first. One whose first
// bytes wait to be read is not silent.
func idlers(all []*life) (dawdling, silent []*life) {
	for _, l := range all {
		switch {
		case l.asked.Load():
		case l.heard.Load() == heardPart:
			dawdling = append(dawdling, l)
		case l.heard.Load() == heardNothing && !l.waiting():
			silent = append(silent, l)
		}
	}
	return dawdling, silent
}

// waiting tells whether the kernel has bytes of the connection that nobody has read.
func (l *life) waiting() (some bool) {
	sc, ok := l.raw.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return false
	}
	_ = raw.Control(func(fd uintptr) {
		n, err := unix.IoctlGetInt(int(fd), unix.SIOCINQ)
		some = err == nil && n > 0
	})
	return some
}
