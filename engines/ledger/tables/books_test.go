package tables

import (
	"fmt"
	"maps"
	"slices"

	"ronbox/appliance/b3"
	"ronbox/appliance/merkle"
	"ronbox/engines"
	"ronbox/engines/ledger/record"
	"ronbox/store"
)

// rows holds derived rows in memory.
type rows struct {
	balances map[StateKey]Balance
	accounts map[uint64]Account
	holds    map[uint64]Hold
	onces    map[OnceKey]Once
	marks    map[MarkKey]uint64
	names    map[NameChange]bool
	scales   map[uint32]Scale
}

func newRows() *rows {
	return &rows{
		map[StateKey]Balance{},
		map[uint64]Account{},
		map[uint64]Hold{},
		map[OnceKey]Once{},
		map[MarkKey]uint64{},
		map[NameChange]bool{},
		map[uint32]Scale{},
	}
}

func (m *rows) Balance(k StateKey) Balance           { return m.balances[k] }
func (m *rows) Account(ref uint64) Account           { return m.accounts[ref] }
func (m *rows) Hold(seq uint64) (h Hold, known bool) { h, known = m.holds[seq]; return h, known }
func (m *rows) Once(k OnceKey) (o Once, known bool)  { o, known = m.onces[k]; return o, known }

func (m *rows) Scale(asset uint32) Scale { return m.scales[asset] }

func (m *rows) take(c *Changes) {
	for _, b := range c.Balances {
		m.balances[b.Key] = b.New
		if mark, ok := b.Mark(); ok {
			m.marks[mark.MarkKey] = mark.Seq
		}
	}
	for _, o := range c.Onces {
		m.onces[o.Key] = o.New
	}
	if c.Account.Ref != 0 {
		m.accounts[c.Account.Ref] = c.Account.New
	}
	if c.Hold.Seq != 0 {
		m.holds[c.Hold.Seq] = c.Hold.New
	}
	if c.Name.Ref != 0 {
		m.names[c.Name] = true
	}
	if c.Scale.Asset != 0 {
		m.scales[c.Scale.Asset] = c.Scale.New
	}
}

func (m *rows) redo(records []record.Record) error {
	var c Changes
	for i := range records {
		if err := c.Derive(&records[i], m); err != nil {
			return err
		}
		m.take(&c)
	}
	return nil
}

func (m *rows) equal(n *rows) bool {
	return maps.Equal(m.balances, n.balances) && maps.Equal(m.accounts, n.accounts) && maps.Equal(m.holds, n.holds) &&
		maps.Equal(m.onces, n.onces) && maps.Equal(m.marks, n.marks) && maps.Equal(m.names, n.names) &&
		maps.Equal(m.scales, n.scales)
}

func (m *rows) clone() *rows {
	return &rows{
		maps.Clone(m.balances),
		maps.Clone(m.accounts),
		maps.Clone(m.holds),
		maps.Clone(m.onces),
		maps.Clone(m.marks),
		maps.Clone(m.names),
		maps.Clone(m.scales),
	}
}

// stored reads the rows back from the file.
func stored(r store.Reader) *rows {
	m := newRows()
	for k, row := range States(r, StateKey{}) {
		if k.Asset == 0 {
			m.accounts[k.Account] = row.Account
		} else {
			m.balances[k] = row.Balance
		}
	}
	maps.Insert(m.holds, Holds(r, 0))
	maps.Insert(m.onces, Onces(r))
	maps.Insert(m.marks, Marks(r))
	maps.Insert(m.scales, AllScales(r))
	for k, ref := range names.All(r) {
		m.names[NameChange{k.kind == kindAsset, ref, k.name}] = true
	}
	return m
}

// books generates a journal without rules about money: it accepts every well-formed op.
type books struct {
	*rows
	head    Head
	records []record.Record
	open    []uint64 // holds
	nonces  map[uint64]uint64
}

func newBooks() *books {
	return &books{rows: newRows(), nonces: map[uint64]uint64{}}
}

// write sets the position of rec in the journal and applies it.
func (b *books) write(rec record.Record) uint64 {
	rec.Seq, rec.Batch, rec.At = b.head.Seq+1, b.head.Batches+1, int64(b.head.Seq+1)*10
	for i := range rec.Images {
		im := &rec.Images[i]
		before := b.balances[StateKey{im.Account, im.Asset}]
		im.Prev, im.State.LastSeq = before.State.LastSeq, rec.Seq
		if im.State.CreditsPosted.IsZero() {
			im.State.CreditsPosted = engines.AmountOf(0, before.Postings+1)
		}
	}
	b.count(&rec)
	header := record.Batch{
		No:     rec.Batch,
		First:  rec.Seq,
		Count:  1,
		At:     rec.At,
		Merkle: merkle.Leaf(rec.Append(nil)),
		Prev:   b.head.LastRoot,
	}
	b.head.Seq, b.head.Batches, b.head.At, b.head.LastRoot = rec.Seq, header.No, header.At, header.Root()
	b.records = append(b.records, rec)
	if err := b.redo([]record.Record{rec}); err != nil {
		panic(err)
	}
	return rec.Seq
}

// count updates the counts of opened and closed objects.
func (b *books) count(rec *record.Record) {
	switch rec.Op {
	case record.OpOpen:
		b.head.Accounts++
	case record.OpAsset:
		b.head.Assets++
	case record.OpHold:
		b.head.OpenHolds++
	case record.OpCapture, record.OpRelease, record.OpExpire:
		b.head.OpenHolds--
	}
}

func (b *books) openAccount() {
	b.write(
		record.Record{Op: record.OpOpen, From: b.head.Accounts + 1, Name: fmt.Sprintf("acct/%d", b.head.Accounts+1)},
	)
}

func (b *books) declare() {
	b.write(
		record.Record{Op: record.OpAsset, From: 1, Asset: b.head.Assets + 1, Name: fmt.Sprintf("a%d", b.head.Assets+1)},
	)
}

func (b *books) scale(asset uint32, decimals uint64) {
	if b.scales[asset].Seq == 0 {
		b.write(record.Record{Op: record.OpScale, Asset: asset, Amount: engines.AmountOf(0, decimals)})
	}
}

func (b *books) sides(from, to uint64, asset uint32) []record.Image {
	return []record.Image{{Account: from, Asset: asset}, {Account: to, Asset: asset}}
}

func (b *books) transfer(from, to uint64, asset uint32) {
	b.nonces[from]++
	b.write(record.Record{
		Op:     record.OpTransfer,
		From:   from,
		To:     to,
		Asset:  asset,
		Amount: engines.AmountOf(0, 1),
		Nonce:  b.nonces[from],
		Images: b.sides(from, to, asset),
	})
}

func (b *books) hold(from, to uint64, asset uint32) {
	b.nonces[from]++
	b.open = append(b.open, b.write(record.Record{
		Op:      record.OpHold,
		From:    from,
		To:      to,
		Asset:   asset,
		Amount:  engines.AmountOf(0, 2),
		Nonce:   b.nonces[from],
		Expires: int64(b.head.Seq) * 1000,
		Images:  b.sides(from, to, asset),
	}))
}

func (b *books) end(op record.Op, n int) {
	seq := b.open[n%len(b.open)]
	b.open = slices.DeleteFunc(b.open, func(s uint64) bool { return s == seq })
	h := b.holds[seq]
	b.write(record.Record{
		Op:     op,
		From:   h.From,
		To:     h.To,
		Asset:  h.Asset,
		Amount: h.Amount,
		Hold:   seq,
		Images: b.sides(h.From, h.To, h.Asset),
	})
}

func (b *books) flags(account uint64, set, clear record.Flags) {
	b.write(record.Record{Op: record.OpFlags, From: account, Set: set, Clear: clear})
}

func (b *books) settle(id, guard byte) {
	b.write(record.Record{
		Op:     record.OpOnce,
		Dedupe: record.Dedupe{Kind: record.DedupeOnce, Key: [16]byte{id, 1}, Fingerprint: b3.Sum([]byte{id})},
		Guard:  record.Guard{Key: [16]byte{guard, 2}, Owner: [16]byte{guard, 3}},
	})
}

// put writes the journal into the file. Each record is its own batch.
func (b *books) put(w *store.Writes) {
	var head Head
	for i := range b.records {
		rec := &b.records[i]
		raw := rec.Append(nil)
		header := record.Batch{
			No:     rec.Batch,
			First:  rec.Seq,
			Count:  1,
			At:     rec.At,
			Merkle: merkle.Leaf(raw),
			Prev:   head.LastRoot,
		}
		PutBatch(w, &head, &header, [][]byte{raw})
	}
	b.head.Tail = head.Tail
	PutHead(w, b.head)
}
