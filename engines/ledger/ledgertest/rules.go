package ledgertest

import (
	"math/big"
	"strings"
	"time"

	"ronbox/engines"
	"ronbox/engines/ledger"
	"ronbox/engines/ledger/record"
)

// checkOps refuses what no state of the ledger could take.
func checkOps(ops []ledger.Op, internal bool) error {
	count := len(ops)
	for i, o := range ops {
		if internal && o.Reference != "" {
			return &ledger.OpError{Index: i, Field: "reference", Reason: "an op of a settlement has none"}
		}
		if count += len(o.Ops); count > ledger.MaxOps {
			return &ledger.OpError{Index: i, Field: "ops", Reason: "are too many"}
		}
		if field, reason := checkOp(o, internal); field != "" {
			return &ledger.OpError{Index: i, Field: field, Reason: reason}
		}
	}
	return nil
}

func checkOp(o ledger.Op, inner bool) (field, reason string) {
	parties := map[record.Op][]string{
		record.OpIssue: {
			o.To,
		},
		record.OpBurn:     {o.From},
		record.OpTransfer: {o.From, o.To},
		record.OpHold:     {o.From, o.To},
		record.OpFlags:    {o.From},
	}
	if record.CheckMemo(o.Memo) != nil {
		return "memo", "is none"
	}
	if o.Reference != "" && (!o.Code.MovesMoney() || record.CheckReference(o.Reference) != nil) {
		return "reference", "is none, or of an op that moves no money"
	}
	single := o.Code == record.OpBatch || o.Code == record.OpAsset || o.Code == record.OpScale
	if inner && (o.Dedupe.Key != "" || single) {
		return "code", "no batch, no asset and no key of its own inside a whole"
	}
	if o.Idem != "" && record.CheckIdem(o.Idem) != nil {
		return "idem", "is none"
	}
	for _, name := range parties[o.Code] {
		if engines.CheckAccount(name) != nil {
			return "account", "is none"
		}
	}
	switch o.Code {
	case record.OpBatch:
		if len(o.Ops) == 0 {
			return "ops", "are none"
		}
		for _, inner := range o.Ops {
			if field, reason := checkOp(inner, true); field != "" {
				return "ops." + field, reason
			}
		}
	case record.OpIssue, record.OpTransfer, record.OpBurn, record.OpHold:
		return checkPayment(o)
	case record.OpAsset, record.OpScale:
		if o.Code == record.OpScale && record.CheckScale(o.Amount) != nil {
			return "amount", "is no number of decimals"
		}
		if engines.CheckAsset(o.Asset) != nil {
			return "asset", "is none"
		}
	case record.OpCapture, record.OpRelease, record.OpFlags:
	default:
		return "code", "is not for callers"
	}
	return "", ""
}

func checkPayment(o ledger.Op) (field, reason string) {
	switch {
	case o.Amount.IsZero():
		return "amount", "is zero"
	case engines.CheckAsset(o.Asset) != nil:
		return "asset", "is none"
	case o.From == o.To:
		return "to", "is the account that pays"
	case strings.HasPrefix(o.From, "sys:issue:") || strings.HasPrefix(o.To, "sys:issue:"):
		return "account", "only issue and burn move issuance accounts"
	case o.Code == record.OpHold && (o.ExpiresIn <= 0 || o.ExpiresIn > 31*24*time.Hour):
		return "expires_in", "is not above zero, or above a month"
	}
	return "", ""
}

// move is one op on its way through the checks.
type move struct {
	ledger.Op
	within
	at       int64
	day      uint32
	from, to string // debited and credited; "" where the op has none
	sum      *big.Int
	hold     hold
	guard    record.Guard // of the op as it was asked
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

// checkParties finds payer and payee, and checks their flags.
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
	case m.Code == record.OpAsset, m.Code == record.OpScale, m.Code == record.OpFlags:
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
	switch {
	case b.accounts[m.from].flags&(record.Frozen|record.NoDebit|record.Closed) != 0:
		return &ledger.Reject{Code: record.AccountLocked, Party: "from"}
	case b.accounts[m.to].flags&(record.Frozen|record.NoCredit|record.Closed) != 0:
		return &ledger.Reject{Code: record.AccountLocked, Party: "to"}
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
	if m.Nonce == 0 {
		m.Nonce = a.nonce + 1
	}
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

// over reports whether n is above a limit. A limit of zero is no limit.
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

// checkFunds compares the amount with the hold or the available balance. An issuance account has no
// floor.
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

// checkDay checks the ceilings of a UTC day: of the account, where a capture was counted with its
// hold, and of the token.
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

// checkReceiver checks the limit of the credited account, and that no counter overflows.
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
