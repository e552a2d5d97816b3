package edge

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"
	"pgregory.net/rapid"

	"ronbox/appliance/b3"
	"ronbox/appliance/host/hosttest"
	"ronbox/engines/edge/asset"
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
	buckets, rows := []string{bPaths.Name, bBlobs.Name, bKeys.Name}, map[string][][2][]byte{}
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
					if n := map[string]int{bPaths.Name: 1, bBlobs.Name: 0}[bucket]; v.Bad != n ||
						n == 1 && (found[0].Kind != "row" || found[0].Done != Dropped) {
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
				if want := map[string]int{bPaths.Name: 1, bBlobs.Name: 0}[bucket]; lost != want {
					t.Errorf("%s: %d URLs lost, want %d", doc, lost, want)
				}
				r.sound()
				if m := r.board.Report(service, "").Causes[service+"."+keyIntact]; m == "" &&
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
	var all *rows
	look := func() {
		if err := r.store.View(context.Background(),
			func(rd store.Reader) error { all = readRows(rd); return nil }); err != nil {
			t.Fatal(err)
		}
	}
	look()
	for name, b := range all.blobs {
		b.Refs += 2
		if _, err := store.Commit(context.Background(), r.store, store.Work,
			repairCmd{Blobs: []namedBlob{{name, b}}}); err != nil {
			t.Fatal(err)
		}
		break
	}
	for key, row := range all.paths {
		if all.refs[row.Digest] == 1 {
			cmd := repairCmd{Drop: []rawRow{{bPaths.Name, key[:]}}}
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
	if err := r.e.repairSoon(context.Background(), writeWithin); err != nil {
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

// The rows are consistent after any sequence of installs, drops, pins and removals: each URL is
// listed and leads to an object, which counts its URLs, and the change of a command is exact.
func TestRowsAgree(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s, err := store.NewScratch(time.Unix(1, 0), Buckets()...)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = s.Close() }()
		var has tally
		url := rapid.SampledFrom(
			[]string{"a", "b", strings.Repeat("c", keyHead) + "1", strings.Repeat("c", keyHead) + "2"})
		for range rapid.IntRange(1, 12).Draw(t, "commands") {
			var done change
			urls := rapid.SliceOfNDistinct(url, 1, 4, func(u string) string { return u }).Draw(t, "urls")
			switch rapid.IntRange(0, 3).Draw(t, "which") {
			case 0:
				keys := make([]b3.Digest, len(urls))
				for i, u := range urls {
					keys[i] = pathKey(u)
				}
				done, err = store.Try(s, dropCmd{Keys: keys, Lost: rapid.Bool().Draw(t, "lost")})
			case 1:
				c := keepCmd{
					Do:     rapid.SampledFrom([]asset.Action{asset.Pin, asset.Unpin, asset.Remove}).Draw(t, "action"),
					URLs:   urls,
					Pinned: has.pinned,
					Pins:   has.pins,
				}
				c.MaxPinned, c.MaxPins = 50, 3
				var kept keepDone
				if kept, err = store.Try(s, c); errors.As(err, new(*asset.PinsError)) {
					err = nil
				} else {
					done = kept.change
				}
				if next := has.pins + done.pins; c.Do == asset.Pin && done.pins > 0 &&
					(next > 3 || has.pinned+done.pinned > 50) {
					t.Fatalf("%d pins of %d bytes", next, has.pinned+done.pinned)
				}
			default:
				d := b3.Digest{byte(rapid.IntRange(1, 3).Draw(t, "digest"))}
				grow := max(0, 50-has.pinned)
				done, err = store.Try(s, installCmd{Stored{URL: urls[0], Digest: d, Size: 10 * int64(d[0])}, grow})
				if done.pinned > grow {
					t.Fatalf("a pinned URL grew by %d bytes, %d are left", done.pinned, grow)
				}
			}
			if err != nil {
				t.Fatal(err)
			}
			has.add(done.tally)
			agree(t, s.Reader(), has, done.freed)
		}
	})
}

func agree(t *rapid.T, r store.Reader, has tally, freed []b3.Digest) {
	leads := map[b3.Digest]int64{}
	if err := readRows(r).fault(); err != nil {
		t.Fatal(err)
	}
	for key, row := range paths.All(r) {
		leads[row.Digest]++
		has.urls--
		if b, known := blobs.Get(r, row.Digest); !known || b.Size != row.Size || key != pathKey(row.URL) {
			t.Fatalf("%s leads to nothing", row.URL)
		}
		if listed, known := keys.Get(r, keyOf(row.URL)); !known || listed.Lost {
			t.Fatalf("%s is not listed", row.URL)
		}
	}
	for name, b := range blobs.All(r) {
		has.sub(tally{bytes: b.Size, objects: 1})
		if b.Refs != leads[name] {
			t.Fatalf("%s counts %d, %d lead to it", name, b.Refs, leads[name])
		}
	}
	for _, row := range keys.All(r) {
		has.sub(row.pins())
	}
	if has != (tally{}) {
		t.Fatalf("counted %+v too many", has)
	}
	for _, name := range freed {
		if blobs.Has(r, name) {
			t.Fatalf("%s was freed and is there", name)
		}
	}
}

// A file of a release without edge/keys gets its rows at the start, and inconsistent rows are
// repaired.
func TestKeysAreMadeToAgree(t *testing.T) {
	t.Parallel()
	r, _ := newStored(t)
	r.open()
	var all []Stored
	err := scan(t.Context(), r.e, paths, func(_ b3.Digest, row Stored) error { all = append(all, row); return nil })
	if err != nil || len(all) != 8 {
		t.Fatal(len(all), err)
	}
	if _, err = store.Commit(t.Context(), r.e.d.Store, store.Work, wipeKeys{}); err != nil {
		t.Fatal(err)
	}
	r.reboot()
	r.sound()
	for _, k := range r.listed(KeyQuery{}) {
		if k.Pinned || !k.Fetched.IsZero() || k.Digest.IsZero() {
			t.Errorf("%+v", k)
		}
	}
	orphan := repairCmd{Keys: []namedKey{
		{"https://gone.example/a", keyRow{Size: 3}},
		{"https://gone.example/b", keyRow{Size: 3, Pinned: true}},
		{all[0].URL, keyRow{Size: 1, Pinned: true}},
	}}
	if _, err = store.Commit(t.Context(), r.e.d.Store, store.Work, orphan); err != nil {
		t.Fatal(err)
	}
	check := func() error {
		return r.e.d.Store.View(t.Context(), func(rd store.Reader) error { return readRows(rd).fault() })
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
	if got := r.listed(KeyQuery{Pinned: true}); len(got) != 2 {
		t.Errorf("%+v", got)
	}
}

// wipeKeys clears edge/keys.
type wipeKeys struct{}

func (wipeKeys) Kind() string { return "edge.wipe_keys/1" }

func (wipeKeys) Apply(_ store.Reader, _ store.Stamp, w *store.Writes) (struct{}, error) {
	w.Clear(bKeys)
	return struct{}{}, nil
}
