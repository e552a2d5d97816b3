package front

import (
	"errors"
	"io"
	"io/fs"
	"math"
	"net"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// sendPart is written with one deadline within a send window, and is the least that a client must take in that time.
const sendPart = 64 << 10

// SendWindow lets the next answer to p take as long as its client keeps reading: in place of one write deadline for the
// whole, each 64 KiB of it get d. It is called before the first byte of the answer, holds until its last, and overrides
// deadlines set by http.ResponseController. Files are still sent by the kernel, on a plain TCP connection.
func (p *Peer) SendWindow(d time.Duration) {
	if p.conn != nil {
		p.conn.window = d
	}
}

// send writes b to w. The send window is that of the raw connection: TLS, which writes to it, must not see a deadline pass.
func (c *conn) send(w net.Conn, b []byte) (n int, err error) {
	if c.window == 0 || w != c.raw {
		return w.Write(b)
	}
	for len(b) > 0 {
		before := c.startPart(w)
		m, err := w.Write(b[:min(len(b), sendPart)])
		n, b = n+m, b[m:]
		if err != nil && !c.taken(before, err) {
			return n, err
		}
	}
	return n, nil
}

// sendFrom copies r to w. Within a send window sendfile is left to the kernel a part at a time; other readers are read here.
func (c *conn) sendFrom(w *net.TCPConn, r io.Reader) (n int64, err error) {
	if c.window == 0 {
		return w.ReadFrom(r)
	}
	limited, ok := r.(*io.LimitedReader)
	if !ok {
		limited = &io.LimitedReader{R: r, N: math.MaxInt64}
	}
	if !isFile(limited.R) {
		return io.Copy(&wireConn{Conn: w, conn: c}, r)
	}
	for limited.N > 0 {
		size := min(limited.N, sendPart)
		part := &io.LimitedReader{R: limited.R, N: size}
		before := c.startPart(w)
		m, err := w.ReadFrom(part)
		n, limited.N = n+m, limited.N-m
		if err == nil && part.N > 0 {
			return n, nil // the end of the file
		}
		if err != nil && (size-part.N != m || !c.taken(before, err)) { // bytes read and not sent are lost
			return n, err
		}
	}
	return n, nil
}

// isFile reports whether r is an open file of the system, also as io.Copy hides its WriteTo.
func isFile(r io.Reader) bool {
	_, file := r.(fs.File)
	_, fd := r.(syscall.Conn)
	return file && fd
}

// startPart sets the deadline of a part and returns how much the client has taken before it.
func (c *conn) startPart(w net.Conn) uint64 {
	_ = w.SetWriteDeadline(time.Now().Add(c.window))
	return c.acked()
}

// taken reports whether err is a deadline that passed while the client took a part all the same: the kernel wakes a writer
// only once a third of its buffer is free, which can be more than a slow client takes in one window.
func (c *conn) taken(before uint64, err error) bool {
	return errors.Is(err, os.ErrDeadlineExceeded) && c.acked() >= before+sendPart
}

// acked counts the bytes that the client's kernel has confirmed; 0 over the socket.
func (c *conn) acked() (n uint64) {
	c.control(func(fd int) {
		if info, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO); err == nil {
			n = info.Bytes_acked
		}
	})
	return n
}
