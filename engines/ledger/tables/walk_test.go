package tables

import (
	"errors"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"ronbox/engines/ledger/record"
	"ronbox/store"
	"ronbox/store/storetest"
)

// ledgerOf returns a file with the journal of b and the first flushed marks of each balance. The
// other marks are in memory.
func ledgerOf(t storetest.Cleaner, b *books, flushed uint64) *storetest.Tx {
	tx := storetest.NewTx(t, Buckets()...)
	_, err := storetest.Do(tx, write(func(_ store.Reader, w *store.Writes) {
		b.put(w)
		for k, seq := range b.marks {
			if k.N <= flushed {
				PutMark(w, Mark{k, seq})
			}
		}
	}))
	if err != nil {
		t.Fatalf("fill: %v", err)
	}
	return tx
}

// longBooks returns books with some thousand postings of few balances.
func longBooks() *books {
	b := newBooks()
	b.openAccount()
	b.declare()
	b.openAccount()
	b.openAccount()
	b.declare()
	for i := range uint64(1500) {
		b.transfer(1, 2, 1)
		if i%3 == 0 {
			b.transfer(2, 3, 1)
		}
		if i%100 == 0 {
			b.transfer(1, 2, 2)
		}
	}
	return b
}

// of returns the seqs of a balance's postings up to last, by a scan of the journal.
func (b *books) of(k StateKey, last uint64) (seqs []uint64) {
	for i := range b.records {
		rec := &b.records[i]
		if rec.Seq <= last &&
			slices.ContainsFunc(
				rec.Images,
				func(im record.Image) bool { return im.Account == k.Account && im.Asset == k.Asset },
			) {
			seqs = append(seqs, rec.Seq)
		}
	}
	return seqs
}

// page reads one page, in several steps.
func page(t *rapid.T, r store.Reader, q Query) ([]uint64, string) {
	w, err := NewWalk(q)
	if err != nil {
		t.Fatal(err)
	}
	for done, n := false, 0; !done; n++ {
		if done, err = w.Step(r, rapid.SampledFrom([]int{1, 7, 300, 100_000}).Draw(t, "step")); err != nil ||
			n > 100_000 {
			t.Fatalf("step %d: %v", n, err)
		}
	}
	var seqs []uint64
	for _, p := range w.Page() {
		if im := p.Record.Images[p.Image]; im.Account != q.Of.Account || im.Asset != q.Of.Asset {
			t.Fatalf("record %d: image of %d, %d", p.Record.Seq, im.Account, im.Asset)
		}
		seqs = append(seqs, p.Record.Seq)
	}
	return seqs, w.Next()
}

// closedFile is a file without the records up to a horizon.
type closedFile struct {
	*storetest.Tx
	horizon uint64
}

// closeAt drops the records up to h from the file of b, and the marks at them, as far as a dropping
// has come.
func (b *books) closeAt(t testing.TB, tx *storetest.Tx, h uint64, marks int) closedFile {
	_, err := storetest.Do(tx, write(func(r store.Reader, w *store.Writes) {
		DropRecords(r, w, Horizon{Seq: h}, nil, 1<<20)
		DropMarks(r, w, Horizon{Seq: h}, nil, marks)
	}))
	if err != nil {
		t.Fatal(err)
	}
	return closedFile{tx, h}
}

// floor returns the balance k as it was after record h.
func (b *books) floor(k StateKey, h uint64) (at Balance) {
	for _, seq := range b.of(k, h) {
		at.Postings++
		for _, im := range b.records[seq-1].Images {
			if im.Account == k.Account && im.Asset == k.Asset {
				at.State = im.State
			}
		}
	}
	return at
}

// Concatenated pages equal a scan, in both orders, for any time range, with any number of marks in
// the file, and from any horizon on.
func TestPagesAreTheHistory(t *testing.T) {
	b := longBooks()
	last := b.head.Seq
	var files []closedFile
	for flushed := range uint64(7) {
		files = append(files, closedFile{ledgerOf(t, b, flushed), 0})
		for _, h := range []uint64{3, 430, last / 2, last - 1, last} {
			for _, marks := range []int{0, 3, 1 << 20} {
				files = append(files, b.closeAt(t, ledgerOf(t, b, flushed), h+flushed%2*(last-h)/3, marks))
			}
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		tx := rapid.SampledFrom(files).Draw(t, "file")
		of := rapid.SampledFrom([]StateKey{{1, 1}, {2, 1}, {3, 1}, {1, 2}, {2, 2}, {3, 2}}).Draw(t, "of")
		q := Query{
			Of:     of,
			Top:    b.balances[of],
			Floor:  b.floor(of, tx.horizon),
			Limit:  rapid.IntRange(1, 700).Draw(t, "limit"),
			Oldest: rapid.Bool().Draw(t, "oldest"),
		}
		if rapid.Bool().Draw(t, "memory") {
			q.Mark = func(n uint64) (uint64, bool) { seq, ok := b.marks[MarkKey{of, n}]; return seq, ok }
		}
		for _, bound := range []*int64{&q.Since, &q.Until} {
			switch all := append(b.of(of, last), last); rapid.IntRange(0, 3).Draw(t, "bound") {
			case 1:
				*bound = rapid.Int64Range(0, int64(last+2)*10).Draw(t, "at")
			case 2: // to the nanosecond
				*bound = int64(rapid.SampledFrom(all).Draw(t, "posting")) * 10
			case 3:
				n := MarkEvery * rapid.IntRange(1, 5).Draw(t, "mark")
				*bound = int64(all[min(n, len(all))-1])*10 + rapid.Int64Range(-1, 1).Draw(t, "off")
			}
		}
		want := slices.DeleteFunc(b.of(of, last), func(seq uint64) bool {
			at := int64(seq) * 10
			return seq <= tx.horizon || at < q.Since || q.Until != 0 && at >= q.Until
		})
		if !q.Oldest {
			slices.Reverse(want)
		}
		var got []uint64
		for n := 0; n == 0 || q.Cursor != ""; n++ {
			seqs, next := page(t, tx.Reader(), q)
			if len(seqs) > q.Limit || next != "" && len(seqs) != q.Limit || n > len(want) {
				t.Fatalf("page %d of %d, next %q", n, len(seqs), next)
			}
			got, q.Cursor = append(got, seqs...), next
		}
		if !slices.Equal(got, want) {
			t.Fatalf("%+v: got %v\nwant %v", q, got, want)
		}
	})
}

// Marks below the horizon that are still there lead to no page.
func TestPagesAboveOldMarks(t *testing.T) {
	b, of := longBooks(), StateKey{1, 1}
	tx := b.closeAt(t, ledgerOf(t, b, 100), 430, 0)
	q := Query{Of: of, Top: b.balances[of], Floor: b.floor(of, 430), Limit: 1000}
	for i, seq := range b.of(of, b.head.Seq)[q.Floor.Postings:800] {
		q.Until = int64(seq) * 10
		w, err := NewWalk(q)
		if err != nil {
			t.Fatal(err)
		}
		if done, err := w.Step(tx.Reader(), 10_000); !done || err != nil || len(w.Page()) != i {
			t.Fatalf("until record %d: %d entries, want %d; %v", seq, len(w.Page()), i, err)
		}
	}
}

// A posting made between two pages comes last in ascending order, and does not appear in descending
// order.
func TestPagesStayUnderWrites(t *testing.T) {
	b := longBooks()
	of := StateKey{1, 1}
	early := b.balances[of]
	before := b.of(of, b.head.Seq)
	for range 300 {
		b.transfer(1, 2, 1)
	}
	after := b.of(of, b.head.Seq)
	tx := ledgerOf(t, b, 4)
	rapid.Check(t, func(t *rapid.T) {
		q := Query{
			Of:     of,
			Top:    early,
			Oldest: rapid.Bool().Draw(t, "oldest"),
			Limit:  rapid.IntRange(1, 1499).Draw(t, "limit"),
		}
		got, next := page(t, tx.Reader(), q)
		q.Top, q.Cursor, q.Limit = b.balances[of], next, 5000
		rest, end := page(t, tx.Reader(), q)
		want := slices.Clone(after)
		if !q.Oldest {
			want = slices.Clone(before)
			slices.Reverse(want)
		}
		if got = append(got, rest...); !slices.Equal(got, want) || end != "" {
			t.Fatalf("%d postings, next %q, want %d", len(got), end, len(want))
		}
	})
}

// A deep page in ascending order, and a page from a date, start at a mark rather than at the end.
func TestDeepPagesAreCheap(t *testing.T) {
	b := longBooks()
	tx := ledgerOf(t, b, 100)
	of := StateKey{1, 1}
	for name, q := range map[string]Query{
		"oldest first": {Of: of, Top: b.balances[of], Limit: 10, Oldest: true},
		"since":        {Of: of, Top: b.balances[of], Limit: 10, Oldest: true, Since: 7000},
		"until":        {Of: of, Top: b.balances[of], Limit: 10, Until: 7000},
	} {
		w, err := NewWalk(q)
		if err != nil {
			t.Fatal(err)
		}
		const most = 2*MarkEvery + 20
		if done, err := w.Step(tx.Reader(), most); !done || err != nil || len(w.Page()) != 10 {
			t.Errorf("%s: not done in %d reads: %v, %d entries", name, most, err, len(w.Page()))
		}
	}
}

// The entries before the date of a page are passed only once, even if pages are short.
func TestShortPagesAreCheap(t *testing.T) {
	b := longBooks()
	tx := ledgerOf(t, b, 100)
	of := StateKey{1, 1}
	for limit := 1; limit < MarkEvery; limit *= 3 {
		for since := int64(5000); since < 9000; since += 510 {
			q := Query{Of: of, Top: b.balances[of], Limit: limit, Oldest: true, Since: since}
			for range 2 {
				w, err := NewWalk(q)
				if err != nil {
					t.Fatal(err)
				}
				const most = 2*MarkEvery + 20
				if done, err := w.Step(tx.Reader(), most); !done || err != nil || len(w.Page()) != limit {
					t.Fatalf("%d since %d: not done in %d reads: %v, %d entries", limit, since, most, err,
						len(w.Page()))
				}
				q.Cursor = w.Next()
			}
		}
	}
}

func TestCursorsAreTied(t *testing.T) {
	c := cursors{StoreKey{1}, StateKey{1, 1}, false}
	at := cursor{7, 9}
	text := c.text(at)
	if got, err := c.parse(text); got != at || err != nil {
		t.Fatalf("%v, %v", got, err)
	}
	for name, other := range map[string]cursors{
		"ledger": {StoreKey{2}, c.of, false}, "account": {c.key, StateKey{2, 1}, false}, "asset": {c.key, StateKey{1, 2}, false},
		"order": {c.key, c.of, true},
	} {
		if _, err := other.parse(text); !errors.Is(err, ErrCursor) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for i := range text {
		flipped := []byte(text)
		flipped[i] ^= 1
		if _, err := c.parse(string(flipped)); !errors.Is(err, ErrCursor) {
			t.Errorf("byte %d flipped: %v", i, err)
		}
	}
}

// A walk distinguishes a cursor that a restore made invalid from a broken journal.
func TestWalkRefuses(t *testing.T) {
	b := longBooks()
	tx := ledgerOf(t, b, 0)
	of := StateKey{1, 1}
	c := cursors{of: of}
	top := b.balances[of]
	q := Query{Of: of, Top: top, Floor: b.floor(of, 100), Limit: 5}
	for posting, want := range map[uint64]error{q.Floor.Postings: ErrBelow, q.Floor.Postings + 1: nil} {
		q.Cursor = c.text(cursor{posting, 101})
		if _, err := NewWalk(q); !errors.Is(err, want) {
			t.Errorf("posting %d of %d below the horizon: %v", posting, q.Floor.Postings, err)
		}
	}
	q.Floor = Balance{}
	for name, text := range map[string]string{
		"posting 0": c.text(cursor{0, 4}), "beyond": c.text(cursor{top.Postings + 1, 4}), "younger": c.text(cursor{4, top.State.LastSeq + 1}), "empty": "x",
	} {
		q.Cursor = text
		if _, err := NewWalk(q); !errors.Is(err, ErrCursor) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, at := range map[string]cursor{"another's record": {9, 1}, "not the first": {1, top.State.LastSeq}} {
		q.Cursor = c.text(at)
		w, err := NewWalk(q)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Step(tx.Reader(), 10); !errors.Is(err, ErrCursor) {
			t.Errorf("%s: %v", name, err)
		}
	}
	q.Cursor, q.Top.State.LastSeq = "", 1
	w, err := NewWalk(q)
	if err != nil {
		t.Fatal(err)
	}
	_, err = storetest.Do(tx, write(func(r store.Reader, _ *store.Writes) { _, _ = w.Step(r, 10) }))
	if !errors.Is(err, store.ErrCorrupt) {
		t.Errorf("a broken chain: %v", err)
	}
}

func FuzzCursor(f *testing.F) {
	c := cursors{StoreKey{1}, StateKey{1, 1}, false}
	f.Add(c.text(cursor{7, 9}))
	f.Add("")
	f.Fuzz(func(t *testing.T, s string) {
		if at, err := c.parse(s); err == nil && c.text(at) != s {
			t.Errorf("%q is read as %v, which is written %q", s, at, c.text(at))
		}
	})
}
