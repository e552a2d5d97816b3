package client

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"ronbox/httpapi/wire"
)

// Ready reads /readyz: of one service or, when empty, of the node; plane is "", "read" or "write". Not being ready is
// an answer, not an error.
func (c *Client) Ready(ctx context.Context, service, plane string) (wire.Ready, error) {
	q := url.Values{}
	if service != "" {
		q.Set("service", service)
	}
	if plane != "" {
		q.Set("plane", plane)
	}
	var r wire.Ready
	_, err := c.do(ctx, call{
		method: http.MethodGet, path: "/readyz", query: q, into: &r, accept: []int{http.StatusServiceUnavailable},
	})
	return r, err
}

// NodeVersion reads what is running and which database it serves.
func (c *Client) NodeVersion(ctx context.Context) (wire.VersionInfo, error) {
	var v wire.VersionInfo
	_, err := c.do(ctx, call{method: http.MethodGet, path: "/version", into: &v})
	return v, err
}

// Status reads the node's own view of itself.
func (c *Client) Status(ctx context.Context) (wire.Status, error) {
	var s wire.Status
	_, err := c.do(ctx, call{method: http.MethodGet, path: "/admin/v1/status", into: &s})
	return s, err
}

// Drain asks the node to stop in order; it answers before it does.
func (c *Client) Drain(ctx context.Context, reason string) error {
	_, err := c.do(ctx, call{method: http.MethodPost, path: "/admin/v1/drain", body: wire.DrainRequest{Reason: reason}})
	return err
}

// DBInfo reads the figures of the open database file.
func (c *Client) DBInfo(ctx context.Context) (wire.DBInfo, error) {
	var i wire.DBInfo
	_, err := c.do(ctx, call{method: http.MethodGet, path: "/admin/v1/db/info", into: &i})
	return i, err
}

// AcceptRestore lets a restored node write again.
func (c *Client) AcceptRestore(ctx context.Context) error {
	_, err := c.do(ctx, call{method: http.MethodPost, path: "/admin/v1/db/accept-restore"})
	return err
}

// Mint makes a token.
func (c *Client) Mint(ctx context.Context, m wire.MintRequest) (wire.Token, error) {
	var t wire.Token
	_, err := c.do(ctx, call{method: http.MethodPost, path: "/admin/v1/tokens", body: m, into: &t})
	return t, err
}

// Genesis installs version 1 while the log is empty; one that has begun refuses with conflict.
func (c *Client) Genesis(ctx context.Context, payload []byte, approvals []wire.Approval) (wire.Committed, error) {
	var out wire.Committed
	body := wire.Genesis{Payload: jsontext.Value(payload), Approvals: approvals}
	_, err := c.do(ctx, call{method: http.MethodPost, path: "/admin/v1/registry/genesis", body: body, into: &out})
	return out, err
}

const (
	snapshotLine    = 64 << 10         // bytes of one line of the answer of Snapshot
	snapshotTimeout = 61 * time.Minute // the node itself gives up after an hour
)

// Snapshot has the node write a snapshot into dir, a path on its own disk, and calls progress as it goes on. It takes
// as long as ctx and the node let it, an hour at most; the client's timeout does not count.
func (c *Client) Snapshot(ctx context.Context, dir string, progress func(done, total int64)) (wire.Snapshot, error) {
	ctx, cancel := context.WithTimeout(ctx, snapshotTimeout)
	defer cancel()
	k := call{method: http.MethodPost, path: "/admin/v1/db/snapshot", body: wire.SnapshotRequest{Dir: dir}}
	resp, err := c.send(ctx, k)
	if err != nil {
		return wire.Snapshot{}, err
	}
	defer drainClose(resp.Body)
	lines := bufio.NewReaderSize(resp.Body, snapshotLine)
	for {
		line, err := readSnapshotLine(lines)
		switch {
		case err != nil:
			return wire.Snapshot{}, c.transportError(ctx, k.String(), err)
		case line.Problem != nil:
			return wire.Snapshot{}, line.Problem
		case line.Finished():
			return line.Snapshot(), nil
		case progress != nil:
			progress(line.Done, line.Total)
		}
	}
}

func readSnapshotLine(r *bufio.Reader) (line wire.SnapshotLine, err error) {
	raw, err := r.ReadSlice('\n')
	if errors.Is(err, io.EOF) {
		return line, io.ErrUnexpectedEOF
	}
	if err != nil {
		return line, err
	}
	if err := json.Unmarshal(raw, &line); err != nil {
		return line, fmt.Errorf("progress line: %w", err)
	}
	return line, nil
}
