package rewarder

import (
	"context"
	"errors"
	"io"
	"net/url"
	"os"
	"path/filepath"

	"ronbox/engines/rewarder/record"
	"ronbox/store"
)

// What became of the files of a run.
const (
	ArtifactPending = "pending"
	ArtifactDone    = "done"
	ArtifactFailed  = "failed"
	ArtifactOff     = "off" // the node writes none
)

// maxWrites is how often the files of a run are tried.
const maxWrites = 3

// runWriter writes the files of runs. What is left when its time is over is written by the next start.
func (e *Engine) runWriter(ctx context.Context) error {
	err := e.consume(ctx, toWrite, e.write)
	if err != nil {
		e.m.lost(len(e.todo[toWrite].Discard("shutdown")))
	}
	return err
}

// write writes the files of a run, whose rows in the node's file are the truth, and notes what became of them.
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
			if state = ArtifactFailed; n < maxWrites {
				continue
			}
		}
		e.unwrote.Store(state == ArtifactFailed)
		run, err = e.change(ctx, store.Work, j, change{kind: "set_artifact", from: final}, func(_ store.Reader, run *Run, w *store.Writes) error {
			run.Artifact = state
			todos.Delete(w, j.todo(toWrite))
			return nil
		})
	}
	e.waits(ctx, j, err)
}

// Folder is where the files of a run are, below the node's folder of artifacts. An epoch's id is escaped, so that no two share a folder.
func Folder(tenant, epoch, runKey string) string {
	return filepath.Join(tenant, url.QueryEscape(epoch), runKey[len("b3:"):][:16])
}

func (e *Engine) files(ctx context.Context, m *material, run Run) error {
	dir := filepath.Join(e.folder, Folder(run.Tenant, run.Epoch, run.RunKey.String()))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	fixed := func(b []byte) func(io.Writer) error {
		return func(w io.Writer) error { _, err := w.Write(b); return err }
	}
	for _, f := range []struct {
		name  string
		write func(io.Writer) error
	}{
		{"policy.json", fixed(m.policy.Bytes())},
		{"snapshot.json", fixed(m.in.Snapshot)},
		{"ledger.json", fixed(m.in.Ledger)},
		{"rows.ndjson", func(w io.Writer) error { return e.writeRows(ctx, w, m) }},
		{"run.json", func(w io.Writer) error { return e.writeRun(ctx, w, m, run) }},
		{"commitment.txt", fixed([]byte(run.Commitment.String() + "\n"))},
	} {
		if err := store.ReplaceFile(filepath.Join(dir, f.name), 0o644, func(w io.Writer) error {
			err := f.write(w)
			e.step("artifact_temp") // it has not its name yet
			return err
		}); err != nil {
			return err
		}
	}
	return nil
}

func (e *Engine) writeRows(ctx context.Context, w io.Writer, m *material) error {
	return e.pieces(ctx, chunks, m.in.Upload, chunksOf(m.head.Rows), func(b []byte) error {
		var lines []byte
		for row, rest, ok := record.CutRow(b); ok; row, rest, ok = record.CutRow(rest) {
			lines = row.AppendJSON(lines, m.head.Metrics)
		}
		_, err := w.Write(lines)
		return err
	})
}

// writeRun writes the header with the allocations in it.
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
