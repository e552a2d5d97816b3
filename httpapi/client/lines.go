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
	maxProgress = 1 << 20 // bytes of one line: a verdict may list many findings
	// much more than any record: 800 bytes, or a little more than twice that with readable members
	maxExportLine = 64 << 10
	longTimeout   = 61 * time.Minute // for calls that report progress; the node gives up after an hour
)

// ReadLines performs k and calls each for every line of the answer, until each returns last. It
// takes at most longTimeout, regardless of the client's timeout.
func ReadLines[T any](ctx context.Context, c *Client, k Call, each func(T) (last bool, err error)) error {
	ctx, cancel := context.WithTimeout(ctx, longTimeout)
	defer cancel()
	resp, err := c.send(ctx, k)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }() // nothing follows the last line
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

// readLine reads one line. An answer that ends without its last line is truncated.
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

// Export performs k and calls each for every line of the answer, without the newline. The line is
// valid until each returns. Export ends with the answer, when ctx ends, or when each returns an
// error; ErrStop is not returned as an error. The client's timeout does not apply. Because the node
// sends an empty line now and then, a silence of DefaultIdle ends the export. A truncated answer is
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

// cutError is returned for a truncated answer.
type cutError struct{ cause error }

func (e *cutError) Error() string { return e.cause.Error() }

// eachLine reads lines until the end. A line with a problem is the last. Empty lines only show that
// the node is alive.
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

// problemLine returns the problem that ends an export, or nil if line is not one.
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

// Copy performs k and writes the answer, of at most limit bytes, to w. It is bounded by ctx, not by
// the client's timeout. After an error w has received a part.
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

// writer marks errors of w to distinguish them from those of the connection.
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
