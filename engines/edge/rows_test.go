package edge_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	bolt "go.etcd.io/bbolt"

	"ronbox/appliance/b3"
	"ronbox/appliance/host/hosttest"
	"ronbox/engines/edge"
	"ronbox/engines/edge/asset"
	"ronbox/engines/edge/config"
	"ronbox/engines/edge/content"
	"ronbox/engines/edge/tables"
	"ronbox/store"
)

// rowBytes returns the key and the value of every row of a bucket as stored in the file.
func rowBytes(t *testing.T, file, bucket string) (all [][2][]byte) {
	t.Helper()
	db, err := bolt.Open(file, 0o600, &bolt.Options{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	err = db.View(func(tx *bolt.Tx) error {
		return tx.Bucket([]byte(bucket)).ForEach(func(k, v []byte) error {
			all = append(all, [2][]byte{bytes.Clone(k), bytes.Clone(v)})
			return nil
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// flipBit flips a bit of a row in the file. Bits are counted from the start of the key.
func flipBit(t *testing.T, raw []byte, row [2][]byte, bit int) []byte {
	t.Helper()
	out, old := bytes.Clone(raw), append(bytes.Clone(row[0]), row[1]...)
	n := 0
	for at := 0; ; n++ {
		i := bytes.Index(raw[at:], old)
		if i < 0 {
			break
		}
		out[at+i+bit/8] ^= 1 << (bit % 8)
		at += i + len(old)
	}
	if n == 0 {
		t.Fatal("the row is not in the file")
	}
	return out
}

// newStored returns a stopped offline rig that has fetched eight URLs of six objects.
func newStored(t *testing.T) (r *rig, bodies map[string]string) {
	t.Helper()
	h := newHost(t, func(w http.ResponseWriter, q *http.Request) {
		if q.URL.Path == "/0" || q.URL.Path == "/1" || q.URL.Path == "/2" {
			serve(w, "shared")
			return
		}
		echo(w, q)
	})
	r, bodies = newRig(t, on(h)).start(), map[string]string{}
	for i := range 8 {
		path := fmt.Sprint(h.name, "/", i)
		body, _, err := r.read(path)
		if err != nil {
			t.Fatal(err)
		}
		bodies[path] = body
	}
	r.cfg.Mode = config.ModeOffline
	r.stop()
	return r, bodies
}

// checkRows runs the edge's checks over the file of a rig.
func checkRows(r *rig) error {
	ro, err := store.OpenReader(r.db())
	if err != nil {
		return err
	}
	return errors.Join(ro.View(context.Background(), edge.Checks()[0].Run), ro.Close())
}

// The check of the file finds a flipped bit in any row of edge/paths, edge/blobs or edge/keys. The
// engine starts anyway, serves every other URL, loses at most one URL, and leaves a sound file.
func TestFlippedRow(t *testing.T) {
	t.Parallel()
	r, bodies := newStored(t)
	whole, err := os.ReadFile(r.db())
	if err != nil {
		t.Fatal(err)
	}
	if err := checkRows(r); err != nil {
		t.Fatalf("a sound file: %v", err)
	}
	type object struct{ path, data string }
	var objects []object
	files, _ := filepath.Glob(filepath.Join(r.dir, "edge", "cas", "b3", "*", "*"))
	for _, f := range files {
		data, _ := os.ReadFile(f)
		objects = append(objects, object{f, string(data)})
	}
	buckets := []string{tables.Paths.Bucket().Name, tables.Blobs.Bucket().Name, tables.Keys.Bucket().Name}
	rows := map[string][][2][]byte{}
	for _, bucket := range buckets {
		rows[bucket] = rowBytes(t, r.db(), bucket)
	}
	for _, bucket := range buckets {
		for i, row := range rows[bucket] {
			// The check of a row is the work of one goroutine.
			if (hosttest.UnderRace() || testing.Short()) && i > 0 {
				continue
			}
			keyBits, bits := 8*len(row[0]), 8*(len(row[0])+len(row[1]))
			for _, bit := range []int{7, 3 + i, keyBits - 1, keyBits + 5, (keyBits + bits) / 2, bits - 1} {
				doc := fmt.Sprintf("%s, row %d, bit %d", bucket, i, bit)
				if err := os.WriteFile(r.db(), flipBit(t, whole, row, bit), 0o600); err != nil {
					t.Fatal(err)
				}
				for _, o := range objects {
					_ = os.WriteFile(o.path, []byte(o.data), 0o600)
				}
				if err := checkRows(r); !errors.Is(err, store.ErrCorrupt) {
					t.Fatalf("%s: the check finds %v", doc, err)
				}
				r.open()
				r.start()
				if i == 0 {
					v, found := r.verified(false)
					if n := map[string]int{tables.Paths.Bucket().Name: 1, tables.Blobs.Bucket().Name: 0}[bucket]; v.Bad != n ||
						n == 1 && (found[0].Kind != "row" || found[0].Done != content.Dropped) {
						t.Errorf("%s: edge verify finds %+v", doc, found) // the start has repaired the rows
					}
				}
				lost := 0
				for path, body := range bodies {
					switch got, _, err := r.read(path); {
					case errors.Is(err, asset.ErrNotFound):
						lost++
					case err != nil || got != body:
						t.Errorf("%s: %s: %q, %v", doc, path, got, err)
					}
				}
				if want := map[string]int{tables.Paths.Bucket().Name: 1, tables.Blobs.Bucket().Name: 0}[bucket]; lost != want {
					t.Errorf("%s: %d URLs lost, want %d", doc, lost, want)
				}
				r.sound()
				if m := r.board.Report(service, "").Causes[service+"."+edge.KeyIntact]; m == "" &&
					r.count("edge_damaged_total", "kind", "row") == 0 {
					t.Errorf("%s: nothing shows it", doc)
				}
				r.stop()
				if err := checkRows(r); err != nil {
					t.Errorf("%s: after it: %v", doc, err)
				}
			}
		}
	}
}

// Rows that read but contradict each other are found, and are consistent after the next repair.
func TestContradictingRows(t *testing.T) {
	t.Parallel()
	r, bodies := newStored(t)
	r.open()
	r.start()
	var all *tables.Content
	look := func() {
		if err := r.store.View(context.Background(),
			func(rd store.Reader) error { all = tables.Read(rd); return nil }); err != nil {
			t.Fatal(err)
		}
	}
	look()
	for name, b := range all.Blobs {
		b.Refs += 2
		if _, err := store.Commit(context.Background(), r.store, store.Work,
			tables.Repair{Blobs: []tables.NamedBlob{{Name: name, Row: b}}}); err != nil {
			t.Fatal(err)
		}
		break
	}
	for key, row := range all.Paths {
		if all.Refs[row.Digest] == 1 {
			cmd := tables.Repair{Drop: []tables.RawRow{{Bucket: tables.Paths.Bucket().Name, Key: key[:]}}}
			if _, err := store.Commit(context.Background(), r.store, store.Work, cmd); err != nil {
				t.Fatal(err)
			}
			delete(bodies, row.Path)
			break
		}
	}
	if look(); all.Fault() == nil {
		t.Fatal("no fault")
	}
	if err := r.e.Content().Repair(context.Background()); err != nil {
		t.Fatal(err)
	}
	if look(); all.Fault() != nil {
		t.Error(all.Fault())
	}
	for path, body := range bodies {
		r.want(path, body)
	}
	if left, _ := filepath.Glob(filepath.Join(r.dir, "edge", "cas", "quarantine", "*")); len(left) != 1 {
		t.Errorf("set aside: %v", left)
	}
	r.sound()
}

// A file of a release without edge/keys gets its rows at the start, and inconsistent rows are
// repaired.
func TestKeysAreMadeToAgree(t *testing.T) {
	t.Parallel()
	r, _ := newStored(t)
	r.open()
	var all []tables.Stored
	err := tables.Scan(t.Context(), r.store, tables.Paths, func(_ b3.Digest, row tables.Stored) error {
		all = append(all, row)
		return nil
	})
	if err != nil || len(all) != 8 {
		t.Fatal(len(all), err)
	}
	if _, err = store.Commit(t.Context(), r.store, store.Work, wipeKeys{}); err != nil {
		t.Fatal(err)
	}
	r.reboot()
	r.sound()
	for _, k := range r.listed(content.KeyQuery{}) {
		if k.Pinned || !k.Fetched.IsZero() || k.Digest.IsZero() {
			t.Errorf("%+v", k)
		}
	}
	orphan := tables.Repair{Keys: []tables.NamedKey{
		{URL: "https://gone.example/a", Row: tables.KeyRow{Size: 3}},
		{URL: "https://gone.example/b", Row: tables.KeyRow{Size: 3, Pinned: true}},
		{URL: all[0].URL, Row: tables.KeyRow{Size: 1, Pinned: true}},
	}}
	if _, err = store.Commit(t.Context(), r.store, store.Work, orphan); err != nil {
		t.Fatal(err)
	}
	check := func() error {
		return r.store.View(t.Context(), func(rd store.Reader) error { return tables.Read(rd).Fault() })
	}
	if err := check(); !errors.Is(err, store.ErrCorrupt) {
		t.Errorf("a check: %v", err)
	}
	if _, found := r.verified(false); len(found) != 0 { // the objects themselves are sound
		t.Errorf("%+v", found)
	}
	if err := check(); err != nil {
		t.Error(err)
	}
	r.sound()
	if got := r.listed(content.KeyQuery{Pinned: true}); len(got) != 2 {
		t.Errorf("%+v", got)
	}
}

// wipeKeys clears edge/keys.
type wipeKeys struct{}

func (wipeKeys) Kind() string { return "edge.wipe_keys/1" }

func (wipeKeys) Apply(_ store.Reader, _ store.Stamp, w *store.Writes) (struct{}, error) {
	w.Clear(tables.Keys.Bucket())
	return struct{}{}, nil
}
