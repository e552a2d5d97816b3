package ledgertest

import (
	"context"

	"ronbox/appliance/b3"
	"ronbox/engines/ledger"
	"ronbox/engines/ledger/record"
	"ronbox/engines/merkle"
)

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

// Prove gives a proof of one record and of what it refers to.
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

// Export gives fn the journal from one seq to another, and each batch after its last record.
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
