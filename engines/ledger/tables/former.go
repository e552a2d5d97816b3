package tables

import "ronbox/store"

// Stored are the rows of the file as Former gives them: the newer one of those that have two.
type Stored struct{ Reader store.Reader }

var _ Former = Stored{}

// Balance reads the balance k.
func (s Stored) Balance(k StateKey) Balance {
	b, recent := recentBalances.Get(s.Reader, k)
	if !recent {
		b, _ = balances.Get(s.Reader, k)
	}
	return b
}

// Account reads the account ref.
func (s Stored) Account(ref uint64) Account {
	a, recent := recentAccounts.Get(s.Reader, StateKey{ref, 0})
	if !recent {
		a, _ = GetAccount(s.Reader, ref)
	}
	return a
}

// Hold reads the hold of record seq.
func (s Stored) Hold(seq uint64) (Hold, bool) { return GetHold(s.Reader, seq) }

// Once reads a permanent id or a guard.
func (s Stored) Once(k OnceKey) (Once, bool) { return GetOnce(s.Reader, k) }
