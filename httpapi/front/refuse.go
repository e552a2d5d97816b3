package front

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Reasons of refusals before the handler.
const (
	reasonMalformed = "malformed"
	reasonHeader    = "bad_header"
	reasonTimeout   = "timeout"
	reasonCap       = "conn_cap"
	reasonForbidden = "forbidden"
)

const headerTooLong = "the request line and headers are longer than server.max_header"

// refusalWithin bounds the time to send the answer to a refused request.
const refusalWithin = time.Second

// replaceRefusal replaces an answer of net/http itself, which is a line of plain text. It is called
// for every write before the handler has run. It returns len(b).
func (c *conn) replaceRefusal(w net.Conn, b []byte) (int, error) {
	if !c.phase.CompareAndSwap(phaseHeader, phaseOver) {
		return len(b), nil // the rest of a replaced refusal
	}
	status, text := statusLine(b)
	reason := reasonMalformed
	switch {
	case status == http.StatusRequestHeaderFieldsTooLarge:
		reason, text = reasonHeader, headerTooLong
	case status == http.StatusNotImplemented:
		text = "the transfer encoding is not supported"
	case status == http.StatusExpectationFailed:
		text = "of expectations only 100-continue is known"
	case text == "":
		text = "this is not an HTTP/1.1 request"
	}
	_ = w.SetWriteDeadline(time.Now().Add(refusalWithin))
	_, err := w.Write(c.e.f.refusal(status, reason, text))
	return len(b), err
}

// statusLine parses the status and the explanation in an answer of net/http. The explanation never
// contains text of the request.
func statusLine(b []byte) (status int, text string) {
	line, _, _ := strings.Cut(string(b), "\r\n")
	fields := strings.SplitN(line, " ", 3)
	if len(fields) < 2 {
		return http.StatusBadRequest, ""
	}
	status, err := strconv.Atoi(fields[1])
	if err != nil || http.StatusText(status) == "" || status < http.StatusBadRequest {
		return http.StatusBadRequest, ""
	}
	_, text, _ = strings.Cut(line, ": ")
	return status, text
}

// refusal counts a refusal and returns its answer, which ends the connection.
func (f *Front) refusal(status int, reason, detail string) []byte {
	f.o.Counted(reason)
	header, body := f.o.Problem(status, reason, detail)
	header = header.Clone()
	header.Set("Connection", "close")
	header.Set("Content-Length", strconv.Itoa(len(body)))
	header.Set("Date", time.Now().UTC().Format(http.TimeFormat))
	var out bytes.Buffer
	fmt.Fprintf(&out, "HTTP/1.1 %d %s\r\n", status, http.StatusText(status))
	_ = header.Write(&out)
	out.WriteString("\r\n")
	out.Write(body)
	return out.Bytes()
}

// status returns the answer to a connection beyond a limit.
func (o outcome) status() (status int, detail string) {
	if o == overPerIP {
		return http.StatusTooManyRequests, "too many connections from this address"
	}
	return http.StatusServiceUnavailable, "too many connections"
}

// reject refuses a connection that was just accepted, over a limit.
func (e *endpoint) reject(c net.Conn, over outcome, secure bool) {
	reason := rejectTotal
	if over == overPerIP {
		reason = rejectPerIP
	}
	e.rejects[reason](1)
	var answer []byte
	if !secure {
		status, detail := over.status()
		answer = e.f.refusal(status, reasonCap, detail)
	}
	closeWith(c, answer)
}

// rejectPeer refuses a peer that may not use the admin socket.
func (e *endpoint) rejectPeer(c net.Conn, uid uint32) {
	e.rejects[rejectPeer](1)
	closeWith(c, e.f.refusal(http.StatusForbidden, reasonForbidden, fmt.Sprintf("this user (uid %d) may not use the "+
		"socket; run as the user of the node (uid %d), or admit the uid in uds.allow_uids or uds.map of its "+
		"configuration", uid, os.Getuid())))
}

// closeWith sends an answer and closes the connection. It neither reads nor waits: the answer fits
// every socket buffer, or is lost.
func closeWith(c net.Conn, answer []byte) {
	if sc, ok := c.(syscall.Conn); ok && len(answer) > 0 {
		if raw, err := sc.SyscallConn(); err == nil {
			_ = raw.Write(func(fd uintptr) bool {
				_, _ = unix.Write(int(fd), answer)
				return true
			})
		}
	}
	_ = c.Close()
}

// A refusal in a reserved slot frees the slot and is delayed, so that a client that opens one
// connection after the other cannot keep a core busy. The delay is 100 ms ± 50 ms, so that refused
// clients do not come back together. At most maxDelayed connections at a time are delayed, until
// they are closed; others keep their slot and are refused at once.
const (
	refusalDelay = 100 * time.Millisecond
	maxDelayed   = 256
)

// State of a delayed refusal.
const (
	delayNone int32 = iota
	delayed
	delayNever // the connection is closed
)

// delayRefusal frees the reserved slot and waits.
func (c *conn) delayRefusal(r *http.Request) {
	all := &c.e.f.delayed
	if all.Add(1) > maxDelayed || !c.delay.CompareAndSwap(delayNone, delayed) {
		all.Add(-1)
		return
	}
	c.e.conns.release(c)
	pause := time.NewTimer(refusalDelay/2 + rand.N(refusalDelay))
	defer pause.Stop()
	select {
	case <-pause.C:
	case <-r.Context().Done():
	}
}

// refuse answers a request instead of the handler, and closes the connection. It sets a deadline,
// because net/http waits for the rest of the announced body.
func (f *Front) refuse(w http.ResponseWriter, r *http.Request, status int, reason, detail string) {
	control, end := http.NewResponseController(w), time.Now().Add(refusalWithin)
	_, _ = control.SetReadDeadline(end), control.SetWriteDeadline(end)
	f.o.Counted(reason)
	header, body := f.o.Problem(status, reason, detail)
	for k, values := range header {
		w.Header()[k] = values
	}
	w.WriteHeader(status)
	_, _ = w.Write(body)
	PeerOf(r).DropBody(w, r)
}
