package registry_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"ronbox/engines/registry"
	"ronbox/engines/registry/checkpoint"
	"ronbox/engines/registry/document"
	"ronbox/engines/registry/highwater"
	"ronbox/engines/registry/logtree"
	"ronbox/engines/registry/registrytest"
	"ronbox/engines/registry/tables"
	"ronbox/store"
)

// newLogRig returns a rig with a log key that its signers admit.
func newLogRig(t testing.TB, change ...func(*registry.Config)) (*registrytest.Rig, registrytest.Signers) {
	t.Helper()
	r, s := registrytest.New(t, change...), newSigners(1, 1)
	r.Stop()
	skey, vkey, err := note.GenerateKey(bytes.NewReader(bytes.Repeat([]byte{7}, 64)), registrytest.Origin)
	if err != nil {
		t.Fatal(err)
	}
	r.KeyFile = filepath.Join(filepath.Dir(r.Path), "log.key")
	if err := os.WriteFile(r.KeyFile, []byte(skey+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s.LogKeys = []string{vkey}
	r.Open()
	return r.Start(), s
}

// cover puts HEAD under an archived checkpoint.
func cover(r *registrytest.Rig) *checkpoint.Signed {
	r.T.Helper()
	if _, err := r.Engine.CheckpointNow(r.Ctx()); err != nil {
		r.T.Fatal(err)
	}
	return r.Engine.Pub().Latest.Load()
}

// covered waits until HEAD names a checkpoint over itself, without a request for one.
func covered(r *registrytest.Rig) *checkpoint.Signed {
	r.T.Helper()
	r.WaitFor("a checkpoint over HEAD", func() bool {
		head := r.Engine.Head() // names a checkpoint once it can be had
		return head.CheckpointSize > 0 && head.CheckpointSize == head.Head.Version
	})
	return r.Engine.Pub().Latest.Load()
}

// HEAD is covered without a request, by a note that others can open, under the root of its entries.
// The mark is the same.
func TestCheckpointsFollowHEAD(t *testing.T) {
	t.Parallel()
	r, s := newLogRig(t)
	r.Genesis(s)
	first := covered(r)
	commitDeltas(r, s, 5)
	last := covered(r)
	if first.Size != 1 || last.Size != 6 {
		t.Errorf("sizes %d and %d", first.Size, last.Size)
	}
	if st, err := r.Engine.Status(r.Ctx(), 3); err != nil || st.CoveredBy != 6 {
		t.Errorf("the status of 3: %+v, %v", st, err)
	}
	v, err := note.NewVerifier(s.LogKeys[0])
	if err != nil {
		t.Fatal(err)
	}
	n, err := note.Open(last.Note, note.VerifierList(v))
	if err != nil || n.Text != last.Text() {
		t.Errorf("the note: %v", err)
	}
	var hashes []tlog.Hash
	reader := tlog.HashReaderFunc(func(at []int64) (out []tlog.Hash, err error) {
		for _, i := range at {
			out = append(out, hashes[i])
		}
		return out, nil
	})
	for v := uint64(1); v <= 6; v++ {
		entry, err := r.Engine.EntryBytes(r.Ctx(), v)
		if err != nil {
			t.Fatal(err)
		}
		stored, err := tlog.StoredHashes(int64(v-1), entry, reader)
		if err != nil {
			t.Fatal(err)
		}
		hashes = append(hashes, stored...)
	}
	if root, err := tlog.TreeHash(6, reader); err != nil || root != last.Root {
		t.Errorf("root %s, the entries give %s, %v", last.Root, root, err)
	}
	if raw, err := (highwater.Mark{Path: r.MarkFile()}).Read(); err != nil || !bytes.Equal(raw, last.Note) {
		t.Errorf("the mark: %v", err)
	}
	r.Stop()
	r.Open()
	if got := r.Engine.Pub().Latest.Load(); got == nil || got.Size != 6 || r.Engine.Head().CheckpointSize != 6 {
		t.Errorf("after a start: %+v", got)
	}
}

func TestCheckpointNow(t *testing.T) {
	t.Parallel()
	r, s := newLogRig(t)
	if _, err := r.Engine.CheckpointNow(r.Ctx()); err == nil {
		t.Error("a checkpoint of an empty log")
	}
	r.Genesis(s)
	made, err := r.Engine.CheckpointNow(r.Ctx())
	if err != nil || !made.Archived || made.Size != 1 {
		t.Fatalf("%+v, %v", made, err)
	}
	var archived []uint64
	err = r.Engine.View(r.Ctx(), func(rd store.Reader) error {
		for size := range tables.Checkpoints.All(rd) {
			archived = append(archived, size)
		}
		return nil
	})
	if err != nil || len(archived) != 1 || archived[0] != 1 {
		t.Errorf("archived: %v, %v", archived, err)
	}
	other := registrytest.New(t).Start()
	other.Genesis(newSigners(1, 1))
	if _, err := other.Engine.CheckpointNow(other.Ctx()); !errors.Is(err, document.ErrConflict) {
		t.Errorf("without a log key: %v", err)
	}
}

// An idle log is signed again after the interval: the time moves, the tree does not.
func TestIdleLogIsSignedAgain(t *testing.T) {
	t.Parallel()
	r, s := newLogRig(t)
	r.Genesis(s)
	first := cover(r)
	r.Advance(r.Config.Storage.CheckpointInterval.D() + time.Second)
	r.WaitFor("a later signature", func() bool { return r.Engine.Pub().Latest.Load().At.After(first.At) })
	if again := r.Engine.Pub().Latest.Load(); again.Tree != first.Tree {
		t.Errorf("another tree: %+v", again.Tree)
	}
}

// commitNext commits one version.
func commitNext(r *registrytest.Rig, s registrytest.Signers, version uint64) {
	r.T.Helper()
	p := r.Propose(version, "later")
	r.Approve(p, s.Keys...)
	r.Commit(p)
}

// A stored checkpoint that does not match the log keeps it from opening.
func TestForgedStoredCheckpoint(t *testing.T) {
	t.Parallel()
	r, s := newLogRig(t)
	r.Genesis(s)
	cover(r)
	key, err := checkpoint.ReadKey(r.KeyFile)
	if err != nil {
		t.Fatal(err)
	}
	fork := checkpoint.Tree{Origin: registrytest.Origin, Size: 1, Root: logtree.Leaf([]byte("x"))}
	forged, err := key.Sign(fork, r.Now())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := store.Commit(r.Ctx(), r.Store, store.Work,
		tables.PutCheckpoint{Size: 1, Note: forged.Note}); err != nil {
		t.Fatal(err)
	}
	r.Stop()
	r.Wire()
	if err := errors.Join(r.Store.Open(r.Ctx()), r.Store.Prepare(r.Ctx())); err != nil {
		t.Fatal(err)
	}
	r.Sup.Start(r.Store.Tasks()...)
	r.Stopped = false
	if err := r.Engine.Recover(r.Ctx()); !errors.Is(err, store.ErrCorrupt) {
		t.Errorf("recover: %v", err)
	}
}
