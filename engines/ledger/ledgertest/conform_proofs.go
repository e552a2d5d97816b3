package ledgertest

import (
	"context"
	"slices"
	"time"

	"ronbox/appliance/b3"
	"ronbox/appliance/merkle"
	"ronbox/engines/ledger"
	"ronbox/engines/ledger/record"
)

// some does ops of each kind, and returns the receipts.
func (s *suite) some() (out []record.Receipt) {
	s.Helper()
	do := func(o ledger.Op) record.Receipt {
		r := s.accept(o)
		out = append(out, r)
		return r
	}
	do(s.issue("alice", 1000))
	do(keyed(s.transfer("alice", "bob", 10), "org:a", "k"))
	h := do(s.hold("alice", "bob", 10, time.Hour))
	do(capture(h.TxID, 4))
	h = do(s.hold("alice", "carol", 10, time.Hour))
	do(release(h.TxID))
	do(s.burn("bob", 1))
	do(ledger.Op{Code: record.OpFlags, From: "dave", Set: record.NoDebit, Clear: record.Frozen})
	b := s.one(
		keyed(
			ledger.Op{
				Code: record.OpBatch,
				Ops:  []ledger.Op{s.transfer("alice", "bob", 1), s.transfer("alice", "erin", 2)},
			},
			"org:a",
			"b",
		),
	)
	for _, r := range b.Results {
		out = append(out, r.Receipt)
	}
	for range 9 {
		do(s.transfer("alice", "bob", 1))
	}
	return out
}

// roots chain all batches, and end in the head.
func roots(s *suite) {
	receipts := s.some()
	head := s.head()
	all, err := s.Client.Roots(s.Context(), 0, ledger.MaxRoots)
	s.must(err)
	if uint64(len(all)) != head.Batches {
		s.Fatalf("%d headers, the head says %d", len(all), head.Batches)
	}
	var prev b3.Digest
	seq := uint64(0)
	for i, b := range all {
		if b.No != uint64(i+1) || b.Prev != prev || b.First != seq+1 {
			s.Fatalf("header %d: %+v does not follow", i+1, b)
		}
		prev, seq = b.Root(), b.Last()
	}
	if head.LastRoot != prev || head.Seq != seq {
		s.Fatalf("head %+v, the last batch ends with %d", head, seq)
	}
	for _, r := range receipts {
		if b := all[r.Batch-1]; b.Root() != r.Root || r.Seq < b.First || r.Seq > b.Last() {
			s.Fatalf("receipt %s does not belong to batch %d", r.TxID, r.Batch)
		}
	}
	some, err := s.Client.Roots(s.Context(), 3, 4)
	if err != nil || !slices.Equal(some, all[3:7]) {
		s.Fatalf("roots since 3: %+v, %v", some, err)
	}
	if none, err := s.Client.Roots(s.Context(), head.Batches, 4); err != nil || len(none) != 0 {
		s.Fatalf("roots since the head: %+v, %v", none, err)
	}
}

// proofs verify, as of the head and as of any batch since, and prove the receipt.
func proofs(s *suite) {
	receipts := s.some()
	head := s.head()
	for _, r := range receipts {
		for at := r.Batch; at <= head.Batches; at++ {
			p, err := s.Client.Prove(s.Context(), r.TxID, at)
			s.must(err)
			got, err := p.Verify()
			if err != nil || text(got) != text(r) || p.Head.Batches != at {
				s.Fatalf("proof of %s at %d: %v\n%s\nwant\n%s", r.Op, at, err, text(got), text(r))
			}
		}
		p, err := s.Client.Prove(s.Context(), r.TxID, 0)
		s.must(err)
		if p.Head != head {
			s.Fatalf("proof as of %+v, head %+v", p.Head, head)
		}
	}
	last := receipts[len(receipts)-1]
	_, err := s.Client.Prove(s.Context(), last.TxID, last.Batch-1)
	s.wants(err, ledger.ErrRange)
	_, err = s.Client.Prove(s.Context(), last.TxID, head.Batches+1)
	s.wants(err, ledger.ErrRange)
	last.TxID[15] ^= 1
	_, err = s.Client.Prove(s.Context(), last.TxID, 0)
	s.wants(err, ledger.ErrNotFound)
	for from := range head.Batches + 1 {
		for to := from; to <= head.Batches; to++ {
			c, err := s.Client.Consistency(s.Context(), from, to)
			if err != nil || c.Verify() != nil || c.From.Batches != from || c.To.Batches != to {
				s.Fatalf("consistency of %d and %d: %+v, %v", from, to, c, err)
			}
			if to == head.Batches && c.To.Root != head.Root {
				s.Fatalf("consistency to %s, head %s", c.To.Root, head.Root)
			}
		}
	}
	_, err = s.Client.Consistency(s.Context(), 2, 1)
	s.wants(err, ledger.ErrRange)
	_, err = s.Client.Consistency(s.Context(), 1, head.Batches+1)
	s.wants(err, ledger.ErrRange)
}

// exports parse, and carry the bytes that the roots are over.
func exports(s *suite) {
	s.some()
	head := s.head()
	all := s.lines(0, 0)
	if all[0].Kind != record.LineFormat || all[0].From != 1 || !all[0].Prev.IsZero() {
		s.Fatalf("it begins with %+v", all[0])
	}
	var leaves []b3.Digest
	var prev b3.Digest
	seq, no := uint64(0), uint64(0)
	for _, l := range all[1:] {
		switch l.Kind {
		case record.LineRecord:
			if seq++; l.Record.Seq != seq || l.Record.Batch != no+1 {
				s.Fatalf("record %d of batch %d, want %d of %d", l.Record.Seq, l.Record.Batch, seq, no+1)
			}
			leaves = append(leaves, merkle.Leaf(l.Raw))
		case record.LineBatch:
			if no++; l.Batch.No != no || l.Batch.Last() != seq || l.Batch.Prev != prev ||
				l.Batch.Merkle != merkle.Root(leaves) {
				s.Fatalf("batch %d: %+v", no, l.Batch)
			}
			prev, leaves = l.Batch.Root(), nil
		default:
			s.Fatalf("a line of kind %d", l.Kind)
		}
	}
	if prev != head.LastRoot || seq != head.Seq || no != head.Batches {
		s.Fatalf("it ends with %d records and %d batches, head %+v", seq, no, head)
	}
	part := s.lines(5, 9)
	if part[0].From != 5 || part[1].Record.Seq != 5 {
		s.Fatalf("from 5: %+v", part[:2])
	}
	last := part[len(part)-1]
	if last.Kind == record.LineBatch && last.Batch.Last() != 9 ||
		last.Kind == record.LineRecord && last.Record.Seq != 9 {
		s.Fatalf("to 9: %+v", last)
	}
}

// lines exports a range, each line through its text.
func (s *suite) lines(from, to uint64) (all []record.Line) {
	s.Helper()
	s.must(s.Client.Export(s.Context(), from, to, func(l record.Line) error {
		parsed, err := record.ParseLine(l.Append(nil))
		all = append(all, parsed)
		return err
	}))
	return all
}

// events: there is one event for each batch, once the batch can be read.
func events(s *suite) {
	news := s.Client.Events("test")
	defer news.Close()
	r := s.accept(s.issue("alice", 100))
	ctx, cancel := context.WithTimeout(s.Context(), 10*time.Second)
	defer cancel()
	e, lagged, err := news.Recv(ctx)
	if err != nil || lagged != 0 || e.Batch != r.Batch || e.Last != r.Seq || e.First > e.Last || e.Root != r.Root ||
		e.At != r.At {
		s.Fatalf("%+v of %+v: %v", e, r, err)
	}
	s.refuse(s.transfer("nobody", "alice", 1), record.InsufficientFunds)
	s.nonces["nobody"] = 0
	r = s.accept(s.burn("alice", 1))
	if e, _, err = news.Recv(ctx); err != nil || e.Batch != r.Batch {
		s.Fatalf("%+v of %+v: %v", e, r, err)
	}
}

// conserved adds up the whole journal: in each asset all that was credited was debited, and all
// that is set aside is set aside for someone.
func (s *suite) conserved() {
	s.Helper()
	type key struct {
		account uint64
		asset   uint32
	}
	newest := map[key]record.State{}
	for _, l := range s.lines(0, 0) {
		for _, im := range l.Record.Images {
			newest[key{im.Account, im.Asset}] = im.State
		}
	}
	sums := map[uint32][4]uint64{} // modulo 2^64 is enough: the sums are equal or they are not
	for k, st := range newest {
		sum := sums[k.asset]
		for i, a := range []uint64{
			lowOf(st.CreditsPosted), lowOf(st.DebitsPosted), lowOf(st.CreditsHeld), lowOf(st.DebitsHeld),
		} {
			sum[i] += a
		}
		sums[k.asset] = sum
	}
	for asset, sum := range sums {
		if sum[0] != sum[1] || sum[2] != sum[3] {
			s.Fatalf("asset %d: credits %d, debits %d; held %d for and %d against", asset, sum[0], sum[1], sum[2],
				sum[3])
		}
	}
}
