package ledgertest

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"ronbox/engines"
	"ronbox/engines/ledger"
	"ronbox/engines/ledger/record"
)

// refusals meets each reason at least once, and with it the member of the Reject that belongs to
// it.
func refusals(s *suite) {
	s.accept(s.issue("alice", 100))
	s.nonces["alice"] = 0
	transfer := func(change func(*ledger.Op)) ledger.Op {
		o := ledger.Op{Code: record.OpTransfer, From: "alice", To: "bob", Asset: "ron", Amount: ron(10), Nonce: 1}
		change(&o)
		return o
	}
	now := s.clock.Now().UnixNano()
	s.refuse(transfer(func(o *ledger.Op) { o.ValidUntil = now }), record.Expired)
	s.refuse(transfer(func(o *ledger.Op) { o.Asset = "gold" }), record.AssetUnknown)
	// its declaration opens it
	s.refuse(ledger.Op{Code: record.OpFlags, From: "sys:issue:gold", Set: record.Frozen}, record.AssetUnknown)
	if r := s.refuse(transfer(func(o *ledger.Op) { o.Nonce = 2 }), record.NonceGap); r.Expected != 1 {
		s.Fatalf("%+v", r)
	}
	for limit, l := range map[string]ledger.Limits{
		ledger.LimitPerOp: {PerOp: ron(9)}, ledger.LimitDaily: {Daily: ron(9)},
		ledger.LimitAccountTotal: {AccountTotal: ron(9)},
	} {
		code := map[string]record.Result{
			ledger.LimitPerOp: record.LimitOp, ledger.LimitDaily: record.LimitDaily,
			ledger.LimitAccountTotal: record.LimitTotal,
		}[limit]
		if r := s.refuse(transfer(func(o *ledger.Op) { o.Limits = &l }), code); r.Limit != limit {
			s.Fatalf("%+v, want limit %s", r, limit)
		}
	}
	if r := s.refuse(
		transfer(func(o *ledger.Op) { o.Daily = ron(9) }),
		record.LimitDaily,
	); r.Limit != ledger.LimitTokenDaily {
		s.Fatalf("%+v", r)
	}
	if r := s.refuse(transfer(func(o *ledger.Op) { o.Amount = ron(101) }), record.InsufficientFunds); r.Unknown {
		s.Errorf("a payer that is known: %+v", r)
	}
	s.refuse(transfer(func(o *ledger.Op) { o.From = "nobody" }), record.InsufficientFunds)
	s.refuse(
		ledger.Op{Code: record.OpBurn, From: "nobody", Asset: "ron", Amount: ron(1), Nonce: 1},
		record.InsufficientFunds,
	)
	s.refuse(release(record.NewTxID(now, 1<<40, 7)), record.HoldUnknown)
	s.refuse(capture(s.accept(s.transfer("alice", "bob", 10)).TxID, 0), record.HoldUnknown) // a transfer is no hold
	s.has("alice", 90, 0)
}

// precedence: of two reasons the one that comes first in the fixed order is told.
func precedence(s *suite) {
	s.accept(s.issue("alice", 100))
	s.accept(ledger.Op{Code: record.OpFlags, From: "locked", Set: record.NoCredit})
	o := ledger.Op{
		Code: record.OpTransfer, From: "alice", To: "locked", Asset: "gold", Amount: ron(1000), Nonce: 5, ValidUntil: 1,
		Limits: &ledger.Limits{PerOp: ron(500), Daily: ron(700), AccountTotal: ron(20)}, Daily: ron(600),
	}
	for _, step := range []struct {
		want record.Result
		mend func()
	}{
		{record.Expired, func() { o.ValidUntil = 0 }},
		{record.AssetUnknown, func() { o.Asset = "ron" }},
		{record.AccountLocked, func() { o.To = "bob" }},
		{record.NonceGap, func() { o.Nonce = 1 }},
		{record.LimitOp, func() { o.Limits = &ledger.Limits{Daily: ron(700), AccountTotal: ron(20)} }},
		{record.InsufficientFunds, func() { s.accept(s.issue("alice", 900)) }},
		// of the account first, then of the token
		{record.LimitDaily, func() { o.Limits = &ledger.Limits{AccountTotal: ron(20)} }},
		{record.LimitDaily, func() { o.Daily = engines.Amount{} }},
		{record.LimitTotal, func() { o.Limits = nil }},
	} {
		s.refuse(o, step.want)
		step.mend()
	}
	done := s.accept(keyed(o, "p", "k"))
	o.ValidUntil = 1
	s.replay(keyed(o, "p", "k"), done) // dedupe comes before all
	o.Amount = ron(1)
	s.refuse(keyed(o, "p", "k"), record.IdemConflict)
	o.Dedupe.Key = ""
	s.refuse(o, record.Expired)
}

// precedenceOfHolds: the same for the end of a hold.
func precedenceOfHolds(s *suite) {
	s.accept(s.issue("alice", 100))
	h := s.accept(s.hold("alice", "bob", 10, time.Hour))
	o := ledger.Op{Code: record.OpCapture, Hold: record.NewTxID(h.At, h.Seq+7, 1), Amount: ron(11), ValidUntil: 1}
	lock := func(set, clear record.Flags) {
		s.accept(ledger.Op{Code: record.OpFlags, From: "bob", Set: set, Clear: clear})
	}
	s.refuse(o, record.Expired)
	o.ValidUntil = 0
	s.refuse(o, record.HoldUnknown)
	o.Hold = h.TxID
	lock(record.NoCredit, 0)
	s.refuse(o, record.AccountLocked)
	lock(0, record.NoCredit)
	s.refuse(o, record.InsufficientFunds)
	s.clock.Advance(2 * time.Hour)
	s.refuse(o, record.HoldExpired) // checked before the amount, after the flags
	lock(record.Frozen, 0)
	s.refuse(o, record.AccountLocked)
	s.accept(s.hold("alice", "carol", 1, time.Hour)) // the first has ended
	second := s.hold("alice", "carol", 1000, time.Hour)
	second.Limits = &ledger.Limits{PerOp: ron(999), OpenHolds: 1}
	s.refuse(second, record.LimitOp)
	second.Limits = &ledger.Limits{OpenHolds: 1}
	s.refuse(second, record.LimitHolds)
	second.Limits = nil
	s.refuse(second, record.InsufficientFunds)
}

// malformed: a malformed op is an error, and no op of the call is done.
func malformed(s *suite) {
	good := ledger.Op{Code: record.OpIssue, To: "alice", Asset: "ron", Amount: ron(1), Nonce: 1}
	change := func(fn func(*ledger.Op)) ledger.Op {
		o := ledger.Op{Code: record.OpTransfer, From: "alice", To: "bob", Asset: "ron", Amount: ron(1), Nonce: 1}
		fn(&o)
		return o
	}
	before := s.head()
	for what, bad := range map[string]ledger.Op{
		"no code":                change(func(o *ledger.Op) { o.Code = 0 }),
		"a code not of callers":  change(func(o *ledger.Op) { o.Code = record.OpExpire }),
		"amount zero":            change(func(o *ledger.Op) { o.Amount = engines.Amount{} }),
		"pays itself":            change(func(o *ledger.Op) { o.To = "alice" }),
		"no payer":               change(func(o *ledger.Op) { o.From = "" }),
		"a name out of grammar":  change(func(o *ledger.Op) { o.To = "b ob" }),
		"an asset likewise":      change(func(o *ledger.Op) { o.Asset = "Ron" }),
		"from issuance":          change(func(o *ledger.Op) { o.From = "sys:issue:ron" }),
		"to issuance":            change(func(o *ledger.Op) { o.To = "sys:issue:ron" }),
		"another's issuance":     change(func(o *ledger.Op) { o.To = "sys:issue:gold" }),
		"a long memo":            change(func(o *ledger.Op) { o.Memo = strings.Repeat("m", record.MaxMemo+1) }),
		"a hold of no time":      change(func(o *ledger.Op) { o.Code = record.OpHold }),
		"a hold for ever":        change(func(o *ledger.Op) { o.Code, o.ExpiresIn = record.OpHold, 32*24*time.Hour }),
		"a key in a batch":       batchOf(change(func(o *ledger.Op) { o.Dedupe.Key = "k" })),
		"more ops than a call's": {Code: record.OpBatch, Ops: slices.Repeat([]ledger.Op{good}, ledger.MaxOps)},
		"a batch in a batch":     batchOf(batchOf(good)),
		"a bad op in a batch":    batchOf(good, change(func(o *ledger.Op) { o.To = "alice" })),
		"decimals beyond 18":     {Code: record.OpScale, Asset: "gold", Amount: ron(engines.MaxDecimals + 1)},
		"decimals in a batch":    batchOf(ledger.Op{Code: record.OpScale, Asset: "gold"}),
		"an asset in a batch":    {Code: record.OpBatch, Ops: []ledger.Op{{Code: record.OpAsset, Asset: "gold"}}},
		"a batch of none":        {Code: record.OpBatch},
	} {
		_, err := s.Client.Commit(s.Context(), []ledger.Op{good, bad})
		if e := (*ledger.OpError)(nil); !errors.As(err, &e) || e.Index != 1 {
			s.Errorf("%s: %v, want an OpError of op 1", what, err)
		}
	}
	for what, ops := range map[string][]ledger.Op{
		"no posting": nil, "too many": slices.Repeat([]ledger.Op{good}, ledger.MaxPostings+1),
	} {
		_, err := s.Client.Settle(s.Context(), ledger.Once{Domain: "d", ID: "i"}, ops)
		if e := (*ledger.OpError)(nil); !errors.As(err, &e) {
			s.Errorf("a settlement of %s: %v, want an OpError", what, err)
		}
	}
	if s.head() != before {
		s.Fatal("a malformed call was done in part")
	}
}

// nonces: each number once, in order; or, where it is allowed, with bounded gaps.
func nonces(s *suite) {
	s.accept(s.issue("alice", 100))
	if v, err := s.Client.Account(s.Context(), "alice"); err != nil || !v.Known || v.LastNonce != 0 ||
		!v.LastTx.IsZero() {
		s.Fatalf("%+v, %v", v, err)
	}
	one := s.accept(s.transfer("alice", "bob", 1))
	two := s.accept(s.hold("alice", "bob", 1, time.Hour))
	o := s.burn("alice", 1) // 3: nonces count across ops
	again := o
	again.Nonce = 2
	if r := s.refuse(again, record.NonceReused); r.Expected != 3 || r.Committed != two.TxID {
		s.Fatalf("%+v, want %s", r, two.TxID)
	}
	again.Nonce = 1
	if r := s.refuse(again, record.NonceReused); r.Expected != 3 || !r.Committed.IsZero() {
		s.Fatalf("%+v: record %s is not the last", r, one.TxID)
	}
	v, err := s.Client.Account(s.Context(), "alice")
	if err != nil || v.LastNonce != 2 || v.LastTx != two.TxID {
		s.Fatalf("%+v, %v", v, err)
	}
	s.accept(ledger.Op{Code: record.OpAsset, Asset: "gold"})
	// the issuer's own sequence
	s.accept(ledger.Op{Code: record.OpIssue, To: "alice", Asset: "gold", Amount: ron(5), Nonce: 1})
	gold := o
	gold.Code, gold.To, gold.Asset = record.OpTransfer, "bob", "gold"
	s.accept(gold) // 3: nonces count across assets
	o.Nonce = 10
	s.refuse(o, record.NonceGap)
	o.Limits = &ledger.Limits{Monotonic: true, NonceSpan: 6}
	s.refuse(o, record.NonceGap)
	o.Limits = &ledger.Limits{Monotonic: true, NonceSpan: 7}
	s.accept(o)
	o.Nonce = 9
	if r := s.refuse(o, record.NonceReused); r.Expected != 11 {
		s.Fatalf("%+v", r)
	}
	o.Nonce = math.MaxUint64
	s.refuse(o, record.NonceGap)
	o.Nonce, o.Limits = 0, nil // the next one
	if r := s.accept(o); r.Nonce != 11 {
		s.Fatalf("%+v, want the nonce 11", r)
	}
	batch := ledger.Op{Code: record.OpBatch, Ops: []ledger.Op{o, s.burn("alice", 1), o}}
	batch.Ops[1].Nonce = 13
	out, err := s.Client.Commit(s.Context(), []ledger.Op{batch})
	if err != nil || len(out[0].Results) != 3 || out[0].Results[0].Receipt.Nonce != 12 ||
		out[0].Results[2].Receipt.Nonce != 14 {
		s.Fatalf("%+v, %v, want the nonces 12 to 14", out, err)
	}
	poor := o
	poor.Amount = ron(1 << 40)
	s.refuse(poor, record.InsufficientFunds) // and takes none
	if r := s.accept(o); r.Nonce != 15 {
		s.Fatalf("%+v, want the nonce 15", r)
	}
}

// limits are inclusive; a limit of zero is no limit.
func limits(s *suite) {
	at := &ledger.Limits{PerOp: ron(50), Daily: ron(80), AccountTotal: ron(100)}
	issue := func(to string, n uint64) ledger.Op {
		return ledger.Op{
			Code:   record.OpIssue,
			To:     to,
			Asset:  "ron",
			Amount: ron(n),
			Limits: at,
			Nonce:  s.nonces["sys:issue:ron"] + 1,
		}
	}
	s.refuse(issue("alice", 51), record.LimitOp)
	s.accept(issue("alice", 50))
	s.nonces["sys:issue:ron"]++
	s.refuse(issue("alice", 31), record.LimitDaily) // an issue counts on the issuance account's own day
	s.accept(issue("alice", 30))
	s.nonces["sys:issue:ron"]++
	at = &ledger.Limits{AccountTotal: ron(100)}
	s.refuse(issue("alice", 21), record.LimitTotal)
	hold := s.hold("bob", "alice", 20, time.Hour)
	s.accept(s.issue("bob", 20))
	s.accept(hold)
	s.refuse(issue("alice", 1), record.LimitTotal) // what is set aside for alice counts
	s.nonces["sys:issue:ron"] = 3
	huge := ledger.Op{
		Code:   record.OpIssue,
		To:     "rich",
		Asset:  "ron",
		Amount: engines.AmountOf(math.MaxUint64, math.MaxUint64-50),
		Nonce:  4,
	}
	s.refuse(huge, record.LimitDaily) // the day's own counter would run over
	s.clock.Advance(24 * time.Hour)
	s.refuse(huge, record.LimitTotal) // now the sum of all that was issued would
	huge.Amount = engines.AmountOf(1<<63, 0)
	s.accept(huge)
	s.accept(s.hold("bob", "alice", 1, time.Hour)) // the first has ended
	total := &ledger.Limits{OpenHolds: 1}
	second := s.hold("alice", "bob", 1, time.Hour)
	second.Limits = total
	if r := s.refuse(second, record.LimitHolds); r.Limit != ledger.LimitOpenHolds {
		s.Fatalf("%+v", r)
	}
}

// decimals are set once, and declare an asset that is not known.
func decimals(s *suite) {
	scale := func(asset string, n uint64) ledger.Op {
		return ledger.Op{Code: record.OpScale, Asset: asset, Amount: ron(n)}
	}
	shown := func(want string) {
		s.Helper()
		list, err := s.Client.Assets(s.Context())
		s.must(err)
		text := ""
		for _, a := range list {
			text += fmt.Sprint(a.Asset, ":", a.Decimals, " ")
			if !a.Scaled {
				text += "(never set) "
			}
		}
		if text != want {
			s.Fatalf("%s, want %s", text, want)
		}
	}
	s.accept(s.issue("alice", 100))
	shown("ron:0 (never set) ")
	set := s.accept(scale("ron", 2))
	if set.Op != record.OpScale || set.Asset != "ron" || set.Amount != ron(2) || set.From != "" {
		s.Fatalf("%+v", set)
	}
	if out := s.one(scale("ron", 2)); !out.Replayed || out.Receipt.TxID != set.TxID {
		s.Fatalf("again: %+v", out)
	}
	for _, other := range []uint64{0, 1, 3, 18} {
		s.refuse(scale("ron", other), record.DecimalsSet)
	}
	s.accept(scale("eur", engines.MaxDecimals))
	s.accept(scale("yen", 0))
	s.refuse(scale("yen", 2), record.DecimalsSet) // none are decimals, too
	late := scale("gold", 2)
	late.ValidUntil = 1
	s.refuse(late, record.Expired)
	shown("ron:2 eur:18 yen:0 ")
	s.accept(ledger.Op{Code: record.OpIssue, To: "alice", Asset: "eur", Amount: ron(5), Nonce: 1})
	s.accept(s.issue("alice", 1)) // amounts stay minor units
	if s.Reopen != nil {
		s.Rig = s.Reopen()
	}
	shown("ron:2 eur:18 yen:0 ")
	s.refuse(scale("eur", 2), record.DecimalsSet)
}

// batchOf returns a batch of ops.
func batchOf(ops ...ledger.Op) ledger.Op { return ledger.Op{Code: record.OpBatch, Ops: ops} }
