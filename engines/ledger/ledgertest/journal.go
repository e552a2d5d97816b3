package ledgertest

import (
	"context"
	"fmt"

	"ronbox/appliance/b3"
	"ronbox/appliance/merkle"
	"ronbox/engines"
	"ronbox/engines/ledger"
	"ronbox/engines/ledger/record"
)

// append adds a record to the journal. Its receipt lacks the batch root, which seal adds.
func (b *books) append(r record.Record, receipt record.Receipt) uint64 {
	r.Seq, r.Batch = uint64(len(b.entries)+1), uint64(len(b.batches)+1)
	r.Rand = uint16(r.Seq * 40503) // arbitrary
	receipt.TxID, receipt.At = r.TxID(), r.At
	receipt.Seq, receipt.Batch, receipt.Version = r.Seq, r.Batch, record.ReceiptVersion
	if r.Named {
		receipt.Version = record.ReceiptNamed
	}
	b.entries = append(b.entries, entry{raw: r.Append(nil), rec: r, receipt: receipt})
	return r.Seq
}

// write renders an op that was decided.
func (b *books) write(m *move, images []record.Image) uint64 {
	r := record.Record{
		Op: m.Code, Flags: m.flags, At: m.at, Idem: m.Idem, Memo: m.Memo, Images: images, Asset: b.assets[m.Asset].ref,
		Dedupe: dedupe(m.Dedupe, m.Fingerprint), Guard: m.guard,
	}
	if m.flags&record.FlagInner == 0 { // who asked is said once, by the batch
		r.Principal, r.CapID = short(m.Principal), short(m.CapID)
	}
	if spends(m.Code) {
		r.Nonce = m.Nonce
	}
	receipt := record.Receipt{Op: m.Code, Asset: m.Asset, Nonce: r.Nonce, Idem: m.Idem, Hold: m.Hold}
	switch m.Code {
	case record.OpAsset:
		r.Name, r.From = m.Asset, b.accounts[engines.IssuanceAccount(m.Asset)].ref
	case record.OpFlags:
		r.From, r.Asset, r.Set, r.Clear = b.accounts[m.From].ref, 0, m.Set, m.Clear
		r.Named = m.Set|m.Clear != 0
		receipt.From, receipt.Asset, receipt.Set, receipt.Clear = m.From, "", m.Set, m.Clear
	default:
		r.From, r.To, r.Amount, r.Hold = b.accounts[m.from].ref, b.accounts[m.to].ref, amount(m.sum), m.Hold.Seq()
		receipt.From, receipt.To, receipt.Amount = m.from, m.to, r.Amount
	}
	switch m.Code {
	case record.OpIssue:
		receipt.From = ""
	case record.OpBurn:
		receipt.To = ""
	case record.OpHold:
		r.Expires = m.at + int64(m.ExpiresIn)
	}
	return b.append(r, receipt)
}

// writeBatch renders what became of each op, in as many parts as it takes.
func (b *books) writeBatch(o ledger.Op, at int64, results []verdict) (first uint64) {
	bytes := make([]byte, len(results))
	for i, v := range results {
		switch {
		case v.reject != nil:
			bytes[i] = byte(v.reject.Code)
		case v.replayed:
			bytes[i] = byte(record.Replayed)
			b.writeRepeat(o, i, at)
		}
	}
	parts := (len(bytes) + record.MaxResults - 1) / record.MaxResults
	for p := range parts {
		r := record.Record{
			Op:        record.OpBatch,
			Named:     true,
			At:        at,
			Part:      uint16(p),
			Parts:     uint16(parts),
			Principal: short(o.Principal),
			CapID:     short(o.CapID),
			Results:   bytes[p*record.MaxResults : min((p+1)*record.MaxResults, len(bytes))],
		}
		if o.Atomic {
			r.Flags = record.FlagAtomic
		}
		if p == 0 {
			r.Idem, r.Memo, r.Dedupe = o.Idem, o.Memo, dedupe(o.Dedupe, o.Fingerprint)
		}
		if seq := b.append(r, record.Receipt{Op: record.OpBatch, Idem: r.Idem}); p == 0 {
			first = seq
		}
	}
	b.entries[first-1].results, b.entries[first-1].atomic = results, o.Atomic
	return first
}

// writeRepeat renders that an op of a batch was done before, under its reference.
func (b *books) writeRepeat(o ledger.Op, i int, at int64) {
	r := record.Record{Op: record.OpOnce, Flags: record.FlagInner, At: at}
	if o.Atomic {
		r.Flags |= record.FlagAtomic
	}
	r.Guard = guard(referenceOf{o.Principal, o.Ops[i].Reference}, &o.Ops[i])
	b.append(r, record.Receipt{Op: record.OpOnce})
}

// guard is a reference as a record has it.
func guard(of referenceOf, o *ledger.Op) record.Guard {
	if of.text == "" {
		return record.Guard{}
	}
	return record.Guard{
		Key:   half("reference\x00" + of.principal + "\x00" + of.text),
		Owner: half(fmt.Sprint(wordsOf(o))),
	}
}

// writeOnce renders the binding of a permanent id.
func (b *books) writeOnce(o ledger.Once, at int64) uint64 {
	r := record.Record{Op: record.OpOnce, Flags: record.FlagAtomic, At: at, Principal: short(o.Principal)}
	r.Dedupe = record.Dedupe{Kind: record.DedupeOnce, Key: half(o.Domain + "\x00" + o.ID), Fingerprint: o.Digest}
	if o.Guard.Key != "" {
		r.Guard = record.Guard{Key: half(o.Guard.Key), Owner: half(o.Guard.Owner)}
	}
	return b.append(r, record.Receipt{Op: record.OpOnce})
}

func dedupe(k ledger.DedupeKey, fingerprint b3.Digest) record.Dedupe {
	if k.Key == "" {
		return record.Dedupe{}
	}
	return record.Dedupe{Kind: record.DedupeKey, Key: half(k.Scope + "\x00" + k.Key), Fingerprint: fingerprint}
}

func half(s string) [16]byte { d := b3.Sum([]byte(s)); return [16]byte(d[:16]) }

func short(s string) (out [8]byte) {
	if s != "" {
		d := b3.Sum([]byte(s))
		copy(out[:], d[:])
	}
	return out
}

// seal ends the batch of the records from index first on, if there are any, and publishes it.
func (m *Model) seal(first int, at int64) {
	fresh := m.books.entries[first:]
	if len(fresh) == 0 {
		return
	}
	leaves := make([]b3.Digest, len(fresh))
	var expired []record.TxID
	for i, e := range fresh {
		leaves[i] = merkle.Leaf(e.raw)
		if e.receipt.Op == record.OpExpire {
			expired = append(expired, e.receipt.Hold)
		}
	}
	h := record.Batch{
		No:     uint64(len(m.books.batches) + 1),
		First:  uint64(first + 1),
		Count:  uint64(len(fresh)),
		At:     at,
		Merkle: merkle.Root(leaves),
	}
	if n := len(m.books.batches); n > 0 {
		h.Prev = m.books.batches[n-1].Root()
	}
	m.enter(h)
	m.bus.Publish(ledger.Committed{
		First:   h.First,
		Last:    h.First + h.Count - 1,
		Batch:   h.No,
		Root:    h.Root(),
		At:      at,
		Expired: expired,
	})
}

// outcome is a verdict as its caller sees it.
func (m *Model) outcome(v verdict) ledger.Outcome {
	out := ledger.Outcome{Replayed: v.replayed, Reject: v.reject, Atomic: v.atomic}
	for _, r := range v.results {
		out.Results = append(out.Results, m.outcome(r))
	}
	if out.Batch = v.results != nil; !out.Batch && v.seq != 0 {
		out.Receipt = m.receipt(v.seq)
	}
	return out
}

// receipt returns the receipt of a record of a sealed batch.
func (m *Model) receipt(seq uint64) record.Receipt {
	r := m.books.entries[seq-1].receipt
	r.Root = m.books.batches[r.Batch-1].Root()
	return r
}

// source is the Model as proofs read it; its holder has the turn.
type source struct{ *Model }

var _ record.Source = source{}

func (s source) Record(seq uint64) ([]byte, error)     { return s.books.entries[seq-1].raw, nil }
func (s source) Batch(no uint64) (record.Batch, error) { return s.books.batches[no-1], nil }
func (s source) Node(pos uint64) (b3.Digest, error)    { return s.log[pos], nil }
func (s source) Opened(ref uint64) (uint64, error) {
	return s.books.accounts[s.books.name(ref)].opened, nil
}
func (s source) Declared(ref uint32) (uint64, error) {
	return s.books.assets[s.books.assetName(ref)].seq, nil
}
func (s source) Past(uint64) record.Past { return nil }

// size is how many batches there are.
func (m *Model) size() uint64 { return uint64(len(m.books.batches)) }

// enter makes a batch the newest.
func (m *Model) enter(h record.Batch) {
	nodes, err := merkle.LogNodes(m.size(), h.Root(), source{m}.Node)
	if err != nil {
		panic(err) // Node never fails
	}
	for _, n := range nodes {
		m.log[n.Pos] = n.Hash
	}
	m.books.batches = append(m.books.batches, h)
}

// Head is where journal and log end.
func (m *Model) Head(ctx context.Context) (h record.Head, err error) {
	err = m.with(ctx, func() error {
		h, err = record.HeadOf(source{m}, m.size())
		return err
	})
	return h, err
}

// Prove returns a proof of one record and of the records that it refers to.
func (m *Model) Prove(ctx context.Context, id record.TxID, atBatch uint64) (p record.Proof, err error) {
	err = m.with(ctx, func() error {
		seq, err := m.books.find(id)
		if err != nil {
			return err
		}
		if atBatch == 0 {
			atBatch = m.size()
		}
		if atBatch > m.size() || m.books.entries[seq-1].rec.Batch > atBatch {
			return ledger.ErrRange
		}
		p, err = record.Prove(source{m}, seq, atBatch)
		return err
	})
	return p, err
}

// Consistency proves that the log at one batch holds the log at an earlier one.
func (m *Model) Consistency(ctx context.Context, from, to uint64) (c record.Consistency, err error) {
	err = m.with(ctx, func() error {
		if from > to || to > m.size() {
			return ledger.ErrRange
		}
		c, err = record.ProveConsistency(source{m}, from, to)
		return err
	})
	return c, err
}

// Export calls fn with the records from one seq to another, and each batch after its last record.
func (m *Model) Export(ctx context.Context, from, to uint64, fn func(record.Line) error) error {
	var lines []record.Line
	err := m.with(ctx, func() error {
		b := &m.books
		from = max(from, 1)
		if to == 0 {
			to = uint64(len(b.entries))
		}
		if to > uint64(len(b.entries)) {
			return ledger.ErrRange
		}
		format := record.Line{Kind: record.LineFormat, From: from}
		for _, h := range b.batches {
			if h.Last() < from {
				format.Prev = h.Root()
			}
		}
		lines = append(lines, format)
		for seq := from; seq <= to; seq++ {
			lines = append(lines, b.line(seq))
			if h := b.batches[b.entries[seq-1].rec.Batch-1]; h.Last() == seq {
				lines = append(lines, record.Line{Kind: record.LineBatch, Batch: h})
			}
		}
		return nil
	})
	for _, l := range lines {
		if err := fn(l); err != nil {
			return err
		}
	}
	return err
}

func (b *books) line(seq uint64) record.Line {
	e := b.entries[seq-1]
	names := record.Names{From: b.name(e.rec.From), To: b.name(e.rec.To), Asset: b.assetName(e.rec.Asset)}
	return record.Line{Kind: record.LineRecord, Raw: e.raw, Record: e.rec, Names: names}
}

// name is that of the account with a ref, "" for none.
func (b *books) name(ref uint64) string {
	for name, a := range b.accounts {
		if a.ref == ref {
			return name
		}
	}
	return ""
}

// assetName is that of the asset with a ref, "" for none.
func (b *books) assetName(ref uint32) string {
	for name, a := range b.assets {
		if a.ref == ref {
			return name
		}
	}
	return ""
}
