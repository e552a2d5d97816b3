package registry_test

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"

	"ronbox/appliance/host/hosttest"
	"ronbox/engines/registry"
	"ronbox/engines/registry/document"
	"ronbox/engines/registry/registrytest"
	"ronbox/engines/registry/retain"
	"ronbox/engines/registry/rverify"
	"ronbox/engines/registry/tables"
	"ronbox/engines/registry/views"
	"ronbox/store"
)

// full returns a file with rows in every bucket: versions with small and large payloads, two signer
// sets, a checkpoint, a stored set, proposals that ended in every way and some live ones.
func full(t testing.TB) (r *registrytest.Rig, genesis rverify.Options) {
	t.Helper()
	r, s := newLogRig(t)
	r.Genesis(s, "a")
	if err := r.Engine.Withdraw(r.Ctx(), alice, r.Propose(2, "early").ID, ""); err != nil {
		t.Fatal(err)
	}
	commitDeltas(r, s, 3)
	noise := make([]byte, 600)
	_, _ = rand.Read(noise)
	large := fmt.Appendf(nil,
		`{"schema_version":"1.0.0","version":5,"mode":"delta","put":[{"id":"large","kind":"service","meta":{"note":%q}}],"remove":[]}`,
		hex.EncodeToString(noise))
	p, err := r.Engine.Propose(r.Ctx(), alice, large, "", "")
	if err != nil {
		t.Fatal(err)
	}
	rival := r.Propose(5, "rival")
	r.Approve(p, s.Keys...)
	r.Commit(p)
	if got := r.StateOf(rival); got != document.StateStale {
		t.Fatalf("the rival is %s", got)
	}
	if err := r.Engine.Withdraw(r.Ctx(), alice, r.Propose(6, "w").ID, ""); err != nil {
		t.Fatal(err)
	}
	late := r.Propose(6, "late")
	r.Advance(r.Config.Proposals.TTL.D())
	r.WaitFor("a proposal to expire", func() bool { return r.StateOf(late) == document.StateExpired })
	if _, err := r.Engine.KeepSet(r.Ctx(), 5, r.Engine.Head().Items); err != nil {
		t.Fatal(err)
	}
	cover(r)
	waits := r.Propose(6, "waits")
	r.Approve(waits, s.Keys...)
	if _, err := r.Engine.Propose(r.Ctx(), alice, deltaOn(7, "stacked", waits.PayloadB3), "", ""); err != nil {
		t.Fatal(err)
	}
	if _, err := store.Commit(r.Ctx(), r.Store, store.Work, beside{}); err != nil {
		t.Fatal(err)
	}
	return r, rverify.Options{Genesis: r.Engine.Head().GenesisB3}
}

// beside writes the rows that only an adoption, an objecting witness and the deep verifier write.
type beside struct{}

func (beside) Kind() string { return "registry.test_beside/1" }

func (beside) Apply(_ store.Reader, _ store.Stamp, w *store.Writes) (struct{}, error) {
	tables.MetaAdopted.Put(w, tables.KeyAdopted, []byte("01JD3V9T5E8Q2X7RZ4M6K0ABCD"))
	tables.MetaObjections.Put(w, tables.KeyObjections,
		tables.Objections{Rows: []tables.Objection{{Witness: "w.example+01020304", Size: 9, Tree: 5, AtMS: 1}}})
	tables.MetaVerified.Put(w, tables.KeyVerified, tables.VerifyMark{Size: 5, BegunMS: 1})
	return struct{}{}, nil
}

// row is a row of a file, with the places of its bytes in it, stale copies included.
type row struct {
	bucket     *store.Bucket
	key, value []byte
	places     []int
}

// rows finds the live rows of every bucket in the file.
func rows(t testing.TB, path string, file []byte, pruned bool) (all []row) {
	t.Helper()
	const page = 4 << 10
	used := len(bytes.TrimRight(file, "\x00")) // most of the file is not, yet
	file = file[:min(len(file), (used+page-1)/page*page)]
	readFile(t, path, func(r store.Reader) error {
		for _, b := range registry.Buckets() {
			n := len(all)
			for k, v := range r.Range(b, nil, nil) {
				row := row{bucket: b, key: bytes.Clone(k), value: bytes.Clone(v)}
				pair := append(bytes.Clone(k), v...)
				for at, i := 0, 0; i >= 0; at += i + 1 {
					if i = bytes.Index(file[at:], pair); i >= 0 {
						row.places = append(row.places, at+i)
					}
				}
				if all = append(all, row); len(row.places) == 0 {
					t.Fatalf("%s %x lies nowhere", b.Name, k)
				}
			}
			if (len(all) == n) != (b == tables.RetentionBucket && !pruned) {
				t.Errorf("%s has %d rows", b.Name, len(all)-n)
			}
		}
		return nil
	})
	return all
}

func readFile(t testing.TB, path string, fn func(store.Reader) error) error {
	t.Helper()
	r, err := store.OpenReader(path)
	if err != nil {
		return err
	}
	defer func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}()
	return r.View(t.Context(), fn)
}

// The check of the file finds any flipped bit in the key or the value of a row.
func TestFlippedBits(t *testing.T) {
	t.Parallel()
	if hosttest.UnderRace() {
		t.Skip("it is the work of one goroutine: `make test` runs it")
	}
	r, _ := full(t)
	r.Stop()
	flips(t, r, false)
	prunedTo3(r)
	r.Stop()
	flips(t, r, true)
}

// The time in the outcome of a kept version is compared with its entry, because its audit record is
// pruned.
func TestOutcomeOfAKeptVersion(t *testing.T) {
	t.Parallel()
	r, o := full(t)
	prunedTo3(r)
	r.Stop()
	err := readFile(t, r.Path, func(rd store.Reader) error {
		for id, how := range tables.DoneOutcome.All(rd) {
			if how.Version != 1 {
				continue
			}
			at := bytes.Index(rd.Get(tables.DoneBucket, id[:]), store.U64().Append(nil, uint64(how.AtMS)))
			step := 1
			if testing.Short() {
				step = 5
			}
			for bit := 0; bit < 64; bit += step {
				f := flipped{Reader: rd, flip: flip{bucket: tables.DoneBucket, key: id[:], bit: 8*at + bit}}
				if rep, err := tables.Verify(t.Context(), f, o); err != nil || rep.OK {
					t.Errorf("bit %d of the time flipped unseen, %v", bit, err)
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// A version that is committed after a restart with the clock set back ended when its entry says,
// not earlier.
func TestOutcomeOnAClockSetBack(t *testing.T) {
	t.Parallel()
	r, s := newLogRig(t)
	r.Genesis(s)
	p := r.Propose(2, "b")
	r.Approve(p, s.Keys...)
	r.Stop()
	r.Advance(-time.Second)
	r.Open()
	r.Start()
	made := r.Commit(p)
	if got, err := r.Engine.Proposal(r.Ctx(), p.ID); err != nil || got.EndedAt != made.CommittedAt {
		t.Errorf("ended at %s, committed at %s, %v", got.EndedAt, made.CommittedAt, err)
	}
	r.Stop()
	if rep := verifiedFile(t, r.Path, r.Engine.Head().GenesisB3); !rep.OK {
		t.Error(rep.Problem)
	}
}

// The outcome of a proposal without a version is removed with the audit record that proves it.
func TestOutcomesGoWithTheirRecords(t *testing.T) {
	t.Parallel()
	r, s := newPruneRig(t)
	r.Genesis(s)
	withdrawn := func(version uint64) document.Proposed {
		p := r.Propose(version, "withdrawn")
		if err := r.Engine.Withdraw(r.Ctx(), alice, p.ID, ""); err != nil {
			t.Fatal(err)
		}
		return p
	}
	early := withdrawn(2)
	commitDeltas(r, s, 5)
	late := withdrawn(7)
	id, err := tables.ParseID(early.ID)
	if err != nil {
		t.Fatal(err)
	}
	how, known, err := views.RowOf(r.Ctx(), r.Engine.Reader, tables.DoneOutcome, id)
	if err != nil || !known {
		t.Fatalf("%+v, %v", how, err)
	}
	setPolicy(r, retain.ByCount, 2)
	cover(r)
	swept(r, 5)
	if _, err := r.Engine.Proposal(r.Ctx(), early.ID); !errors.Is(err, document.ErrNotFound) ||
		r.StateOf(late) != document.StateWithdrawn {
		t.Errorf("the early one: %v, the late one is %s", err, r.StateOf(late))
	}
	verify := func() rverify.Report {
		rep := rverify.Report{}
		err := r.Engine.View(r.Ctx(), func(rd store.Reader) (err error) {
			rep, err = tables.Verify(r.Ctx(), rd, rverify.Options{})
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return rep
	}
	if rep := verify(); !rep.OK {
		t.Error(rep.Problem)
	}
	if _, err := store.Commit(r.Ctx(), r.Store, store.Bulk,
		registrytest.Plant{Rows: map[ulid.ULID]tables.DoneRow{id: how}}); err != nil {
		t.Fatal(err)
	}
	if verify().OK {
		t.Error("an outcome that no record tells of passes")
	}
}

// prunedTo3 prunes a full file to version 3.
func prunedTo3(r *registrytest.Rig) {
	r.T.Helper()
	r.Stop()
	r.Segment = 2
	r.Open()
	setPolicy(r, retain.ByCount, 1)
	if err := r.Engine.Retainer().Begin().Cycle(r.Ctx()); err != nil || r.Engine.Head().MinVersion != 3 {
		r.T.Fatalf("pruned to version %d, %v", r.Engine.Head().MinVersion, err)
	}
}

// patch flips a bit of a row in a file, in all its copies, and puts the bytes back once fn has
// returned.
func (row row) patch(t testing.TB, f *os.File, sound []byte, bit int, fn func()) {
	t.Helper()
	write := func(mask byte) {
		for _, at := range row.places {
			if _, err := f.WriteAt([]byte{sound[at+bit/8] ^ mask}, int64(at+bit/8)); err != nil {
				t.Fatal(err)
			}
		}
	}
	write(1 << (bit % 8))
	defer write(0)
	fn()
}

// flipsPerRow is the number of flipped bits in the key and in the value of each row.
const flipsPerRow = 1

// writeFile writes a file without the zeros at its end, which become a hole.
func writeFile(t testing.TB, path string, file []byte) {
	t.Helper()
	err := os.WriteFile(path, bytes.TrimRight(file, "\x00"), 0o600)
	if err = errors.Join(err, os.Truncate(path, int64(len(file)))); err != nil {
		t.Fatal(err)
	}
}

// flips checks the file with a flipped bit in the key and in the value of each row of each bucket.
func flips(t *testing.T, r *registrytest.Rig, pruned bool) {
	t.Helper()
	sound, err := os.ReadFile(r.Path)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "copy.db")
	writeFile(t, path, sound)
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	check := func() error {
		return readFile(t, path, func(rd store.Reader) error {
			return tables.Check(t.Context(), rverify.Options{}, new(*rverify.Report)).Run(rd)
		})
	}
	if err := check(); err != nil {
		t.Fatalf("the sound file: %v", err)
	}
	all := rows(t, r.Path, sound, pruned)
	for n, row := range all {
		if testing.Short() && n%5 > 0 && row.bucket == all[n-1].bucket {
			continue // one of five, and one of each bucket
		}
		keyBits, bits := 8*len(row.key), 8*(len(row.key)+len(row.value))
		for i := range flipsPerRow {
			tried := []int{(7*n + 13*i) % keyBits}
			if bits > keyBits {
				tried = append(tried, keyBits+(1009*n+7919*i)%(bits-keyBits))
			}
			for _, bit := range tried {
				row.patch(t, f, sound, bit, func() {
					if check() == nil && row.bucket.Name+string(row.key) != "reg/meta"+tables.KeyAdoptedOld {
						t.Errorf("%s %q: bit %d of %d key bits and %d bits flipped unseen", row.bucket.Name, row.key,
							bit, keyBits, bits)
					}
				})
			}
		}
	}
}
