package ledger

import (
	"cmp"
	"fmt"

	"ronbox/engines"
	"ronbox/engines/ledger/tables"
	"ronbox/store"
)

// Rows that are not in memory are read from the file as the group sees it, once.

// loadRecent takes over the rows that the file keeps apart: they are newer than those of their tables, and stay in memory until they go there.
// The error is of a row that does not decode: the others are taken over, and nobody reads what it stood before.
func (b *books) loadRecent(r store.Reader) (err error) {
	fault := func(k tables.StateKey, wrong error) {
		err = cmp.Or(err, wrong)
		if k == (tables.StateKey{}) {
			b.nobody = wrong
			return
		}
		if b.broken == nil {
			b.broken = map[tables.StateKey]error{}
		}
		b.broken[k] = wrong
	}
	for k, row := range tables.Recents(r, fault) {
		if k.Asset == 0 {
			b.accounts.load(k.Account, row.Account, row.Account.LastSeq)
		} else {
			b.states.load(k, balance{Balance: row.Balance}, row.Balance.State.LastSeq)
		}
	}
	return err
}

// fileBalance is a balance as its table in the file has it, for whoever did not find it in memory before r began.
func (b *books) fileBalance(r store.Reader, k tables.StateKey) tables.Balance {
	b.mustHold(k)
	v, known := tables.GetBalance(r, k.Account, k.Asset)
	if !known {
		tables.MustLack(r, k)
	}
	return v
}

// fileAccount is an account as its table in the file has it, for whoever did not find it in memory before r began. Who has a ref was opened, and
// who was opened has a row, in memory or there; a boot brings those that are not written yet.
func (b *books) fileAccount(r store.Reader, ref uint64) tables.Account {
	b.mustHold(tables.StateKey{Account: ref})
	v, known := tables.GetAccount(r, ref)
	if !known && b.loaded.Load() {
		panic(&store.RowError{Bucket: "ledger/state", Cause: fmt.Errorf("account %d has no row", ref)})
	}
	return v
}

// mustHold ends the view if the newest row of k is damaged, or may be: its table has an older one.
func (b *books) mustHold(k tables.StateKey) {
	if err := cmp.Or(b.nobody, b.broken[k]); err != nil {
		panic(err)
	}
}

func (b *books) state(r store.Reader, k tables.StateKey) *cell[tables.StateKey, balance] {
	c := b.states.find(k)
	if c == nil {
		c = b.states.enter(k, balance{Balance: b.fileBalance(r, k)})
	}
	return c
}

func (b *books) account(r store.Reader, ref uint64) *cell[uint64, tables.Account] {
	c := b.accounts.find(ref)
	if c == nil {
		c = b.accounts.enter(ref, b.fileAccount(r, ref))
	}
	return c
}

// opened is the record that opened an account, 0 if the file does not know.
func (b *books) opened(r store.Reader, ref uint64) uint64 {
	if c := b.accounts.find(ref); c != nil {
		return c.cur.v.OpenedSeq
	}
	a, _ := tables.GetAccount(r, ref)
	return a.OpenedSeq
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

func (b *books) meter(r store.Reader, k tables.MovedKey) *cell[tables.MovedKey, engines.Amount] {
	c := b.moved.find(k)
	if c == nil {
		c = b.moved.enter(k, tables.GetMoved(r, k))
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

// movedDrops is how many rows of days that are over a command takes out that writes some of today: more than it adds as a rule.
const movedDrops = 8

// putMoved writes what the running command has changed of what tokens moved, and sweeps days that are over.
func (b *books) putMoved(r store.Reader, w *store.Writes, today uint32) {
	var last *cell[tables.MovedKey, engines.Amount]
	for _, u := range b.moved.undo {
		if u.c != last {
			tables.PutMoved(w, u.c.key, u.c.cur.v)
			last = u.c
		}
	}
	if last != nil {
		tables.DropMoved(r, w, today, movedDrops)
	}
}
