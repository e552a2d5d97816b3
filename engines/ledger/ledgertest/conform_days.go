package ledgertest

import (
	"time"

	"ronbox/engines/ledger"
	"ronbox/engines/ledger/record"
)

// days: ceilings count by days of UTC.
func days(s *suite) {
	s.accept(s.issue("alice", 1000))
	ceiling := &ledger.Limits{Daily: ron(100)}
	spend := func(o ledger.Op) ledger.Op { o.Limits = ceiling; return o }
	s.accept(spend(s.transfer("alice", "bob", 60)))
	h := s.accept(spend(s.hold("alice", "bob", 40, 48*time.Hour)))
	over := spend(s.transfer("alice", "bob", 1))
	s.refuse(over, record.LimitDaily)
	s.accept(capture(h.TxID, 15)) // only the captured part of a hold counts for its day
	over.Amount = ron(26)
	s.refuse(over, record.LimitDaily)
	over.Amount = ron(25)
	s.accept(over)
	s.clock.Set(time.Date(2026, 3, 1, 23, 59, 59, 990e6, time.UTC))
	last := spend(s.burn("alice", 1))
	s.refuse(last, record.LimitDaily)
	s.clock.Set(time.Date(2026, 3, 2, 0, 0, 0, 0, time.UTC))
	s.accept(last)
	h = s.accept(spend(s.hold("alice", "bob", 99, 48*time.Hour)))
	s.clock.Advance(24 * time.Hour)
	s.accept(spend(s.transfer("alice", "bob", 100)))
	s.accept(release(h.TxID)) // of yesterday: gives nothing back to today
	s.refuse(spend(s.transfer("alice", "bob", 1)), record.LimitDaily)
	s.conserved()
}

// tokenDays: a token's daily ceiling counts all amounts that the token moves, from any account,
// captures included, and no amounts of other tokens.
func tokenDays(s *suite) {
	for _, account := range []string{"alice", "bob", "carol"} {
		s.accept(s.issue(account, 1000))
	}
	by := func(token string, o ledger.Op) ledger.Op { o.CapID, o.Daily = token, ron(150); return o }
	refuse := func(o ledger.Op) {
		s.Helper()
		if r := s.refuse(o, record.LimitDaily); r.Limit != ledger.LimitTokenDaily {
			s.Fatalf("%+v", r)
		}
	}
	s.accept(s.transfer("alice", "shop", 500)) // by another token, or one without a ceiling
	s.accept(by("t1", s.transfer("alice", "shop", 100)))
	over := by("t1", s.transfer("bob", "shop", 51)) // of another account
	refuse(over)
	over.Amount = ron(10)
	s.accept(over)
	s.accept(by("t2", s.transfer("alice", "shop", 150))) // moved nothing until now
	h := s.accept(s.hold("alice", "shop", 80, 48*time.Hour))
	refuse(by("t1", capture(h.TxID, 0)))
	refuse(by("t1", capture(h.TxID, 41)))
	s.accept(by("t1", capture(h.TxID, 30)))
	h = s.accept(by("t1", s.hold("bob", "shop", 10, 48*time.Hour)))
	refuse(by("t1", capture(h.TxID, 1)))
	s.accept(by("t1", release(h.TxID))) // moves nothing, and gives nothing back
	refuse(
		by(
			"t1",
			ledger.Op{
				Code:   record.OpIssue,
				To:     "bob",
				Asset:  "ron",
				Amount: ron(1),
				Nonce:  s.nonces["sys:issue:ron"] + 1,
			},
		),
	)
	refuse(
		by("t1", ledger.Op{Code: record.OpBurn, From: "bob", Asset: "ron", Amount: ron(1), Nonce: s.nonces["bob"] + 1}),
	)

	batch := func(atomic bool, amounts ...uint64) ledger.Op {
		o := ledger.Op{Code: record.OpBatch, Atomic: atomic, CapID: "t3"}
		for i, n := range amounts {
			inner := ledger.Op{
				Code:   record.OpTransfer,
				From:   "carol",
				To:     "shop",
				Asset:  "ron",
				Amount: ron(n),
				Daily:  ron(150),
			}
			inner.Nonce = s.nonces["carol"] + uint64(i) + 1
			o.Ops = append(o.Ops, inner)
		}
		return o
	}
	if out := s.one(batch(true, 100, 51)); out.Reject == nil || out.Reject.Limit != ledger.LimitTokenDaily ||
		out.Reject.Index != 1 {
		s.Fatalf("%+v", out)
	}
	s.batch(batch(false, 100, 51), record.Accepted, record.LimitDaily) // a reverted op does not count
	s.nonces["carol"]++
	refuse(
		by(
			"t3",
			ledger.Op{
				Code:   record.OpTransfer,
				From:   "carol",
				To:     "shop",
				Asset:  "ron",
				Amount: ron(51),
				Nonce:  s.nonces["carol"] + 1,
			},
		),
	)
	s.accept(by("t3", s.transfer("carol", "shop", 50)))

	if s.Reopen != nil {
		s.Rig = s.Reopen()
	}
	over = by(
		"t1",
		ledger.Op{
			Code:   record.OpTransfer,
			From:   "bob",
			To:     "shop",
			Asset:  "ron",
			Amount: ron(1),
			Nonce:  s.nonces["bob"] + 1,
		},
	)
	refuse(over)
	s.clock.Advance(24 * time.Hour)
	s.accept(over)
	s.conserved()
}
