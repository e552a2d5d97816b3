package edge

import (
	"context"
	"errors"
	"fmt"
	"maps"

	"ronbox/appliance/b3"
	"ronbox/appliance/flow"
	"ronbox/store"
)

const (
	taskVerifier = "verifier"
	verifyQueue  = 32
)

// The bucket of packs has one row: digests, which take long to read from files.
var (
	bPacks   = &store.Bucket{Name: "edge/packs", Class: store.Derived}
	packRows = store.NewTable(bPacks, store.String[string](), store.CBOR[[]packRow]())
)

const keyDigests = "digests"

// packRow is what is remembered of a verified pack, for as long as its file has the same size, time and inode.
type packRow struct {
	File   string    `cbor:"1,keyasint"`
	Size   int64     `cbor:"2,keyasint"`
	MTime  int64     `cbor:"3,keyasint"` // Unix ns
	Inode  uint64    `cbor:"4,keyasint"`
	Digest b3.Digest `cbor:"5,keyasint"`
	Tiles  uint64    `cbor:"6,keyasint"`
}

func (r packRow) stamp() stamp { return stamp{size: r.Size, mtime: r.MTime, inode: r.Inode} }

// rememberPacks replaces what is remembered.
type rememberPacks struct{ rows []packRow }

// Kind is stored in the file.
func (rememberPacks) Kind() string { return "edge.packs/1" }

// Apply puts the one row.
func (c rememberPacks) Apply(_ store.Reader, _ store.Stamp, w *store.Writes) (struct{}, error) {
	packRows.Put(w, keyDigests, c.rows)
	return struct{}{}, nil
}

// Task is the verifier.
func (s *PackSet) Task() flow.Task {
	return flow.Task{
		Service: service, Name: taskVerifier, Restart: flow.Always, Background: true, Lanes: []string{"store.work"},
		Doc: "opens, verifies and replaces packs", Run: s.runVerifier,
	}
}

// Recover opens the packs and serves their tiles; the verifier does the rest. A folder that cannot be read is logged: a node starts without it.
func (s *PackSet) Recover(ctx context.Context) error {
	err := s.Store.View(ctx, func(r store.Reader) error {
		rows, _ := packRows.Get(r, keyDigests)
		for _, row := range rows {
			s.remembered[row.File] = row
		}
		return nil
	})
	if err = errors.Join(err, s.leaves.Open(), s.tiles.Open()); err != nil {
		return fmt.Errorf("packs: %w", err)
	}
	_ = s.scan(ctx) // it is logged
	return nil
}

// runVerifier scans for jobs, and else verifies packs one by one.
func (s *PackSet) runVerifier(ctx context.Context) error {
	var waiting []*flow.Reply[error] // scanned; answered once every pack is verified. As many as callers wait, whom the in-flight cap bounds
	var failed error                 // of the last scan
	take := func(job *flow.Reply[error]) {
		waiting = append(waiting, job)
		failed = s.scan(ctx)
	}
	defer func() {
		if ctx.Err() != nil { // no other life answers what waits
			waiting = append(waiting, s.jobs.Discard("stopped")...)
		}
		for _, job := range waiting {
			job.Fail(flow.ErrCanceled)
		}
	}()
	for {
		if err := s.verifyAll(ctx, take); err != nil {
			return err
		}
		for _, job := range waiting {
			job.Answer(failed)
		}
		waiting = nil
		job, err := s.jobs.Recv(ctx)
		if errors.Is(err, flow.ErrClosed) {
			return nil // drained
		}
		if err != nil {
			return err
		}
		take(job)
	}
}

// verifyAll verifies packs until none is left. Between two pieces of a large file it gives take what has come.
func (s *PackSet) verifyAll(ctx context.Context, take func(*flow.Reply[error])) error {
	for {
		e, ok := s.pending()
		if !ok {
			return nil
		}
		r, err := e.pack.verify(ctx, func(int64, int64) {
			for s.jobs.Len() > 0 && ctx.Err() == nil {
				if job, err := s.jobs.Recv(ctx); err == nil { // at once: nobody else receives
					take(job)
				}
			}
		})
		e.pack.Close()
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil {
			r.Info.State, r.Info.Fault = PackFailed, err.Error()
		}
		s.finish(ctx, e.pack, r.Info)
	}
}

// pending holds a pack of the current generation that is not verified.
func (s *PackSet) pending() (packEntry, bool) {
	g := *s.current.Load()
	for _, id := range g.ids() {
		if e := g[id]; (e.info.State == PackVerifying || e.info.State == PackChanged) && e.pack.hold() {
			return e, true
		}
	}
	return packEntry{}, false
}

// finish publishes the outcome for a pack and remembers it, unless another file has taken its place meanwhile. Without its digest in the
// file the next start reads the pack once more.
func (s *PackSet) finish(ctx context.Context, p *Pack, info PackInfo) {
	next := maps.Clone(*s.current.Load())
	if next[info.ID].pack != p {
		return
	}
	if next[info.ID] = (packEntry{info: info, pack: p}); info.State == PackFailed {
		next[info.ID] = packEntry{info: info}
	} else {
		s.remembered[info.File] = packRow{info.File, p.stamp.size, p.stamp.mtime, p.stamp.inode, info.Digest, info.Tiles}
		var rows []packRow
		for _, id := range next.ids() { // packs that are gone are forgotten
			if row, ok := s.remembered[next[id].info.File]; ok {
				rows = append(rows, row)
			}
		}
		if _, err := store.Commit(ctx, s.Store, store.Work, rememberPacks{rows}); err != nil {
			s.Log.Warn("the digest of a pack is not remembered", "pack", info.ID, "reason", err.Error())
		}
	}
	s.publish(next)
}
