package ledger

import (
	"ronbox/engines"
	"ronbox/engines/ledger/record"
	"ronbox/engines/ledger/tables"
)

// The rules judge one op on values and change those values. They use no state of the ledger, no
// clock and no I/O. Only a decider calls them.

// nsPerDay is a day of ledger time: daily limits count by UTC days.
const nsPerDay = 24 * 60 * 60 * 1_000_000_000

// move is one op with the values that its rules need. The sides point to copies that the op
// changes.
type move struct {
	code     record.Op
	at       int64
	amount   engines.Amount // a capture of 0 takes the whole hold
	nonce    uint64
	unnonced bool // of a settlement: nonce 0 means that the op has no nonce
	until    int64
	limits   *Limits
	daily    engines.Amount // most that the token may move in a day; zero: no bound
	moved    engines.Amount // the amount that the token has moved today; zero if it has no bound
	asset    uint32         // 0: not declared
	from, to side
	hold     *tables.Hold // capture, release, expire: nil is not known
	past     bool         // the hold is not known, and its record is in a closed period
	open     uint64       // holds of the whole ledger
}

// side is one account of a move. An account that is not there yet is one with zero values.
type side struct {
	account *tables.Account
	state   *record.State
	issues  bool // it is the asset's issuance account: it alone may owe
}

// spends reports whether an op takes a nonce and counts against the day of the debited account.
func spends(op record.Op) bool {
	return op == record.OpIssue || op == record.OpTransfer || op == record.OpBurn || op == record.OpHold
}

// resolves reports whether an op ends a hold.
func resolves(op record.Op) bool {
	return op == record.OpCapture || op == record.OpRelease || op == record.OpExpire
}

// judge makes the checks in their fixed order. It returns the first refusal, or nil if all checks
// pass. Keys and references are looked up before.
func (m *move) judge() *Reject {
	if m.until != 0 && m.at > m.until {
		return refuse(record.Expired)
	}
	if r := m.judgeParties(); r != nil || !m.code.MovesMoney() {
		return r
	}
	if r := m.judgeNonce(); r != nil {
		return r
	}
	if spends(m.code) && m.limits != nil && over(m.amount, m.limits.PerOp) {
		return &Reject{Code: record.LimitOp, Limit: LimitPerOp}
	}
	if r := m.judgeHold(); r != nil {
		return r
	}
	if r := m.judgeFunds(); r != nil {
		return r
	}
	if r := m.judgeDay(); r != nil {
		return r
	}
	return m.judgeReceiver()
}

// The words of Reject.Limit.
const (
	LimitPerOp        = "per_op"
	LimitDaily        = "daily"
	LimitTokenDaily   = "token_daily"
	LimitAccountTotal = "account_total"
	LimitOpenHolds    = "open_holds"
)

func refuse(code record.Result) *Reject { return &Reject{Code: code} }

// over reports whether n is above a limit. A limit of zero is no limit.
func over(n, limit engines.Amount) bool { return !limit.IsZero() && limit.Less(n) }

// Flags that forbid debits and credits.
const (
	barsDebit  = record.Frozen | record.NoDebit | record.Closed
	barsCredit = record.Frozen | record.NoCredit | record.Closed
)

func (m *move) judgeParties() *Reject {
	switch {
	case m.code == record.OpAsset || m.code == record.OpScale || m.code == record.OpFlags:
		return nil
	case resolves(m.code) && m.past:
		return refuse(record.PeriodClosed)
	case resolves(m.code) && m.hold == nil:
		return refuse(record.HoldUnknown)
	case m.code == record.OpRelease || m.code == record.OpExpire:
		return nil
	case m.asset == 0:
		return refuse(record.AssetUnknown)
	case m.from.account.Flags.Has(barsDebit):
		return &Reject{Code: record.AccountLocked, Party: "from"}
	case m.to.account.Flags.Has(barsCredit):
		return &Reject{Code: record.AccountLocked, Party: "to"}
	}
	return nil
}

func (m *move) judgeNonce() *Reject {
	if !spends(m.code) || m.unnonced && m.nonce == 0 {
		return nil
	}
	last, span := m.from.account.LastNonce, uint64(1)
	if m.limits != nil && m.limits.Monotonic {
		span = m.limits.NonceSpan
	}
	switch {
	case m.nonce <= last:
		return &Reject{Code: record.NonceReused, Expected: last + 1}
	case m.nonce-last > span:
		return &Reject{Code: record.NonceGap, Expected: last + 1}
	}
	return nil
}

func (m *move) judgeHold() *Reject {
	switch {
	case m.code == record.OpHold && m.limits != nil && m.limits.OpenHolds != 0 && m.open >= m.limits.OpenHolds:
		return &Reject{Code: record.LimitHolds, Limit: LimitOpenHolds}
	case !resolves(m.code):
		return nil
	case m.hold.Closed == record.OpCapture || m.hold.Closed == record.OpRelease:
		return refuse(record.HoldClosed)
	case m.hold.Closed == record.OpExpire, m.code != record.OpExpire && m.at >= m.hold.Expires:
		return refuse(record.HoldExpired)
	case m.code == record.OpExpire && m.at < m.hold.Expires:
		return refuse(record.HoldClosed) // the sweep's own slip; no caller asks for it
	}
	return nil
}

// judgeFunds compares the amount with the hold or with the available balance.
func (m *move) judgeFunds() *Reject {
	if m.code == record.OpCapture {
		if m.amount.IsZero() {
			m.amount = m.hold.Amount
		}
		if m.hold.Amount.Less(m.amount) {
			return refuse(record.InsufficientFunds)
		}
		return nil
	}
	if !spends(m.code) || m.from.issues {
		return nil
	}
	if available, _ := m.from.state.Available(); available.Less(m.amount) {
		return refuse(record.InsufficientFunds)
	}
	return nil
}

// judgeDay checks the ceilings of a UTC day: of the account, where a capture was counted with its
// hold, and of the token.
func (m *move) judgeDay() *Reject {
	if spends(m.code) {
		spent, ok := spentOn(m.from.state, m.day()).Add(m.amount)
		if !ok || m.limits != nil && over(spent, m.limits.Daily) {
			return &Reject{Code: record.LimitDaily, Limit: LimitDaily}
		}
	}
	if m.metered() {
		if moved, ok := m.moved.Add(m.amount); !ok || over(moved, m.daily) {
			return &Reject{Code: record.LimitDaily, Limit: LimitTokenDaily}
		}
	}
	return nil
}

// metered reports whether the op counts against a daily ceiling of its token.
func (m *move) metered() bool {
	return !m.daily.IsZero() && (spends(m.code) || m.code == record.OpCapture)
}

func (m *move) day() uint32 { return dayOf(m.at) }

func dayOf(at int64) uint32 { return uint32(at / nsPerDay) }

// spentOn returns the amount that counts against the ceiling of a day so far.
func spentOn(s *record.State, day uint32) engines.Amount {
	if s.Day != day {
		return engines.Amount{}
	}
	return s.DayDebits
}

// judgeReceiver checks the limit of the credited account, and that no counter overflows.
func (m *move) judgeReceiver() *Reject {
	if m.code == record.OpRelease || m.code == record.OpExpire {
		return nil
	}
	from, to := m.from.state, m.to.state
	if spends(m.code) && !m.to.issues && m.limits != nil && !m.limits.AccountTotal.IsZero() {
		balance, _ := to.Balance()
		total, ok := balance.Add(to.CreditsHeld)
		if ok {
			total, ok = total.Add(m.amount)
		}
		if !ok || m.limits.AccountTotal.Less(total) {
			return &Reject{Code: record.LimitTotal, Limit: LimitAccountTotal}
		}
	}
	if !fits(to.CreditsPosted, m.amount) || !fits(from.DebitsPosted, m.amount) || !fits(to.CreditsHeld, m.amount) ||
		!fits(from.DebitsHeld, m.amount) {
		return &Reject{Code: record.LimitTotal, Limit: LimitAccountTotal}
	}
	return nil
}

func fits(a, b engines.Amount) bool {
	_, ok := a.Add(b)
	return ok
}

// post applies an accepted move to both states and the nonce. It returns the amount of the record:
// of a release or an expiry, the amount of the hold.
func (m *move) post(seq uint64) engines.Amount {
	from, to := m.from.state, m.to.state
	before := m.balances()
	amount := m.amount
	switch m.code {
	case record.OpIssue, record.OpTransfer, record.OpBurn:
		from.DebitsPosted, to.CreditsPosted = plus(from.DebitsPosted, amount), plus(to.CreditsPosted, amount)
		m.spend()
	case record.OpHold:
		from.DebitsHeld, to.CreditsHeld = plus(from.DebitsHeld, amount), plus(to.CreditsHeld, amount)
		m.spend()
	case record.OpCapture:
		from.DebitsPosted, to.CreditsPosted = plus(from.DebitsPosted, amount), plus(to.CreditsPosted, amount)
		m.settle(amount)
	case record.OpRelease, record.OpExpire:
		m.settle(engines.Amount{})
		amount = m.hold.Amount
	}
	from.LastSeq, to.LastSeq = seq, seq
	if m.nonce != 0 && spends(m.code) {
		a := m.from.account
		a.LastNonce, a.LastNonceSeq, a.LastSeq = m.nonce, seq, seq
	}
	if resolves(m.code) {
		m.hold.Closed, m.hold.Closing = m.code, seq
	}
	m.assertConserved(before)
	return amount
}

// spend counts the amount against the payer's day.
func (m *move) spend() {
	s := m.from.state
	s.DayDebits, s.Day = plus(spentOn(s, m.day()), m.amount), m.day()
}

// settle ends the hold, of which taken is paid; the rest goes back, to the day's ceiling too while
// it is still the day of the hold.
func (m *move) settle(taken engines.Amount) {
	from, to := m.from.state, m.to.state
	from.DebitsHeld, to.CreditsHeld = minus(from.DebitsHeld, m.hold.Amount), minus(to.CreditsHeld, m.hold.Amount)
	if held := uint32(m.hold.At / nsPerDay); held == m.day() && from.Day == held {
		from.DayDebits = minus(from.DayDebits, minus(m.hold.Amount, taken))
	}
}

// totals are the posted and the held sums of both sides, debits less credits: an op must leave them
// as they are.
type totals struct{ debits, credits, debitsHeld, creditsHeld engines.Amount }

func (m *move) balances() totals {
	from, to := m.from.state, m.to.state
	return totals{from.DebitsPosted, to.CreditsPosted, from.DebitsHeld, to.CreditsHeld}
}

// assertConserved panics if the op debited another sum than it credited: only a bug can, and it
// must not reach the journal.
func (m *move) assertConserved(was totals) {
	is := m.balances()
	if minus(is.debits, was.debits) != minus(is.credits, was.credits) {
		panic("ledger: debits and credits of an op differ")
	}
	if up(is.debitsHeld, was.debitsHeld) != up(is.creditsHeld, was.creditsHeld) {
		panic("ledger: held debits and held credits of an op differ")
	}
	if available, ok := m.from.state.Available(); !m.from.issues && !ok {
		panic("ledger: an account would hold less than nothing: " + available.String())
	}
}

// up is b-a or a-b, whichever there is, and which.
func up(a, b engines.Amount) (d struct {
	by   engines.Amount
	more bool
}) {
	if d.by, d.more = a.Sub(b); !d.more {
		d.by, _ = b.Sub(a)
	}
	return d
}

// plus and minus are for sums that were checked to fit.
func plus(a, b engines.Amount) engines.Amount {
	sum, ok := a.Add(b)
	if !ok {
		panic("ledger: a counter runs over")
	}
	return sum
}

func minus(a, b engines.Amount) engines.Amount {
	diff, ok := a.Sub(b)
	if !ok {
		panic("ledger: a counter runs below zero")
	}
	return diff
}
