package ledgertest

import (
	"fmt"
	"slices"
	"time"

	"ronbox/engines/ledger"
	"ronbox/engines/ledger/record"
)

// holds set an amount aside, and are resolved once.
func holds(s *suite) {
	s.accept(s.issue("alice", 100))
	h := s.accept(s.hold("alice", "shop", 70, time.Hour))
	s.has("alice", 100, 70)
	s.has("shop", 0, 0)
	poor := s.transfer("alice", "bob", 31)
	s.refuse(poor, record.InsufficientFunds)
	s.refuse(capture(h.TxID, 71), record.InsufficientFunds)
	forged := h.TxID
	forged[15] ^= 1
	s.refuse(capture(forged, 0), record.HoldUnknown) // every bit of the id counts
	paid := s.accept(capture(h.TxID, 50))
	if paid.Hold != h.TxID || paid.From != "alice" || paid.To != "shop" || paid.Amount != ron(50) ||
		paid.Asset != "ron" {
		s.Fatalf("%+v", paid)
	}
	s.has("alice", 50, 0)
	s.has("shop", 50, 0)
	s.refuse(capture(h.TxID, 1), record.HoldClosed)
	s.refuse(release(h.TxID), record.HoldClosed)

	poor.Amount = ron(50)
	h = s.accept(
		ledger.Op{
			Code:      record.OpHold,
			From:      "alice",
			To:        "shop",
			Asset:     "ron",
			Amount:    ron(50),
			Nonce:     2,
			ExpiresIn: time.Hour,
		},
	)
	if given := s.accept(release(h.TxID)); given.Hold != h.TxID || given.Amount != ron(50) {
		s.Fatalf("%+v", given)
	}
	s.refuse(capture(h.TxID, 0), record.HoldClosed)
	s.has("alice", 50, 0)
	poor.Nonce = 3
	s.accept(poor)
	s.has("alice", 0, 0)
	s.conserved()
}

// holdExpiry: from the expiry of a hold on, every call agrees that it has ended.
func holdExpiry(s *suite) {
	s.accept(s.issue("alice", 100))
	long := s.accept(s.hold("alice", "shop", 30, 2*time.Minute))
	whole := s.accept(s.hold("alice", "shop", 10, time.Minute))
	short := s.accept(s.hold("alice", "shop", 20, time.Minute))
	s.clock.Set(time.Unix(0, whole.At).Add(time.Minute - time.Millisecond - 1))
	s.accept(capture(whole.TxID, 0)) // the last moment
	s.has("alice", 90, 50)
	news := s.Client.Events("conformance")
	defer news.Close()
	s.clock.Advance(2 * time.Millisecond)
	s.has("alice", 90, 30)
	if e, _, _ := news.Next(); !slices.Equal(e.Expired, []record.TxID{short.TxID}) {
		s.Errorf("the batch tells of %v, want the hold %v", e.Expired, short.TxID)
	}
	head := s.head()
	s.refuse(capture(short.TxID, 1), record.HoldExpired)
	s.refuse(release(short.TxID), record.HoldExpired)
	if s.Sweep != nil {
		s.must(s.Sweep())
	}
	if s.head() != head {
		s.Fatal("the end of nothing was recorded")
	}
	s.accept(release(long.TxID))
	s.has("alice", 90, 0)
	s.conserved()
}

// holdAtExpiry: whichever call comes first after the expiry of a hold sees that it has ended.
func holdAtExpiry(s *suite) {
	for i, call := range []func(hold record.Receipt){
		func(h record.Receipt) {
			if out := s.one(capture(h.TxID, 0)); out.Reject == nil || out.Reject.Code != record.HoldExpired {
				s.Errorf("capture: %+v", out)
			}
			s.has(h.From, 10, 0)
		},
		func(h record.Receipt) { s.accept(s.transfer(h.From, "bob", 10)) },
		func(h record.Receipt) { s.has(h.From, 10, 0) },
		func(h record.Receipt) {
			if v, err := s.Client.Hold(s.Context(), h.TxID); err != nil || v.Closed != record.OpExpire {
				s.Errorf("hold: %+v, %v", v, err)
			}
		},
		func(h record.Receipt) {
			if open := s.openHolds(h.From, 10); len(open) != 0 {
				s.Errorf("holds: %v", open)
			}
		},
		func(h record.Receipt) {
			hold := s.hold(h.From, "shop", 10, time.Minute)
			hold.Limits = &ledger.Limits{OpenHolds: 1}
			s.accept(hold)
		},
	} {
		payer := fmt.Sprint("payer", i)
		s.accept(s.issue(payer, 10))
		h := s.accept(s.hold(payer, "shop", 10, time.Minute))
		s.clock.Set(time.Unix(0, h.At).Add(time.Minute - time.Millisecond))
		s.has(payer, 10, 10)
		s.clock.Advance(time.Millisecond)
		call(h)
	}
	s.conserved()
}

// flags forbid: debits, credits, or both.
func flags(s *suite) {
	s.accept(s.issue("alice", 100))
	s.accept(s.issue("bob", 100))
	h := s.accept(s.hold("alice", "bob", 10, time.Hour))
	h2 := s.accept(s.hold("alice", "bob", 10, time.Hour))
	set := func(set, clear record.Flags) {
		s.Helper()
		s.accept(ledger.Op{Code: record.OpFlags, From: "alice", Set: set, Clear: clear})
	}
	out := ledger.Op{Code: record.OpTransfer, From: "alice", To: "bob", Asset: "ron", Amount: ron(1), Nonce: 3}
	in := ledger.Op{Code: record.OpTransfer, From: "bob", To: "alice", Asset: "ron", Amount: ron(1), Nonce: 1}
	for _, tt := range []struct {
		flag      record.Flags
		outs, ins bool
	}{
		{record.Frozen, false, false}, {record.NoDebit, false, true}, {record.NoCredit, true, false},
		{record.Closed, false, false},
	} {
		set(tt.flag, record.Frozen|record.NoDebit|record.NoCredit|record.Closed)
		s.locked(&out, tt.outs)
		s.locked(&in, tt.ins)
		if !tt.outs {
			s.refuse(capture(h.TxID, 1), record.AccountLocked)
		}
	}
	s.accept(release(h2.TxID)) // no flag prevents a release
	v, err := s.Client.Account(s.Context(), "alice")
	if err != nil || v.Flags != record.Closed {
		s.Fatalf("%+v, %v", v, err)
	}
	set(0, record.Closed)
	s.accept(capture(h.TxID, 0))
	s.accept(ledger.Op{Code: record.OpFlags, From: "sys:issue:ron", Set: record.NoDebit})
	s.refuse(s.issue("alice", 1), record.AccountLocked)
	s.accept(ledger.Op{Code: record.OpFlags, From: "nobody", Set: record.Frozen})
	if v, err := s.Client.Account(s.Context(), "nobody"); err != nil || !v.Known || v.Flags != record.Frozen ||
		v.OpenedSeq == 0 {
		s.Fatalf("flags open an account: %+v, %v", v, err)
	}
}

// locked tries a transfer that a flag allows or not, and counts its nonce on when it was done.
func (s *suite) locked(o *ledger.Op, allowed bool) {
	s.Helper()
	if !allowed {
		s.refuse(*o, record.AccountLocked)
		return
	}
	s.accept(*o)
	o.Nonce++
}
