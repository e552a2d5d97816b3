package egress

import (
	"bytes"
	"io"
	"strconv"
	"time"
)

const (
	// holdFor is how long the first part of an answer waits for the next one.
	holdFor = 20 * time.Millisecond
	// httpBuffer is the size of the buffer of net/http. A write of this size means that the buffer
	// was full: a further write follows.
	httpBuffer = 4 << 10
)

// output writes two slices at once. n counts the bytes of both.
type output interface {
	WriteBoth(first, second []byte) (n int64, err error)
}

// Writer writes the answers of a connection that net/http serves. net/http writes an answer that is
// larger than its buffer in two parts or more; Writer holds the first part until the next write.
// Begin, Write, ReadFrom and Flush are called by one goroutine at a time.
type Writer struct {
	out   output
	first bool // the next write is the first of an answer

	holds bool          // the first part of an answer is held
	held  []byte        // the part
	timer *time.Timer   // writes held; nil until an answer was held
	wrote chan struct{} // signals that the timer has
	err   error         // of the timer's write; valid after the signal
}

// NewWriter returns a Writer to a Sender or Records.
func NewWriter(out output) *Writer { return &Writer{out: out} }

// Begin is called before each answer.
func (w *Writer) Begin() { w.first = true }

// Write writes b, after what is held.
func (w *Writer) Write(b []byte) (int, error) {
	if w.first {
		w.first = false
		if !w.holds && len(b) == httpBuffer && incomplete(b) { // that of a HEAD may be held already
			w.hold(b)
			return len(b), nil
		}
	}
	held, err := w.release()
	if err != nil {
		return 0, err
	}
	n, err := w.out.WriteBoth(held, b)
	return max(0, int(n)-len(held)), err
}

// ReadFrom writes what r returns, after what is held.
func (w *Writer) ReadFrom(r io.Reader) (int64, error) {
	if err := w.Flush(); err != nil {
		return 0, err
	}
	if to, ok := w.out.(io.ReaderFrom); ok {
		return to.ReadFrom(r)
	}
	return io.Copy(writerOf{w.out}, r)
}

// Flush writes what is held.
func (w *Writer) Flush() error {
	held, err := w.release()
	if err == nil && len(held) > 0 {
		_, err = w.out.WriteBoth(held, nil)
	}
	return err
}

// hold keeps a copy of b, and starts the timer.
func (w *Writer) hold(b []byte) {
	w.holds, w.held = true, append(w.held[:0], b...)
	if w.timer != nil {
		w.timer.Reset(holdFor)
		return
	}
	w.wrote = make(chan struct{}, 1)
	w.timer = time.AfterFunc(holdFor, func() { //rawchan: release joins it
		_, w.err = w.out.WriteBoth(w.held, nil)
		w.wrote <- struct{}{}
	})
}

// release returns what is held, which is valid until the next call of hold. If the timer has
// written it, or does so now, release returns the result of that.
func (w *Writer) release() ([]byte, error) {
	if !w.holds {
		return nil, nil
	}
	w.holds = false
	if w.timer.Stop() {
		return w.held, nil
	}
	<-w.wrote
	return nil, w.err
}

// incomplete reports whether b is the beginning of an answer that announces more bytes.
func incomplete(b []byte) bool {
	head, body, ok := bytes.Cut(b, []byte("\r\n\r\n"))
	if !ok {
		return false
	}
	_, after, ok := bytes.Cut(head, []byte("\r\nContent-Length: "))
	if !ok {
		return false
	}
	digits, _, _ := bytes.Cut(after, []byte("\r\n"))
	n, err := strconv.ParseInt(string(digits), 10, 64)
	return err == nil && n > int64(len(body))
}
