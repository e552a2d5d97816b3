package ledgertest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"ronbox/engines"
	"ronbox/engines/ledger"
	"ronbox/engines/ledger/record"
)

// Payments calls fn with the records that f selects.
func (m *Model) Payments(
	ctx context.Context,
	f ledger.PaymentFilter,
	from, to uint64,
	fn func(*ledger.Outcome) error,
) error {
	var found []ledger.Outcome
	err := m.with(ctx, func() error {
		if from == 0 || to > uint64(len(m.books.entries)) || from > to+1 {
			return ledger.ErrRange
		}
		for seq := from; seq <= to; seq++ {
			if rec := &m.books.entries[seq-1].rec; rec.Op.MovesMoney() {
				out := ledger.Outcome{Receipt: m.receipt(seq)}
				m.describe(&out, seq)
				if selects(&f, &out) {
					found = append(found, out)
				}
			}
		}
		return nil
	})
	if f.Newest {
		slices.Reverse(found)
	}
	for i := 0; err == nil && i < len(found); i++ {
		err = fn(&found[i])
	}
	return err
}

func selects(f *ledger.PaymentFilter, out *ledger.Outcome) bool {
	return (f.Account == "" || f.Account == out.Parties.From || f.Account == out.Parties.To) &&
		(f.Asset == "" || f.Asset == out.Receipt.Asset) &&
		(len(f.Ops) == 0 || slices.Contains(f.Ops, out.Receipt.Op)) &&
		strings.Contains(out.Memo, f.Memo)
}

// payments: the records that move money, in both directions, by filter.
func payments(s *suite) {
	s.accept(s.issue("alice", 100))
	rent := s.transfer("alice", "bob", 7)
	rent.Memo = "rent of May"
	s.accept(rent)
	held := s.accept(s.hold("alice", "shop", 10, time.Hour))
	s.accept(capture(held.TxID, 4))
	s.accept(ledger.Op{Code: record.OpFlags, From: "carol", Set: record.Frozen})
	s.accept(s.burn("bob", 2))
	head := s.head().Seq
	for _, tt := range []struct {
		f    ledger.PaymentFilter
		want string
	}{
		{ledger.PaymentFilter{}, "issue transfer hold capture burn"},
		{ledger.PaymentFilter{Newest: true}, "burn capture hold transfer issue"},
		{ledger.PaymentFilter{Account: "bob"}, "transfer burn"},
		{ledger.PaymentFilter{Account: "shop"}, "hold capture"},
		{ledger.PaymentFilter{Account: engines.IssuanceAccount("ron")}, "issue burn"},
		{ledger.PaymentFilter{Account: "carol"}, ""},
		{ledger.PaymentFilter{Account: "nobody"}, ""},
		{ledger.PaymentFilter{Asset: "ron", Ops: []record.Op{record.OpBurn, record.OpHold}}, "hold burn"},
		{ledger.PaymentFilter{Asset: "gold"}, ""},
		{ledger.PaymentFilter{Memo: "rent", Newest: true}, "transfer"},
	} {
		if got := s.payments(tt.f, 1, head); got != tt.want {
			s.Fatalf("%+v: %s, want %s", tt.f, got, tt.want)
		}
	}
	if got := s.payments(ledger.PaymentFilter{}, held.Seq, held.Seq); got != "hold" {
		s.Fatalf("record %d: %s", held.Seq, got)
	}
	if got := s.payments(ledger.PaymentFilter{}, head+1, head); got != "" {
		s.Fatalf("after the head: %s", got)
	}
	for _, r := range [][2]uint64{{0, head}, {1, head + 1}, {4, 2}} {
		s.wants(s.Client.Payments(s.Context(), ledger.PaymentFilter{}, r[0], r[1], nil), ledger.ErrRange)
	}
	stop := errors.New("enough")
	s.wants(s.Client.Payments(s.Context(), ledger.PaymentFilter{}, 1, head,
		func(*ledger.Outcome) error { return stop }), stop)
}

// payments returns the ops of payments, each of which is as Tx reads it.
func (s *suite) payments(f ledger.PaymentFilter, from, to uint64) string {
	s.Helper()
	var ops []string
	s.must(s.Client.Payments(s.Context(), f, from, to, func(out *ledger.Outcome) error {
		tx, err := s.Client.Tx(s.Context(), out.Receipt.TxID)
		if err == nil && fmt.Sprintf("%+v", tx) != fmt.Sprintf("%+v", *out) {
			err = fmt.Errorf("%+v, but Tx reads %+v", *out, tx)
		}
		ops = append(ops, out.Receipt.Op.String())
		return err
	}))
	return strings.Join(ops, " ")
}
