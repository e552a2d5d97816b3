package httpapi

import (
	"errors"
	"io/fs"
	"net/http"
	"path/filepath"
	"time"

	"ronbox/httpapi/wire"
)

// progressEvery bounds how often a snapshot tells how far it is.
const progressEvery = 200 * time.Millisecond

// getNodeStatus serves GET /admin/v1/status.
func (s *Server) getNodeStatus(c *call) error { return respond(c, http.StatusOK, s.d.Node.Status()) }

// postDrain serves POST /admin/v1/drain. The node stops after this answer.
func (s *Server) postDrain(c *call) error {
	var in wire.DrainRequest
	if len(c.body) > 0 {
		if err := decode(c.body, &in); err != nil {
			return err
		}
	}
	s.d.Node.Drain(c.actor, c.corrID, in.Reason)
	return respond(c, http.StatusAccepted, struct{}{})
}

// getDBInfo serves GET /admin/v1/db/info.
func (s *Server) getDBInfo(c *call) error {
	info, err := s.d.Node.DBInfo(c.context())
	if err != nil {
		return err
	}
	return respond(c, http.StatusOK, info)
}

// postAcceptRestore serves POST /admin/v1/db/accept-restore.
func (s *Server) postAcceptRestore(c *call) error {
	if err := s.d.Node.AcceptRestore(c.context(), c.actor, c.corrID); err != nil {
		return err
	}
	return c.empty()
}

// postToken serves POST /admin/v1/tokens.
func (s *Server) postToken(c *call) error {
	var in wire.MintRequest
	if err := decode(c.body, &in); err != nil {
		return err
	}
	if len(in.Scopes) == 0 {
		return &BodyError{"scopes", "is missing"}
	}
	t, err := s.d.Node.Mint(c.context(), c.actor, c.corrID, in)
	if err != nil {
		return err
	}
	return respond(c, http.StatusCreated, t)
}

// postSnapshot serves POST /admin/v1/db/snapshot: lines of progress, then the snapshot or the problem. What fails
// before the first line is told as any other refusal.
func (s *Server) postSnapshot(c *call) error {
	var in wire.SnapshotRequest
	if err := decode(c.body, &in); err != nil {
		return err
	}
	if !filepath.IsAbs(in.Dir) {
		return &BodyError{"dir", "must be an absolute path on the node"}
	}
	lines := &ndjson{c: c, limit: s.cfg.WriteTimeout.D()}
	snap, err := s.d.Node.Snapshot(c.context(), c.actor, c.corrID, in.Dir, lines.progress)
	err = dirError(err)
	switch {
	case err != nil && c.status == 0:
		return err
	case err != nil:
		r := s.classify(err)
		s.d.Log.Warn("snapshot.failed", "corr_id", c.corrID, "error", err)
		lines.write(wire.SnapshotLine{Problem: s.problem(c, r, err)})
	default:
		lines.write(wire.SnapshotLine{File: snap.File, Manifest: snap.Manifest, B3: snap.B3, Seq: snap.Seq})
	}
	return nil
}

// dirError says what is wrong with the directory that the caller named; other errors it leaves as they are.
func dirError(err error) error {
	var p *fs.PathError
	if !errors.As(err, &p) {
		return err
	}
	return &BodyError{"dir", p.Op + ": " + p.Err.Error()}
}

// ndjson writes one JSON value a line, each within its own write deadline.
type ndjson struct {
	c     *call
	limit time.Duration
	last  time.Time
}

func (n *ndjson) progress(done, total int64) {
	if now := time.Now(); now.Sub(n.last) >= progressEvery {
		n.last = now
		n.write(wire.SnapshotLine{Done: done, Total: total})
	}
}

// write cannot fail: a client that left ends the call by its context.
func (n *ndjson) write(line wire.SnapshotLine) {
	if n.c.status == 0 {
		n.c.Header().Set("Content-Type", "application/x-ndjson")
		n.c.Header().Set("Cache-Control", cacheNone)
		n.c.WriteHeader(http.StatusOK)
	}
	raw, err := encode(line)
	if err != nil {
		return
	}
	control := n.c.control()
	_ = control.SetWriteDeadline(time.Now().Add(n.limit))
	_, _ = n.c.Write(raw)
	_ = control.Flush()
}
