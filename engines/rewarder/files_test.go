package rewarder_test

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"ronbox/engines/rewarder"
	"ronbox/engines/rewarder/record"
	"ronbox/store"
)

// written computes a run of several chunks and returns the files that the artifact writer wrote.
func (r *rig) written(epoch string) (files map[string][]byte) {
	r.t.Helper()
	p := policy()
	r.put(p)
	r.mustCompute(epoch, r.seal(inputOf(epoch, 4_000_000), many(1300)), p)
	r.await(epoch, rewarder.Settled)
	r.eventually("the files are written", func() bool {
		run, err := r.e.Epoch(r.ctx(), rewarder.DefaultTenant, epoch)
		return err == nil && run.Artifact == rewarder.ArtifactDone
	})
	out, err := r.e.Files(r.ctx(), alice, epoch, false)
	if err != nil {
		r.t.Fatal(err)
	}
	return r.readFiles(out.Folder)
}

func (r *rig) readFiles(dir string) map[string][]byte {
	r.t.Helper()
	files := map[string][]byte{}
	all, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		r.t.Fatal(err)
	}
	for _, f := range all {
		if strings.HasSuffix(f.Name(), ".tmp") { // being written
			continue
		}
		if files[f.Name()], err = os.ReadFile(filepath.Join(dir, f.Name())); err != nil {
			r.t.Fatal(err)
		}
	}
	return files
}

// states checks the states of the files of a run, in their order.
func states(t *testing.T, f *rewarder.RunFiles, want ...string) {
	t.Helper()
	var got []string
	for _, one := range f.Files {
		got = append(got, one.State)
	}
	if !slices.Equal(got, want) {
		t.Errorf("states %v, want %v", got, want)
	}
}

// Files that are lost or changed are named, and rewritten with their original bytes.
func TestFilesAreRebuilt(t *testing.T) {
	const ok, missing, differs, written = rewarder.FileOK, rewarder.FileMissing, rewarder.FileDiffers, rewarder.FileWritten
	r := newRig(t).start()
	was := r.written("e")
	files := func(rebuild bool) rewarder.RunFiles {
		t.Helper()
		out, err := r.e.Files(r.ctx(), alice, "e", rebuild)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	all := files(false)
	states(t, &all, ok, ok, ok, ok, ok, ok)
	for _, f := range all.Files {
		if int64(len(was[f.Name])) != f.Bytes {
			t.Errorf("%s has %d bytes, not %d", f.Name, len(was[f.Name]), f.Bytes)
		}
	}
	path := func(name string) string { return filepath.Join(all.Folder, name) }
	longer := append(bytes.Clone(was["rows.ndjson"]), '\n')
	changed := bytes.Replace(was["run.json"], []byte(`"actor":"acct_0001000"`), []byte(`"actor":"acct_0001009"`), 1)
	if err := errors.Join(os.Remove(path("policy.json")),
		os.WriteFile(path("ledger.json"), was["ledger.json"][:9], 0o600),
		os.WriteFile(path("rows.ndjson"), longer, 0o600), os.WriteFile(path("run.json"), changed, 0o600),
		os.Truncate(path("commitment.txt"), 0)); err != nil {
		t.Fatal(err)
	}
	out := files(false)
	states(t, &out, missing, ok, differs, differs, differs, differs)
	out = files(true)
	states(t, &out, written, ok, written, written, written, written)
	if err := os.RemoveAll(r.artifacts); err != nil {
		t.Fatal(err)
	}
	out = files(false)
	states(t, &out, missing, missing, missing, missing, missing, missing)
	out = files(true)
	states(t, &out, written, written, written, written, written, written)
	out = files(true)
	states(t, &out, ok, ok, ok, ok, ok, ok)
	now := r.readFiles(all.Folder)
	for name, want := range was {
		if !bytes.Equal(now[name], want) {
			t.Errorf("%s is not what it was", name)
		}
	}
	if len(now) != len(was) {
		t.Errorf("the folder has %d files, not %d", len(now), len(was))
	}
}

// A node that takes over the runs of another one writes the files that it lacks, with the same bytes.
func TestFilesOfAnotherNodeAreRemade(t *testing.T) {
	r := newRig(t).start()
	was := r.written("e")
	out, err := r.e.Files(r.ctx(), alice, "e", false)
	if err != nil {
		t.Fatal(err)
	}
	r.stop()
	if err := os.RemoveAll(r.artifacts); err != nil {
		t.Fatal(err)
	}
	r.open()
	*r.e.Others() = true
	r.start()
	r.eventually("the files are remade", func() bool { return len(r.readFiles(out.Folder)) == len(was) })
	for name, raw := range r.readFiles(out.Folder) {
		if !bytes.Equal(raw, was[name]) {
			t.Errorf("%s is not what it was", name)
		}
	}
}

// tamper changes rows with sound checksums, as a bug of the engine would.
func (r *rig) tamper(do func(rd store.Reader, w *store.Writes)) {
	r.t.Helper()
	apply := func(rd store.Reader, w *store.Writes) (none struct{}, err error) {
		do(rd, w)
		return none, nil
	}
	c := rewarder.Command("tamper", 1<<20, apply)
	if _, err := store.Commit(r.ctx(), r.store, store.Work, c); err != nil {
		r.t.Fatal(err)
	}
}

// No file is written if a row differs from the recorded digests.
func TestFilesThatDoNotMatchAreNotWritten(t *testing.T) {
	other := policy(func(p *record.Policy) { p.Version = "2" })
	for _, tt := range []struct {
		name, bucket string
		do           func(run rewarder.Run, rd store.Reader, w *store.Writes)
	}{
		{"policy", "rw/policy", func(run rewarder.Run, rd store.Reader, w *store.Writes) {
			key := rewarder.Scoped(run.Tenant, run.PolicyID)
			doc := rewarder.Must(rd, rewarder.PolicyRows, key)
			doc.Body = other.Bytes()
			rewarder.PolicyRows.Put(w, key, doc)
		}},
		{"ledger ref", "rw/input", func(run rewarder.Run, rd store.Reader, w *store.Writes) {
			in := rewarder.Must(rd, rewarder.InputRows, run.InputsCID)
			in.Ledger = bytes.Replace(in.Ledger, []byte(`"seq":"`), []byte(`"seq":"1`), 1)
			rewarder.InputRows.Put(w, run.InputsCID, in)
		}},
		{"usage", "rw/chunk", func(run rewarder.Run, rd store.Reader, w *store.Writes) {
			at := rewarder.PieceOf(rewarder.Must(rd, rewarder.InputRows, run.InputsCID).Upload, 1)
			chunk := bytes.Clone(rewarder.Must(rd, rewarder.ChunkRows, at))
			chunk[len(chunk)-1]++
			rewarder.ChunkRows.Put(w, at, chunk)
		}},
		{"allocations", "rw/alloc", func(run rewarder.Run, rd store.Reader, w *store.Writes) {
			at := rewarder.PieceOf(run.RunKey, 1)
			chunk := bytes.Clone(rewarder.Must(rd, rewarder.AllocRows, at))
			chunk[len(chunk)-1]++
			rewarder.AllocRows.Put(w, at, chunk)
		}},
		{"roots", "rw/sealed", func(run rewarder.Run, rd store.Reader, w *store.Writes) {
			row := rewarder.Must(rd, rewarder.SealedRows, run.RunKey)
			row.Roots = slices.Clone(row.Roots)
			row.Roots[0][0]++
			rewarder.SealedRows.Put(w, run.RunKey, row)
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t).start()
			r.written("e")
			run := r.await("e", rewarder.Settled)
			if err := os.RemoveAll(r.artifacts); err != nil {
				t.Fatal(err)
			}
			r.tamper(func(rd store.Reader, w *store.Writes) { tt.do(run, rd, w) })
			_, err := r.e.Files(r.ctx(), alice, "e", true)
			if row, ok := asA[*store.RowError](err); !ok || row.Bucket != tt.bucket ||
				!errors.Is(err, store.ErrCorrupt) {
				t.Errorf("%v, want a damaged row of %s", err, tt.bucket)
			}
			if _, err := os.Stat(r.artifacts); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("something was written: %v", err)
			}
		})
	}
}

// A run has files after it was computed. Files that could not be written are written later.
func TestFilesOfOtherRuns(t *testing.T) {
	r := newRig(t)
	if err := os.WriteFile(r.artifacts, nil, 0o600); err != nil { // no folder: nothing can be written into it
		t.Fatal(err)
	}
	r.start()
	p := policy()
	r.put(p)
	r.mustCompute("e", r.seal(inputOf("e", 1000), many(3)), p)
	r.eventually("writing the files has failed", func() bool {
		run, err := r.e.Epoch(r.ctx(), rewarder.DefaultTenant, "e")
		return err == nil && run.Artifact == rewarder.ArtifactFailed
	})
	if err := os.Remove(r.artifacts); err != nil {
		t.Fatal(err)
	}
	if _, err := r.e.Files(r.ctx(), alice, "e", true); err != nil {
		t.Fatal(err)
	}
	if run := r.await("e", rewarder.Settled); run.Artifact != rewarder.ArtifactDone || r.e.Unwrote() {
		t.Errorf("the files are %s", run.Artifact)
	}
	if _, err := r.e.Files(r.ctx(), alice, "none", true); !errors.Is(err, rewarder.ErrNotFound) {
		t.Errorf("of no epoch: %v", err)
	}
	r.tamper(func(rd store.Reader, w *store.Writes) {
		run := rewarder.Must(rd, rewarder.SlotRows, rewarder.Scoped(rewarder.DefaultTenant, "e"))
		run.Artifact = rewarder.ArtifactPending
		rewarder.SlotRows.Put(w, rewarder.Scoped(rewarder.DefaultTenant, "e"), run)
	})
	_, err := r.e.Files(r.ctx(), alice, "e", true)
	if c, ok := asA[*rewarder.ConflictError](err); !ok || c.Has != rewarder.ArtifactPending {
		t.Errorf("while they are written: %v", err)
	}
	*r.e.Folder() = ""
	_, err = r.e.Files(r.ctx(), alice, "e", false)
	if c, ok := asA[*rewarder.ConflictError](err); !ok || c.Has != rewarder.ArtifactOff {
		t.Errorf("on a node that writes none: %v", err)
	}
}

// Policies are listed by id, page by page, separately for each tenant.
func TestPoliciesAreListed(t *testing.T) {
	r := newRig(t, inMemory).start()
	for _, id := range []string{"c", "a", "b"} {
		r.put(policy(func(p *record.Policy) { p.ID = id }))
	}
	r.put(policy(func(p *record.Policy) { p.ID, p.Tenant = "z", "acme" }))
	var got []string
	for after, pages := "", 1; ; pages++ {
		page, err := r.e.Policies(r.ctx(), rewarder.DefaultTenant, after, 2)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range page.Policies {
			got = append(got, p.ID)
			if !slices.Equal(p.Signers, []string{r.key.Public()}) || p.Hash.IsZero() {
				t.Errorf("%+v", p)
			}
		}
		if after = page.Next; after == "" {
			if pages != 2 {
				t.Errorf("%d pages", pages)
			}
			break
		}
	}
	if !slices.Equal(got, []string{"a", "b", "c"}) {
		t.Errorf("policies %v", got)
	}
}
