package rewarder

import (
	"context"
	"errors"
	"io"
	"net/url"
	"os"
	"path/filepath"

	"ronbox/appliance/b3"
	"ronbox/appliance/host"
	"ronbox/appliance/merkle"
	"ronbox/engines/rewarder/record"
	"ronbox/store"
)

// maxWrites bounds the attempts to write the files of a run.
const maxWrites = 3

// runWriter writes the files of runs. Files that are left at shutdown are written by the next
// start.
func (e *Engine) runWriter(ctx context.Context) error {
	if e.others {
		e.remake(ctx)
	}
	err := e.consume(ctx, toWrite, e.write)
	if err != nil {
		e.m.lost(len(e.todo[toWrite].Discard("shutdown")))
	}
	return err
}

// write writes the files of a run from its rows and records the outcome.
func (e *Engine) write(ctx context.Context, j job) {
	m, run, err := e.load(ctx, j)
	for n := 1; err == nil && run.Artifact == ArtifactPending; n++ {
		failed := e.files(ctx, &m, run)
		state := ArtifactDone
		switch {
		case ctx.Err() != nil:
			e.m.lost(1)
			return
		case errors.Is(failed, store.ErrCorrupt):
			err = failed
			continue
		case failed != nil:
			e.log.Warn("files_not_written", "run", j.key.String()[:19], "reason", failed.Error())
			state = ArtifactFailed
			if n < maxWrites {
				continue
			}
		}
		e.unwrote.Store(state == ArtifactFailed)
		c := change{kind: "set_artifact", from: final}
		run, err = e.change(ctx, store.Work, j, c, func(_ store.Reader, run *Run, w *store.Writes) error {
			run.Artifact = state
			todos.Delete(w, j.todo(toWrite))
			return nil
		})
		if err == nil {
			e.publish(run)
		}
	}
	e.waits(ctx, j, err)
}

// remake writes the files of finished runs that this node lacks, because another node has made the
// run. A call of Files is refused meanwhile, because it uses the same temporary files.
func (e *Engine) remake(ctx context.Context) {
	if !e.filing.CompareAndSwap(false, true) {
		e.log.Warn("files_not_remade", "reason", "a call compares files", "next", "have them rebuilt")
		return
	}
	defer e.filing.Store(false)
	var lacking []job
	err := walk(ctx, e, slots, textKey, func(_ store.Reader, slot string, run Run) {
		if run.Artifact == ArtifactDone && e.lacks(&run) {
			lacking = append(lacking, job{slot, run.RunKey})
		}
	})
	for _, j := range lacking {
		if err != nil || ctx.Err() != nil {
			break
		}
		m, run, failed := e.load(ctx, j)
		if failed == nil {
			failed = e.files(ctx, &m, run)
		}
		if failed != nil {
			e.log.Warn("files_not_remade", "run", j.key.String()[:19], "reason", failed.Error())
		}
	}
	if err != nil {
		e.log.Warn("files_not_remade", "reason", err.Error())
	}
}

// lacks reports whether the last file of a run is missing.
func (e *Engine) lacks(run *Run) bool {
	_, err := os.Lstat(filepath.Join(e.directory(run), lastFile))
	return errors.Is(err, os.ErrNotExist)
}

// Folder is where the files of a run are, below the node's folder of artifacts. An epoch's id is
// escaped, so that no two share a folder.
func Folder(tenant, epoch, runKey string) string {
	return filepath.Join(tenant, url.QueryEscape(epoch), runKey[len("b3:"):][:16])
}

// artifact is a file of a run. write produces its bytes from rows of the node's file.
type artifact struct {
	name  string
	write func(context.Context, io.Writer) error
}

// lastFile is the file of a run that is written last.
const lastFile = "commitment.txt"

// artifacts lists the files of a run.
func (e *Engine) artifacts(m *material, run Run) []artifact {
	fixed := func(b []byte) func(context.Context, io.Writer) error {
		return func(_ context.Context, w io.Writer) error { _, err := w.Write(b); return err }
	}
	return []artifact{
		{"policy.json", fixed(m.policy.Bytes())},
		{"snapshot.json", fixed(m.in.Snapshot)},
		{"ledger.json", fixed(m.in.Ledger)},
		{"rows.ndjson", func(ctx context.Context, w io.Writer) error { return e.writeRows(ctx, w, m) }},
		{"run.json", func(ctx context.Context, w io.Writer) error { return e.writeRun(ctx, w, m, run) }},
		{lastFile, fixed([]byte(run.Commitment.String() + "\n"))},
	}
}

// directory returns the folder of the files of a run.
func (e *Engine) directory(run *Run) string {
	return filepath.Join(e.folder, Folder(run.Tenant, run.Epoch, run.RunKey.String()))
}

func (e *Engine) files(ctx context.Context, m *material, run Run) error {
	dir := e.directory(&run)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, f := range e.artifacts(m, run) {
		if err := e.replace(ctx, dir, f); err != nil {
			return err
		}
	}
	return nil
}

// replace writes a file of a run, whole or not at all.
func (e *Engine) replace(ctx context.Context, dir string, f artifact) error {
	return host.ReplaceFile(filepath.Join(dir, f.name), 0o644, func(w io.Writer) error {
		err := f.write(ctx, w)
		e.step("artifact_temp") // the file still has its temporary name
		return err
	})
}

// writeRows writes the rows of usage and verifies them against the root of their snapshot.
func (e *Engine) writeRows(ctx context.Context, w io.Writer, m *material) error {
	var leaves []b3.Digest
	if err := e.pieces(ctx, chunks, m.in.Upload, chunksOf(m.head.Rows), func(b []byte) error {
		leaves = append(leaves, merkle.Leaf(b))
		var lines []byte
		for row, rest, ok := record.CutRow(b); ok; row, rest, ok = record.CutRow(rest) {
			lines = row.AppendJSON(lines, m.head.Metrics)
		}
		_, err := w.Write(lines)
		return err
	}); err != nil {
		return err
	}
	if record.Root(leaves) != m.head.RowsRoot {
		return &store.RowError{Bucket: chunks.Bucket().Name, Key: m.in.Upload[:], Cause: errRoot}
	}
	return nil
}

// writeRun writes the manifest with the allocations inserted.
func (e *Engine) writeRun(ctx context.Context, w io.Writer, m *material, run Run) error {
	line, tail := record.CutRun(run.Manifest)
	for c := range uint32(len(m.roots)) {
		var all []record.Allocation
		if err := e.view(ctx, func(r store.Reader) error {
			all, _ = readChunk(r, m.key, m.roots, c)
			return nil
		}); err != nil {
			return err
		}
		for i, a := range all {
			if c > 0 || i > 0 {
				line = append(line, ',')
			}
			line = a.AppendJSON(line)
		}
		if _, err := w.Write(line); err != nil {
			return err
		}
		line = line[:0]
	}
	_, err := w.Write(append(line, tail...))
	return err
}
