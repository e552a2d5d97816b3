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

// ringBytes bounds the lines that wait for the writer: some seconds of a busy node, little beside its memory.
const ringBytes = 1 << 20

// Ring stands between the logger and a reader that may be slow or stuck. From the start until Run has returned, Write takes what has room,
// drops the rest, and never waits; after that it writes through and waits as long as the reader does.
type Ring struct {
	out     io.Writer
	counted func(n int)
	lost    atomic.Uint64 // lines dropped
	wake    chan struct{} // holds one token while something may be pending

	writing sync.Mutex // held over writes to out; its holder takes no other lock

	mu      sync.Mutex
	mode    ringMode                        // guarded by mu
	pending []byte                          // whole lines; guarded by mu
	busy    bool                            // the writer task is writing; guarded by mu
	idle    chan struct{}                   // closed when nothing is pending or being written, nil when nobody waits; guarded by mu
	sweep   func(now time.Time, final bool) // writes the sums that are due; guarded by mu
}

// ringMode is what becomes of a line.
type ringMode int

const (
	gathers ringMode = iota // kept until Run starts
	runs                    // kept for Run
	through                 // written by the caller of the logger
)

// NewRing writes to out. It shows as the queue "log" of service node.
func NewRing(out io.Writer, m *Metrics) *Ring {
	r := &Ring{
		out: out, counted: m.Counter("queue_dropped_total", "node", "queue", "log"), wake: make(chan struct{}, 1),
		sweep: func(time.Time, bool) {},
	}
	m.Gauge("queue_depth", "node", r.depth, "queue", "log")
	return r
}

// RingCap is the ring's bound in bytes, for the catalogue.
func RingCap() int {
	return ringBytes
}

// setSweep makes the ring call sweep once a second, and at its end: sums must show even if nothing else is logged.
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

// Write takes one whole line. It reports success for a line that it drops: no logger could do anything about it.
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
	default: // the writer is awake already
	}
	return len(p), nil
}

// write hands p to out and counts the lines that it does not take.
func (r *Ring) write(p []byte, out func([]byte) (int, error)) (int, error) {
	n, err := r.alone(p, out)
	if err != nil {
		r.dropped(bytes.Count(p[max(n, 0):], []byte{'\n'}))
	}
	return n, err
}

// alone calls out while nobody else does.
func (r *Ring) alone(p []byte, out func([]byte) (int, error)) (int, error) {
	r.writing.Lock()
	defer r.writing.Unlock()
	return out(p) //lockwait: writing is there to keep two writes from mixing; it guards nothing else, and its holder takes no other lock
}

// errTwoWriters says that Run was called while it ran.
var errTwoWriters = errors.New("obs: the log ring has a writer")

// Run is the writer task. It returns once ctx is done and what was pending is written; a reader that is stuck holds it up.
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

// drain is Run's loop. It leaves the ring writing through, also when out.Write panics: a Run started again picks up what is left.
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
	for batch := []byte(nil); ; {
		last := ctx.Err() != nil
		if last {
			r.sum(true)
		}
		batch = r.swapPending(batch, last)
		if len(batch) > 0 {
			_, _ = r.write(batch, r.out.Write) // counted
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
		case <-ctx.Done():
		}
	}
}

// swapPending exchanges the pending lines for the buffer written last. If nothing is pending, callers waiting in Flush go on, and when last
// is set the ring writes through from then on, in the same step, so that no line is left in it.
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

// release wants r.mu held.
func (r *Ring) release() {
	if r.idle != nil {
		close(r.idle)
		r.idle = nil
	}
}

// Flush waits until all lines taken so far are written, or until ctx ends and gives its cause. Before Run has started it writes them
// itself: for a node that ends before it began.
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

// State is how many bytes of lines are pending, and how many lines were dropped so far.
func (r *Ring) State() (pending int, dropped uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.pending), r.lost.Load()
}

// depth is how many lines are pending.
func (r *Ring) depth() float64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return float64(bytes.Count(r.pending, []byte{'\n'}))
}

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

// ready waits up to readyPoll for the file to take a write, or to have failed, which the write then returns.
func ready(raw syscall.RawConn) bool {
	events := 0
	err := raw.Control(func(fd uintptr) {
		events, _ = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}, int(readyPoll.Milliseconds()))
	})
	return events > 0 || err != nil
}
