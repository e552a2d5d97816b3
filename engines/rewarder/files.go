package rewarder

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"ronbox/appliance/b3"
	"ronbox/appliance/flow"
	"ronbox/engines/canon"
	"ronbox/engines/rewarder/record"
	"ronbox/store"
)

// States of a file of a run.
const (
	FileOK      = "ok"      // has the expected bytes
	FileMissing = "missing" // does not exist
	FileDiffers = "differs" // has other bytes
	FileWritten = "written" // was missing or different, and was rewritten by this call
)

// Files compares the files of the run of an epoch with the rows of the node's file. With rebuild it
// rewrites files that are missing or differ. Before it writes anything, it compares all rows with
// the recorded digests; a *store.RowError names a damaged row. One call runs at a time, and others
// get flow.ErrBusy. It blocks for as long as the disk takes, a few seconds for a million actors.
// Errors: ErrNotFound, *ConflictError.
func (e *Engine) Files(ctx context.Context, by Call, epoch string, rebuild bool) (out RunFiles, err error) {
	run, err := e.final(ctx, by.Tenant, epoch)
	if err != nil {
		return out, err
	}
	if e.folder == "" {
		return out, &ConflictError{"artifact", ArtifactOff, ArtifactDone}
	}
	if rebuild && run.Artifact == ArtifactPending { // the artifact writer uses the same temporary files
		return out, &ConflictError{"artifact", ArtifactPending, ArtifactDone}
	}
	if !e.filing.CompareAndSwap(false, true) {
		return out, fmt.Errorf("files of a run: %w", flow.ErrBusy)
	}
	defer e.filing.Store(false)
	j := job{scoped(by.Tenant, epoch), run.RunKey}
	m, run, err := e.load(ctx, j)
	if err != nil {
		return out, err
	}
	if err := m.sound(&run); err != nil {
		return out, e.note(err)
	}
	out = RunFiles{Epoch: run.Epoch, RunKey: run.RunKey, Commitment: run.Commitment, Folder: e.directory(&run)}
	all := e.artifacts(&m, run)
	for _, f := range all {
		one, err := compareFile(ctx, out.Folder, f)
		if err != nil {
			return out, e.note(err)
		}
		out.Files = append(out.Files, one)
	}
	if rebuild {
		err = e.rebuild(ctx, by, j, all, &out)
	}
	return out, err
}

// rebuild rewrites the files that are missing or differ, and records that all files exist.
func (e *Engine) rebuild(ctx context.Context, by Call, j job, all []artifact, out *RunFiles) error {
	if err := os.MkdirAll(out.Folder, 0o755); err != nil {
		return err
	}
	for i, f := range all {
		if out.Files[i].State == FileOK {
			continue
		}
		if err := e.replace(ctx, out.Folder, f); err != nil {
			return e.note(err)
		}
		out.Files[i].State = FileWritten
	}
	c := change{kind: "set_artifact", by: by, from: final, what: "run.files"}
	_, err := e.change(ctx, store.Work, j, c, func(_ store.Reader, run *Run, w *store.Writes) error {
		run.Artifact = ArtifactDone
		todos.Delete(w, j.todo(toWrite))
		return nil
	})
	if err == nil {
		e.unwrote.Store(false)
	}
	return err
}

// sound returns a *store.RowError unless policy, usage, ledger ref and allocation roots match the
// digests that the run has recorded. The commitment of the manifest was checked when it was read.
// Rows and allocations are checked against their roots when they are written.
func (m *material) sound(run *Run) error {
	header := canon.Read(run.Manifest)
	switch {
	case m.policy.Hash() != run.PolicyHash:
		key := scoped(run.Tenant, run.PolicyID)
		return wrong(policies, key, "is not the policy of epoch %s, %s", run.Epoch, run.PolicyHash)
	case b3.Sum(m.in.Snapshot) != run.AccountingCID, b3.Sum(m.in.Ledger) != m.in.LedgerCID,
		record.InputsCID(run.AccountingCID, m.in.LedgerCID) != run.InputsCID:
		return wrong(inputs, run.InputsCID, "is not the input of epoch %s", run.Epoch)
	case record.Root(m.roots) != header.Digest("alloc.root"):
		return wrong(sealed, run.RunKey, "does not have the root of the manifest")
	}
	return nil
}

// compareFile compares a file on the disk with its expected content.
func compareFile(ctx context.Context, dir string, f artifact) (one RunFile, err error) {
	one = RunFile{Name: f.name, State: FileOK}
	var has io.Reader
	path := filepath.Join(dir, f.name)
	if info, err := os.Lstat(path); err == nil && !info.Mode().IsRegular() {
		return one, fmt.Errorf("%s is not a regular file: remove it", path)
	}
	file, err := os.Open(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		one.State, has = FileMissing, eof{}
	case err != nil:
		return one, err
	default:
		defer func() { _ = file.Close() }() // opened for reading only
		has = bufio.NewReaderSize(file, 64<<10)
	}
	c := comparer{has: has, hash: b3.New(), same: true}
	w := bufio.NewWriterSize(&c, 64<<10)
	if err := errors.Join(f.write(ctx, w), w.Flush()); err != nil {
		return one, err
	}
	if n, _ := io.ReadFull(has, make([]byte, 1)); n > 0 {
		c.same = false
	}
	if one.State == FileOK && !c.same {
		one.State = FileDiffers
	}
	one.Bytes, one.B3 = c.n, c.hash.Sum32()
	return one, nil
}

// comparer compares the bytes written to it with those of a file. A read error counts as a
// difference.
type comparer struct {
	has  io.Reader
	hash *b3.Hasher
	buf  []byte
	n    int64
	same bool
}

// Write implements io.Writer. It always succeeds.
func (c *comparer) Write(want []byte) (int, error) {
	c.n += int64(len(want))
	_, _ = c.hash.Write(want) // a hash never fails
	if c.same {
		c.buf = append(c.buf[:0], want...)
		_, err := io.ReadFull(c.has, c.buf)
		c.same = err == nil && string(c.buf) == string(want)
	}
	return len(want), nil
}

// eof is an empty reader.
type eof struct{}

func (eof) Read([]byte) (int, error) { return 0, io.EOF }
