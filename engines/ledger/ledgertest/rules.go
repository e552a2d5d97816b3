package ledgertest

import (
	"math/big"
	"strings"

	"ronbox/engines"
	"ronbox/engines/ledger"
	"ronbox/engines/ledger/record"
)

// move is one op on its way through the checks.
type move struct {
	ledger.Op
	within
	at       int64
	day      uint32
	from, to string // debited and credited; "" where the op has none
	sum      *big.Int
	hold     hold
}

const nsPerDay = 24 * 60 * 60 * 1e9

// judge takes the checks in their fixed order; the first that refuses is the answer.
func (b *books) judge(m *move) *ledger.Reject {
	for _, check := range []func(*move) *ledger.Reject{
		checkTime, b.checkParties, b.checkNonce, checkAmount, b.checkHold, b.checkFunds, b.checkDay, b.checkReceiver,
	} {
		if r := check(m); r != nil {
			return r
		}
	}
	return nil
}

func refuse(code record.Result) *ledger.Reject { return &ledger.Reject{Code: code} }

func checkTime(m *move) *ledger.Reject {
	if m.ValidUntil != 0 && m.at > m.ValidUntil {
		return refuse(record.Expired)
	}
	return nil
}

// checkParties finds out who pays and who is paid, and whether they may.
func (b *books) checkParties(m *move) *ledger.Reject {
	if m.Code == record.OpCapture || m.Code == record.OpRelease {
		h, ok := b.holds[m.Hold.Seq()]
		if !ok || b.entries[m.Hold.Seq()-1].receipt.TxID != m.Hold {
			return refuse(record.HoldUnknown)
		}
		m.hold, m.from, m.to, m.Asset = h, h.from, h.to, h.asset
	}
	switch _, known := b.accounts[m.From]; {
	case m.Code == record.OpFlags && !known && strings.HasPrefix(m.From, "sys:issue:"):
		return refuse(record.AssetUnknown)
	case m.Code == record.OpAsset, m.Code == record.OpFlags:
		return nil
	}
	if _, ok := b.assets[m.Asset]; !ok {
		return refuse(record.AssetUnknown)
	}
	switch m.Code {
	case record.OpIssue:
		m.from, m.to = engines.IssuanceAccount(m.Asset), m.To
	case record.OpBurn:
		m.from, m.to = m.From, engines.IssuanceAccount(m.Asset)
	case record.OpTransfer, record.OpHold:
		m.from, m.to = m.From, m.To
	case record.OpRelease:
		return nil
	}
	if b.accounts[m.from].flags&(record.Frozen|record.NoDebit|record.Closed) != 0 ||
		b.accounts[m.to].flags&(record.Frozen|record.NoCredit|record.Closed) != 0 {
		return refuse(record.AccountLocked)
	}
	return nil
}

// spends tells the ops that take a nonce of the debited account.
func spends(op record.Op) bool {
	return op == record.OpIssue || op == record.OpTransfer || op == record.OpBurn || op == record.OpHold
}

func (b *books) checkNonce(m *move) *ledger.Reject {
	if !spends(m.Code) || m.internal && m.Nonce == 0 {
		return nil
	}
	a, span := b.accounts[m.from], uint64(1)
	if m.Limits != nil && m.Limits.Monotonic {
		span = m.Limits.NonceSpan
	}
	switch {
	case m.Nonce <= a.nonce:
		r := &ledger.Reject{Code: record.NonceReused, Expected: a.nonce + 1}
		if m.Nonce == a.nonce && a.nonced != 0 {
			r.Committed = b.entries[a.nonced-1].receipt.TxID
		}
		return r
	case m.Nonce-a.nonce > span:
		return &ledger.Reject{Code: record.NonceGap, Expected: a.nonce + 1}
	}
	return nil
}

// over tells whether n is above a limit; a limit of zero is none.
func over(n *big.Int, limit engines.Amount) bool { return !limit.IsZero() && n.Cmp(integer(limit)) > 0 }

func checkAmount(m *move) *ledger.Reject {
	if m.sum = integer(m.Amount); spends(m.Code) && m.Limits != nil && over(m.sum, m.Limits.PerOp) {
		return &ledger.Reject{Code: record.LimitOp, Limit: ledger.LimitPerOp}
	}
	return nil
}

func (b *books) checkHold(m *move) *ledger.Reject {
	switch m.Code {
	case record.OpHold:
		if m.Limits != nil && m.Limits.OpenHolds != 0 && uint64(b.open) >= m.Limits.OpenHolds {
			return &ledger.Reject{Code: record.LimitHolds, Limit: ledger.LimitOpenHolds}
		}
	case record.OpCapture, record.OpRelease:
		if m.hold.closed != record.Accepted {
			return refuse(m.hold.closed)
		}
		if m.at >= m.hold.expires {
			return refuse(record.HoldExpired)
		}
	}
	return nil
}

// checkFunds holds what is to be paid against what is there. An issuance account has no floor.
func (b *books) checkFunds(m *move) *ledger.Reject {
	if m.Code == record.OpCapture {
		if m.sum.Sign() == 0 {
			m.sum = m.hold.amount
		}
		if m.sum.Cmp(m.hold.amount) > 0 {
			return refuse(record.InsufficientFunds)
		}
	}
	if m.Code == record.OpTransfer || m.Code == record.OpBurn || m.Code == record.OpHold {
		from := b.of(acctAsset{Account: m.from, Asset: m.Asset})
		if m.from != engines.IssuanceAccount(m.Asset) && from.available().Cmp(m.sum) < 0 {
			return refuse(record.InsufficientFunds)
		}
	}
	return nil
}

// checkDay counts what leaves an account in one day of UTC, for which a capture was counted when it was held, and what a token moves.
func (b *books) checkDay(m *move) *ledger.Reject {
	m.day = uint32(m.at / nsPerDay)
	if spends(m.Code) {
		spent := plus(b.of(acctAsset{Account: m.from, Asset: m.Asset}).spentToday(m.day), m.sum)
		if m.Limits != nil && over(spent, m.Limits.Daily) || spent.Cmp(maxAmount) > 0 {
			return &ledger.Reject{Code: record.LimitDaily, Limit: ledger.LimitDaily}
		}
	}
	if m.metered() && over(plus(b.movedBy(m), m.sum), m.Daily) {
		return &ledger.Reject{Code: record.LimitDaily, Limit: ledger.LimitTokenDaily}
	}
	return nil
}

// metered tells the ops that count against a daily ceiling of their token.
func (m *move) metered() bool {
	return !m.Daily.IsZero() && (spends(m.Code) || m.Code == record.OpCapture)
}

// tokenDay is what m counts against.
func (m *move) tokenDay() tokenDay {
	if m.flags&record.FlagInner != 0 {
		return tokenDay{m.batchCap, m.Asset, m.day}
	}
	return tokenDay{m.CapID, m.Asset, m.day}
}

func (b *books) movedBy(m *move) *big.Int {
	if sum := b.moved[m.tokenDay()]; sum != nil {
		return sum
	}
	return new(big.Int)
}

// checkReceiver sees that the credited account may hold what it would get, and that no counter runs over.
func (b *books) checkReceiver(m *move) *ledger.Reject {
	if !spends(m.Code) {
		return b.checkCounters(m)
	}
	to := b.of(acctAsset{Account: m.to, Asset: m.Asset})
	total := new(big.Int).Add(to.balance(), to.coming)
	total.Add(total, m.sum)
	if m.to != engines.IssuanceAccount(m.Asset) && m.Limits != nil && over(total, m.Limits.AccountTotal) {
		return &ledger.Reject{Code: record.LimitTotal, Limit: ledger.LimitAccountTotal}
	}
	return b.checkCounters(m)
}

func (b *books) checkCounters(m *move) *ledger.Reject {
	if m.from == "" || m.to == "" || m.Code == record.OpRelease {
		return nil
	}
	from, to := b.of(acctAsset{Account: m.from, Asset: m.Asset}), b.of(acctAsset{Account: m.to, Asset: m.Asset})
	for _, counter := range []*big.Int{to.credits, from.debits, to.coming, from.held} {
		if new(big.Int).Add(counter, m.sum).Cmp(maxAmount) > 0 {
			return &ledger.Reject{Code: record.LimitTotal, Limit: ledger.LimitAccountTotal}
		}
	}
	return nil
}
