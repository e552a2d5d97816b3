package tables

import (
	"iter"

	"ronbox/store"
)

// Rows of ledger/state lie where their keys are, so that each that changed costs a page of its own. Those that change often lie side by side
// in ledger/recent: a row there is newer than the row of the same key in ledger/state, if that has one. A running ledger has all of them in
// memory.
var (
	recentBalances = store.NewTable(bRecent, stateKeys(), fixed(balanceV1, balanceSize, putBalance, getBalance)).Summed()
	recentAccounts = store.NewTable(bRecent, stateKeys(), fixed(accountV1, accountSize, putAccount, getAccount)).Summed()
)

// PutRecentBalance writes an account in an asset beside others that change often. Its marks must have been written, or be written by the
// same command.
func PutRecentBalance(w *store.Writes, k StateKey, b Balance) { recentBalances.Put(w, k, b) }

// PutRecentAccount writes an account apart from its balances, beside others that change often.
func PutRecentAccount(w *store.Writes, account uint64, a Account) {
	recentAccounts.Put(w, StateKey{account, 0}, a)
}

// DropRecent takes a row out of those that change often: ledger/state has one as new, or gets it by the same command.
func DropRecent(w *store.Writes, k StateKey) { recentBalances.Delete(w, k) }

// Recents walks the rows that change often, in the order of the file. One that does not decode is told to fault and passed over: what it stood
// before is not to be believed. Without fault it ends the view. The disk is asked for all of them at once: a boot waits for them.
func Recents(r store.Reader, fault func(StateKey, error)) iter.Seq2[StateKey, Row] {
	return func(yield func(StateKey, Row) bool) {
		store.WarmRange(r, bRecent, nil, nil)
		stateRows(r, bRecent, StateKey{}, fault)(yield)
	}
}
