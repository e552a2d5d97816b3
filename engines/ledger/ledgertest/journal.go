package ledgertest

import (
	"ronbox/appliance/b3"
	"ronbox/engines"
	"ronbox/engines/ledger"
	"ronbox/engines/ledger/record"
	"ronbox/engines/merkle"
)

// append adds a record to the journal; its receipt lacks what is known only once the batch is sealed.
func (b *books) append(r record.Record, receipt record.Receipt) uint64 {
	r.Seq, r.Batch = uint64(len(b.entries)+1), uint64(len(b.batches)+1)
	r.Rand = uint16(r.Seq * 40503) // any would do: only the journal says which it was
	receipt.TxID, receipt.At, receipt.Seq, receipt.Batch, receipt.Version = r.TxID(), r.At, r.Seq, r.Batch, record.ReceiptVersion
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
		Dedupe: dedupe(m.Dedupe, m.Fingerprint),
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
		if v.reject != nil {
			bytes[i] = byte(v.reject.Code)
		}
	}
	parts := (len(bytes) + record.MaxResults - 1) / record.MaxResults
	for p := range parts {
		r := record.Record{
			Op: record.OpBatch, Named: true, At: at, Part: uint16(p), Parts: uint16(parts), Principal: short(o.Principal), CapID: short(o.CapID),
			Results: bytes[p*record.MaxResults : min((p+1)*record.MaxResults, len(bytes))],
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

// seal ends the batch of the records from index first on, if there are any, and tells of it.
func (m *Model) seal(first int, at int64) {
	fresh := m.books.entries[first:]
	if len(fresh) == 0 {
		return
	}
	leaves := make([]b3.Digest, len(fresh))
	var touched []ledger.Mark
	var expired []record.TxID
	for i, e := range fresh {
		leaves[i] = merkle.Leaf(e.raw)
		if e.receipt.Op == record.OpExpire {
			expired = append(expired, e.receipt.Hold)
		}
		for _, name := range []string{e.receipt.From, e.receipt.To} {
			if name != "" && e.receipt.Asset != "" {
				touched = append(touched, ledger.MarkOf(name, e.receipt.Asset))
			}
		}
	}
	h := record.Batch{No: uint64(len(m.books.batches) + 1), First: uint64(first + 1), Count: uint64(len(fresh)), At: at, Merkle: merkle.Root(leaves)}
	if n := len(m.books.batches); n > 0 {
		h.Prev = m.books.batches[n-1].Root()
	}
	m.enter(h)
	m.bus.Publish(ledger.Committed{
		First: h.First, Last: h.First + h.Count - 1, Batch: h.No, Root: h.Root(), Touched: touched, At: at, Expired: expired,
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

// receipt is that of a record whose batch is sealed.
func (m *Model) receipt(seq uint64) record.Receipt {
	r := m.books.entries[seq-1].receipt
	r.Root = m.books.batches[r.Batch-1].Root()
	return r
}
