package edge

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

	"ronbox/store"
)

// rowBytes returns the key and the value of every row of a bucket, as the file has them.
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

// flipBit changes a bit of a row wherever the file has it. Bits are counted from the begin of the key.
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

// newStored is a rig that has fetched eight URLs of six objects, is offline, and is stopped.
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
	r.cfg.Mode = ModeOffline
	r.stop()
	return r, bodies
}

// checkRows runs the edge's checks over the file of a rig.
func checkRows(r *rig) error {
	ro, err := store.OpenReader(r.db())
	if err != nil {
		return err
	}
	return errors.Join(ro.View(context.Background(), Checks()[0].Run), ro.Close())
}

// A flipped bit in any row of edge/paths or edge/blobs is found by the check of the file. The engine starts all the same, serves all that the row does
// not concern, loses at most the one URL or none, and leaves a file that is sound.
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
	for _, bucket := range []string{bPaths.Name, bBlobs.Name} {
		for i, row := range rowBytes(t, r.db(), bucket) {
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
					if n := map[string]int{bPaths.Name: 1, bBlobs.Name: 0}[bucket]; v.Bad != n || n == 1 && (found[0].Kind != "row" || found[0].Done != Dropped) {
						t.Errorf("%s: edge verify finds %+v", doc, found) // a row of blobs is mended by the start
					}
				}
				lost := 0
				for path, body := range bodies {
					switch got, _, err := r.read(path); {
					case errors.Is(err, ErrNotFound):
						lost++
					case err != nil || got != body:
						t.Errorf("%s: %s: %q, %v", doc, path, got, err)
					}
				}
				if want := map[string]int{bPaths.Name: 1, bBlobs.Name: 0}[bucket]; lost != want {
					t.Errorf("%s: %d URLs lost, want %d", doc, lost, want)
				}
				r.sound()
				if m := r.board.Report(service, "").Causes[service+"."+keyIntact]; m == "" && r.count("edge_damaged_total", "kind", "row") == 0 {
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

// Rows that read but contradict each other are found, and agree again after the next repair.
func TestContradictingRows(t *testing.T) {
	t.Parallel()
	r, bodies := newStored(t)
	r.open()
	r.start()
	var all *rows
	look := func() {
		if err := r.store.View(context.Background(), func(rd store.Reader) error { all = readRows(rd); return nil }); err != nil {
			t.Fatal(err)
		}
	}
	look()
	for name, b := range all.blobs {
		b.Refs += 2
		if _, err := store.Commit(context.Background(), r.store, store.Work, mendCmd{Blobs: []namedBlob{{name, b}}}); err != nil {
			t.Fatal(err)
		}
		break
	}
	for key, row := range all.paths {
		if all.refs[row.Digest] == 1 {
			cmd := mendCmd{Drop: []rawRow{{bPaths.Name, key[:]}}}
			if _, err := store.Commit(context.Background(), r.store, store.Work, cmd); err != nil {
				t.Fatal(err)
			}
			delete(bodies, row.Path)
			break
		}
	}
	if look(); all.fault() == nil {
		t.Fatal("no fault")
	}
	if err := r.e.mendSoon(context.Background(), writeWithin); err != nil {
		t.Fatal(err)
	}
	if look(); all.fault() != nil {
		t.Error(all.fault())
	}
	for path, body := range bodies {
		r.want(path, body)
	}
	if left, _ := filepath.Glob(filepath.Join(r.dir, "edge", "cas", "quarantine", "*")); len(left) != 1 {
		t.Errorf("set aside: %v", left)
	}
	r.sound()
}
