package client

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/go-json-experiment/json"
)

const (
	maxProgress = 1 << 20          // bytes of one line: a verdict may name many findings
	longTimeout = 61 * time.Minute // of what tells its progress; the node itself gives up after an hour
)

// readLines performs k and calls each for every line of the answer until it says that this was the last one.
func readLines[T any](ctx context.Context, c *Client, k call, each func(T) (last bool, err error)) error {
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
