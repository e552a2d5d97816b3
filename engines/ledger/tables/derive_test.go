package tables

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"ronbox/engines"
	"ronbox/engines/ledger/record"
	"ronbox/store"
	"ronbox/store/storetest"
)

// drawBooks generates a random journal over few accounts.
func drawBooks(t *rapid.T, least, most int) *books {
	b := newBooks()
	b.openAccount()
	b.declare()
	b.openAccount()
	for range rapid.SampledFrom([]int{0, 250, 510}).Draw(t, "transfers") { // up to a mark, or two
		b.transfer(1, 2, 1)
	}
	for range rapid.IntRange(least, most).Draw(t, "records") {
		from := rapid.Uint64Range(1, b.head.Accounts).Draw(t, "from")
		to := from%b.head.Accounts + 1
		asset := rapid.Uint32Range(1, b.head.Assets).Draw(t, "asset")
		switch rapid.SampledFrom([]string{"open", "asset", "scale", "flags", "once", "transfer", "hold", "end"}).Draw(t, "op") {
		case "open":
			b.openAccount()
		case "asset":
			b.declare()
		case "scale":
			b.scale(asset, rapid.Uint64Range(0, engines.MaxDecimals).Draw(t, "decimals"))
		case "flags":
			set := record.Flags(rapid.IntRange(0, 15).Draw(t, "set"))
			b.flags(from, set, record.Flags(rapid.IntRange(0, 15).Draw(t, "clear"))&^set)
		case "once":
			b.settle(byte(b.head.Seq), byte(rapid.IntRange(1, 3).Draw(t, "guard")))
		case "transfer":
			b.transfer(from, to, asset)
		case "hold":
			b.hold(from, to, asset)
		case "end":
			if len(b.open) > 0 {
				op := rapid.SampledFrom([]record.Op{record.OpCapture, record.OpRelease, record.OpExpire}).Draw(t, "how")
				b.end(op, rapid.IntRange(0, 9).Draw(t, "hold"))
			}
		}
	}
	return b
}

// Applying records again changes nothing, however often and from any start.
func TestRedoTwiceIsOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := drawBooks(t, 1, 40)
		got := b.rows.clone()
		for range 2 {
			from := rapid.IntRange(0, len(b.records)).Draw(t, "from")
			if err := got.redo(b.records[from:]); err != nil {
				t.Fatal(err)
			}
			if !got.equal(b.rows) {
				t.Fatalf("redo from %d:\n%+v\nwant\n%+v", from, got, b.rows)
			}
		}
	})
}

// After a partial flush each row is as at some moment since the mark, or missing. A redo restores
// all rows.
func TestRedoAfterAnyFlush(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := drawBooks(t, 1, 40)
		low := rapid.IntRange(0, len(b.records)).Draw(t, "low")
		got := newRows()
		if err := got.redo(b.records[:low]); err != nil {
			t.Fatal(err)
		}
		later := got.clone()
		for i := low; i < len(b.records); i++ {
			if err := later.redo(b.records[i : i+1]); err != nil {
				t.Fatal(err)
			}
			flushSome(t, got, later, &b.records[i])
		}
		if err := got.redo(b.records[low:]); err != nil {
			t.Fatal(err)
		}
		if !got.equal(b.rows) {
			t.Fatalf("from %d:\n%+v\nwant\n%+v", low, got, b.rows)
		}
	})
}

// flushSome copies a random subset of the rows that rec may have touched.
func flushSome(t *rapid.T, to, from *rows, rec *record.Record) {
	flip := func(what string) bool { return rapid.Bool().Draw(t, what) }
	for _, im := range rec.Images {
		if k := (StateKey{im.Account, im.Asset}); flip("balance") {
			to.balances[k] = from.balances[k]
			for m, seq := range from.marks {
				if m.StateKey == k {
					to.marks[m] = seq
				}
			}
		}
	}
	if a, known := from.accounts[rec.From]; known && flip("account") {
		to.accounts[rec.From] = a
	}
	for _, seq := range []uint64{rec.Seq, rec.Hold} {
		if h, known := from.holds[seq]; known && flip("hold") {
			to.holds[seq] = h
		}
	}
	if s, known := from.scales[rec.Asset]; known && flip("scale") {
		to.scales[rec.Asset] = s
	}
	for k, o := range from.onces {
		if o.Seq == rec.Seq && flip("once") {
			to.onces[k] = o
		}
	}
}

// The rows of the file equal those in memory, and the order of expiry lists exactly the open holds.
func TestPutIsRead(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := drawBooks(t, 1, 40)
		tx := storetest.NewTx(t, Buckets()...)
		for i := range b.records {
			do(t, tx, func(r store.Reader, w *store.Writes) {
				var c Changes
				if err := c.Derive(&b.records[i], Stored{r}); err != nil {
					t.Fatal(err)
				}
				c.Put(w)
			})
		}
		if got := stored(tx.Reader()); !got.equal(b.rows) {
			t.Fatalf("the file has\n%+v\nwant\n%+v", got, b.rows)
		}
		refs := map[NameChange]bool{}
		for ref, name := range Accounts(tx.Reader(), 0) {
			refs[NameChange{Ref: ref, Name: name}] = true
		}
		for ref, name := range Assets(tx.Reader()) {
			refs[NameChange{Asset: true, Ref: uint64(ref), Name: name}] = true
		}
		if !maps.Equal(refs, b.names) {
			t.Fatalf("refs lead to %v, want %v", refs, b.names)
		}
		var want, got []HoldEnd
		for _, seq := range b.open {
			want = append(want, HoldEnd{b.holds[seq].Expires, seq})
		}
		for e := range HoldEnds(tx.Reader(), HoldEnd{}) {
			got = append(got, e)
		}
		if !slices.Equal(got, want) || b.head.OpenHolds != uint64(len(want)) {
			t.Fatalf("open holds %v, want %v; the head counts %d", got, want, b.head.OpenHolds)
		}
	})
}

type fataler interface {
	Helper()
	Fatal(args ...any)
}

func do(t fataler, tx *storetest.Tx, fn write) {
	t.Helper()
	if _, err := storetest.Do(tx, fn); err != nil {
		t.Fatal(err)
	}
}

func TestAccountAfter(t *testing.T) {
	was := Account{
		Account: record.Account{LastNonce: 3, LastNonceSeq: 5, OpenedSeq: 2, Flags: record.Frozen | record.NoDebit},
		LastSeq: 6,
	}
	for name, tt := range map[string]struct {
		rec    record.Record
		change func(a *Account)
	}{
		"opened": {record.Record{Op: record.OpOpen, Seq: 7}, func(a *Account) { a.OpenedSeq = 7 }},
		"flags": {record.Record{Op: record.OpFlags, Seq: 7, Set: record.Closed, Clear: record.Frozen}, func(a *Account) {
			a.Flags = record.NoDebit | record.Closed
		}},
		"nonce": {record.Record{Op: record.OpBurn, Seq: 7, Nonce: 9}, func(a *Account) { a.LastNonce, a.LastNonceSeq = 9, 7 }},
	} {
		want := was
		want.LastSeq = 7
		tt.change(&want)
		if got, changed := was.After(&tt.rec); got != want || !changed {
			t.Errorf("%s: %+v, want %+v", name, got, want)
		}
		for _, seen := range []uint64{5, 6} {
			tt.rec.Seq = seen
			if got, changed := was.After(&tt.rec); got != was || changed {
				t.Errorf("%s, seen already: %+v", name, got)
			}
		}
	}
}

// A record that contradicts the rows causes an error that names the record.
func TestDeriveRefuses(t *testing.T) {
	b := newBooks()
	b.openAccount()
	b.declare()
	b.openAccount()
	b.transfer(1, 2, 1)
	b.hold(1, 2, 1)
	b.end(record.OpRelease, 0)
	b.scale(1, 2)
	hold := b.records[4].Seq
	for name, rec := range map[string]record.Record{
		"posting":   {Op: record.OpTransfer, Seq: 9, Images: []record.Image{{Account: 1, Asset: 1, Prev: 2, State: record.State{LastSeq: 9}}}},
		"not there": {Op: record.OpCapture, Seq: 9, Hold: 3},
		"closed":    {Op: record.OpCapture, Seq: 9, Hold: hold},
		"scaled":    {Op: record.OpScale, Seq: 9, Asset: 1, Amount: engines.AmountOf(0, 2)},
	} {
		var c Changes
		err := c.Derive(&rec, b.rows)
		if err == nil || !strings.Contains(err.Error(), "record 9") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A permanent id is bound by the record of a settlement. A guard is also bound, as a reference, by
// an op that moves money.
func TestOnceBinds(t *testing.T) {
	for op, want := range map[record.Op]int{
		record.OpOnce: 2, record.OpOpen: 0, record.OpBatch: 0, record.OpTransfer: 1,
	} {
		rec := record.Record{
			Op:     op,
			Seq:    9,
			Guard:  record.Guard{Key: [16]byte{1}},
			Dedupe: record.Dedupe{Kind: record.DedupeOnce, Key: [16]byte{2}},
		}
		var c Changes
		if err := c.Derive(&rec, newRows()); err != nil || len(c.Onces) != want {
			t.Errorf("%s: %v, %v", op, c.Onces, err)
		}
	}
}

// Only a record that answers for a key is reachable by it.
func TestIdemKey(t *testing.T) {
	key := record.Dedupe{Kind: record.DedupeKey, Key: [16]byte{7}}
	for name, tt := range map[string]struct {
		rec record.Record
		ok  bool
	}{
		"single":     {record.Record{Op: record.OpTransfer, Dedupe: key}, true},
		"none":       {record.Record{Op: record.OpTransfer}, false},
		"once":       {record.Record{Op: record.OpOnce, Dedupe: record.Dedupe{Kind: record.DedupeOnce, Key: key.Key}}, false},
		"inner":      {record.Record{Op: record.OpTransfer, Flags: record.FlagInner, Dedupe: key}, false},
		"batch":      {record.Record{Op: record.OpBatch, Parts: 2, Dedupe: key}, true},
		"later part": {record.Record{Op: record.OpBatch, Part: 1, Parts: 2, Dedupe: key}, false},
	} {
		if got, ok := IdemKey(&tt.rec); ok != tt.ok || ok && got != key.Key {
			t.Errorf("%s: %v, %x", name, ok, got)
		}
	}
}

// Derive does not allocate, because it runs for every record.
func TestDeriveAllocatesNothing(t *testing.T) {
	b := newBooks()
	b.openAccount()
	b.declare()
	b.openAccount()
	b.transfer(1, 2, 1)
	var c Changes
	rec, before := &b.records[3], newRows()
	before.accounts[1] = Account{Account: record.Account{OpenedSeq: 1}}
	if n := testing.AllocsPerRun(100, func() {
		if err := c.Derive(rec, before); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
