package client

import (
	"context"
	"net/http"

	"ronbox/httpapi/wire"
)

// DBInfo reads the figures of the open database file.
func (c *Client) DBInfo(ctx context.Context) (wire.DBInfo, error) {
	return adminGet[wire.DBInfo](ctx, c, "db/info")
}

// DBStats reads what the file's pages and its committer are doing.
func (c *Client) DBStats(ctx context.Context) (wire.DBStats, error) {
	return adminGet[wire.DBStats](ctx, c, "db/stats")
}

// AcceptRestore lets a restored node write again.
func (c *Client) AcceptRestore(ctx context.Context) error {
	_, err := c.do(ctx, call{method: http.MethodPost, path: adminPath + "db/accept-restore"})
	return err
}

// Snapshot has the node write a snapshot into r.Dir, a path on its own disk, and calls progress, if there is one, as it
// goes on. It takes as long as ctx and the node let it, an hour at most; the client's timeout does not count.
func (c *Client) Snapshot(ctx context.Context, r wire.SnapshotRequest, progress func(done, total int64)) (out wire.Snapshot, err error) {
	k := call{method: http.MethodPost, path: adminPath + "db/snapshot", body: r}
	err = readLines(ctx, c, k, func(l wire.SnapshotLine) (bool, error) {
		switch {
		case l.Problem != nil:
			return true, l.Problem
		case l.Finished():
			out = l.Snapshot()
			return true, nil
		case progress != nil:
			progress(l.Done, l.Total)
		}
		return false, nil
	})
	return out, err
}

// CheckDB has the node check a copy of its file and calls progress, if there is one, as it goes on. The line returned is
// the verdict: that something is wrong with the file is an answer, not an error. It takes as long as Snapshot may.
func (c *Client) CheckDB(ctx context.Context, progress func(wire.CheckLine)) (out wire.CheckLine, err error) {
	k := call{method: http.MethodPost, path: adminPath + "db/check"}
	err = readLines(ctx, c, k, func(l wire.CheckLine) (bool, error) {
		switch {
		case l.Problem != nil:
			return true, l.Problem
		case l.Finished():
			out = l
			return true, nil
		case progress != nil:
			progress(l)
		}
		return false, nil
	})
	return out, err
}
