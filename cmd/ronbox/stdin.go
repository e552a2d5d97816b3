package main

import (
	"context"
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// stdinLook is how often a verb that waits for its stdin looks for Ctrl-C, in milliseconds: too short to be felt.
const stdinLook = 50

// heed makes reads of stdin end when ctx does. A read of a terminal or a pipe cannot be called back, so it begins only
// when there is something to read; without it Ctrl-C at a question would do nothing until the person has answered.
func heed(ctx context.Context, stdin io.Reader) io.Reader {
	if f, ok := stdin.(*os.File); ok {
		return &heedful{f, ctx}
	}
	return stdin
}

// heedful is stdin for as long as one verb runs.
type heedful struct {
	*os.File
	ctx context.Context // of the verb
}

// Read implements io.Reader.
func (h *heedful) Read(p []byte) (int, error) {
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(h.Fd()), Events: unix.POLLIN}}, stdinLook)
		switch {
		case h.ctx.Err() != nil:
			return 0, context.Cause(h.ctx)
		case err != nil && !errors.Is(err, unix.EINTR):
			return 0, &os.PathError{Op: "poll", Path: h.Name(), Err: err}
		case n > 0:
			return h.File.Read(p)
		}
	}
}
