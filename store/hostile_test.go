package store

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/fnv"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	bolt "go.etcd.io/bbolt"

	"ronbox/store/page"
)

// Offsets of the fields of a meta page that forge changes.
const (
	metaPageSize  = page.Header + 8
	metaRoot      = page.Header + 16
	metaHighWater = page.Header + 40
	metaTxid      = page.Header + 48
)

// forge writes a number into a meta page of raw and makes its checksum right again.
func forge(raw []byte, meta, field int, v uint64) {
	b := raw[meta*PageSize:]
	if field == metaPageSize {
		binary.LittleEndian.PutUint32(b[field:], uint32(v))
	} else {
		binary.LittleEndian.PutUint64(b[field:], v)
	}
	sum := fnv.New64a()
	_, _ = sum.Write(b[page.Header : page.Header+page.MetaSummed])
	binary.LittleEndian.PutUint64(b[page.Header+page.MetaSummed:], sum.Sum64())
}

func field(raw []byte, meta, at int) uint64 {
	return binary.LittleEndian.Uint64(raw[meta*PageSize+at:])
}

// current is the meta page in force.
func current(raw []byte) int {
	if field(raw, 1, metaTxid) > field(raw, 0, metaTxid) {
		return 1
	}
	return 0
}

// usedPages is a filled file without the room behind its last page.
func usedPages(t *testing.T) []byte {
	t.Helper()
	raw, err := os.ReadFile(filled(t))
	if err != nil {
		t.Fatal(err)
	}
	return raw[:field(raw, current(raw), metaHighWater)*PageSize]
}

// Files made to mislead end in a report, not in a crash: bbolt and the checks before it must look
// at the same tree.
func TestVerifyOfHostileFiles(t *testing.T) {
	whole := usedPages(t)
	for _, tt := range []struct {
		name string
		ok   bool
		edit func(raw []byte)
	}{
		{"untouched", true, func([]byte) {}},
		{"an older meta page with another page size", false,
			func(raw []byte) { forge(raw, 1-current(raw), metaPageSize, 8192) }},
		{"the current meta page with another page size", false,
			func(raw []byte) { forge(raw, current(raw), metaPageSize, 1024) }},
		{"two meta pages of one age", false, func(raw []byte) { // bbolt takes the first
			forge(raw, 0, metaTxid, 99)
			forge(raw, 1, metaTxid, 99)
			forge(raw, 0, metaRoot, field(raw, 0, metaHighWater)+1<<30)
		}},
		{"a root out of bounds", false, func(raw []byte) { forge(raw, current(raw), metaRoot, 1<<50) }},
		{"a high water beyond the file", false, func(raw []byte) { forge(raw, current(raw), metaHighWater, 1<<63) }},
		{"no pages", false, func(raw []byte) { forge(raw, current(raw), metaHighWater, 0) }},
		{"an empty branch", false, func(raw []byte) {
			for p := 2; p < len(raw)/PageSize; p++ {
				if b := raw[p*PageSize:]; binary.LittleEndian.Uint16(b[8:]) == page.Branch {
					binary.LittleEndian.PutUint16(b[10:], 0)
				}
			}
		}},
	} {
		raw := append([]byte{}, whole...)
		tt.edit(raw)
		path := filepath.Join(t.TempDir(), "hostile.db")
		if err := os.WriteFile(path, raw, 0o600); err != nil {
			t.Fatal(err)
		}
		if rep, err := Verify(t.Context(), path, nil, nil, nil); err != nil || rep.OK != tt.ok {
			t.Errorf("%s: %+v, %v", tt.name, rep, err)
		}
	}
}

// sparse is a large file of which only the first bytes are there.
type sparse struct{ raw []byte }

func (s sparse) ReadAt(p []byte, off int64) (int, error) {
	clear(p)
	if off < int64(len(s.raw)) {
		copy(p, s.raw[off:])
	}
	return len(p), nil
}

// A page that claims the whole of a sparse file costs no memory.
func TestWalkIsBounded(t *testing.T) {
	raw := usedPages(t)
	const pages = 1 << 28 // 1 TiB
	now := current(raw)
	forge(raw, now, metaHighWater, pages)
	root := raw[field(raw, now, metaRoot)*PageSize:]
	binary.LittleEndian.PutUint32(root[12:], pages/2)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	w, err := page.NewWalk(sparse{raw}, pages*PageSize)
	if err == nil {
		err = w.All()
	}
	runtime.ReadMemStats(&after)
	if used := after.TotalAlloc - before.TotalAlloc; !errors.Is(err, ErrCorrupt) || used > pages/8+1<<20 {
		t.Errorf("%d bytes allocated, %v", used, err)
	}
}

// What bbolt's own check finds, the walk finds: whatever bit of a page's structure is flipped.
func TestWalkFindsWhatBboltFinds(t *testing.T) {
	raw := usedPages(t)
	f, err := os.Create(filepath.Join(t.TempDir(), "flipped.db"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write(raw); err != nil {
		t.Fatal(err)
	}
	found, passed := 0, 0
	for off := 2 * PageSize; off < len(raw); off += 1 + off%5 {
		if in := off % PageSize; in > page.Header+3*page.ElementLen && in%197 != 0 {
			continue // the heads of a page and of its first elements, and samples of the rest
		}
		flip(t, f, off, raw[off]^byte(1<<(off%7)))
		w, err := page.NewWalk(f, int64(len(raw)))
		if err == nil {
			err = w.All()
		}
		if err != nil {
			found++
		} else if bad := bboltFinds(t, f.Name()); bad != nil {
			t.Errorf("byte %d: the walk passes, bbolt finds %v", off, bad)
		} else {
			passed++
		}
		flip(t, f, off, raw[off])
	}
	if found == 0 || passed == 0 {
		t.Errorf("%d found, %d passed", found, passed)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

func flip(t *testing.T, f io.WriterAt, off int, b byte) {
	t.Helper()
	if _, err := f.WriteAt([]byte{b}, int64(off)); err != nil {
		t.Fatal(err)
	}
}

func bboltFinds(t *testing.T, path string) (first error) {
	t.Helper()
	db, err := openBolt(path, &opening{readOnly: true})
	if err != nil {
		return err
	}
	err = db.View(func(tx *bolt.Tx) error {
		for err := range tx.Check() {
			if first == nil {
				first = err
			}
		}
		return nil
	})
	if err = errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	return first
}

// Rows missing from an audit ring that has not turned are found.
func TestAuditRowsCannotVanish(t *testing.T) {
	path := filled(t)
	db, err := openBolt(path, &opening{})
	if err != nil {
		t.Fatal(err)
	}
	err = db.Update(func(tx *bolt.Tx) error {
		info, err := readInfo(tx)
		p, rows := info.position(), tx.Bucket([]byte(auditBucket.Name))
		for range 3 {
			_, more := appendAudit(rows, &p, auditRows, p.at, Event{Event: "more"})
			err = errors.Join(err, more)
		}
		return errors.Join(err, writeInfo(tx, *info.with(p)), rows.Delete(auditKey(1)), rows.Delete(auditKey(2)))
	})
	if err = errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	if rep, err := Verify(t.Context(), path, nil, nil, nil); err != nil || !strings.HasPrefix(rep.Problem, "audit: ") {
		t.Errorf("%+v, %v", rep, err)
	}
}

// Numbers from which counting on would wrap, and schemas that never were, are damage.
func TestMetaOutOfRange(t *testing.T) {
	for name, edit := range map[string]func(*Info){
		"seq":       func(i *Info) { i.Seq = 1<<64 - 1 },
		"stamp":     func(i *Info) { i.At = 1<<63 - 1 },
		"old stamp": func(i *Info) { i.At = -1 },
		"audit seq": func(i *Info) { i.AuditSeq = 1 << 63 },
		"schema":    func(i *Info) { i.Schema = 0 },
	} {
		path := newFile(t)
		db, err := openBolt(path, &opening{})
		if err != nil {
			t.Fatal(err)
		}
		err = db.Update(func(tx *bolt.Tx) error {
			info, err := readInfo(tx)
			edit(&info)
			return errors.Join(err, writeInfo(tx, info))
		})
		if err = errors.Join(err, db.Close()); err != nil {
			t.Fatal(err)
		}
		if err := ready(t.Context(), newStore(path, testConfig())); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: open: %v", name, err)
		}
	}
}

// A bit that a disk has flipped in a row of meta or local is found, before a boot believes it.
func TestMetaFlips(t *testing.T) {
	path := counted(t, 3)
	if err := SetMembership(path, testMembership()); err != nil {
		t.Fatal(err)
	}
	for _, b := range []*Bucket{metaBucket, localBucket} {
		flips(t, path, b)
	}
}

// flips flips a bit in each byte of the rows of a bucket.
func flips(t *testing.T, path string, b *Bucket) {
	change := func(fn func(rows *bolt.Bucket) error) {
		db, err := openBolt(path, &opening{})
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(
			db.Update(func(tx *bolt.Tx) error { return fn(tx.Bucket([]byte(b.Name))) }),
			db.Close(),
		); err != nil {
			t.Fatal(err)
		}
	}
	rows := map[string][]byte{}
	change(func(bucket *bolt.Bucket) error {
		if b == metaBucket {
			if err := bucket.Put(keyAudit1, AddSum(keyAudit1, auditKey(1))); err != nil {
				return err
			}
		}
		return bucket.ForEach(func(k, v []byte) error {
			if !bytes.HasPrefix(k, []byte(namesPrefix)) {
				rows[string(k)] = bytes.Clone(v)
			}
			return nil
		})
	})
	if want := map[*Bucket]int{metaBucket: 4, localBucket: 5}; len(rows) != want[b] {
		t.Fatalf("rows of %s: %v", b.Name, rows)
	}
	for key, row := range rows {
		for i := range row {
			bad := bytes.Clone(row)
			bad[i] ^= 1 << (i % 8)
			change(func(bucket *bolt.Bucket) error { return bucket.Put([]byte(key), bad) })
			if rep, err := Verify(t.Context(), path, nil, nil, nil); err != nil || rep.OK {
				t.Errorf("%s, byte %d: not found, %v", key, i, err)
			}
		}
		change(func(bucket *bolt.Bucket) error { return bucket.Put([]byte(key), row) })
	}
	if rep, err := Verify(t.Context(), path, nil, nil, nil); err != nil || !rep.OK {
		t.Errorf("the rows were put back: %v, %v", rep.Problem, err)
	}
}

// Rows of meta without checksums, as older programs wrote them, are read; the boot adds the
// checksums.
func TestMetaWithoutSums(t *testing.T) {
	path := counted(t, 3)
	asSchema2(t, path)
	db, err := openBolt(path, &opening{})
	if err != nil {
		t.Fatal(err)
	}
	summed := func(meta *bolt.Bucket) (n int) {
		for _, key := range [][]byte{keyIdent, keyPosition, keyClean, keyBuckets} {
			if _, err := CutSum(key, meta.Get(key)); err == nil {
				n++
			}
		}
		return n
	}
	var want Info
	err = db.Update(func(tx *bolt.Tx) (err error) {
		meta := tx.Bucket([]byte(metaBucket.Name))
		if n := summed(meta); n != 4 {
			t.Errorf("%d rows have checksums", n)
		}
		if want, err = readInfo(tx); err != nil {
			return err
		}
		for _, key := range [][]byte{keyIdent, keyPosition, keyClean, keyBuckets} {
			row, err := CutSum(key, meta.Get(key))
			if err != nil {
				return err
			}
			if row = bytes.Clone(row); row[0] == cborSummed {
				row[0] = cborVersion
			}
			if err := meta.Put(key, row); err != nil {
				return err
			}
		}
		return nil
	})
	if err = errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	if rep, err := Verify(t.Context(), path, nil, nil, nil); err != nil || !rep.OK || rep.Info != want {
		t.Errorf("an older file: %+v, %v, want %+v", rep.Info, err, want)
	}
	s := newStore(path, testConfig())
	if err := errors.Join(ready(t.Context(), s), s.Close()); err != nil {
		t.Fatal(err)
	}
	if db, err = openBolt(path, &opening{readOnly: true}); err != nil {
		t.Fatal(err)
	}
	err = db.View(func(tx *bolt.Tx) error {
		meta, local := tx.Bucket([]byte(metaBucket.Name)), tx.Bucket([]byte(localBucket.Name))
		if in, beside := summed(meta), summed(local); in != 3 || beside != 2 {
			t.Errorf("after a boot %d rows of meta and %d of local have checksums", in, beside)
		}
		return nil
	})
	if err := errors.Join(err, db.Close()); err != nil {
		t.Error(err)
	}
}

// Verify reports a panic in an engine's check as a finding. A manifest must belong to the file.
func TestVerifyStumbles(t *testing.T) {
	snapshot := snapshotOf(t)
	stumbles := Check{Name: "engine", Run: func(Reader) error { panic("index out of range") }}
	if rep, err := Verify(t.Context(), snapshot, nil, []Check{stumbles}, nil); err != nil ||
		!strings.HasPrefix(rep.Problem, "engine: ") {
		t.Errorf("a check that panics: %+v, %v", rep, err)
	}
	m, err := ReadManifest(snapshot)
	if err != nil {
		t.Fatal(err)
	}
	for name, edit := range map[string]func(*Manifest){
		"node":        func(m *Manifest) { m.NodeID += "X" },
		"incarnation": func(m *Manifest) { m.Incarnation = "" },
		"seq":         func(m *Manifest) { m.Seq++ },
		"page size":   func(m *Manifest) { m.PageSize *= 2 },
	} {
		other := m
		edit(&other)
		if err := other.write(); err != nil {
			t.Fatal(err)
		}
		if rep, err := Verify(t.Context(), snapshot, nil, nil, nil); err != nil ||
			!strings.HasPrefix(rep.Problem, "manifest: ") {
			t.Errorf("%s: %+v, %v", name, rep, err)
		}
	}
}
