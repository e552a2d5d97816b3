package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"ronbox/httpapi/wire"
)

// Tasks lists what runs in the node.
func (c *Client) Tasks(ctx context.Context) (wire.TaskList, error) {
	return adminGet[wire.TaskList](ctx, c, "tasks")
}

// Queues lists the node's channels and how full they are.
func (c *Client) Queues(ctx context.Context) (wire.QueueList, error) {
	return adminGet[wire.QueueList](ctx, c, "queues")
}

// LogLevel reads what the node logs.
func (c *Client) LogLevel(ctx context.Context) (wire.LogLevel, error) {
	return adminGet[wire.LogLevel](ctx, c, "log-level")
}

// SetLogLevel sets what the node logs until it is set again, reloaded or stopped. Idempotent.
func (c *Client) SetLogLevel(ctx context.Context, l wire.LogLevel) (wire.LogLevel, error) {
	return ask[wire.LogLevel](ctx, c, call{method: http.MethodPut, path: adminPath + "log-level", body: l})
}

const (
	profileTime  = 10 * time.Second // how long the node samples when not told
	maxProfile   = 1 << 30          // bytes: five minutes of execution trace of a busy node
	profileGrace = 30 * time.Second // to hand over what was gathered
)

// Profile writes a profile of the node to w: heap, allocs, goroutine or threadcreate as they stand, block, mutex, profile or
// trace of the next d, flight of the five seconds just past, or of those to come, at most d, if nothing has recorded them. d is
// in whole seconds, rounded up; 0 leaves it to the node. Over the admin socket only. The client's timeout does not count: the
// call may take d and half a minute. After an error w holds a part.
func (c *Client) Profile(ctx context.Context, name string, d time.Duration, w io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, max(d, profileTime)+profileGrace)
	defer cancel()
	k := call{method: http.MethodGet, path: adminPath + "debug/profile/" + url.PathEscape(name)}
	if d > 0 {
		k.query = url.Values{"seconds": {strconv.FormatInt(int64((d+time.Second-1)/time.Second), 10)}}
	}
	resp, err := c.send(ctx, k)
	if err != nil {
		return err
	}
	defer drainClose(resp.Body)
	n, err := io.Copy(writer{w}, io.LimitReader(resp.Body, maxProfile+1))
	if own, ok := errors.AsType[*writeError](err); ok {
		return own.err
	}
	if err == nil && n > maxProfile {
		err = fmt.Errorf("%w: more than %d bytes", ErrTooLarge, maxProfile)
	}
	if err != nil {
		return c.transportError(ctx, k.String(), err)
	}
	return nil
}

// writer marks the errors of w, so that they are told from those of the connection.
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
