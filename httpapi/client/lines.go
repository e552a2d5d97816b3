package client

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/go-json-experiment/json"

	"ronbox/httpapi/wire"
)

const (
	maxProgress   = 1 << 20          // bytes of one line: a verdict may name many findings
	maxExportLine = 64 << 10         // far above any: a record is 800 bytes at most, a little more than twice that with its readable members
	longTimeout   = 61 * time.Minute // of calls that report progress; the node itself gives up after an hour
)

// ReadLines performs k and calls each for every line of the answer until it says that this was the last one. It takes an hour at
// most; the client's timeout does not count.
func ReadLines[T any](ctx context.Context, c *Client, k Call, each func(T) (last bool, err error)) error {
	ctx, cancel := context.WithTimeout(ctx, longTimeout)
	defer cancel()
	resp, err := c.send(ctx, k)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }() // after the last line there is nothing to wait for
	lines := bufio.NewReaderSize(resp.Body, maxProgress)
	for {
		line, err := readLine[T](lines)
		if err != nil {
			return c.transportError(ctx, k.String(), err)
		}
		if last, err := each(line); last {
			return err
		}
	}
}

// readLine reads one line; an answer that ends before its last line was cut short.
func readLine[T any](r *bufio.Reader) (line T, err error) {
	raw, err := r.ReadSlice('\n')
	switch {
	case errors.Is(err, io.EOF):
		return line, io.ErrUnexpectedEOF
	case errors.Is(err, bufio.ErrBufferFull):
		return line, fmt.Errorf("%w: a line of more than %d bytes", ErrTooLarge, maxProgress)
	case err != nil:
		return line, err
	}
	if err := json.Unmarshal(raw, &line); err != nil {
		return line, fmt.Errorf("progress line: %w", err)
	}
	return line, nil
}

// Export performs k and calls each for every line of the answer, without its end, good until each returns. It ends when the node
// has given all, when ctx ends or each fails; ErrStop from each is no error. The client's timeout does not count: a node that is
// silent for DefaultIdle is given up, for it sends an empty line more often than that. An answer that was cut short is
// ErrUnknown.
func (c *Client) Export(ctx context.Context, k Call, each func(line []byte) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	watchdog := watch(cancel, DefaultIdle)
	defer watchdog.Stop()
	resp, err := c.send(ctx, k)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	err = eachLine(alive{resp.Body, watchdog, DefaultIdle}, each)
	var cut *cutError
	switch {
	case errors.As(err, &cut):
		return c.transportError(ctx, k.String(), cut.cause)
	case errors.Is(err, ErrStop):
		return nil
	}
	return err
}

// cutError says that an answer ended before it was whole.
type cutError struct{ cause error }

func (e *cutError) Error() string { return e.cause.Error() }

// eachLine reads lines to the end. One that holds a problem is the last; an empty one only says that the node lives.
func eachLine(body io.Reader, each func(line []byte) error) error {
	lines := bufio.NewReaderSize(body, maxExportLine)
	for {
		line, err := lines.ReadSlice('\n')
		switch {
		case errors.Is(err, io.EOF) && len(line) == 0:
			return nil
		case errors.Is(err, bufio.ErrBufferFull):
			return fmt.Errorf("%w: a line of more than %d bytes", ErrTooLarge, maxExportLine)
		case errors.Is(err, io.EOF):
			return &cutError{io.ErrUnexpectedEOF}
		case err != nil:
			return &cutError{err}
		}
		if line = line[:len(line)-1]; len(line) == 0 {
			continue
		}
		if p := problemLine(line); p != nil {
			return p
		}
		if err := each(line); err != nil {
			return err
		}
	}
}

// problemLine is the problem that ends an export, nil for any other line.
func problemLine(line []byte) *wire.Problem {
	if !bytes.HasPrefix(line, []byte(`{"problem":`)) {
		return nil
	}
	var end struct {
		Problem *wire.Problem `json:"problem"`
	}
	if json.Unmarshal(line, &end) != nil {
		return nil
	}
	return end.Problem
}

// Copy performs k and writes the answer, of at most limit bytes, to w. It takes as long as ctx allows; the client's timeout does
// not count. After an error w holds a part.
func (c *Client) Copy(ctx context.Context, k Call, w io.Writer, limit int64) error {
	resp, err := c.send(ctx, k)
	if err != nil {
		return err
	}
	defer drainClose(resp.Body)
	n, err := io.Copy(writer{w}, io.LimitReader(resp.Body, limit+1))
	if own, ok := errors.AsType[*writeError](err); ok {
		return own.err
	}
	if err == nil && n > limit {
		err = fmt.Errorf("%w: more than %d bytes", ErrTooLarge, limit)
	}
	if err != nil {
		return c.transportError(ctx, k.String(), err)
	}
	return nil
}

// writer marks the errors of w, to keep them apart from those of the connection.
type writer struct{ w io.Writer }

type writeError struct{ err error }

func (e *writeError) Error() string { return e.err.Error() }

func (w writer) Write(p []byte) (int, error) {
	n, err := w.w.Write(p)
	if err != nil {
		return n, &writeError{err}
	}
	return n, nil
}
