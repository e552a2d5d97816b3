package httpapi

import (
	"errors"
	"io/fs"
	"net/http"
	"path/filepath"

	"ronbox/httpapi/wire"
	"ronbox/store"
)

// getDBInfo serves GET /admin/v1/db/info.
func (s *Server) getDBInfo(c *call) error {
	info, err := s.d.Node.DBInfo(c.context())
	if err != nil {
		return err
	}
	return respond(c, http.StatusOK, info)
}

// getDBStats serves GET /admin/v1/db/stats.
func (s *Server) getDBStats(c *call) error {
	stats, err := s.d.Node.DBStats(c.context())
	if err != nil {
		return err
	}
	return respond(c, http.StatusOK, stats)
}

// postAcceptRestore serves POST /admin/v1/db/accept-restore.
func (s *Server) postAcceptRestore(c *call) error {
	if err := s.d.Node.AcceptRestore(c.context(), c.actor, c.corrID); err != nil {
		return err
	}
	return c.empty()
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
	lines := newLines(c)
	snap, err := s.d.Node.Snapshot(c.context(), c.actor, c.corrID, in, func(done, total int64) {
		lines.progress(wire.SnapshotLine{Done: done, Total: total})
	})
	if err := dirError(err); err != nil {
		return s.endLines(lines, err, func(p *wire.Problem) any { return wire.SnapshotLine{Problem: p} })
	}
	lines.write(wire.SnapshotLine{File: snap.File, Manifest: snap.Manifest, B3: snap.B3, Seq: snap.Seq})
	return nil
}

// dirError says what is wrong with the directory that the caller named; other errors it leaves as they are.
func dirError(err error) error {
	var p *fs.PathError
	if errors.Is(err, store.ErrFull) || !errors.As(err, &p) {
		return err
	}
	return &BodyError{"dir", p.Op + ": " + p.Err.Error()}
}

// postCheck serves POST /admin/v1/db/check: lines of progress, then the verdict or the problem.
func (s *Server) postCheck(c *call) error {
	lines := newLines(c)
	verdict, err := s.d.Node.CheckDB(c.context(), c.actor, c.corrID, func(l wire.CheckLine) { lines.progress(l) })
	if err != nil {
		return s.endLines(lines, err, func(p *wire.Problem) any { return wire.CheckLine{Problem: p} })
	}
	lines.write(verdict)
	return nil
}
