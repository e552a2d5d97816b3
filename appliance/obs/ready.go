package obs

import (
	"context"
	"io"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// atomicWrite is what a pipe that is ready takes without waiting (PIPE_BUF).
	atomicWrite = 4096
	// readyPoll is how soon the end of a context is seen while a pipe is full.
	readyPoll = 20 * time.Millisecond
)

// writeReady writes p as far as out takes it before ctx ends. An out that is no file is written to in one piece, as long as it takes.
func writeReady(ctx context.Context, out io.Writer, p []byte) (n int, err error) {
	file, ok := out.(syscall.Conn)
	if !ok {
		return out.Write(p)
	}
	raw, err := file.SyscallConn()
	if err != nil {
		return 0, err
	}
	for n < len(p) {
		for !ready(raw) {
			if ctx.Err() != nil {
				return n, context.Cause(ctx)
			}
		}
		m, err := out.Write(p[n:min(n+atomicWrite, len(p))])
		if n += m; err != nil {
			return n, err
		}
	}
	return n, nil
}

// ready waits up to readyPoll for the file to take a write, or to have failed, which the write then tells.
func ready(raw syscall.RawConn) bool {
	events := 0
	err := raw.Control(func(fd uintptr) {
		events, _ = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}, int(readyPoll.Milliseconds()))
	})
	return events > 0 || err != nil
}
