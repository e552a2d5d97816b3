package idem

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"ronbox/engines/ledger/tables"
	"ronbox/store"
	"ronbox/store/storetest"
)

// filled returns an index with a closed slot of n keys and an open slot of one key, and a file with
// their journal.
func filled(t testing.TB, n uint64) (*Index, *storetest.Tx) {
	tx := storetest.NewTx(t, tables.Buckets()...)
	x := New(4, Cut{Width: 1 << 40, Max: int(n)})
	var log []entry
	for seq := uint64(1); seq <= n+1; seq++ {
		e := entry{Entry{keyOf(seq), seq}, int64(seq)}
		x.Insert(e.Key, e.Seq, e.at)
		if log = append(log, e); seq == n || seq == n+1 {
			must(t, tx, func(_ store.Reader, w *store.Writes) error { journal(w, log); return nil })
			x.Committed()
			log = nil
		}
	}
	return x, tx
}

func must(t testing.TB, tx *storetest.Tx, fn command) {
	t.Helper()
	if _, err := storetest.Do(tx, fn); err != nil {
		t.Fatal(err)
	}
}

func seal(t testing.TB, x *Index, tx *storetest.Tx) (slices []Slice) {
	t.Helper()
	sealer := x.Sealer()
	for s, ok := sealer.Next(); ok; s, ok = sealer.Next() {
		must(t, tx, func(r store.Reader, w *store.Writes) error { return x.Seal(r, w, &s) })
		x.Committed()
		slices = append(slices, s)
	}
	return slices
}

// keys returns the keys of all blocks.
func (s *Slice) keys() []Entry { return slices.Concat(s.Blocks...) }

// A slot is sealed as slices of about sliceKeys sorted keys, chunks of its filter, and a meta row.
// Its run then replaces it.
func TestSeal(t *testing.T) {
	const n = 3*sliceKeys + 500
	x, tx := filled(t, n)
	parts := seal(t, x, tx)
	var kinds []string
	var keys []Entry
	for i, s := range parts {
		if int(s.Part) != i || s.First != 1 || s.Last() != (i == len(parts)-1) || s.Size() > 110_000 {
			t.Errorf("slice %d: %d of %d, %d bytes", i, s.Part, s.First, s.Size())
		}
		kinds = append(kinds, fmt.Sprintf("%v/%d/%v", len(s.Blocks) > 0, len(s.Filter), s.Meta != nil))
		if k := len(s.keys()); i < 3 && (k < sliceKeys || k > sliceKeys+3*blockKeys) {
			t.Errorf("slice %d has %d keys", i, k)
		}
		for at, entries := range s.Blocks {
			for _, e := range entries {
				if got := blockOf(&e.Key, blocks(n)); got != s.Block+uint32(at) {
					t.Errorf("a key of block %d is in block %d", got, s.Block+uint32(at))
				}
			}
		}
		keys = append(keys, s.keys()...)
	}
	words := (n*filterBits + 63) / 64
	want := []string{
		"true/0/false",
		"true/0/false",
		"true/0/false",
		"true/0/false",
		fmt.Sprintf("false/%d/false", 8*words),
		"false/0/true",
	}
	if !slices.Equal(kinds, want) || len(keys) != n {
		t.Errorf("slices %v, %d keys; want %v", kinds, len(keys), want)
	}
	if stats := x.Stats(); stats != (Stats{Open: 1, Sealed: n, Slots: 1, Runs: 1, Filters: int64(8 * words)}) {
		t.Errorf("%+v", stats)
	}
	for seq := uint64(1); seq <= n+1; seq++ {
		if got, found := x.Lookup(tx.Reader(), keyOf(seq), 0, 0); !found || got != seq {
			t.Fatalf("key %d leads to %d", seq, got)
		}
	}
	if got, err := Check(tx.Reader(), 0, func(uint64, uint64) error { return nil }); err != nil || got != n {
		t.Errorf("check: %d keys, %v", got, err)
	}
	if sub := slices.Collect(store.Subs(tx.Reader(), tables.Idem)); len(sub) != 1 {
		t.Errorf("%d runs", len(sub))
	}
}

// A lookup uses a run up to the last of its keys, and skips a run that the caller has already
// checked.
func TestRunsArePassedOver(t *testing.T) {
	const n = 100
	x, tx := filled(t, n)
	seal(t, x, tx)
	for name, tt := range map[string]struct {
		checked   uint64
		notBefore int64
		found     bool
	}{"whole": {0, 0, true}, "seen but one": {n - 1, 0, true}, "seen": {n, 0, false}, "just young": {0, n, true}, "old": {0, n + 1, false}} {
		if seq, found := x.Lookup(tx.Reader(), keyOf(7), tt.checked, tt.notBefore); found != tt.found ||
			found && seq != 7 {
			t.Errorf("%s: %d, %v", name, seq, found)
		}
	}
}

// The oldest run is due once all of its keys are too old. The newest run is never due.
func TestDue(t *testing.T) {
	tx := storetest.NewTx(t, tables.Buckets()...)
	x := New(1, Cut{Width: 1 << 40, Max: 1})
	for seq := uint64(1); seq <= 3; seq++ {
		x.Insert(keyOf(seq), seq, int64(seq)*10)
		x.Committed()
	}
	view := func(fn func(store.Reader) error) error { return fn(tx.Reader()) }
	refuse := func(func(store.Reader) error) error { return errRefused }
	if first, due, _ := x.Due(1000, refuse); due {
		t.Errorf("%d is due, and nothing is sealed", first)
	}
	seal(t, x, tx)
	if first, due, err := x.Due(10, refuse); due || err != nil {
		t.Errorf("%d is due at the age of its key", first)
	}
	if first, due, err := x.Due(11, refuse); due || !errors.Is(err, errRefused) {
		t.Errorf("%d, %v is due, %v, and cannot be read", first, due, err)
	}
	if first, due, err := x.Due(11, view); !due || first != 1 || err != nil {
		t.Errorf("%d, %v is due, want 1", first, due)
	}
	must(t, tx, func(_ store.Reader, w *store.Writes) error { x.Drop(w, 1); return nil })
	x.Committed()
	if first, due, _ := x.Due(1000, view); due || x.Stats().Runs != 1 {
		t.Errorf("%d is due, of %+v", first, x.Stats())
	}
}

// The slices of an interrupted seal do not end up in the run.
func TestSealBeginsAnew(t *testing.T) {
	x, tx := filled(t, 50)
	must(t, tx, func(_ store.Reader, w *store.Writes) error {
		w.Put(bucketOf(1), blockKey(50), make([]byte, 8))
		w.Put(bucketOf(1), behind(tagPart), []byte{1, 0, 0, 0})
		return nil
	})
	seal(t, x, tx)
	if keys, err := Check(tx.Reader(), 0, func(uint64, uint64) error { return nil }); err != nil || keys != 50 {
		t.Errorf("%d keys, %v", keys, err)
	}
}

// A boot reads the records after the sealed runs, and of these only the young enough ones.
func TestLoad(t *testing.T) {
	x, tx := filled(t, 50)
	seal(t, x, tx)
	again := New(4, Cut{Width: 1 << 40, Max: 50})
	l := again.Loader()
	for !l.Step(tx.Reader()) {
	}
	if l.From() != 51 || again.Checked() != 50 || len(l.Half()) != 0 {
		t.Errorf("from %d, checked %d, half %v", l.From(), again.Checked(), l.Half())
	}
	y := New(4, Cut{Width: 1 << 40, Max: 50})
	if next := y.Read(tx.Reader(), 51, 52, 10); next != 52 || y.Stats().Open != 1 {
		t.Errorf("%+v, next %d", y.Stats(), next)
	}
	if next := again.Read(tx.Reader(), 70, 90, 5); next != 90 {
		t.Errorf("a hole ends at %d", next)
	}
}

// A slice out of order or with invalid contents is refused, and the run does not change.
func TestSealRefuses(t *testing.T) {
	x, tx := filled(t, 100)
	try := func(s Slice) error {
		_, err := storetest.Do(tx, command(func(r store.Reader, w *store.Writes) error { return x.Seal(r, w, &s) }))
		return err
	}
	sealer := x.Sealer()
	var parts []Slice
	for len(parts) < 3 {
		s, _ := sealer.Next()
		parts = append(parts, s)
	}
	if err := try(parts[1]); !errors.Is(err, errSlice) {
		t.Errorf("the second slice first: %v", err)
	}
	unsorted, other := parts[0], parts[2]
	unsorted.Blocks = [][]Entry{slices.Clone(unsorted.Blocks[0])}
	slices.Reverse(unsorted.Blocks[0])
	moved := *parts[2].Meta
	moved.First++
	other.Meta = &moved
	for _, s := range []Slice{unsorted, other} {
		if err := try(s); err == nil {
			t.Errorf("taken: %+v", s)
		}
	}
	for _, s := range []Slice{parts[0], parts[1]} {
		if err := try(s); err != nil {
			t.Fatal(err)
		}
	}
	if err := try(parts[1]); !errors.Is(err, errSlice) {
		t.Errorf("the second slice again: %v", err)
	}
	if err := try(parts[0]); err != nil {
		t.Fatal(err)
	}
	if err := try(parts[2]); !errors.Is(err, errSlice) {
		t.Errorf("the last slice after the first one came again: %v", err)
	}
	empty := *parts[2].Meta
	empty.Keys = 0
	for _, s := range []Slice{parts[1], parts[2]} {
		for name, bad := range map[string]Slice{
			"an empty run": {First: s.First, Part: 2, Meta: &empty}, "another run": {First: s.First, Part: 2, Meta: &moved},
			"a run of nothing else": {First: s.First, Part: 0, Meta: s.Meta},
		} {
			if s.Last() && try(bad) == nil {
				t.Errorf("%s was taken", name)
			}
		}
		if err := try(s); err != nil {
			t.Fatal(err)
		}
	}
	for _, s := range parts {
		if err := try(s); !errors.Is(err, errSlice) {
			t.Errorf("slice %d of a whole run: %v", s.Part, err)
		}
	}
}

// entriesOf returns the keys of a block of run 1.
func entriesOf(r store.Reader, n uint32) (out []Entry) {
	b, _ := decodeBlock(blockKey(n), r.Get(bucketOf(1), blockKey(n)))
	for i := range b.len() {
		out = append(out, Entry{Key(b.key(i)), b.seq(i)})
	}
	return out
}

func pair(_, row []byte) []byte { return row }

// recut rewrites the first block of run 1 with changed keys and a valid checksum.
func recut(change func([]Entry) []Entry) command {
	return func(r store.Reader, w *store.Writes) error {
		w.Put(bucketOf(1), blockKey(0), pair(encodeBlock(0, change(entriesOf(r, 0)))))
		return nil
	}
}

// A check reports a run with rows that do not match its filter or the journal.
func TestCheckFinds(t *testing.T) {
	for name, fn := range map[string]command{
		"a key more":     recut(func(e []Entry) []Entry { return append([]Entry{{Key{}, 5}}, e...) }),
		"a key less":     recut(func(e []Entry) []Entry { return e[1:] }),
		"another record": recut(func(e []Entry) []Entry { e[3].Seq++; return e }),
		"no record":      recut(func(e []Entry) []Entry { e[3].Seq = 0; return e }),
		"another order":  recut(func(e []Entry) []Entry { e[2], e[3] = e[3], e[2]; return e }),
		"a key for two":  recut(func(e []Entry) []Entry { e[2] = e[3]; return e }),
		"part of a key": func(_ store.Reader, w *store.Writes) error {
			w.Put(bucketOf(1), blockKey(1), store.AddSum(blockKey(1), make([]byte, 23)))
			return nil
		},
		"no checksum":  func(_ store.Reader, w *store.Writes) error { w.Put(bucketOf(1), blockKey(1), []byte{1}); return nil },
		"a block less": func(_ store.Reader, w *store.Writes) error { w.Delete(bucketOf(1), blockKey(1)); return nil },
		"the last is not": func(_ store.Reader, w *store.Writes) error {
			w.Delete(bucketOf(1), blockKey(blocks(100)-1))
			return nil
		},
		"a block more": func(_ store.Reader, w *store.Writes) error {
			w.Put(bucketOf(1), blockKey(99), store.AddSum(blockKey(99), nil))
			return nil
		},
		"in another block": func(r store.Reader, w *store.Writes) error {
			a, b := entriesOf(r, 0), entriesOf(r, 1)
			w.Put(bucketOf(1), blockKey(0), pair(encodeBlock(0, append(a, b[0]))))
			w.Put(bucketOf(1), blockKey(1), pair(encodeBlock(1, b[1:])))
			return nil
		},
		"a flipped bit": func(r store.Reader, w *store.Writes) error {
			raw := slices.Clone(r.Get(bucketOf(1), behind(tagFilter, 0)))
			raw[3] ^= 1
			w.Put(bucketOf(1), behind(tagFilter, 0), raw)
			return nil
		},
		"a filter more": func(_ store.Reader, w *store.Writes) error {
			w.Put(bucketOf(1), behind(tagFilter, 1), make([]byte, 8))
			return nil
		},
		"another name": func(_ store.Reader, w *store.Writes) error {
			w.Put(bucketOf(2), behind(tagMeta), (&Meta{First: 3, Last: 4, Keys: 1, Words: 1}).encode())
			return nil
		},
		"a gap": func(_ store.Reader, w *store.Writes) error {
			w.Put(bucketOf(300), behind(tagMeta), (&Meta{First: 300, Last: 400, Keys: 1, Words: 1}).encode())
			return nil
		},
		"half a meta row": func(_ store.Reader, w *store.Writes) error {
			w.Put(bucketOf(1), behind(tagMeta), []byte{metaVersion})
			return nil
		},
		"no journal": func(_ store.Reader, w *store.Writes) error {
			w.Put(bucketOf(1), behind(tagMeta), (&Meta{First: 1, Last: 400, Keys: 100, Words: 19}).encode())
			return nil
		},
	} {
		x, tx := filled(t, 100)
		seal(t, x, tx)
		must(t, tx, fn)
		_, err := storetest.Do(tx, command(func(r store.Reader, _ *store.Writes) error {
			_, err := Check(r, 0, func(uint64, uint64) error { return nil })
			return err
		}))
		if err == nil || errors.Is(err, store.ErrInternal) {
			t.Errorf("%s: %v", name, err)
		} else if !strings.Contains(err.Error(), "run") && !errors.Is(err, store.ErrCorrupt) {
			t.Errorf("%s: %v does not name the run", name, err)
		}
	}
}

func TestCheckStops(t *testing.T) {
	x, tx := filled(t, 100)
	seal(t, x, tx)
	if _, err := Check(tx.Reader(), 0, func(uint64, uint64) error { return errRefused }); !errors.Is(err, errRefused) {
		t.Error(err)
	}
}

// The encoding of a run is stored in users' files and does not change.
func TestRunIsFrozen(t *testing.T) {
	x, tx := filled(t, 3)
	seal(t, x, tx)
	var text strings.Builder
	for b := range store.Subs(tx.Reader(), tables.Idem) {
		for k, v := range tx.Reader().Range(b, nil, nil) {
			fmt.Fprintf(&text, "%x %x %x\n", b.Name, k, v)
		}
	}
	const want = "0000000000000001 00000000 cd04a4754498e06db5a13c5f371f1f040200000000000000cd2662154e6d76b2b2b92e70c0cac3cc0100000000000000d5688a52" +
		"d55a02ec4aea5ec1eadfffe10300000000000000fbc384ba\n" +
		"0000000000000001 ffffffffffffffffffffffffffffffff6600000000 019180424424fa7f\n" +
		"0000000000000001 ffffffffffffffffffffffffffffffff6d 010100000000000000030000000000000001000000000000000300000000000000030000000000" +
		"00000100000000000000623f6957c729b6d6d04ff523108ce6fbafe0d7f9ab8448f1e196abd31aac767ba838683f\n"
	if text.String() != want {
		t.Errorf("the run is\n%swant\n%s", text.String(), want)
	}
}
