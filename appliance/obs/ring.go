package obs

import (
	"bytes"
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// ringBytes bounds the lines that wait for the writer: some seconds of a busy node.
const ringBytes = 1 << 20

// Ring decouples the logger from a reader that may be slow or stuck. Until Run has returned, Write
// never waits: it drops lines that do not fit. After that it writes through and waits for the
// reader.
type Ring struct {
	out     io.Writer
	counted func(n int)
	lost    atomic.Uint64 // lines dropped
	wake    chan struct{} // holds one token while lines may be pending

	writing sync.Mutex // a leaf: held during writes to out

	mu      sync.Mutex // a leaf
	mode    ringMode   // guarded by mu
	pending []byte     // whole lines; guarded by mu
	busy    bool       // the writer task is writing; guarded by mu
	// closed when no line is pending or being written, nil if no Flush waits; guarded by mu
	idle  chan struct{}
	sweep func(now time.Time, final bool) // writes the counts that are due; guarded by mu
}

// ringMode is the way in which a line is written.
type ringMode int

const (
	gathers ringMode = iota // kept until Run starts
	runs                    // kept for Run
	through                 // written by the caller of the logger
)

// NewRing returns a ring that writes to out. It is exported as the queue "log" of service node.
func NewRing(out io.Writer, m *Metrics) *Ring {
	r := &Ring{
		out: out, counted: m.Counter("queue_dropped_total", "node", "queue", "log"), wake: make(chan struct{}, 1),
		sweep: func(time.Time, bool) {},
	}
	m.Gauge("queue_depth", "node", r.depth, "queue", "log")
	return r
}

// RingCap returns the bound of the ring in bytes, for the catalogue.
func RingCap() int {
	return ringBytes
}

// setSweep makes the ring call sweep each second for a while after a line, and at its end, so that
// counts are written even if nothing else is logged.
func (r *Ring) setSweep(sweep func(now time.Time, final bool)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sweep = sweep
}

func (r *Ring) sum(final bool) {
	r.mu.Lock()
	sweep := r.sweep
	r.mu.Unlock()
	sweep(time.Now(), final)
}

func (r *Ring) dropped(lines int) {
	r.lost.Add(uint64(lines))
	r.counted(lines)
}

// Write takes one whole line. It returns no error for a dropped line, because a logger cannot act
// on one.
func (r *Ring) Write(p []byte) (int, error) {
	r.mu.Lock()
	if r.mode == through {
		r.mu.Unlock()
		return r.write(p, r.out.Write)
	}
	if len(r.pending)+len(p) > ringBytes {
		r.mu.Unlock()
		r.dropped(1)
		return len(p), nil
	}
	r.pending = append(r.pending, p...)
	r.mu.Unlock()
	select {
	case r.wake <- struct{}{}:
	default: // the writer is already awake
	}
	return len(p), nil
}

// write writes p to out and counts lines that fail.
func (r *Ring) write(p []byte, out func([]byte) (int, error)) (int, error) {
	n, err := r.alone(p, out)
	if err != nil {
		r.dropped(bytes.Count(p[max(n, 0):], []byte{'\n'}))
	}
	return n, err
}

// alone calls out with writing held.
func (r *Ring) alone(p []byte, out func([]byte) (int, error)) (int, error) {
	r.writing.Lock()
	defer r.writing.Unlock()
	//lockwait: writing only serializes the writes, and its holder takes no other lock
	return out(p)
}

// sweepTicks is the number of seconds after a line in which counts may become due: a count belongs
// to the second that begins with a line.
const sweepTicks = 2

// errTwoWriters is returned if Run is called while it runs.
var errTwoWriters = errors.New("obs: the log ring has a writer")

// Run is the writer task. It returns after ctx has ended and all pending lines are written. A stuck
// reader delays it.
func (r *Ring) Run(ctx context.Context) error {
	r.mu.Lock()
	if r.mode == runs {
		r.mu.Unlock()
		return errTwoWriters
	}
	r.mode = runs
	r.mu.Unlock()
	return r.drain(ctx)
}

// drain is the loop of Run. It leaves the ring writing through, even if out.Write panics: a
// restarted Run writes what is left.
func (r *Ring) drain(ctx context.Context) error {
	ended := false
	defer func() {
		if !ended {
			r.stop()
		}
	}()
	//rawchan: the log writer serves from before there is a catalogue
	second := time.NewTicker(time.Second)
	defer second.Stop()
	quiet := 0 // ticks since the last line
	for batch := []byte(nil); ; {
		last := ctx.Err() != nil
		if last {
			r.sum(true)
		}
		batch = r.swapPending(batch, last)
		if len(batch) > 0 {
			_, _ = r.write(batch, r.out.Write) // failures are counted
			if quiet >= sweepTicks {
				second.Reset(time.Second)
			}
			quiet = 0
			continue
		}
		if last {
			ended = true
			return nil
		}
		select {
		case <-r.wake:
		case <-second.C:
			r.sum(false)
			if quiet++; quiet == sweepTicks {
				second.Stop()
			}
		case <-ctx.Done():
		}
	}
}

// swapPending exchanges the pending lines for the buffer written last. If nothing is pending, it
// wakes callers of Flush. If last is set as well, the ring writes through from then on. Both happen
// under one lock, so no line is left behind.
func (r *Ring) swapPending(spare []byte, last bool) []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	batch := r.pending
	r.pending = spare[:0]
	r.busy = len(batch) > 0
	if !r.busy {
		if last {
			r.mode = through
		}
		r.release()
	}
	return batch
}

// stop ends a run that panicked.
func (r *Ring) stop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mode, r.busy = through, false
	r.release()
}

// release wakes callers of Flush. Called with r.mu held.
func (r *Ring) release() {
	if r.idle != nil {
		close(r.idle)
		r.idle = nil
	}
}

// Flush waits until all lines accepted so far are written. It returns the cause of ctx if ctx ends
// first. Before Run has started, it writes them itself, for a node that fails to start.
func (r *Ring) Flush(ctx context.Context) error {
	r.sum(true)
	r.mu.Lock()
	if r.mode == gathers {
		early := r.pending
		r.pending = nil
		r.mu.Unlock()
		_, err := r.write(early, func(p []byte) (int, error) { return writeReady(ctx, r.out, p) })
		return err
	}
	if r.mode == through || (len(r.pending) == 0 && !r.busy) {
		r.mu.Unlock()
		return nil
	}
	if r.idle == nil {
		r.idle = make(chan struct{})
	}
	idle := r.idle
	r.mu.Unlock()
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// State returns the number of pending bytes and of lines dropped so far.
func (r *Ring) State() (pending int, dropped uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.pending), r.lost.Load()
}

// depth returns the number of pending lines.
func (r *Ring) depth() float64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return float64(bytes.Count(r.pending, []byte{'\n'}))
}

const (
	// atomicWrite is the size that a pipe which is ready accepts without blocking (PIPE_BUF).
	atomicWrite = 4096
	// readyPoll is the interval of checks of the context while a pipe is full.
	readyPoll = 20 * time.Millisecond
)

// writeReady writes p until it is written or ctx ends. If out is not a file, it is one blocking
// Write.
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

// ready waits up to readyPoll until the file accepts a write or has failed. The write then returns
// the error.
func ready(raw syscall.RawConn) bool {
	events := 0
	err := raw.Control(func(fd uintptr) {
		events, _ = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}, int(readyPoll.Milliseconds()))
	})
	return events > 0 || err != nil
}
