package lverify

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"slices"

	"ronbox/appliance/b3"
	"ronbox/appliance/merkle"
	"ronbox/engines/ledger/record"
	"ronbox/engines/ledger/tables"
	"ronbox/store"
)

// Rebuild drops the tables that are derived from the journal and makes them again, in commands of
// at most 10,000 rows. After closed periods it begins with the base, and keeps what only derived
// tables have: names and references up to the horizon. The sealed runs of the idempotency index are
// dropped too: the next open makes them of the journal. Journal and base are believed; Verify them
// before. A damaged row that may be a reference of a closed period is an error: nothing else has
// the reference. s is open, its committer runs and its ledger does not. After an error, a crash
// too, Rebuild it again.
func Rebuild(ctx context.Context, s *store.Store, o Options) error {
	var closed tables.Horizon
	err := s.View(ctx, func(r store.Reader) error {
		closed = tables.GetHorizon(r)
		if err := tables.CheckFormat(r); err != nil {
			return err
		}
		return tables.CheckUnmerged(r)
	})
	if err != nil {
		return fmt.Errorf("rebuild: %w", err)
	}
	for _, b := range tables.DerivedBuckets() {
		if err := clearTable(ctx, s, b, o.slice()); err != nil {
			return fmt.Errorf("rebuild: clear %s: %w", b.Name, err)
		}
	}
	if closed.Period != 0 {
		if err := restoreBase(ctx, s, o.slice()); err != nil {
			return fmt.Errorf("rebuild: from the base: %w", err)
		}
	}
	for place := (progress{done: closed.Seq}); ; {
		place, err = store.Commit(ctx, s, store.Work, redo{after: place.done, records: max(1, o.slice()/rowsPerRecord)})
		if err != nil {
			return fmt.Errorf("rebuild: %w", err)
		}
		if o.Progress != nil {
			o.Progress(place.done, place.total)
		}
		if place.done == place.total {
			return nil
		}
	}
}

// rowsPerRecord is how many rows a record changes at most: two balances with marks, the payer's
// account, a hold and its expiry, and now and then the nodes of its batch; a name is two.
const rowsPerRecord = 8

// clearTable deletes the rows of a derived table. It deletes the row of ledger/flush first, so that
// the tables count as not flushed from then on. With closed periods they then count as damaged.
func clearTable(ctx context.Context, s *store.Store, b *store.Bucket, rows int) error {
	if _, err := store.Commit(ctx, s, store.Work, wipe{bucket: flushBucket(), rows: 1}); err != nil {
		return err
	}
	for rest := (wiped{more: true}); rest.more; {
		var err error
		if rest, err = store.Commit(ctx, s, store.Work, wipe{bucket: b, rows: rows, from: rest.next}); err != nil {
			return err
		}
	}
	return nil
}

// flushBucket returns the bucket with the row that records how far the derived tables are flushed.
func flushBucket() *store.Bucket {
	all := tables.DerivedBuckets()
	return all[slices.IndexFunc(all, func(b *store.Bucket) bool { return b.Name == "ledger/flush" })]
}

// wipe is the command that deletes rows of a table from a key on, or its last sub-bucket: an open
// reads the runs of the idempotency index that are left, and then the journal from their end on, so
// that no key is forgotten when a rebuild goes no further.
type wipe struct {
	bucket *store.Bucket
	rows   int
	from   []byte
}

var _ store.Command[wiped] = wipe{}

// wiped is the answer of a wipe: whether there may be more rows, and from where on.
type wiped struct {
	next []byte
	more bool
}

// Kind names the command.
func (wipe) Kind() string { return "ledger.rebuild/1" }

// Apply deletes.
func (c wipe) Apply(r store.Reader, _ store.Stamp, w *store.Writes) (rest wiped, err error) {
	if c.bucket.Subs {
		var last *store.Bucket
		for sub := range store.Subs(r, c.bucket) {
			last = sub
		}
		if last != nil {
			w.Drop(last)
		}
		return wiped{more: last != nil}, nil
	}
	h := tables.GetHorizon(r)
	kept, n := h.Kept(c.bucket), 0
	for k, v := range r.Range(c.bucket, c.from, nil) {
		if n++; n > c.rows {
			return wiped{bytes.Clone(k), true}, nil
		}
		if kept == nil || !kept(k, v) {
			w.Delete(c.bucket, bytes.Clone(k))
		}
	}
	if kept == nil {
		w.Clear(c.bucket) // also rows whose key was changed on the disk, and the count of lost ones
	}
	return wiped{}, nil
}

// redo is the command that applies records to the derived tables. The row of ledger/flush stays at
// the end of a whole batch: after a crash the next open goes on from there, and applies some
// records again.
type redo struct {
	after   uint64 // seq of the last record taken
	records int
}

var _ store.Command[progress] = redo{}

// progress is how many of how many records are taken.
type progress struct{ done, total uint64 }

// Kind names the command.
func (redo) Kind() string { return "ledger.rebuild/1" }

// Size returns the weight of the command in its group, bytes.
func (c redo) Size() int { return c.records * rowsPerRecord * 64 }

// Apply takes records from where the tables have come to.
func (c redo) Apply(r store.Reader, _ store.Stamp, w *store.Writes) (progress, error) {
	head, _ := tables.GetHead(r)
	over, end, seq := newOverlay(r), min(head.Seq, c.after+uint64(c.records)), c.after
	for next, rec := range tables.Records(r, c.after+1, end+1) {
		if next != seq+1 {
			break
		}
		if err := over.redo(rec); err != nil {
			return progress{}, err
		}
		seq = next
	}
	if seq != end {
		return progress{}, fmt.Errorf("record %d is missing", seq+1)
	}
	over.put(w)
	return progress{seq, head.Seq}, logged(r, w, seq)
}

// logged adds the batches up to the record seq to the log of batch roots, and updates ledger/flush.
func logged(r store.Reader, w *store.Writes, seq uint64) error {
	at := tables.GetFlushed(r)
	fresh := map[uint64]b3.Digest{}
	read := func(pos uint64) (b3.Digest, error) {
		if d, ok := fresh[pos]; ok {
			return d, nil
		}
		return tables.LogNodes(r)(pos)
	}
	for no, b := range tables.Batches(r, at.Batches+1, math.MaxUint64) {
		if b.Last() > seq {
			break
		}
		nodes, err := merkle.LogNodes(no-1, b.Root(), read)
		if err != nil {
			return err
		}
		for _, n := range nodes {
			fresh[n.Pos] = n.Hash
		}
		tables.PutLogNodes(w, nodes...)
		at = tables.Flushed{Seq: b.Last(), Batches: no}
	}
	tables.PutFlushed(w, at)
	return nil
}

// put writes the rows, in the order of the file.
func (o *overlay) put(w *store.Writes) {
	for _, k := range slices.SortedFunc(maps.Keys(o.marks), compareMarks) {
		tables.PutMark(w, tables.Mark{MarkKey: k, Seq: o.marks[k]})
	}
	for _, k := range slices.SortedFunc(maps.Keys(o.balances), compareStates) {
		tables.PutBalance(w, k, o.balances[k])
	}
	for _, ref := range slices.Sorted(maps.Keys(o.accounts)) {
		tables.PutAccount(w, ref, o.accounts[ref])
	}
	for _, ref := range slices.Sorted(maps.Keys(o.names)) {
		tables.PutName(w, ref, o.names[ref])
	}
	for _, ref := range slices.Sorted(maps.Keys(o.assets)) {
		tables.PutAsset(w, ref, o.assets[ref])
	}
	for _, asset := range slices.Sorted(maps.Keys(o.scales)) {
		tables.PutScale(w, asset, o.scales[asset])
	}
	for _, seq := range slices.Sorted(maps.Keys(o.holds)) {
		tables.PutHold(w, seq, o.holds[seq])
	}
	for _, k := range slices.SortedFunc(maps.Keys(o.onces), compareOnces) {
		tables.PutOnce(w, k, o.onces[k])
	}
}

func compareStates(a, b tables.StateKey) int {
	return cmp.Or(cmp.Compare(a.Account, b.Account), cmp.Compare(a.Asset, b.Asset))
}

func compareMarks(a, b tables.MarkKey) int {
	return cmp.Or(compareStates(a.StateKey, b.StateKey), cmp.Compare(a.N, b.N))
}

func compareOnces(a, b tables.OnceKey) int {
	if a.Guard != b.Guard && a.Guard {
		return -1
	} else if a.Guard != b.Guard {
		return 1
	}
	return bytes.Compare(a.Key[:], b.Key[:])
}

// overlay holds the rows of the derived tables that unflushed records have changed, over those of
// the file.
type overlay struct {
	tables.Stored
	balances map[tables.StateKey]tables.Balance
	accounts map[uint64]tables.Account
	names    map[uint64]string
	assets   map[uint32]string
	scales   map[uint32]tables.Scale
	holds    map[uint64]tables.Hold
	onces    map[tables.OnceKey]tables.Once
	marks    map[tables.MarkKey]uint64
}

var _ tables.Former = (*overlay)(nil)

func newOverlay(r store.Reader) *overlay {
	return &overlay{
		Stored:   tables.Stored{Reader: r},
		balances: map[tables.StateKey]tables.Balance{},
		accounts: map[uint64]tables.Account{},
		names:    map[uint64]string{},
		assets:   map[uint32]string{},
		scales:   map[uint32]tables.Scale{},
		holds:    map[uint64]tables.Hold{},
		onces:    map[tables.OnceKey]tables.Once{},
		marks:    map[tables.MarkKey]uint64{},
	}
}

// redo takes a record that may be flushed or not.
func (o *overlay) redo(rec *record.Record) error {
	var c tables.Changes
	if err := c.Derive(rec, o); err != nil {
		return err
	}
	for _, b := range c.Balances {
		o.balances[b.Key] = b.New
		if m, ok := b.Mark(); ok {
			o.marks[m.MarkKey] = m.Seq
		}
	}
	for _, b := range c.Onces {
		o.onces[b.Key] = b.New
	}
	if c.Account.Ref != 0 {
		o.accounts[c.Account.Ref] = c.Account.New
	}
	switch {
	case c.Name.Ref == 0:
	case c.Name.Asset:
		o.assets[uint32(c.Name.Ref)] = c.Name.Name
	default:
		o.names[c.Name.Ref] = c.Name.Name
	}
	if c.Scale.Asset != 0 {
		o.scales[c.Scale.Asset] = c.Scale.New
	}
	if c.Hold.Seq != 0 {
		o.holds[c.Hold.Seq] = c.Hold.New
	}
	return nil
}

// Balance is a row with all records.
func (o *overlay) Balance(k tables.StateKey) tables.Balance {
	if b, ok := o.balances[k]; ok {
		return b
	}
	return o.Stored.Balance(k)
}

// Account is a row with all records.
func (o *overlay) Account(ref uint64) tables.Account {
	if a, ok := o.accounts[ref]; ok {
		return a
	}
	return o.Stored.Account(ref)
}

// Hold is a row with all records.
func (o *overlay) Hold(seq uint64) (tables.Hold, bool) {
	if h, ok := o.holds[seq]; ok {
		return h, true
	}
	return o.Stored.Hold(seq)
}

// Scale is a row with all records.
func (o *overlay) Scale(asset uint32) tables.Scale {
	if s, ok := o.scales[asset]; ok {
		return s
	}
	return o.Stored.Scale(asset)
}

// Once is a row with all records. A record may repeat a reference of a closed period.
func (o *overlay) Once(k tables.OnceKey) (tables.Once, bool) {
	if w, ok := o.onces[k]; ok {
		return w, true
	}
	return tables.FindOnce(o.Reader, k)
}

// Name is that of an account, "" for none.
func (o *overlay) Name(ref uint64) string {
	if name, ok := o.names[ref]; ok {
		return name
	}
	name, _ := tables.Name(o.Reader, ref)
	return name
}

// AssetName is that of an asset, "" for none.
func (o *overlay) AssetName(ref uint32) string {
	if name, ok := o.assets[ref]; ok {
		return name
	}
	name, _ := tables.AssetName(o.Reader, ref)
	return name
}
