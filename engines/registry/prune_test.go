package registry_test

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
	"ronbox/engines/registry"
	"ronbox/engines/registry/document"
	"ronbox/engines/registry/export"
	"ronbox/engines/registry/logtree"
	"ronbox/engines/registry/registrytest"
	"ronbox/engines/registry/retain"
	"ronbox/engines/registry/rverify"
	"ronbox/engines/registry/seal"
	"ronbox/engines/registry/tables"
	"ronbox/store"
)

// newPruneRig returns a log rig with segments of two versions, of which retention keeps the newest
// four once it is enabled.
func newPruneRig(t testing.TB) (*registrytest.Rig, registrytest.Signers) {
	t.Helper()
	r, s := newLogRig(t)
	r.Stop()
	r.Segment = 2
	r.Open()
	return r.Start(), s
}

// setPolicy applies a policy.
func setPolicy(r *registrytest.Rig, policy string, count int) {
	r.Config.Retention = registry.RetentionConfig{Policy: policy, MaxAge: unit.Duration(time.Hour), MaxCount: count}
	r.Engine.Reload(r.Config)
}

// tally returns the versions and the audit records that have rows.
type tally struct{ entries, payloads, sets, done, audits []uint64 }

func tallyOf(r *registrytest.Rig) (n tally) {
	r.T.Helper()
	err := r.Engine.View(r.Ctx(), func(rd store.Reader) error {
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
		r.T.Fatal(err)
	}
	return n
}

func keys[K, V any](all func(func(K, V) bool)) func(func(K) bool) {
	return func(yield func(K) bool) { all(func(k K, _ V) bool { return yield(k) }) }
}

// wantPruned demands exactly genesis, the kept versions beside it, and the versions from first on.
func wantPruned(r *registrytest.Rig, first, head uint64, beside ...uint64) {
	r.T.Helper()
	want := append([]uint64{1}, beside...)
	for v := first; v <= head; v++ {
		want = append(want, v)
	}
	n := tallyOf(r)
	if !slices.Equal(n.entries, want) || !slices.Equal(n.payloads, want) || !slices.Equal(n.done, want) {
		r.T.Errorf("versions %v, payloads %v, outcomes %v are left, want %v", n.entries, n.payloads, n.done, want)
	}
	next, err := r.Engine.EntryAt(r.Ctx(), first)
	if err != nil || len(n.sets) == 0 || n.sets[0] != first || n.audits[0] > next.AuditSeq || n.audits[0] == 1 {
		r.T.Errorf("sets of %v, audit records from %d are left, %v", n.sets, n.audits[0], err)
	}
}

// swept waits until every prunable row before a version is deleted.
func swept(r *registrytest.Rig, first uint64) {
	r.T.Helper()
	r.WaitFor(fmt.Sprintf("versions before %d to go", first), func() (gone bool) {
		err := r.Engine.View(r.Ctx(), func(rd store.Reader) error {
			least, _ := tables.MetaNumber.Get(rd, tables.KeyMin)
			from, _ := tables.MetaNumber.Get(rd, tables.KeyAuditMin)
			gone = least == first && len(slices.Collect(keys(tables.Audits.Range(rd, 0, from)))) == 0
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
	r.Stop()
	r.Segment = segment
	r.Open()
	r.Start()
	r.Genesis(s, "a")
	genesis := r.Engine.Head().GenesisB3
	roots := commitDeltas(r, s, versions-1)
	leaves := map[uint64]tlog.Hash{}
	for v := uint64(1); v <= uint64(versions); v++ {
		raw, err := r.Engine.EntryBytes(r.Ctx(), v)
		if err != nil {
			t.Fatal(err)
		}
		leaves[v] = logtree.Leaf(raw)
	}
	setPolicy(r, retain.ByCount, keep)
	plan, err := r.Engine.Retention(r.Ctx())
	want := (uint64(versions-keep))/segment*segment + 1
	if err != nil || plan.Next != 1 && plan.Next > want {
		t.Fatalf("before the checkpoint: %+v, %v", plan, err)
	}
	over := cover(r)
	first := min(want, (over.Size-1)/segment*segment+1, (uint64(versions)-segment)/segment*segment+1)
	swept(r, first)
	for range 2 {
		wantPruned(r, first, uint64(versions))
		if head := r.Engine.Head(); head.Head.Version != uint64(versions) || head.Items.Root() != roots[versions] ||
			head.MinVersion != first {
			t.Errorf("HEAD is %+v from %d", head.Head, head.MinVersion)
		}
		r.Engine.Purge()
		for v := first; v <= uint64(versions); v++ {
			if items, err := r.Engine.Materialise(r.Ctx(), v); err != nil || items.Root() != roots[v] {
				t.Errorf("version %d: %v", v, err)
			}
		}
		wantGone(r, first, over.Size, over.Root, leaves)
		if rep := r.VerifyFile(); !rep.OK || rep.First != first {
			t.Errorf("%+v: %v", rep, rep.Problem)
		}
		r.Stop()
		r.Open()
		r.Start()
	}
	commitNext(r, s, uint64(versions)+1)
	r.WaitFor("the deep verifier", func() bool { return r.Engine.VerifiedTo().Load() == uint64(versions)+1 })
	cover(r)
	r.Stop()
	if rep := verifiedFile(t, r.Path, genesis); !rep.OK {
		t.Errorf("file: %v", rep.Problem)
	}
	if p := verifyExport(t, exported(r)); p != nil {
		t.Errorf("export: %v", p)
	}
}

// wantGone demands that every version before first is answered as pruned and can be proven. The
// entry and the payload of genesis are kept.
func wantGone(r *registrytest.Rig, first, size uint64, root tlog.Hash, leaves map[uint64]tlog.Hash) {
	r.T.Helper()
	for v := uint64(1); v < first; v++ {
		_, errEntry := r.Engine.EntryBytes(r.Ctx(), v)
		_, errPayload := r.Engine.PayloadBytes(r.Ctx(), v)
		_, errVersion := r.Engine.Version(r.Ctx(), v, true)
		_, errItem := r.Engine.ItemProof(r.Ctx(), v, "a")
		_, errDiff := r.Engine.Diff(r.Ctx(), v, min(v+100, first))
		if v == 1 && (errEntry != nil || errPayload != nil) {
			r.T.Fatalf("genesis: %v, %v", errEntry, errPayload)
		} else if v == 1 {
			errEntry, errPayload = errVersion, errVersion
		}
		for _, err := range []error{errEntry, errPayload, errVersion, errItem, errDiff} {
			if !errors.Is(err, document.ErrPruned) {
				r.T.Fatalf("version %d: %v", v, err)
			}
		}
		if st, err := r.Engine.Status(r.Ctx(), v); err != nil || !st.Pruned {
			r.T.Errorf("status of version %d: %+v, %v", v, st, err)
		}
		p, err := r.Engine.Inclusion(r.Ctx(), v, size)
		if err == nil {
			err = tlog.CheckRecord(p.Hashes, int64(size), root, int64(v-1), leaves[v])
		}
		if err != nil {
			r.T.Errorf("inclusion of version %d: %v", v, err)
		}
		if _, err := r.Engine.Consistency(r.Ctx(), v, size); err != nil {
			r.T.Errorf("consistency from version %d: %v", v, err)
		}
	}
	if _, err := r.Engine.Since(r.Ctx(), 0, 10); !errors.Is(err, document.ErrPruned) {
		r.T.Errorf("a replay from the beginning: %v", err)
	}
}

// A node that dies after the statement, or after any slice, has a sound log and continues there.
func TestPruneGoesOnAfterACrash(t *testing.T) {
	t.Parallel()
	base, s := newPruneRig(t)
	base.Genesis(s)
	if err := base.Engine.Withdraw(base.Ctx(), alice, base.Propose(2, "withdrawn").ID, ""); err != nil {
		t.Fatal(err)
	}
	commitDeltas(base, s, 180)
	cover(base)
	genesis := base.Engine.Head().GenesisB3
	base.Stop()
	for slices, last := 0, false; !last; slices++ {
		r := &registrytest.Rig{T: t, Path: filepath.Join(t.TempDir(), "ronbox.db"), Config: base.Config, Segment: 2}
		r.KeyFile = filepath.Join(filepath.Dir(r.Path), "log.key")
		copyFile(t, base.Path, r.Path)
		copyFile(t, base.KeyFile, r.KeyFile)
		copyFile(t, base.MarkFile(), r.MarkFile())
		r.Open()
		setPolicy(r, retain.ByCount, 81)
		p := r.Engine.Retainer().Begin()
		plan, err := r.Engine.Retention(r.Ctx())
		if err != nil || plan.Next != 101 || plan.Versions != 99 {
			t.Fatalf("%+v, %v", plan, err)
		}
		if sweeps, err := p.State(r.Ctx()); err != nil || !sweeps {
			t.Fatal(sweeps, err)
		}
		for range slices {
			more, err := p.Slice(r.Ctx())
			if err != nil {
				t.Fatal(err)
			}
			last = !more
		}
		r.Stop()
		if rep := verifiedFile(t, r.Path, genesis); !rep.OK || rep.First != 101 {
			t.Fatalf("behind %d slices: %v", slices, rep.Problem)
		}
		if p := verifyExport(t, exported(r)); p != nil {
			t.Fatalf("behind %d slices, export: %v", slices, p)
		}
		r.Open()
		r.Start()
		swept(r, 101)
		wantPruned(r, 101, 181)
		r.Stop()
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
	s.Keys, s.Threshold = newSigners(8, 3).Keys, 3
	r.Genesis(registrytest.Signers{Keys: s.Keys[:5], Threshold: 3, LogKeys: s.LogKeys})
	roots := history(t, r, s)
	genesis := r.Engine.Head().GenesisB3
	setPolicy(r, retain.ByCount, 2)
	cover(r)
	swept(r, 11)
	wantPruned(r, 11, 13, 5, 8, 10)
	for epoch := uint64(1); epoch <= 4; epoch++ {
		if set, err := r.Engine.Signers(r.Ctx(), epoch); err != nil || set.Epoch != epoch || len(set.Artifact) == 0 {
			t.Errorf("signers of epoch %d: %v", epoch, err)
		}
	}
	r.Stop()
	r.Open()
	r.Start()
	r.Engine.Purge()
	for v := uint64(11); v <= 13; v++ {
		if items, err := r.Engine.Materialise(r.Ctx(), v); err != nil || items.Root() != roots[v] {
			t.Errorf("version %d: %v", v, err)
		}
	}
	r.Stop()
	if rep := verifiedFile(t, r.Path, genesis); !rep.OK || rep.Versions != 4+3 {
		t.Errorf("file: %+v, %v", rep, rep.Problem)
	}
	if p := verifyExport(t, exported(r)); p != nil {
		t.Errorf("export: %v", p)
	}
}

// An older copy of a pruned log refuses to write. It heals from an export made before the pruning,
// or from the pruned log if the copy reaches its first complete version. Otherwise the error gives
// the reason.
func TestOlderCopyOfAPrunedLog(t *testing.T) {
	t.Parallel()
	r, s := newPruneRig(t)
	r.Genesis(s)
	commitDeltas(r, s, 3)
	old := snapshot(r)
	commitNext(r, s, 5)
	for v := uint64(6); v <= 12; v++ {
		commitNext(r, s, v)
	}
	cover(r)
	newer := snapshot(r)
	r.Stop()
	whole := exported(r)
	r.Open()
	r.Start()
	commitNext(r, s, 13)
	setPolicy(r, retain.ByCount, 4)
	cover(r)
	swept(r, 9)
	r.Stop()
	pruned := exported(r)
	copyFile(t, r.MarkFile(), newer.MarkFile())
	copyFile(t, r.MarkFile(), old.MarkFile())
	n := restored(newer, true)
	accept(n)
	wantGuard(n, seal.RollbackOlder)
	if done, err := n.Engine.CatchUpFrom(n.Ctx(), alice, pruned, ""); err != nil || done.To != 13 {
		t.Errorf("from the pruned export: %+v, %v", done, err)
	}
	c := restored(old, true)
	accept(c)
	wantGuard(c, seal.RollbackOlder)
	for _, from := range []string{pruned, r.Path} {
		if _, err := c.Engine.CatchUpFrom(c.Ctx(), alice, from, ""); !errors.Is(err, document.ErrSource) ||
			c.Engine.Head().Head.Version != 4 {
			t.Errorf("from what is pruned: %v", err)
		}
	}
	if done, err := c.Engine.CatchUpFrom(c.Ctx(), alice, whole, ""); err == nil || done.To != 12 {
		t.Errorf("from before the last version: %+v, %v", done, err) // the mark names one more
	}
	if done, err := c.Engine.CatchUpFrom(c.Ctx(), alice, pruned, ""); err != nil || done.To != 13 {
		t.Errorf("and then from the pruned one: %+v, %v", done, err)
	}
	if c.Engine.Head().Head != n.Engine.Head().Head || c.Engine.Head().MinVersion != 1 {
		t.Errorf("HEAD is %+v from %d", c.Engine.Head().Head, c.Engine.Head().MinVersion)
	}
}

// If retention overtakes a pass of the deep verifier, the pass begins again at the start of the
// log.
func TestVerifierOvertaken(t *testing.T) {
	t.Parallel()
	r, s := newPruneRig(t)
	r.Genesis(s)
	commitDeltas(r, s, 19)
	slow := registry.NewPass(r.Engine, rverify.State{}, r.Now())
	step := func() (more bool) {
		t.Helper()
		err := r.Store.View(r.Ctx(), func(rd store.Reader) (err error) {
			more, err = slow.Verifier().Step(r.Ctx(), tables.Log{R: rd, Codec: tables.NewCodec()}, 1)
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
	setPolicy(r, retain.ByCount, 4)
	cover(r)
	swept(r, 17)
	for step() {
	}
	if rep := slow.Verifier().Report(); !rep.OK || rep.Head.Version != 20 || rep.First != 17 {
		t.Errorf("%+v", rep)
	}
}

// Any flipped bit of a pruned export is found, also in the statement and in the stored items.
func TestFlipsOfAPrunedExport(t *testing.T) {
	t.Parallel()
	r, s := newPruneRig(t)
	r.Genesis(s)
	commitDeltas(r, s, 19)
	setPolicy(r, retain.ByCount, 4)
	cover(r)
	swept(r, 17)
	r.Stop()
	dir := exported(r)
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
