package ledger

import (
	"ronbox/engines"
	"ronbox/engines/ledger/record"
)

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
