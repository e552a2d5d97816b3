package ledger

import (
	"ronbox/engines/ledger/tables"
	"ronbox/store"
)

// Rows that are not in memory are read from the file as the group sees it, once.

// loadRecent takes over the rows that the file keeps apart: they are newer than those of their tables, and stay in memory until they go there.
func (b *books) loadRecent(r store.Reader) {
	for k, row := range tables.Recents(r) {
		if k.Asset == 0 {
			b.accounts.load(k.Account, row.Account, row.Account.LastSeq)
		} else {
			b.states.load(k, balance{Balance: row.Balance}, row.Balance.State.LastSeq)
		}
	}
}

func (b *books) state(r store.Reader, k tables.StateKey) *cell[tables.StateKey, balance] {
	c := b.states.find(k)
	if c == nil {
		v, _ := tables.GetBalance(r, k.Account, k.Asset)
		c = b.states.enter(k, balance{Balance: v})
	}
	return c
}

func (b *books) account(r store.Reader, ref uint64) *cell[uint64, tables.Account] {
	c := b.accounts.find(ref)
	if c == nil {
		v, _ := tables.GetAccount(r, ref)
		c = b.accounts.enter(ref, v)
	}
	return c
}

func (b *books) hold(r store.Reader, seq uint64) *cell[uint64, tables.Hold] {
	c := b.holds.find(seq)
	if c == nil {
		v, _ := tables.GetHold(r, seq)
		c = b.holds.enter(seq, v)
	}
	return c
}

func (b *books) once(r store.Reader, k tables.OnceKey) *cell[tables.OnceKey, tables.Once] {
	c := b.onces.find(k)
	if c == nil {
		v, _ := tables.GetOnce(r, k)
		c = b.onces.enter(k, v)
	}
	return c
}

// ref is that of an account, 0 for one that is not known.
func (b *books) ref(r store.Reader, name string) uint64 {
	c := b.names.find(name)
	if c == nil {
		v, _ := tables.Ref(r, name)
		c = b.names.enter(name, v)
	}
	return c.cur.v
}
