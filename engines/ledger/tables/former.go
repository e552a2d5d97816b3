package tables

import (
	"ronbox/engines/ledger/record"
	"ronbox/store"
)

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

// MustLack ends the command or the view if the balance k, which ledger/state lacks, has been posted to by a record that the rows have seen: the
// one for which its account was opened, or the one that used the account's last nonce.
func MustLack(r store.Reader, k StateKey) {
	s, low := Stored{r}, GetFlushed(r).Seq
	a := s.Account(k.Account)
	var rec record.Record
	for _, seq := range [...]uint64{a.OpenedSeq + 1, a.LastNonceSeq} {
		if a.OpenedSeq == 0 || seq > low || !ReadRecord(r, seq, &rec) {
			continue
		}
		for i := range rec.Images {
			if im := &rec.Images[i]; im.Account == k.Account && im.Asset == k.Asset && s.Balance(k) == (Balance{}) {
				panic(wrong(bState, stateKeys().Append(nil, k), "it is not there, and record %d has posted to it", seq))
			}
		}
	}
}

// Hold reads the hold of record seq.
func (s Stored) Hold(seq uint64) (Hold, bool) { return GetHold(s.Reader, seq) }

// Once reads a permanent id or a guard.
func (s Stored) Once(k OnceKey) (Once, bool) { return GetOnce(s.Reader, k) }
