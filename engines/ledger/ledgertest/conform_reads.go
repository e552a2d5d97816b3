package ledgertest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"ronbox/engines"
	"ronbox/engines/ledger"
	"ronbox/engines/ledger/record"
)

// balances: an unknown balance is zero, and a read can wait for a record.
func balances(s *suite) {
	if v, err := s.Client.Balance(s.Context(), "nobody", "ron", 0); err != nil || v.Known || !v.Posted.IsZero() ||
		v.Account != "nobody" {
		s.Fatalf("%+v, %v", v, err)
	}
	r := s.accept(s.issue("alice", 100))
	v, err := s.Client.Balance(s.Context(), "alice", "ron", r.Seq)
	if err != nil || v.Seq < r.Seq || v.At < r.At || !v.Known || v.Available != ron(100) {
		s.Fatalf("%+v, %v", v, err)
	}
	s.accept(s.burn("alice", 30))
	assets, err := s.Client.Assets(s.Context())
	if err != nil || len(assets) != 1 || assets[0].Asset != "ron" || assets[0].Issued != ron(70) || assets[0].Seq == 0 {
		s.Fatalf("%+v, %v", assets, err)
	}
	if v, err := s.Client.Balance(s.Context(), "sys:issue:ron", "ron", 0); err != nil || v.Issued != ron(70) ||
		!v.Posted.IsZero() {
		s.Fatalf("issuance account: %+v, %v", v, err)
	}
	ctx, cancel := context.WithTimeout(s.Context(), 10*time.Millisecond)
	defer cancel()
	_, err = s.Client.Balance(ctx, "alice", "ron", v.Seq+100)
	s.wants(err, context.DeadlineExceeded)
}

// statement reads all pages of a statement.
func (s *suite) statement(q ledger.HistoryQuery) (all []ledger.Entry) {
	s.Helper()
	for range 10_000 {
		page, err := s.Client.History(s.Context(), q)
		s.must(err)
		if len(page.Entries) > q.Limit {
			s.Fatalf("a page of %d entries, limit %d", len(page.Entries), q.Limit)
		}
		all = append(all, page.Entries...)
		if page.Next == "" {
			return all
		}
		q.Cursor = page.Next
	}
	s.Fatal("a statement without end")
	return nil
}

func seqs(entries []ledger.Entry) (out []uint64) {
	for _, e := range entries {
		out = append(out, e.Receipt.Seq)
	}
	return out
}

// history: every posting once, in order, however it is cut into pages; more than a thousand of
// them, so that marks are used.
func history(s *suite) {
	s.accept(s.issue("alice", 10_000))
	var want []uint64
	var ats []int64
	note := func(r record.Receipt) { want, ats = append(want, r.Seq), append(ats, r.At) }
	for i := range 600 {
		o := s.transfer("alice", "bob", uint64(1+i%3))
		o.Memo = fmt.Sprint("memo ", i)
		note(s.accept(o))
		if i%10 == 0 {
			h := s.accept(s.hold("bob", "carol", 1, time.Hour))
			note(h)
			note(s.accept(capture(h.TxID, 0)))
		}
	}
	q := ledger.HistoryQuery{Account: "bob", Asset: "ron", Limit: 100}
	all := s.statement(q)
	if !slices.Equal(seqs(all), want) {
		s.Fatalf("%d entries, want %d", len(all), len(want))
	}
	var posted uint64
	for _, e := range all {
		switch {
		case e.Receipt.Op == record.OpTransfer:
			posted += lowOf(e.Receipt.Amount)
		case e.Receipt.Op == record.OpCapture:
			posted--
		}
		if e.Posted != ron(posted) || e.Debit != (e.Receipt.Op != record.OpTransfer) {
			s.Fatalf("record %d: %+v, want %d", e.Receipt.Seq, e, posted)
		}
		if out, err := s.Client.Tx(s.Context(), e.Receipt.TxID); err != nil || text(out.Receipt) != text(e.Receipt) {
			s.Fatalf("record %d: history and lookup differ: %v", e.Receipt.Seq, err)
		}
	}
	for _, limit := range []int{1, 7, 500} {
		q.Limit = limit
		if got := seqs(s.statement(q)); !slices.Equal(got, want) {
			s.Fatalf("in pages of %d: %d entries, want %d", limit, len(got), len(want))
		}
	}
	q.NewestFirst, q.Limit = true, 37
	back := slices.Clone(want)
	slices.Reverse(back)
	if got := seqs(s.statement(q)); !slices.Equal(got, back) {
		s.Fatalf("newest first: %d entries, want %d", len(got), len(want))
	}
	s.between(want, ats)
	s.cursors(want)
}

// between: dates bound a statement, the first included, the last not.
func (s *suite) between(want []uint64, ats []int64) {
	s.Helper()
	for _, newest := range []bool{false, true} {
		for _, b := range [][2]int{{0, 1}, {3, 3}, {100, 500}, {299, 301}, {len(want) - 1, len(want) - 1}} {
			q := ledger.HistoryQuery{
				Account:     "bob",
				Asset:       "ron",
				Limit:       50,
				Since:       ats[b[0]],
				Until:       ats[b[1]],
				NewestFirst: newest,
			}
			wanted := slices.Clone(want[b[0]:b[1]])
			if newest {
				slices.Reverse(wanted)
			}
			if got := seqs(s.statement(q)); !slices.Equal(got, wanted) {
				s.Fatalf("between %v, newest first %t: %v, want %v", b, newest, got, wanted)
			}
		}
	}
}

// cursors are stable while more is posted, and good for their own query alone.
func (s *suite) cursors(want []uint64) {
	s.Helper()
	q := ledger.HistoryQuery{Account: "bob", Asset: "ron", Limit: 10, NewestFirst: true}
	page, err := s.Client.History(s.Context(), q)
	s.must(err)
	s.accept(s.transfer("alice", "bob", 1))
	q.Cursor = page.Next
	next, err := s.Client.History(s.Context(), q)
	s.must(err)
	if n := len(want); next.Entries[0].Receipt.Seq != want[n-11] {
		s.Fatalf("the second page begins with %d, want %d", next.Entries[0].Receipt.Seq, want[n-11])
	}
	q.Account = "alice"
	_, err = s.Client.History(s.Context(), q)
	s.wants(err, ledger.ErrCursor)
	q.Cursor = "no cursor"
	_, err = s.Client.History(s.Context(), q)
	s.wants(err, ledger.ErrCursor)
	empty, err := s.Client.History(s.Context(), ledger.HistoryQuery{Account: "nobody", Asset: "ron", Limit: 10})
	if err != nil || len(empty.Entries) != 0 || empty.Next != "" {
		s.Fatalf("%+v, %v", empty, err)
	}
}

func lowOf(a engines.Amount) uint64 { _, lo := a.Parts(); return lo }

// transactions: a record is found under its id, every bit of it.
func transactions(s *suite) {
	o := s.issue("alice", 100)
	o.Memo = "wages"
	r := s.accept(o)
	out, err := s.Client.Tx(s.Context(), r.TxID)
	if err != nil || text(out.Receipt) != text(r) || out.Memo != "wages" || out.Replayed || out.Reject != nil {
		s.Fatalf("%+v, %v", out, err)
	}
	if out.Parties.From != "sys:issue:ron" || out.Parties.To != "alice" {
		s.Fatalf("%+v", out.Parties)
	}
	for bit := range 128 {
		id := r.TxID
		id[bit/8] ^= 1 << (bit % 8)
		if _, err := s.Client.Tx(s.Context(), id); !errors.Is(err, ledger.ErrNotFound) {
			s.Fatalf("bit %d: %v", bit, err)
		}
	}
	last := r
	for _, o := range []ledger.Op{
		s.transfer("alice", "bob", 1), s.hold("alice", "bob", 1, time.Hour), s.burn("bob", 1),
	} {
		r := s.accept(o)
		if r.TxID.String() <= last.TxID.String() || r.Seq <= last.Seq || r.Batch <= last.Batch || r.At <= last.At {
			s.Fatalf("%+v does not come after %+v", r, last)
		}
		last = r
	}
	s.clock.Advance(-time.Hour) // the ledger's time runs on
	if r := s.accept(s.transfer("alice", "bob", 1)); r.At <= last.At {
		s.Fatalf("%+v does not come after %+v", r, last)
	}
}

// contexts: a call with an ended context has no effect.
func contexts(s *suite) {
	ctx, cancel := context.WithCancelCause(s.Context())
	cause := errors.New("gone")
	cancel(cause)
	before := s.head()
	_, err := s.Client.Commit(ctx, []ledger.Op{s.issue("alice", 1)})
	s.wants(err, cause)
	if s.head() != before {
		s.Fatal("a call whose context had ended was done")
	}
	s.must(s.Client.Probe(s.Context()))
	if s.head() != before {
		s.Fatal("a probe was recorded")
	}
}

// restart: all answers are the same after a restart, byte for byte.
func restart(s *suite) {
	if s.Reopen == nil {
		return
	}
	first := keyed(s.issue("alice", 100), "org:a", "k1")
	done := s.accept(first)
	h := s.accept(s.hold("alice", "bob", 10, time.Hour))
	s.accept(ledger.Op{Code: record.OpFlags, From: "carol", Set: record.Frozen})
	once := ledger.Once{Domain: "d", ID: "i", Digest: first.Fingerprint}
	pay := []ledger.Op{{Code: record.OpTransfer, From: "alice", To: "bob", Asset: "ron", Amount: ron(5)}}
	_, err := s.Client.Settle(s.Context(), once, pay)
	s.must(err)
	head := s.head()
	s.Rig = s.Reopen()
	if s.head() != head {
		s.Fatalf("head %+v, was %+v", s.head(), head)
	}
	s.replay(first, done)
	out, err := s.Client.Settle(s.Context(), once, pay)
	if err != nil || !out.Replayed {
		s.Fatalf("%+v, %v", out, err)
	}
	s.has("alice", 95, 10)
	s.refuse(s.transfer("alice", "carol", 1), record.AccountLocked)
	s.accept(capture(h.TxID, 0))
	s.has("bob", 15, 0)
	s.conserved()
}
