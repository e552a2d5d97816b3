package registry

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"ronbox/engines/registry/checkpoint"
	"ronbox/engines/registry/document"
	"ronbox/engines/registry/highwater"
	"ronbox/engines/registry/logtree"
	"ronbox/engines/registry/tables"
	"ronbox/store"
)

// newLogRig returns a rig with a log key that its signers admit.
func newLogRig(t testing.TB, change ...func(*Config)) (*rig, signers) {
	t.Helper()
	r, s := newRig(t, change...), newSigners(1, 1)
	r.stop()
	skey, vkey, err := note.GenerateKey(bytes.NewReader(bytes.Repeat([]byte{7}, 64)), testOrigin)
	if err != nil {
		t.Fatal(err)
	}
	r.keyFile = filepath.Join(filepath.Dir(r.path), "log.key")
	if err := os.WriteFile(r.keyFile, []byte(skey+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s.logKeys = []string{vkey}
	r.open()
	return r.start(), s
}

// cover puts HEAD under an archived checkpoint.
func (r *rig) cover() *checkpoint.Signed {
	r.t.Helper()
	if _, err := r.e.CheckpointNow(r.ctx()); err != nil {
		r.t.Fatal(err)
	}
	return r.e.pub.Latest.Load()
}

// covered waits until HEAD names a checkpoint over itself, without a request for one.
func (r *rig) covered() *checkpoint.Signed {
	r.t.Helper()
	r.waitFor("a checkpoint over HEAD", func() bool {
		head := r.e.Head() // names a checkpoint once it can be had
		return head.CheckpointSize > 0 && head.CheckpointSize == head.Head.Version
	})
	return r.e.pub.Latest.Load()
}

// HEAD is covered without a request, by a note that others can open, under the root of its entries.
// The mark is the same.
func TestCheckpointsFollowHEAD(t *testing.T) {
	t.Parallel()
	r, s := newLogRig(t)
	r.genesis(s)
	first := r.covered()
	r.commitDeltas(s, 5)
	last := r.covered()
	if first.Size != 1 || last.Size != 6 {
		t.Errorf("sizes %d and %d", first.Size, last.Size)
	}
	if st, err := r.e.Status(r.ctx(), 3); err != nil || st.CoveredBy != 6 {
		t.Errorf("the status of 3: %+v, %v", st, err)
	}
	v, err := note.NewVerifier(s.logKeys[0])
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
		entry, err := r.e.EntryBytes(r.ctx(), v)
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
	if raw, err := (highwater.Mark{Path: r.markFile()}).Read(); err != nil || !bytes.Equal(raw, last.Note) {
		t.Errorf("the mark: %v", err)
	}
	r.stop()
	r.open()
	if got := r.e.pub.Latest.Load(); got == nil || got.Size != 6 || r.e.Head().CheckpointSize != 6 {
		t.Errorf("after a start: %+v", got)
	}
}

func TestCheckpointNow(t *testing.T) {
	t.Parallel()
	r, s := newLogRig(t)
	if _, err := r.e.CheckpointNow(r.ctx()); err == nil {
		t.Error("a checkpoint of an empty log")
	}
	r.genesis(s)
	made, err := r.e.CheckpointNow(r.ctx())
	if err != nil || !made.Archived || made.Size != 1 {
		t.Fatalf("%+v, %v", made, err)
	}
	var archived []uint64
	err = r.e.View(r.ctx(), func(rd store.Reader) error {
		for size := range tables.Checkpoints.All(rd) {
			archived = append(archived, size)
		}
		return nil
	})
	if err != nil || len(archived) != 1 || archived[0] != 1 {
		t.Errorf("archived: %v, %v", archived, err)
	}
	other := newRig(t).start()
	other.genesis(newSigners(1, 1))
	if _, err := other.e.CheckpointNow(other.ctx()); !errors.Is(err, document.ErrConflict) {
		t.Errorf("without a log key: %v", err)
	}
}

// An idle log is signed again after the interval: the time moves, the tree does not.
func TestIdleLogIsSignedAgain(t *testing.T) {
	t.Parallel()
	r, s := newLogRig(t)
	r.genesis(s)
	first := r.cover()
	r.advance(r.cfg.Storage.CheckpointInterval.D() + time.Second)
	r.waitFor("a later signature", func() bool { return r.e.pub.Latest.Load().At.After(first.At) })
	if again := r.e.pub.Latest.Load(); again.Tree != first.Tree {
		t.Errorf("another tree: %+v", again.Tree)
	}
}

// commitNext commits one version.
func (r *rig) commitNext(s signers, version uint64) {
	r.t.Helper()
	p := r.propose(version, "later")
	r.approve(p, s.keys...)
	r.commit(p)
}

// A stored checkpoint that does not match the log keeps it from opening.
func TestForgedStoredCheckpoint(t *testing.T) {
	t.Parallel()
	r, s := newLogRig(t)
	r.genesis(s)
	r.cover()
	key, err := checkpoint.ReadKey(r.keyFile)
	if err != nil {
		t.Fatal(err)
	}
	forged, err := key.Sign(checkpoint.Tree{Origin: testOrigin, Size: 1, Root: logtree.Leaf([]byte("x"))}, r.now())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := store.Commit(r.ctx(), r.store, store.Work,
		tables.PutCheckpoint{Size: 1, Note: forged.Note}); err != nil {
		t.Fatal(err)
	}
	r.stop()
	r.wire()
	if err := errors.Join(r.store.Open(r.ctx()), r.store.Prepare(r.ctx())); err != nil {
		t.Fatal(err)
	}
	r.sup.Start(r.store.Tasks()...)
	r.stopped = false
	if err := r.e.Recover(r.ctx()); !errors.Is(err, store.ErrCorrupt) {
		t.Errorf("recover: %v", err)
	}
}
