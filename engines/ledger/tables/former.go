package tables

import "ronbox/store"

// Stored are the rows of the file as Former gives them.
type Stored struct{ Reader store.Reader }

var _ Former = Stored{}

// Balance reads the balance k.
func (s Stored) Balance(k StateKey) Balance {
	b, _ := GetBalance(s.Reader, k.Account, k.Asset)
	return b
}

// Account reads the account ref.
func (s Stored) Account(ref uint64) Account {
	a, _ := GetAccount(s.Reader, ref)
	return a
}

// Hold reads the hold of record seq.
func (s Stored) Hold(seq uint64) (Hold, bool) { return GetHold(s.Reader, seq) }

// Once reads a permanent id or a guard.
func (s Stored) Once(k OnceKey) (Once, bool) { return GetOnce(s.Reader, k) }
