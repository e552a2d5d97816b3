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

// sendPart is the unit of a send window: the bytes written with one deadline, and the least that a
// client must take in that time.
const sendPart = 64 << 10

// SendWindow replaces the write deadline of the next answer to p by one of d for each 64 KiB, so
// that the answer may take as long as its client keeps reading. It must be called before the first
// byte of the answer, is in effect until the last, and overrides deadlines set by
// http.ResponseController. On a plain TCP connection the kernel still sends files.
func (p *Peer) SendWindow(d time.Duration) {
	if p.conn != nil {
		p.conn.window = d
	}
}

// send writes b to w. It sets deadlines on the raw connection, because TLS must not see one pass.
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

// sendFrom copies r to w. Within a send window it uses sendfile one part at a time, and reads other
// readers itself.
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
			return n, nil // end of the file
		}
		if err != nil && (size-part.N != m || !c.taken(before, err)) { // bytes were read but not sent
			return n, err
		}
	}
	return n, nil
}

// isFile reports whether r is an open file, possibly wrapped by io.Copy to hide WriteTo.
func isFile(r io.Reader) bool {
	_, file := r.(fs.File)
	_, fd := r.(syscall.Conn)
	return file && fd
}

// startPart sets the deadline of a part and returns the number of bytes that the client took before
// it.
func (c *conn) startPart(w net.Conn) uint64 {
	_ = w.SetWriteDeadline(time.Now().Add(c.window))
	return c.acked()
}

// taken reports whether err is a deadline that passed although the client took a part. The kernel
// wakes a writer only when a third of its buffer is free, which may be more than a slow client
// takes in one window.
func (c *conn) taken(before uint64, err error) bool {
	return errors.Is(err, os.ErrDeadlineExceeded) && c.acked() >= before+sendPart
}

// acked returns the number of bytes that the client's kernel has acknowledged. It returns 0 over
// the socket.
func (c *conn) acked() (n uint64) {
	c.control(func(fd int) {
		if info, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO); err == nil {
			n = info.Bytes_acked
		}
	})
	return n
}
