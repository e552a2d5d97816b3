package lverify_test

import (
	"slices"
	"testing"

	"ronbox/engines/ledger/lverify"
	"ronbox/engines/ledger/tables"
	"ronbox/store"
)

// bucket returns the bucket with the given name.
func bucket(t testing.TB, name string) *store.Bucket {
	t.Helper()
	i := slices.IndexFunc(tables.Buckets(), func(b *store.Bucket) bool { return b.Name == name })
	return tables.Buckets()[i]
}

// athome moves the rows of ledger/recent to ledger/state, as a rebuild does.
func athome(t testing.TB, all []row) (home []row) {
	t.Helper()
	state, newer := bucket(t, "ledger/state"), map[string]row{}
	for _, r := range all {
		if r.b.Name == "ledger/recent" {
			newer[string(r.key)] = row{state, r.key, r.value}
		}
	}
	for _, r := range all {
		if _, older := newer[string(r.key)]; r.b.Name != "ledger/recent" && (r.b != state || !older) {
			home = append(home, r)
		}
	}
	for _, r := range newer {
		home = append(home, r)
	}
	slices.SortFunc(home, func(a, b row) int {
		order := func(r row) int { return slices.Index(tables.Buckets(), r.b) }
		if a.b != b.b {
			return order(a) - order(b)
		}
		return slices.Compare(a.key, b.key)
	})
	return home
}

// apart returns the rows of a ledger that was flushed twice. The rows that changed between the
// flushes are in ledger/recent, and their older versions in ledger/state. low is the row of
// ledger/flush after the first flush.
func apart(t testing.TB, seed uint64) (all []row, low row) {
	t.Helper()
	f := newFile(t).open(true)
	f.fill(seed, 20)
	f.flush()
	var first, then []row
	f.view(func(r store.Reader) { first = athome(t, rows(r)) })
	f.calls(30)
	f.flush()
	f.view(func(r store.Reader) { then = athome(t, rows(r)) })
	f.close()
	was := map[string][]byte{}
	for _, r := range first {
		if r.b.Name == "ledger/state" {
			was[string(r.key)] = r.value
		}
		if r.b.Name == "ledger/flush" {
			low = r
		}
	}
	recent, both := bucket(t, "ledger/recent"), 0
	for i, r := range then {
		if old := was[string(r.key)]; r.b.Name == "ledger/state" && string(old) != string(r.value) {
			if then[i].b = recent; old != nil {
				then = append(then, row{r.b, r.key, old})
				both++
			}
		}
	}
	if both < 4 || len(then)-both < 4 {
		t.Fatalf("%d rows are in both tables", both)
	}
	return then, low
}

// Rows in ledger/recent are as valid as rows in ledger/state, for any recorded position of the
// tables.
func TestRecentRowsAreSound(t *testing.T) {
	all, low := apart(t, 7)
	for name, change := range map[string][]row{"flushed": nil, "half flushed": {low}, "not flushed": {{b: low.b, key: low.key}}} {
		b := newBench(t, all)
		b.put(t, change...)
		rep := b.verify(t, lverify.Options{})
		if !rep.OK {
			t.Errorf("%s: %v", name, rep.Findings)
		}
		for from := uint64(2); from <= rep.Batches; from += 3 {
			if rep := b.verify(t, lverify.Options{From: from}); !rep.OK {
				t.Errorf("%s, from %d: %v", name, from, rep.Findings)
			}
		}
	}
}

// A rebuild moves the rows of ledger/recent to ledger/state.
func TestRebuildBringsRowsHome(t *testing.T) {
	all, _ := apart(t, 8)
	f := newFile(t).open(false)
	if _, err := store.Commit(t.Context(), f.s, store.Work, put(all)); err != nil {
		t.Fatal(err)
	}
	if err := lverify.Rebuild(t.Context(), f.s, lverify.Options{}); err != nil {
		t.Fatal(err)
	}
	f.view(func(r store.Reader) { same(t, rows(r), athome(t, all)) })
}

// One wrong byte in a row of ledger/recent, or in the older version of the row, is noticed. A
// missing or moved row is noticed, too.
func TestWrongRecentRows(t *testing.T) {
	all, _ := apart(t, 9)
	b := newBench(t, all)
	newer := map[string]bool{}
	for _, r := range all {
		if r.b.Name == "ledger/recent" {
			newer[string(r.key)] = true
		}
	}
	for n, r := range all {
		if r.b.Name != "ledger/recent" && r.b.Name != "ledger/state" || !newer[string(r.key)] {
			continue
		}
		for i := range r.value {
			flip(r, 8*i+(n+i)%8)
			b.put(t, r)
			if rep := b.verify(t, lverify.Options{}); rep.OK {
				t.Errorf("%s %x, byte %d of %d: not noticed", r.b.Name, r.key, i, len(r.value))
			}
			flip(r, 8*i+(n+i)%8)
		}
		moved := row{r.b, slices.Clone(r.key), r.value}
		moved.key[len(moved.key)-1] ^= 0x40
		b.put(t, moved)
		if rep := b.verify(t, lverify.Options{}); rep.OK {
			t.Errorf("%s %x: doubled, and not noticed", r.b.Name, r.key)
		}
		b.put(t, row{moved.b, moved.key, nil}, row{r.b, r.key, nil})
		// the older version may be missing
		if rep := b.verify(t, lverify.Options{}); rep.OK == (r.b.Name == "ledger/recent") {
			t.Errorf("%s %x: lost, %v", r.b.Name, r.key, rep.Findings)
		}
		b.put(t, r)
	}
	if rep := b.verify(t, lverify.Options{}); !rep.OK {
		t.Errorf("the ledger was not put back: %v", rep.Findings)
	}
}

// A row of ledger/recent is refused if it is older than the row in ledger/state, or if no record
// produced it.
func TestForgedRecentRows(t *testing.T) {
	all, low := apart(t, 10)
	state, recent := bucket(t, "ledger/state"), bucket(t, "ledger/recent")
	was := map[string][]byte{}
	for _, r := range all {
		if r.b == state {
			was[string(r.key)] = r.value
		}
	}
	b := newBench(t, all)
	for _, r := range all {
		old := was[string(r.key)]
		if r.b != recent || old == nil {
			continue
		}
		later := slices.Clone(r.value)
		at := len(later) - 1 - 8 // LastSeq of a balance is before its postings, that of an account before its flags
		if later[0]&0x80 == 0 {
			at = len(later) - 8 - 8
		}
		later[at+6]++
		for name, rows := range map[string][]row{
			"the same in both tables":             {{state, r.key, r.value}},
			"the older before the newer":          {{state, r.key, r.value}, {recent, r.key, old}},
			"the older in both tables":            {{recent, r.key, old}},
			"the older in both, not yet flushed":  {{recent, r.key, old}, low},
			"the same in both, not yet flushed":   {{state, r.key, r.value}, low},
			"of a record that has yet to come":    {{recent, r.key, later}},
			"a newer one beneath that never came": {{state, r.key, later}},
		} {
			b.put(t, rows...)
			if rep := b.verify(t, lverify.Options{}); rep.OK {
				t.Errorf("%x: %s: not noticed", r.key, name)
			}
			b.put(t, all...)
		}
	}
	if rep := b.verify(t, lverify.Options{}); !rep.OK {
		t.Errorf("the ledger was not put back: %v", rep.Findings)
	}
}
