package registry

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"ronbox/appliance/host/hosttest"
	"ronbox/appliance/unit"
	"ronbox/engines/registry/document"
	"ronbox/engines/registry/export"
	"ronbox/engines/registry/logtree"
	"ronbox/engines/registry/retain"
	"ronbox/engines/registry/rverify"
	"ronbox/engines/registry/seal"
	"ronbox/engines/registry/tables"
	"ronbox/store"
)

// newPruneRig returns a log rig with segments of two versions, of which retention keeps the newest
// four once it is enabled.
func newPruneRig(t testing.TB) (*rig, signers) {
	t.Helper()
	r, s := newLogRig(t)
	r.stop()
	r.segment = 2
	r.open()
	return r.start(), s
}

// retain applies a policy.
func (r *rig) retain(policy string, count int) {
	r.cfg.Retention = RetentionConfig{Policy: policy, MaxAge: unit.Duration(time.Hour), MaxCount: count}
	r.e.Reload(r.cfg)
}

// tally returns the versions and the audit records that have rows.
type tally struct{ entries, payloads, sets, done, audits []uint64 }

func (r *rig) tally() (n tally) {
	r.t.Helper()
	err := r.e.View(r.ctx(), func(rd store.Reader) error {
		n = tally{
			entries:  slices.Collect(keys(tables.Entries.All(rd))),
			payloads: slices.Collect(keys(tables.Payloads.All(rd))),
			audits:   slices.Collect(keys(tables.Audits.All(rd))),
		}
		for k := range tables.SetChunks.All(rd) {
			if k.Part == 0 {
				n.sets = append(n.sets, k.Version)
			}
		}
		for _, how := range tables.DoneOutcome.All(rd) {
			n.done = append(n.done, how.Version)
		}
		slices.Sort(n.done)
		return nil
	})
	if err != nil {
		r.t.Fatal(err)
	}
	return n
}

func keys[K, V any](all func(func(K, V) bool)) func(func(K) bool) {
	return func(yield func(K) bool) { all(func(k K, _ V) bool { return yield(k) }) }
}

// wantPruned demands exactly genesis, the kept versions beside it, and the versions from first on.
func (r *rig) wantPruned(first, head uint64, beside ...uint64) {
	r.t.Helper()
	want := append([]uint64{1}, beside...)
	for v := first; v <= head; v++ {
		want = append(want, v)
	}
	n := r.tally()
	if !slices.Equal(n.entries, want) || !slices.Equal(n.payloads, want) || !slices.Equal(n.done, want) {
		r.t.Errorf("versions %v, payloads %v, outcomes %v are left, want %v", n.entries, n.payloads, n.done, want)
	}
	next, err := r.e.EntryAt(r.ctx(), first)
	if err != nil || len(n.sets) == 0 || n.sets[0] != first || n.audits[0] > next.AuditSeq || n.audits[0] == 1 {
		r.t.Errorf("sets of %v, audit records from %d are left, %v", n.sets, n.audits[0], err)
	}
}

// swept waits until every prunable row before a version is deleted.
func (r *rig) swept(first uint64) {
	r.t.Helper()
	r.waitFor(fmt.Sprintf("versions before %d to go", first), func() (gone bool) {
		err := r.e.View(r.ctx(), func(rd store.Reader) error {
			from, _ := tables.MetaNumber.Get(rd, tables.KeyAuditMin)
			gone = r.e.Head().MinVersion == first && len(slices.Collect(keys(tables.Audits.Range(rd, 0, from)))) == 0
			return nil
		})
		return err == nil && gone
	})
}

// A long log pruned to its tail is still the log: HEAD and all kept versions are unchanged, pruned
// versions are answered as pruned and can be proven, and file and export verify from genesis.
// RONBOX_PRUNE_VERSIONS=5000 is the measure.
func TestPruneToTail(t *testing.T) {
	t.Parallel()
	versions, keep, segment := 40, 4, uint64(2)
	if n, err := strconv.Atoi(os.Getenv("RONBOX_PRUNE_VERSIONS")); err == nil {
		versions, keep, segment = n, 256, retain.SegmentVersions
	}
	r, s := newLogRig(t)
	r.stop()
	r.segment = segment
	r.open()
	r.start()
	r.genesis(s, "a")
	genesis := r.e.Head().GenesisB3
	roots := r.commitDeltas(s, versions-1)
	leaves := map[uint64]tlog.Hash{}
	for v := uint64(1); v <= uint64(versions); v++ {
		raw, err := r.e.EntryBytes(r.ctx(), v)
		if err != nil {
			t.Fatal(err)
		}
		leaves[v] = logtree.Leaf(raw)
	}
	r.retain(retain.ByCount, keep)
	plan, err := r.e.Retention(r.ctx())
	want := (uint64(versions-keep))/segment*segment + 1
	if err != nil || plan.Next != 1 && plan.Next > want {
		t.Fatalf("before the checkpoint: %+v, %v", plan, err)
	}
	over := r.cover()
	first := min(want, (over.Size-1)/segment*segment+1, (uint64(versions)-segment)/segment*segment+1)
	r.swept(first)
	for range 2 {
		r.wantPruned(first, uint64(versions))
		if head := r.e.Head(); head.Head.Version != uint64(versions) || head.Items.Root() != roots[versions] ||
			head.MinVersion != first {
			t.Errorf("HEAD is %+v from %d", head.Head, head.MinVersion)
		}
		r.e.Purge()
		for v := first; v <= uint64(versions); v++ {
			if items, err := r.e.Materialise(r.ctx(), v); err != nil || items.Root() != roots[v] {
				t.Errorf("version %d: %v", v, err)
			}
		}
		r.wantGone(first, over.Size, over.Root, leaves)
		if rep := r.verifyFile(); !rep.OK || rep.First != first {
			t.Errorf("%+v: %v", rep, rep.Problem)
		}
		r.stop()
		r.open()
		r.start()
	}
	r.commitNext(s, uint64(versions)+1)
	r.waitFor("the deep verifier", func() bool { return r.e.verifiedTo.Load() == uint64(versions)+1 })
	r.cover()
	r.stop()
	if rep := verifiedFile(t, r.path, genesis); !rep.OK {
		t.Errorf("file: %v", rep.Problem)
	}
	if p := verifyExport(t, r.exported()); p != nil {
		t.Errorf("export: %v", p)
	}
}

// wantGone demands that every version before first is answered as pruned and can be proven. The
// entry and the payload of genesis are kept.
func (r *rig) wantGone(first, size uint64, root tlog.Hash, leaves map[uint64]tlog.Hash) {
	r.t.Helper()
	for v := uint64(1); v < first; v++ {
		_, errEntry := r.e.EntryBytes(r.ctx(), v)
		_, errPayload := r.e.PayloadBytes(r.ctx(), v)
		_, errVersion := r.e.Version(r.ctx(), v, true)
		_, errItem := r.e.ItemProof(r.ctx(), v, "a")
		_, errDiff := r.e.Diff(r.ctx(), v, min(v+100, first))
		if v == 1 && (errEntry != nil || errPayload != nil) {
			r.t.Fatalf("genesis: %v, %v", errEntry, errPayload)
		} else if v == 1 {
			errEntry, errPayload = errVersion, errVersion
		}
		for _, err := range []error{errEntry, errPayload, errVersion, errItem, errDiff} {
			if !errors.Is(err, document.ErrPruned) {
				r.t.Fatalf("version %d: %v", v, err)
			}
		}
		if st, err := r.e.Status(r.ctx(), v); err != nil || !st.Pruned {
			r.t.Errorf("status of version %d: %+v, %v", v, st, err)
		}
		p, err := r.e.Inclusion(r.ctx(), v, size)
		if err == nil {
			err = tlog.CheckRecord(p.Hashes, int64(size), root, int64(v-1), leaves[v])
		}
		if err != nil {
			r.t.Errorf("inclusion of version %d: %v", v, err)
		}
		if _, err := r.e.Consistency(r.ctx(), v, size); err != nil {
			r.t.Errorf("consistency from version %d: %v", v, err)
		}
	}
	if _, err := r.e.Since(r.ctx(), 0, 10); !errors.Is(err, document.ErrPruned) {
		r.t.Errorf("a replay from the beginning: %v", err)
	}
}

// A node that dies after the statement, or after any slice, has a sound log and continues there.
func TestPruneGoesOnAfterACrash(t *testing.T) {
	t.Parallel()
	base, s := newPruneRig(t)
	base.genesis(s)
	if err := base.e.Withdraw(base.ctx(), alice, base.propose(2, "withdrawn").ID, ""); err != nil {
		t.Fatal(err)
	}
	base.commitDeltas(s, 180)
	base.cover()
	genesis := base.e.Head().GenesisB3
	base.stop()
	for slices, last := 0, false; !last; slices++ {
		r := &rig{t: t, path: filepath.Join(t.TempDir(), "ronbox.db"), cfg: base.cfg, segment: 2}
		r.keyFile = filepath.Join(filepath.Dir(r.path), "log.key")
		copyFile(t, base.path, r.path)
		copyFile(t, base.keyFile, r.keyFile)
		copyFile(t, base.markFile(), r.markFile())
		r.open()
		r.retain(retain.ByCount, 81)
		p := r.e.retain.Begin()
		plan, err := r.e.Retention(r.ctx())
		if err != nil || plan.Next != 101 || plan.Versions != 99 {
			t.Fatalf("%+v, %v", plan, err)
		}
		if sweeps, err := p.State(r.ctx()); err != nil || !sweeps {
			t.Fatal(sweeps, err)
		}
		for range slices {
			more, err := p.Slice(r.ctx())
			if err != nil {
				t.Fatal(err)
			}
			last = !more
		}
		r.stop()
		if rep := verifiedFile(t, r.path, genesis); !rep.OK || rep.First != 101 {
			t.Fatalf("behind %d slices: %v", slices, rep.Problem)
		}
		if p := verifyExport(t, r.exported()); p != nil {
			t.Fatalf("behind %d slices, export: %v", slices, p)
		}
		r.open()
		r.start()
		r.swept(101)
		r.wantPruned(101, 181)
		r.stop()
		if last && slices < 3 {
			t.Errorf("%d slices have removed everything", slices)
		}
	}
}

// A log with rotated, revoked and lost signers verifies from genesis after all those versions were
// pruned.
func TestPrunedHistory(t *testing.T) {
	t.Parallel()
	if hosttest.UnderRace() {
		t.Skip("TestHistory replays the same states: left to the run without -race")
	}
	r, s := newPruneRig(t)
	s.keys, s.threshold = newSigners(8, 3).keys, 3
	r.genesis(signers{keys: s.keys[:5], threshold: 3, logKeys: s.logKeys})
	roots := history(t, r, s)
	genesis := r.e.Head().GenesisB3
	r.retain(retain.ByCount, 2)
	r.cover()
	r.swept(11)
	r.wantPruned(11, 13, 5, 8, 10)
	for epoch := uint64(1); epoch <= 4; epoch++ {
		if set, err := r.e.Signers(r.ctx(), epoch); err != nil || set.Epoch != epoch || len(set.Artifact) == 0 {
			t.Errorf("signers of epoch %d: %v", epoch, err)
		}
	}
	r.stop()
	r.open()
	r.start()
	r.e.Purge()
	for v := uint64(11); v <= 13; v++ {
		if items, err := r.e.Materialise(r.ctx(), v); err != nil || items.Root() != roots[v] {
			t.Errorf("version %d: %v", v, err)
		}
	}
	r.stop()
	if rep := verifiedFile(t, r.path, genesis); !rep.OK || rep.Versions != 4+3 {
		t.Errorf("file: %+v, %v", rep, rep.Problem)
	}
	if p := verifyExport(t, r.exported()); p != nil {
		t.Errorf("export: %v", p)
	}
}

// An older copy of a pruned log refuses to write. It heals from an export made before the pruning,
// or from the pruned log if the copy reaches its first complete version. Otherwise the error gives
// the reason.
func TestOlderCopyOfAPrunedLog(t *testing.T) {
	t.Parallel()
	r, s := newPruneRig(t)
	r.genesis(s)
	r.commitDeltas(s, 3)
	old := r.snapshot()
	r.commitNext(s, 5)
	for v := uint64(6); v <= 12; v++ {
		r.commitNext(s, v)
	}
	r.cover()
	newer := r.snapshot()
	r.stop()
	whole := r.exported()
	r.open()
	r.start()
	r.commitNext(s, 13)
	r.retain(retain.ByCount, 4)
	r.cover()
	r.swept(9)
	r.stop()
	pruned := r.exported()
	copyFile(t, r.markFile(), newer.markFile())
	copyFile(t, r.markFile(), old.markFile())
	n := newer.restored(true)
	n.accept()
	n.wantGuard(seal.RollbackOlder)
	if done, err := n.e.CatchUpFrom(n.ctx(), alice, pruned, ""); err != nil || done.To != 13 {
		t.Errorf("from the pruned export: %+v, %v", done, err)
	}
	c := old.restored(true)
	c.accept()
	c.wantGuard(seal.RollbackOlder)
	for _, from := range []string{pruned, r.path} {
		if _, err := c.e.CatchUpFrom(c.ctx(), alice, from, ""); !errors.Is(err, document.ErrSource) ||
			c.e.Head().Head.Version != 4 {
			t.Errorf("from what is pruned: %v", err)
		}
	}
	if done, err := c.e.CatchUpFrom(c.ctx(), alice, whole, ""); err == nil || done.To != 12 {
		t.Errorf("from before the last version: %+v, %v", done, err) // the mark names one more
	}
	if done, err := c.e.CatchUpFrom(c.ctx(), alice, pruned, ""); err != nil || done.To != 13 {
		t.Errorf("and then from the pruned one: %+v, %v", done, err)
	}
	if c.e.Head().Head != n.e.Head().Head || c.e.Head().MinVersion != 1 {
		t.Errorf("HEAD is %+v from %d", c.e.Head().Head, c.e.Head().MinVersion)
	}
}

// If retention overtakes a pass of the deep verifier, the pass begins again at the start of the
// log.
func TestVerifierOvertaken(t *testing.T) {
	t.Parallel()
	r, s := newPruneRig(t)
	r.genesis(s)
	r.commitDeltas(s, 19)
	slow := r.e.newPass(rverify.State{}, r.now())
	step := func() (more bool) {
		t.Helper()
		err := r.store.View(r.ctx(), func(rd store.Reader) (err error) {
			more, err = slow.v.Step(r.ctx(), tables.Log{R: rd, Codec: tables.NewCodec()}, 1)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return more
	}
	for range 5 {
		step()
	}
	r.retain(retain.ByCount, 4)
	r.cover()
	r.swept(17)
	for step() {
	}
	if rep := slow.v.Report(); !rep.OK || rep.Head.Version != 20 || rep.First != 17 {
		t.Errorf("%+v", rep)
	}
}

// Any flipped bit of a pruned export is found, also in the statement and in the stored items.
func TestFlipsOfAPrunedExport(t *testing.T) {
	t.Parallel()
	r, s := newPruneRig(t)
	r.genesis(s)
	r.commitDeltas(s, 19)
	r.retain(retain.ByCount, 4)
	r.cover()
	r.swept(17)
	r.stop()
	dir := r.exported()
	rng := rand.New(rand.NewPCG(hosttest.Seed(t, "RONBOX_REGISTRY_FLIPS"), 2))
	for _, name := range []string{"retention", "snapshot", "kept/1.entry", "kept/1.payload", "tile/0/000.p/20",
		"audit/000000000001.ndjson", "checkpoint"} {
		path := filepath.Join(dir, filepath.FromSlash(name))
		raw, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for range 5 {
			bit := rng.IntN(8 * len(raw))
			flipped := slices.Clone(raw)
			flipped[bit/8] ^= 1 << (bit % 8)
			if err := os.WriteFile(path, flipped, 0o600); err != nil {
				t.Fatal(err)
			}
			if p := verifyExport(t, dir); p == nil {
				t.Errorf("%s, bit %d: not noticed", name, bit)
			}
		}
		if err := os.WriteFile(path, raw, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if l, err := export.Open(dir); err != nil || l.MinVersion != 17 {
		t.Errorf("%+v, %v", l, err)
	}
}
