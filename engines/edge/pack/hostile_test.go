package pack

import (
	"bytes"
	"errors"
	"fmt"
	"github.com/hashicorp/go-hclog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"ronbox/appliance/b3"
	"ronbox/appliance/flow"
	"ronbox/appliance/unit"
	"ronbox/engines/edge/asset"
	"ronbox/engines/edge/packtest"
	"ronbox/store"
	"ronbox/store/storetest"
)

// TestHostilePacks has hostile packs in the folder, of which one is slow to verify. The boot opens
// no pack, sound packs are served in the meantime, and each hostile pack fails with its fault. The
// slow one is cut off by its budget after a restart, when no other pack is verified.
func TestHostilePacks(t *testing.T) {
	r, s, dir := newPackRig(t, "stamen_toner_z3.pmtiles")
	slow := ""
	for _, h := range packtest.Hostile() {
		packtest.WriteMBTiles(t, filepath.Join(dir, h.Name+".mbtiles"), h.Script)
		if h.Slow && h.Fault == "" {
			slow = h.Name
		}
	}
	putPack(t, filepath.Join(dir, "leaf.pmtiles"), packtest.BigDirectory(1<<20+1, true))
	if err := s.Recover(t.Context()); err != nil { // like a boot
		t.Fatal(err)
	}
	for _, i := range s.List() {
		if i.State != asset.PackOpening {
			t.Errorf("after the boot: %s is %s", i.ID, i.State)
		}
	}
	if _, err := s.Tile(t.Context(), TileRef{Pack: "stamen_toner_z3"}, anyCoding); !errors.Is(err, ErrOpening) {
		t.Errorf("a tile before its pack is open: %v", err)
	}
	r.start()
	until(t, "all but one are settled", func() bool {
		for _, i := range s.List() {
			if i.ID != slow && i.State != asset.PackFailed && i.State != asset.PackVerified {
				return false
			}
		}
		return true
	})
	putPack(t, filepath.Join(dir, "late.pmtiles"), made("late 1", "late").bytes())
	if _, err := s.Rescan(t.Context()); err != nil {
		t.Fatal(err)
	}
	until(t, "a new pack is verified", func() bool {
		i, err := s.Info("late")
		return err == nil && i.State == asset.PackVerified && !s.dirty.Load() && !s.saving.Load()
	})
	r.stop()
	r.cfg.VerifyBase = unit.Duration(time.Second)
	r.open()
	s = r.set
	r.start()
	if err := s.settle(t.Context()); err != nil {
		t.Fatal(err)
	}
	got := map[string]Info{}
	for _, i := range s.List() {
		got[i.ID] = i
	}
	for _, h := range packtest.Hostile() {
		want := h.Fault
		if want == "" {
			want = "the check took more than 1s"
		}
		if i := got[h.Name]; i.State != asset.PackFailed || !strings.Contains(i.Fault, want) {
			t.Errorf("%s is %s: %q, want %q", h.Name, i.State, i.Fault, want)
		}
	}
	if i := got["leaf"]; i.State != asset.PackFailed || !strings.Contains(i.Fault, "1048577 entries, at most 1048576") {
		t.Errorf("leaf is %s: %q", i.State, i.Fault)
	}
	if got["stamen_toner_z3"].State != asset.PackVerified || got["late"].State != asset.PackVerified ||
		s.Failed() != len(packtest.Hostile())+1 {
		t.Errorf("packs: %s, %d failed", states(s.List()), s.Failed())
	}
}

// TestRememberedFailure restarts with a failed pack: only a rescan verifies it again.
func TestRememberedFailure(t *testing.T) {
	r, s, dir := newPackRig(t)
	bad := made(broken, broken)
	putPack(t, filepath.Join(dir, "p.pmtiles"), bad.bytes())
	r.start()
	before := rescan(t, s)[0]
	r.stop()
	r.open()
	s = r.set
	if i := s.List()[0]; i.State != asset.PackFailed || i.Fault != before.Fault || s.current.Load().unopened() != "" {
		t.Errorf("after a restart: %+v, was %+v", i, before)
	}
	r.start()
	if i := rescan(t, s)[0]; i.State != asset.PackFailed || i.Fault != before.Fault {
		t.Errorf("tried again: %+v, was %+v", i, before)
	}
}

// TestBadReplacement replaces a pack by invalid files and finally by a sound one. The old pack
// serves until then.
func TestBadReplacement(t *testing.T) {
	for _, name := range []string{"p.pmtiles", "p.mbtiles"} {
		r, s, dir := newPackRig(t)
		path := filepath.Join(dir, name)
		var old, next, bad []byte
		if name == "p.pmtiles" {
			old, next, bad = made("old 1", "old").bytes(), made("next 2", "next").bytes(), made(broken, broken).bytes()
		} else {
			old = scripted(t, packtest.Sound+"UPDATE tiles SET tile_data = CAST('old 1' AS BLOB)")
			next = scripted(t, packtest.Sound+"UPDATE tiles SET tile_data = CAST('next 2' AS BLOB)")
			bad = scripted(t, packtest.Sound+fmt.Sprintf("UPDATE tiles SET tile_data = x'%x'", broken))
		}
		putPack(t, path, old)
		r.start()
		first := rescan(t, s)[0]
		for i, file := range [][]byte{bad, old[:len(old)-1], nil} {
			putPack(t, path, file)
			if got := rescan(t, s)[0]; got.State != asset.PackVerified || got.Digest != first.Digest ||
				got.Next != asset.PackFailed ||
				!strings.Contains(got.Fault, "is refused") {
				t.Errorf("%s, bad file %d: %+v", name, i, got)
			}
			s.Purge()
			if got, err := s.Tile(t.Context(), TileRef{Pack: "p"},
				anyCoding); err != nil || string(got.Bytes) != "old 1" ||
				got.Version != first.Version {
				t.Errorf("%s, bad file %d: tile %q of %s, %v", name, i, got.Bytes, got.Version, err)
			}
		}
		if n := s.Failed(); n != 0 {
			t.Errorf("%d packs failed", n)
		}
		putPack(t, path, next)
		if got := rescan(t, s)[0]; got.State != asset.PackVerified || got.Digest != b3.Sum(next) || got.Next != "" ||
			got.Fault != "" {
			t.Errorf("%s, a good file: %+v", name, got)
		}
		if got, err := s.Tile(t.Context(), TileRef{Pack: "p"}, anyCoding); err != nil || string(got.Bytes) != "next 2" {
			t.Errorf("%s, a good file: %q, %v", name, got.Bytes, err)
		}
	}
}

// scripted returns an MBTiles file that a script made.
func scripted(t testing.TB, script string) []byte {
	t.Helper()
	path := filepath.Join(t.TempDir(), "made.mbtiles")
	packtest.WriteMBTiles(t, path, script)
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestServedWhileVerifying verifies a replacement: the old pack serves the raw file and the tiles.
func TestServedWhileVerifying(t *testing.T) {
	_, s, dir := newPackRig(t)
	path := filepath.Join(dir, "p.pmtiles")
	pass := func() {
		if err := s.scan(lookAgain); err != nil {
			t.Fatal(err)
		}
		openAll(t, s)
	}
	old := made("old 1", "old").bytes()
	putPack(t, path, old)
	pass()
	verifyAll(t, s)
	putPack(t, path, made("next 2", "next").bytes())
	pass()
	pass()
	if i := s.List()[0]; i.State != asset.PackVerified || i.Next != asset.PackVerifying || i.Digest != b3.Sum(old) {
		t.Errorf("while the new file is verified: %+v", i)
	}
	o, err := s.File("p")
	if err != nil {
		t.Fatal(err)
	}
	o.Close()
	putPack(t, path, old) // another file with the same bytes
	pass()
	verifyAll(t, s)
	if i := s.List()[0]; i.State != asset.PackVerified || i.Next != "" || i.Digest != b3.Sum(old) {
		t.Errorf("at the end: %+v", i)
	}
}

// TestSameID adds files with the id of a pack to the folder: they do not replace it.
func TestSameID(t *testing.T) {
	r, s, dir := newPackRig(t, "stamen_toner_z3.pmtiles")
	r.start()
	rescan(t, s)
	packtest.WriteMBTiles(t, filepath.Join(dir, "stamen_toner_z3.mbtiles"), packtest.Sound)
	rescan(t, s)
	if got, want := states(s.List()), "stamen_toner_z3 verified, stamen_toner_z3.mbtiles failed"; got != want {
		t.Errorf("packs: %s, want %s", got, want)
	}
}

// TestRehash changes a byte of a pack but not its size and time. A check finds it, also after a
// restart. The pack is not served until the byte is restored.
func TestRehash(t *testing.T) {
	for _, restart := range []bool{false, true} {
		r, s, dir := newPackRig(t, "stamen_toner_z3.pmtiles", "twolayers.mbtiles")
		r.start()
		rescan(t, s)
		path := filepath.Join(dir, "stamen_toner_z3.pmtiles")
		rot(t, path, 500_000)
		if restart {
			r.reboot()
			s = r.set
			until(t, "packs are verified",
				func() bool { return states(s.List()) == "stamen_toner_z3 verified, twolayers verified" })
		}
		if got, want := rehashed(t, s), "stamen_toner_z3 failed: the digest is, twolayers sound"; got != want {
			t.Errorf("rehash: %s, want %s", got, want)
		}
		if _, err := s.Tile(t.Context(), TileRef{Pack: "stamen_toner_z3"}, anyCoding); !errors.Is(err, ErrFailed) {
			t.Errorf("a tile: %v", err)
		}
		r.reboot()
		s = r.set
		if got, want := rehashed(t, s), "stamen_toner_z3 failed: the digest is"; !strings.HasPrefix(got, want) {
			t.Errorf("after a restart: %s, want %s", got, want)
		}
		if i := rescan(t, s)[0]; i.State != asset.PackFailed || !strings.Contains(i.Fault, "its bytes have changed") {
			t.Errorf("after a rescan: %+v", i)
		}
		rot(t, path, 500_000)
		if got := states(rescan(t, s)); got != "stamen_toner_z3 verified, twolayers verified" {
			t.Errorf("as it was: %s", got)
		}
	}
}

// rot flips a bit of a file and keeps its modification time.
func rot(t testing.TB, path string, at int64) {
	t.Helper()
	st, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 1)
	_, err = f.ReadAt(b, at)
	_, err2 := f.WriteAt([]byte{b[0] ^ 1}, at)
	if err := errors.Join(err, err2, f.Close(), os.Chtimes(path, time.Time{}, st.ModTime())); err != nil {
		t.Fatal(err)
	}
}

// rehashed returns the results of a Rehash.
func rehashed(t testing.TB, s *Set) string {
	t.Helper()
	var out []string
	err := s.Rehash(t.Context(), func(i Info, err error) {
		switch {
		case err == nil:
			out = append(out, i.ID+" sound")
		case !errors.Is(err, ErrFailed) || i.State != asset.PackFailed || !strings.Contains(i.Fault, "the digest is"):
			out = append(out, fmt.Sprintf("%s %s: %v", i.ID, i.State, err))
		default:
			out = append(out, i.ID+" failed: the digest is")
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(out, ", ")
}

// TestBadRow corrupts the row of packs: a check finds it, and a start verifies the packs again.
func TestBadRow(t *testing.T) {
	r, s, _ := newPackRig(t, "stamen_toner_z3.pmtiles")
	r.start()
	rescan(t, s)
	key, row := []byte(nil), []byte(nil)
	read := func(v store.Reader) error {
		for k, b := range v.Range(bucket, nil, nil) {
			key, row = bytes.Clone(k), bytes.Clone(b)
		}
		return Check(v)
	}
	if err := r.store.View(t.Context(), read); err != nil {
		t.Fatal(err)
	}
	everyBit(t, key, row)
	for _, to := range [][]byte{key, []byte("digestz")} {
		if _, err := store.Commit(t.Context(), r.store, store.Work, spoilRow{key, to, row[1:]}); err != nil {
			t.Fatal(err)
		}
		if err := s.Recover(t.Context()); err != nil {
			t.Fatalf("recover: %v", err)
		}
		if got := states(rescan(t, s)); got != "stamen_toner_z3 verified" {
			t.Fatalf("after a start: %s", got)
		}
		if err := r.store.View(t.Context(), read); err != nil {
			t.Fatalf("after a start: %v", err)
		}
	}
}

// everyBit flips every bit of a row and checks the row.
func everyBit(t *testing.T, key, row []byte) {
	tx := storetest.NewTx(t, bucket)
	check := func() (err error) {
		defer func() {
			if v, bad := recover().(*store.RowError); bad {
				err = v
			}
		}()
		return Check(tx.Reader())
	}
	was, whole := key, append(bytes.Clone(key), row...)
	for bit := range 8 * len(whole) {
		b := bytes.Clone(whole)
		b[bit/8] ^= 1 << (bit % 8)
		if _, err := storetest.Do(tx, spoilRow{was, b[:len(key)], b[len(key):]}); err != nil {
			t.Fatal(err)
		}
		if was = b[:len(key)]; !errors.Is(check(), store.ErrCorrupt) {
			t.Fatalf("bit %d is not found", bit)
		}
	}
}

// spoilRow replaces a row by arbitrary bytes.
type spoilRow struct{ from, to, row []byte }

func (spoilRow) Kind() string { return "edge.spoil/1" }

func (c spoilRow) Apply(_ store.Reader, _ store.Stamp, w *store.Writes) (struct{}, error) {
	w.Delete(bucket, c.from)
	w.Put(bucket, c.to, c.row)
	return struct{}{}, nil
}

// TestNotRecovered uses a set without Recover, as in a node with a disabled edge.
func TestNotRecovered(t *testing.T) {
	log := hclog.NewNullLogger()
	s := New(t.TempDir(), DefaultConfig(), Deps{
		Catalog: flow.NewCatalog(nil, log),
		Log:     log,
		Event:   func(Info) {},
	})
	s.Purge()
	s.Reload()
	if n := s.Failed() + len(s.List()); n != 0 {
		t.Errorf("%d packs", n)
	}
	s.Close()
}

// TestDescriptionBound reads too much metadata: what fits is kept.
func TestDescriptionBound(t *testing.T) {
	i, most := Info{}, int64(1<<20)
	long := strings.Repeat("x", 1<<20)
	if err := i.describe([]byte(`{"name":"`+long+`"}`), most); err != nil || i.Name != long {
		t.Errorf("at the bound: %v", err)
	}
	meta := `{"name":"x","attribution":"us","vector_layers":[{"id":"` + long + `"}],"description":"y"}`
	if err := i.describe([]byte(meta), most); err == nil || !strings.Contains(err.Error(), "at most 1048576") {
		t.Errorf("beyond it: %v", err)
	}
	if i.Name != "x" || i.Attribution != "us" || len(i.VectorLayers) != 0 {
		t.Errorf("kept: %.20s, %s, %d bytes of layers", i.Name, i.Attribution, len(i.VectorLayers))
	}
}
