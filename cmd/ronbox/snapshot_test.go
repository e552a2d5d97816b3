package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	bolt "go.etcd.io/bbolt"

	"ronbox/cmd/ronbox/cli"
	"ronbox/engines/registry/rverify"
	nodeapi "ronbox/httpapi/wire/node"
	"ronbox/store"
)

// A snapshot taken under load is complete and restores to the same state. The restored node does
// not write until an operator confirms it.
func TestSnapshotUnderLoadRestores(t *testing.T) {
	skipRaceOnly(t)
	t.Parallel()
	b := newBox(t)
	p := b.start(t)
	files := states(t)
	must(t, nil, b.args("registry", "apply", files[0], "--key", b.key)...)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := 1; ctx.Err() == nil; i++ {
			ronboxIn(t, ctx, "", b.args("registry", "apply", "-q", "--key", b.key, files[i%2])...)
		}
	})
	dir := t.TempDir()
	var snap nodeapi.Snapshot
	must(t, &snap, b.args("db", "snapshot", dir, "--json")...)
	cancel()
	wg.Wait()
	if code := p.signal(t, syscall.SIGTERM); code != cli.ExitDone {
		t.Fatalf("serve ended with %d\n%s", code, p.stderr)
	}
	var checked checkedFile
	must(t, &checked, "db", "verify", snap.File, "--json")
	if !checked.OK || checked.B3.String() != snap.B3 || checked.Seq != snap.Seq || checked.StateHash.IsZero() {
		t.Errorf("verify gave %+v of %+v", checked, snap)
	}
	restoreAndAccept(t, b, snap, checked)
}

// A database that was moved to another disk and linked stays there. A link to a snapshot is a
// snapshot.
func TestLinkedDatabase(t *testing.T) {
	skipRaceOnly(t)
	t.Parallel()
	b := newBox(t)
	link, target := filepath.Join(b.dir, "ronbox.db"), filepath.Join(t.TempDir(), "moved.db")
	if err := errors.Join(os.Rename(link, target), os.Symlink(target, link)); err != nil {
		t.Fatal(err)
	}
	p := b.start(t)
	var snap nodeapi.Snapshot
	must(t, &snap, b.args("db", "snapshot", t.TempDir(), "--json")...)
	p.signal(t, syscall.SIGTERM)
	for _, verb := range [][]string{{"db", "compact"}, {"db", "restore", "--yes", snap.File}} {
		before, err := os.Stat(target)
		if err != nil {
			t.Fatal(err)
		}
		must(t, nil, b.args(verb...)...)
		after, err := os.Stat(target)
		if to, linked := os.Readlink(link); linked != nil || to != target || err != nil || os.SameFile(before, after) {
			t.Errorf("%s: the link names %q, %v; the file: %v", verb, to, linked, err)
		}
	}
	alias := filepath.Join(t.TempDir(), "alias.db")
	if err := os.Symlink(snap.File, alias); err != nil {
		t.Fatal(err)
	}
	if got := ronbox(t, "db", "compact", alias); got.code != cli.ExitFailed || !strings.Contains(got.stderr, "snapshot") {
		t.Errorf("db compact of a linked snapshot: exit %d, %s", got.code, got.stderr)
	}
}

type checkedFile struct {
	store.Report
	Seq uint64 `json:"seq"`
}

func restoreAndAccept(t *testing.T, b *box, snap nodeapi.Snapshot, checked checkedFile) {
	t.Helper()
	r := &box{dir: filepath.Join(filepath.Dir(b.dir), "r"), env: b.env, key: b.key, genesis: b.genesis}
	var restored nodeapi.DBInfo
	must(t, &restored, r.args("db", "restore", snap.File, "--json")...)
	if restored.StateHash != checked.StateHash.String() || !restored.Restored {
		t.Errorf("restored %+v, want state %s", restored, checked.StateHash)
	}
	p := r.start(t)
	apply := r.args("registry", "apply", states(t)[3], "--key", b.key)
	if got := ronbox(t, apply...); got.code != cli.ExitBusy || !strings.Contains(got.stderr, "restore") {
		t.Errorf("a write before accept-restore: exit %d, %s", got.code, got.stderr)
	}
	must(t, nil, r.args("db", "accept-restore", "--json")...)
	must(t, nil, r.args("registry", "highwater", "adopt", "--yes", "--json")...)
	must(t, nil, apply...)
	if code := p.signal(t, syscall.SIGTERM); code != cli.ExitDone {
		t.Errorf("serve ended with %d\n%s", code, p.stderr)
	}
	r.checkLog(t)
}

// Verification finds any flipped bit in the log, given only the genesis hash.
func TestAnyFlippedBitIsFound(t *testing.T) {
	skipRaceOnly(t)
	t.Parallel()
	b := newBox(t)
	p := b.start(t)
	must(t, nil, b.args(append([]string{"registry", "apply", "-q", "--key", b.key}, states(t)...)...)...)
	var snap nodeapi.Snapshot
	must(t, &snap, b.args("db", "snapshot", t.TempDir(), "--json")...)
	p.signal(t, syscall.SIGTERM)
	var doc rverify.Report
	must(t, &doc, "registry", "verify", "--db", snap.File, "--genesis", b.genesis, "--json")
	if doc.Versions != 9 || !doc.OK {
		t.Fatalf("the snapshot does not verify: %+v", doc)
	}
	if r := ronbox(t, "registry", "verify", "--db", snap.File, "--genesis",
		"b3:"+strings.Repeat("1", 64)); r.code != cli.ExitBad {
		t.Errorf("another genesis: exit %d", r.code)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for _, bucket := range []string{"reg/entry", "reg/payload", "reg/audit", "reg/epoch", "reg/meta", "reg/tile",
		"reg/cp"} {
		verify := spawn // once in a separate process; later runs in this process are faster
		for range killCycles(2, 8, 100) {
			flipped := flip(t, snap.File, bucket, rng)
			r := verify(t, "registry", "verify", "--db", flipped.file, "--genesis", b.genesis, "--json")
			verify = ronbox
			var bad rverify.Report
			decode(t, r.stdout, &bad)
			if r.code != cli.ExitBad || bad.Problem == nil || bad.Problem.Kind == "" {
				t.Errorf("%s, key %x, bit %d: exit %d, %s%s", bucket, flipped.key, flipped.bit, r.code, r.stdout,
					r.stderr)
			}
			_ = os.Remove(flipped.file)
		}
	}
}

// A snapshot with any flipped bit is refused, whether or not the bit is in the log.
func TestDamagedSnapshotIsNotRestored(t *testing.T) {
	skipRaceOnly(t)
	t.Parallel()
	b := newBox(t)
	p := b.start(t)
	var snap nodeapi.Snapshot
	must(t, &snap, b.args("db", "snapshot", t.TempDir(), "--json")...)
	p.signal(t, syscall.SIGTERM)
	whole, err := os.ReadFile(snap.File)
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(3, 4))
	for range 10 {
		raw := append([]byte(nil), whole...)
		raw[rng.IntN(len(raw))] ^= 1 << rng.IntN(8)
		if err := os.WriteFile(snap.File, raw, 0o600); err != nil {
			t.Fatal(err)
		}
		if r := ronbox(t, "db", "verify", snap.File); r.code != cli.ExitBad {
			t.Errorf("verify: exit %d\n%s%s", r.code, r.stdout, r.stderr)
		}
		fresh := filepath.Join(t.TempDir(), "r")
		if r := ronbox(t, "--data-dir", fresh, "db", "restore", snap.File); r.code != cli.ExitCorrupt ||
			cli.Exists(filepath.Join(fresh, "ronbox.db")) {
			t.Errorf("restore: exit %d\n%s%s", r.code, r.stdout, r.stderr)
		}
	}
}

type flippedBit struct {
	file string
	key  []byte
	bit  int
}

// flip copies a database and flips one bit of one value of the bucket.
func flip(t *testing.T, file, bucket string, rng *rand.Rand) (f flippedBit) {
	t.Helper()
	f.file = filepath.Join(t.TempDir(), "copy.db")
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(f.file, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	db, err := bolt.Open(f.file, 0o600, &bolt.Options{NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	err = db.Update(func(tx *bolt.Tx) error {
		rows := tx.Bucket([]byte(bucket))
		keys := [][]byte{}
		_ = rows.ForEach(func(k, _ []byte) error {
			// other keys of reg/meta do not belong to the log
			if bucket != "reg/meta" || string(k) == "head" || string(k) == "audit_head" {
				keys = append(keys, k)
			}
			return nil
		})
		f.key = append([]byte(nil), keys[rng.IntN(len(keys))]...)
		v := append([]byte(nil), rows.Get(f.key)...)
		f.bit = rng.IntN(8 * len(v))
		v[f.bit/8] ^= 1 << (f.bit % 8)
		return rows.Put(f.key, v)
	})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// A folder of the caller's working directory is sent as an absolute path: the node has another one.
func TestRelativeFolderOfAClosing(t *testing.T) {
	want, err := filepath.Abs("there")
	if err != nil {
		t.Fatal(err)
	}
	r := must(t, nil, "--socket", "/none", "ledger", "close", "--keep", "10d", "--out-dir", "there", "--print-curl")
	if !strings.Contains(r.stdout, `"out_dir":"`+want+`"`) {
		t.Errorf("it would send %s", r.stdout)
	}
}
