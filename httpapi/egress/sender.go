package egress

import (
	"errors"
	"io"
	"io/fs"
	"math"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// windowPart is the least number of bytes that a client must take in a window.
const windowPart = 64 << 10

// Pool holds the memory of finished writes for later ones. All connections of a server share it.
type Pool struct{ transfers, records sync.Pool }

// NewPool returns an empty pool.
func NewPool() *Pool {
	return &Pool{
		transfers: sync.Pool{New: func() any {
			t := new(transfer)
			t.step = t.run
			return t
		}},
		records: sync.Pool{New: func() any {
			b := make([]byte, 0, recordBytes)
			return &b
		}},
	}
}

// Socket is a TCP or Unix connection.
type Socket interface {
	net.Conn
	syscall.Conn
}

// Sender writes to a socket. Concurrent writes do not mix.
type Sender struct {
	socket Socket
	raw    syscall.RawConn
	pool   *Pool
	window atomic.Int64 // a time.Duration
	turn   sync.Mutex   // held over a write, also between its tries; a leaf but for the lock of Records
}

// NewSender returns a Sender for an open socket.
func NewSender(c Socket, p *Pool) *Sender {
	raw, _ := c.SyscallConn() // it fails only if c is nil
	return &Sender{socket: c, raw: raw, pool: p}
}

// SetWindow sets the window of later writes. 0 means none: the write deadline of the socket
// applies.
func (s *Sender) SetWindow(d time.Duration) { s.window.Store(int64(d)) }

// Window returns the window.
func (s *Sender) Window() time.Duration { return time.Duration(s.window.Load()) }

// WriteBoth writes two slices, of which the first may be empty. n counts the bytes of both.
func (s *Sender) WriteBoth(first, second []byte) (n int64, err error) {
	t := s.pool.transfers.Get().(*transfer)
	t.bytes = [2][]byte{first, second}
	return s.do(t)
}

// ReadFrom writes what r returns. If r is a file or an io.SectionReader of one, or a part of either
// in an io.LimitedReader, the kernel sends it.
func (s *Sender) ReadFrom(r io.Reader) (n int64, err error) {
	limited, ok := r.(*io.LimitedReader)
	if !ok {
		limited = &io.LimitedReader{R: r, N: math.MaxInt64}
	}
	f, at, size := fileOf(limited)
	if f == nil {
		return io.Copy(writerOf{s}, r)
	}
	bad := f.Control(func(fd uintptr) {
		t := s.pool.transfers.Get().(*transfer)
		t.file, t.at, t.rest = int(fd), at, size
		n, err = s.do(t)
	})
	if err = errors.Join(bad, err); n == 0 && errors.Is(err, unix.EINVAL) { // the kernel cannot send this file
		return io.Copy(writerOf{s}, r)
	}
	limited.N -= n
	_, bad = limited.R.(io.Seeker).Seek(n, io.SeekCurrent)
	return n, errors.Join(err, bad)
}

// writerOf writes one slice at a time.
type writerOf struct{ output }

func (w writerOf) Write(b []byte) (int, error) {
	n, err := w.WriteBoth(nil, b)
	return int(n), err
}

// fileOf returns the file that r reads, with the offset and the number of bytes that are to be
// read. It returns nil if r does not read a file.
func fileOf(r *io.LimitedReader) (raw syscall.RawConn, at, size int64) {
	src, size := any(r.R), r.N
	if part, ok := src.(*io.SectionReader); ok {
		outer, base, length := part.Outer()
		pos, _ := part.Seek(0, io.SeekCurrent)
		src, at, size = outer, base+pos, min(size, length-pos)
	} else if f, ok := src.(io.Seeker); ok {
		var err error
		if at, err = f.Seek(0, io.SeekCurrent); err != nil {
			return nil, 0, 0
		}
	}
	if _, file := src.(fs.File); !file {
		return nil, 0, 0
	}
	sc, ok := src.(syscall.Conn)
	if !ok {
		return nil, 0, 0
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return nil, 0, 0
	}
	return raw, at, size
}

// do performs t and returns it to the pool. n is the number of bytes that the kernel has accepted.
func (s *Sender) do(t *transfer) (n int64, err error) {
	t.Sender = s
	s.turn.Lock()
	defer s.turn.Unlock()
	for err = s.raw.Write(t.step); err != nil; err = s.raw.Write(t.step) {
		if !errors.Is(err, os.ErrDeadlineExceeded) || !t.extend() {
			break
		}
	}
	if err == nil {
		err = t.err
	}
	if n = t.sent; t.held != nil {
		*t.held = (*t.held)[:0]
		s.pool.records.Put(t.held)
	}
	*t = transfer{step: t.step}
	s.pool.transfers.Put(t)
	return n, err
}

// transfer is one write to a socket: of bytes, or of a part of a file.
type transfer struct {
	*Sender
	bytes [2][]byte // to write
	file  int       // descriptor of the file, if rest > 0
	at    int64     // in the file
	rest  int64     // of the file to send
	from  *Records  // whose gathered records are to be written; nil: none
	held  *[]byte   // the gathered records, of the pool

	sent  int64
	err   error
	waits bool                  // a window has begun, because the socket was full
	taken uint64                // by the client when it began
	part  int64                 // accepted by the kernel since
	step  func(fd uintptr) bool // run
}

// run writes until the transfer ends, and then returns true, or until the socket is full. The write
// lock of the descriptor is held.
func (t *transfer) run(fd uintptr) bool {
	if t.from != nil {
		if t.held, t.from = t.from.take(), nil; t.held != nil {
			t.bytes[0] = *t.held
		}
	}
	for t.rest > 0 || len(t.bytes[0])+len(t.bytes[1]) > 0 {
		n, err := t.write(int(fd))
		switch {
		case err == unix.EINTR:
		case err == unix.EAGAIN:
			if t.Window() > 0 && !t.waits {
				t.begin(acked(int(fd)))
			}
			return false
		case err != nil:
			t.err = err
			return true
		case n == 0:
			return true // end of the file
		default:
			t.advance(n)
		}
	}
	return true
}

// sendMost bounds the bytes of a file that the kernel sends at once, so that a client that reads as
// fast does not keep a thread busy.
const sendMost = 1 << 20

// write calls the kernel once.
func (t *transfer) write(fd int) (n int, err error) {
	op := "write"
	release()
	switch {
	case len(t.bytes[0]) > 0 && len(t.bytes[1]) > 0:
		n, err = unix.Writev(fd, t.bytes[:])
	case len(t.bytes[0])+len(t.bytes[1]) > 0:
		n, err = unix.Write(fd, t.bytes[min(1, len(t.bytes[1]))])
	default:
		op = "sendfile"
		at := t.at
		n, err = unix.Sendfile(fd, t.file, &at, int(min(t.rest, sendMost)))
	}
	if err != nil && err != unix.EINTR && err != unix.EAGAIN {
		err = os.NewSyscallError(op, err)
	}
	return n, err
}

// advance records that the kernel has accepted n bytes.
func (t *transfer) advance(n int) {
	t.sent += int64(n)
	if t.part += int64(n); t.part >= windowPart {
		t.waits = false
	}
	for i := range t.bytes {
		m := min(n, len(t.bytes[i]))
		t.bytes[i], n = t.bytes[i][m:], n-m
	}
	t.at, t.rest = t.at+int64(n), t.rest-int64(n)
}

// begin begins a window. taken is the number of bytes that the client has taken before.
func (t *transfer) begin(taken uint64) {
	t.waits, t.taken, t.part = true, taken, 0
	_ = t.socket.SetWriteDeadline(time.Now().Add(t.Window())) // if it fails, so does the write
}

// extend begins another window after a deadline has passed, and reports whether it has. The client
// must have taken its part, or the deadline must be that of an earlier answer. The kernel wakes a
// writer only if a third of the buffer is free, which may be more than a slow client takes in one
// window.
func (t *transfer) extend() bool {
	if t.Window() == 0 {
		return false
	}
	var taken uint64
	if err := t.raw.Control(func(fd uintptr) { taken = acked(int(fd)) }); err != nil {
		return false
	}
	if t.waits && taken < t.taken+windowPart {
		return false
	}
	t.begin(taken)
	return true
}

// acked returns the number of bytes that the client's kernel has acknowledged. It returns 0 for a
// Unix socket.
func acked(fd int) uint64 {
	info, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
	if err != nil {
		return 0
	}
	return info.Bytes_acked
}
