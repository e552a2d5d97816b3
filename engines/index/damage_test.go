package index_test

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"ronbox/engines/index/name"
	"ronbox/engines/index/tables"
	"ronbox/store"
	"ronbox/store/storetest"
)

// rawRow is a row as stored on the disk.
type rawRow struct {
	bucket     *store.Bucket
	key, value []byte
}

// rawRows reads every row of every bucket.
func rawRows(r store.Reader) (out []rawRow) {
	for _, b := range tables.Buckets() {
		for k, v := range r.Range(b, nil, nil) {
			out = append(out, rawRow{b, append([]byte{}, k...), append([]byte{}, v...)})
		}
	}
	return out
}

// rewrite is a command that replaces a raw row by another, without the tables.
type rewrite struct{ old, new rawRow }

func (rewrite) Kind() string { return "index.test_rewrite/1" }
func (c rewrite) Apply(_ store.Reader, _ store.Stamp, w *store.Writes) (int, error) {
	w.Delete(c.old.bucket, c.old.key)
	w.Put(c.new.bucket, c.new.key, c.new.value)
	return 0, nil
}

// flip changes one bit of a row's key or value.
func (row rawRow) flip(bit int, inKey bool) rawRow {
	out := rawRow{row.bucket, append([]byte{}, row.key...), append([]byte{}, row.value...)}
	if inKey {
		out.key[bit/8] ^= 1 << (bit % 8)
	} else {
		out.value[bit/8] ^= 1 << (bit % 8)
	}
	return out
}

func (r *rig) rewrite(c rewrite) {
	r.t.Helper()
	if _, err := store.Commit(r.ctx(), r.store, store.Work, c); err != nil {
		r.t.Fatal(err)
	}
}

// row finds the row of a name, or the first of another bucket.
func (r *rig) row(b *store.Bucket, name string) (out rawRow) {
	r.t.Helper()
	err := r.store.View(r.ctx(), func(rd store.Reader) error {
		for _, row := range rawRows(rd) {
			if row.bucket == b && (name == "" || string(row.key) == name) {
				out = row
				return nil
			}
		}
		return fmt.Errorf("no row of %q", name)
	})
	if err != nil {
		r.t.Fatal(err)
	}
	return out
}

// checked runs the checks on the state of a reader.
func checked(r store.Reader) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = v.(*store.RowError)
		}
	}()
	return tables.Checks()[0].Run(r)
}

// The checks report one flipped bit in the key or the value of any row of any bucket, a missing
// row, and a row of expiry without a record.
func TestChecksFindEveryFlip(t *testing.T) {
	tx := storetest.NewTx(t, tables.Buckets()...)
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for i := range 3 {
		mustDo(t, tx, tables.PutName{Key: key(fmt.Sprintf("name:n%d.example", i)), Manifest: digest("%d", i)})
		cid := digest("content %d", i)
		raw := signed(seedKey(byte(i+2)), cid, "", now, time.Hour)
		mustDo(
			t,
			tx,
			tables.Announce{
				CID:       cid,
				Peer:      [32]byte(publicOf(seedKey(byte(i + 2)))),
				Raw:       raw,
				AtMS:      now.UnixMilli(),
				ExpiresMS: now.Add(time.Hour).UnixMilli(),
			},
		)
	}
	mustDo(t, tx, tables.DeleteName{Key: key("name:n1.example")})
	if err := checked(tx.Reader()); err != nil {
		t.Fatalf("sound: %v", err)
	}
	rows := rawRows(tx.Reader())
	if len(rows) != 9 {
		t.Fatalf("%d rows", len(rows))
	}
	step := 1
	if testing.Short() {
		step = 13
	}
	for _, row := range rows {
		for _, inKey := range []bool{true, false} {
			size := len(row.value)
			if inKey {
				size = len(row.key)
			}
			for bit := 0; bit < size*8; bit += step {
				bad := row.flip(bit, inKey)
				mustDo(t, tx, rewrite{row, bad})
				if err := checked(tx.Reader()); !errors.Is(err, store.ErrCorrupt) {
					t.Fatalf("%s, bit %d, of the key %t: %v", row.bucket.Name, bit, inKey, err)
				}
				mustDo(t, tx, rewrite{bad, row})
			}
		}
		mustDo(t, tx, rewrite{row, rawRow{tables.NameBucket, []byte("name:gone.example"), names1(t)}})
		if err := checked(tx.Reader()); row.bucket != tables.NameBucket && err == nil {
			t.Errorf("%s: a missing row is not reported", row.bucket.Name)
		}
		mustDo(t, tx, rewrite{rawRow{tables.NameBucket, []byte("name:gone.example"), nil}, row})
	}
	if err := checked(tx.Reader()); err != nil {
		t.Errorf("sound again: %v", err)
	}
}

// names1 returns the value of a sound row of name:gone.example.
func names1(t testing.TB) []byte {
	raw, err := store.CBOR[tables.NameRow]().Encode(tables.NameRow{Manifest: digest("x"), Seq: 1})
	if err != nil {
		t.Fatal(err)
	}
	return store.AddSum([]byte("name:gone.example"), raw)
}

func mustDo[R any](t testing.TB, tx *storetest.Tx, c store.Command[R]) {
	t.Helper()
	if _, err := storetest.Do(tx, c); err != nil {
		t.Fatal(err)
	}
}

// A damaged name is reported as damaged, neither as valid nor as absent, and the readiness key
// fails. Other names are answered. A put over it is refused. After it was forgotten by its own key,
// it can be put again.
func TestDamagedName(t *testing.T) {
	const victim = "name:b.example"
	for _, inKey := range []bool{false, true} {
		bubble(t, nil, func(r *rig) {
			for _, n := range []string{"name:a.example", victim, "name:c.example"} {
				r.put(n, digest("%s", n))
			}
			row := r.row(tables.NameBucket, victim)
			bit := 8 * 10
			if inKey {
				bit = 8 * (len(victim) - 1) // of a letter that leaves the row in its place
			}
			r.rewrite(rewrite{row, row.flip(bit, inKey)})
			for range 2 {
				if _, err := r.e.Resolve(r.ctx(), key(victim), name.ResolveOptions{}); !errors.Is(err, store.ErrCorrupt) {
					t.Errorf("resolve: %v", err)
				}
			}
			if _, err := r.e.Name(r.ctx(), key(victim)); !errors.Is(err, store.ErrCorrupt) {
				t.Errorf("read: %v", err)
			}
			if _, _, err := r.e.PutName(r.ctx(), alice, key(victim), digest("other"), "c"); !errors.Is(err,
				store.ErrCorrupt) {
				t.Errorf("put: %v", err)
			}
			page, err := r.e.Names(r.ctx(), "", "", 10)
			if err != nil || len(page.Names) != 2 || len(page.Damaged) != 1 {
				t.Fatalf("list: %+v, %v", page, err)
			}
			if a := r.resolve("name:a.example"); a.Manifest != digest("name:a.example") {
				t.Errorf("%+v", a)
			}
			r.board.Sample(time.Now())
			if r.count("readyz_degraded", "cause", keyRows) != 1 || r.count("index_rows_corrupt_total") != 1 {
				t.Errorf("degraded %v, %v rows", r.count("readyz_degraded", "cause", keyRows),
					r.count("index_rows_corrupt_total"))
			}
			if err := r.e.ForgetName(r.ctx(), alice, key(victim), "c"); inKey != errors.Is(err, store.ErrCorrupt) {
				t.Fatalf("forget: %v", err) // the damaged row beside its place has another key
			}
			if inKey {
				if err := r.e.ForgetName(r.ctx(), alice, key(page.Damaged[0]), "c"); err != nil {
					t.Fatalf("forget the damaged row: %v", err)
				}
			}
			time.Sleep(2 * time.Second)
			r.board.Sample(time.Now())
			if r.count("readyz_degraded", "cause", keyRows) != 0 {
				t.Error("still degraded")
			}
			if err := r.e.ForgetName(r.ctx(), alice, key(victim), "c"); !errors.Is(err, name.ErrNotFound) {
				t.Errorf("forget again: %v", err)
			}
			r.put(victim, digest("other"))
			if a := r.resolve(victim); a.Manifest != digest("other") ||
				r.resolve("name:c.example").Manifest != digest("name:c.example") {
				t.Errorf("%+v", a)
			}
		})
	}
}

// A damaged row of a provider or of an expiry does not keep other rows from being answered or
// removed in time. It is removed, and rebuilt from the records where possible.
func TestDamagedProviders(t *testing.T) {
	for _, b := range []*store.Bucket{tables.ProviderBucket, tables.ExpiryBucket} {
		for _, inKey := range []bool{false, true} {
			t.Run(fmt.Sprint(b.Name, inKey), func(t *testing.T) {
				bubble(t, nil, func(r *rig) {
					cid := digest("content")
					var list []name.Announcement
					for i := range 3 {
						list = append(
							list,
							name.Announcement{
								Record: signed(seedKey(byte(i+2)), cid, "", time.Now(), time.Duration(i+1)*time.Hour),
							},
						)
					}
					if _, err := r.e.Announce(r.ctx(), alice, list, "c"); err != nil {
						t.Fatal(err)
					}
					row := r.row(b, "")
					bit := 3
					if inKey {
						bit = 8*len(row.key) - 8
					}
					r.rewrite(rewrite{row, row.flip(bit, inKey)})
					set, _, err := r.ask(cid, name.ProvidersOptions{})
					want := 3
					if b == tables.ProviderBucket {
						want = 2
					}
					if err != nil || len(set.Providers) != want {
						t.Errorf("%d providers, %v", len(set.Providers), err)
					}
					if b == tables.ExpiryBucket {
						time.Sleep(3*time.Hour + time.Minute) // the sweep meets it
					} else {
						time.Sleep(2 * time.Minute)
					}
					synctest.Wait()
					if err := r.store.View(
						r.ctx(), func(rd store.Reader) error { return tables.Checks()[0].Run(rd) },
					); err != nil {
						t.Errorf("after the repair: %v", err)
					}
					if b == tables.ProviderBucket && r.rows() != 2 || b == tables.ExpiryBucket && r.rows() != 0 {
						t.Errorf("%d records are left", r.rows())
					}
					r.board.Sample(time.Now())
					if r.count("readyz_degraded", "cause", keyRows) != 0 {
						t.Error("still degraded")
					}
				})
			})
		}
	}
}

// A boot over damaged rows succeeds, and lookups of other rows are answered.
func TestBootOverDamagedRows(t *testing.T) {
	r := newRig(t, all(onDisk(t), patient)).start()
	r.put("name:a.example", digest("a"))
	r.put("name:b.example", digest("b"))
	r.announce(digest("content"))
	for _, b := range tables.Unsummed() { // all but those of a fleet
		row := r.row(b, "")
		r.rewrite(rewrite{row, row.flip(2, false)})
	}
	r.stop()
	r.open()
	r.start()
	if a := r.resolve("name:b.example"); a.Manifest != digest("b") {
		t.Errorf("%+v", a)
	}
	if _, err := r.e.Resolve(r.ctx(), key("name:a.example"), name.ResolveOptions{}); !errors.Is(err, store.ErrCorrupt) {
		t.Error(err)
	}
}
