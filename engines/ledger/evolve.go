package ledger

import (
	"cmp"
	"fmt"

	"ronbox/engines"
	"ronbox/engines/ledger/record"
	"ronbox/engines/ledger/tables"
	"ronbox/store"
)

// current is the state of the books with the running command, or at a boot with the records that
// were redone. A row that is not in memory is read from the file.
type current struct {
	b *books
	r store.Reader
	a *action // the op at hand, with the cells that were found for it; nil: none
}

var _ state = (*current)(nil)

func (s *current) tip() *tip { return &s.b.cur }

func (s *current) ref(name string) uint64 { return s.b.ref(s.r, name) }

func (s *current) moved(k tables.MovedKey) engines.Amount { return s.b.moved.cur(s.b.meter(s.r, k)).v }

// party returns the party of the op at hand with a ref, or nil. Its cells are found once: decide
// reads them and evolve changes them.
func (s *current) party(ref uint64) *party {
	switch {
	case s.a == nil || ref == 0:
	case s.a.from.ref == ref:
		return &s.a.from
	case s.a.to.ref == ref:
		return &s.a.to
	}
	return nil
}

func (s *current) balance(k tables.StateKey) *cell[tables.StateKey, tables.Balance] {
	p := s.party(k.Account)
	if p == nil {
		return s.b.state(s.r, k)
	}
	if p.state.holds(k) {
		return p.state
	}
	if p.rows != nil && s.a.asset != nil && s.a.asset.ref == k.Asset {
		s.b.states.bring(k, p.rows.balance, p.rows.balanceAt)
	}
	p.state = s.b.state(s.r, k)
	return p.state
}

func (s *current) account(ref uint64) *cell[uint64, tables.Account] {
	p := s.party(ref)
	if p == nil {
		return s.b.account(s.r, ref)
	}
	if p.account.holds(ref) {
		return p.account
	}
	if p.rows != nil {
		s.b.accounts.bring(ref, p.rows.account, p.rows.accountAt)
	}
	p.account = s.b.account(s.r, ref)
	return p.account
}

// Balance is an account in an asset.
func (s *current) Balance(k tables.StateKey) tables.Balance {
	if k.Asset == 0 {
		return tables.Balance{}
	}
	return s.b.states.cur(s.balance(k)).v
}

// Account is an account apart from its balances.
func (s *current) Account(ref uint64) tables.Account { return s.b.accounts.cur(s.account(ref)).v }

// Hold is a hold.
func (s *current) Hold(seq uint64) (tables.Hold, bool) {
	h := s.b.holds.cur(s.b.hold(s.r, seq)).v
	return h, h.From != 0
}

// held is Hold for the id of a caller. A hold of which there is the record must have a row, and so
// must one that is in the base. Of a hold that ended in a closed period there may be a row.
func (s *current) held(seq uint64) (tables.Hold, bool) {
	if seq == 0 || seq > s.b.cur.Seq {
		return tables.Hold{}, false
	}
	h, known := s.Hold(seq)
	if past := s.b.cur.horizon; seq <= past.Seq {
		known = known && (h.Open() || h.Closing > past.Seq)
		if _, open := tables.BaseAt(s.r, past.Generation).Hold(seq); open != known {
			panic(&store.RowError{Bucket: "ledger/holds", Cause: fmt.Errorf("hold %d: not as the base has it", seq)})
		}
		return h, known
	}
	var rec record.Record
	if raw := s.b.run.raw(seq); !known && raw != nil && rec.Decode(raw) == nil && rec.Op == record.OpHold {
		panic(&store.RowError{Bucket: "ledger/holds", Cause: fmt.Errorf("hold %d has no row", seq)})
	}
	return h, known
}

// Once is a permanent id or a guard.
func (s *current) Once(k tables.OnceKey) (tables.Once, bool) {
	o := s.b.onceRow(s.r, k)
	return o, o.Bound()
}

// Scale is the number of decimals of an asset.
func (s *current) Scale(asset uint32) tables.Scale {
	if a := s.b.cur.assets.of(asset); a != nil {
		return a.scale
	}
	return tables.Scale{}
}

// evolve changes the rows as rec says. It is all that a record does to them, in Apply and at a
// boot; rows that have seen rec already stay as they are. An error is a record that contradicts the
// rows.
func (s *current) evolve(rec *record.Record) error {
	b, c := s.b, &s.b.changes
	if b.open {
		b.create(rec)
	}
	if err := c.Derive(rec, s); err != nil {
		return err
	}
	for i := range c.Balances {
		change := &c.Balances[i]
		b.states.put(s.balance(change.Key), change.New, rec.Seq)
		if m, ok := change.Mark(); ok {
			b.marks.put(b.marks.fresh(m.MarkKey), m.Seq, rec.Seq)
		}
	}
	if ref := c.Account.Ref; ref != 0 {
		b.accounts.put(s.account(ref), c.Account.New, rec.Seq)
	}
	for _, o := range c.Onces {
		b.onces.put(b.once(s.r, o.Key), o.New, rec.Seq)
	}
	if seq := c.Hold.Seq; seq != 0 {
		b.holds.put(b.hold(s.r, seq), c.Hold.New, rec.Seq)
		if c.Hold.New.Open() {
			b.soonest.made(c.Hold.New.Expires)
		}
	}
	switch n := c.Name; {
	case n.Ref == 0:
	case !n.Asset:
		b.names.put(b.names.fresh(n.Name), n.Ref, rec.Seq)
		b.refs.put(b.refs.fresh(n.Ref), n.Name, rec.Seq)
	case b.cur.assets.of(uint32(n.Ref)) == nil:
		if err := b.cur.assets.follows(uint32(n.Ref)); err != nil {
			return err
		}
		b.cur.assets = b.cur.assets.with(newAsset(uint32(n.Ref), n.Name, rec.From, rec.Seq))
	}
	if n := c.Scale; n.Asset != 0 {
		if b.cur.assets.of(n.Asset) == nil {
			return damage("it has decimals of asset %d, which is not known", n.Asset)
		}
		b.cur.assets = b.cur.assets.scaled(n.Asset, n.New)
	}
	return nil
}

// create enters the rows that a new record makes, which the file cannot have.
func (b *books) create(rec *record.Record) {
	switch rec.Op {
	case record.OpOpen:
		b.accounts.fresh(rec.From)
	case record.OpHold:
		b.holds.fresh(rec.Seq)
	}
	for i := range rec.Images {
		if im := &rec.Images[i]; im.Prev == 0 {
			b.states.fresh(tables.StateKey{Account: im.Account, Asset: im.Asset})
		}
	}
}

// Rows that are not in memory are read from the file as the group sees it, once.

// loadRecent loads the table of recent rows: they are newer than the rows of their own tables, and
// stay in memory until they are flushed there. The error is of a damaged row. The other rows are
// loaded, and the balance of a damaged row cannot be read.
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
			b.states.load(k, row.Balance, row.Balance.State.LastSeq)
		}
	}
	if lost := tables.CheckRecents(r); lost != nil {
		fault(tables.StateKey{}, lost)
	}
	return err
}

// fileBalance reads a balance from its table. The caller has not found it in memory before r began.
func (b *books) fileBalance(r store.Reader, k tables.StateKey) tables.Balance {
	b.mustHold(k)
	v, known := tables.GetBalance(r, k.Account, k.Asset)
	if !known {
		tables.MustLack(r, k)
	}
	return v
}

// fileAccount reads an account from its table. The caller has not found it in memory before r
// began. Every ref has a row, in memory or in the file, once a boot has completed the rows.
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

func (b *books) state(r store.Reader, k tables.StateKey) *cell[tables.StateKey, tables.Balance] {
	return b.states.get(k, func() tables.Balance { return b.fileBalance(r, k) })
}

func (b *books) account(r store.Reader, ref uint64) *cell[uint64, tables.Account] {
	return b.accounts.get(ref, func() tables.Account { return b.fileAccount(r, ref) })
}

func (b *books) hold(r store.Reader, seq uint64) *cell[uint64, tables.Hold] {
	return b.holds.get(seq, func() tables.Hold { return first(tables.GetHold(r, seq)) })
}

func (b *books) once(r store.Reader, k tables.OnceKey) *cell[tables.OnceKey, tables.Once] {
	return b.onces.get(k, func() tables.Once {
		if b.cur.horizon.Period == 0 {
			return first(tables.GetOnce(r, k))
		}
		return first(tables.FindOnce(r, k))
	})
}

// onceRow returns the row of k with the running group, zero if there is none.
func (b *books) onceRow(r store.Reader, k tables.OnceKey) tables.Once {
	return b.onces.cur(b.once(r, k)).v
}

func (b *books) meter(r store.Reader, k tables.MovedKey) *cell[tables.MovedKey, engines.Amount] {
	return b.moved.get(k, func() engines.Amount { return tables.GetMoved(r, k) })
}

// ref returns the ref of an account, 0 for one that is not known.
func (b *books) ref(r store.Reader, name string) uint64 {
	return b.names.cur(b.names.get(name, func() uint64 { return first(tables.Ref(r, name)) })).v
}

// first returns the row, which is zero if it is not there.
func first[V any](v V, _ bool) V { return v }

// opened is the record that opened an account, 0 if the file does not know.
func (b *books) opened(r store.Reader, ref uint64) uint64 {
	if c := b.accounts.find(ref); c != nil {
		return b.accounts.cur(c).v.OpenedSeq
	}
	a, _ := tables.GetAccount(r, ref)
	return a.OpenedSeq
}

// movedDrops is how many rows of days that are over a command takes out that writes some of today:
// more than it adds as a rule.
const movedDrops = 8

// putMoved writes the amounts moved by tokens that the running command has changed, and deletes
// rows of past days.
func (b *books) putMoved(r store.Reader, w *store.Writes, today uint32) {
	var last *cell[tables.MovedKey, engines.Amount]
	for _, u := range b.moved.undo {
		if u.c != last {
			tables.PutMoved(w, u.c.key, b.moved.cur(u.c).v)
			last = u.c
		}
	}
	if last != nil {
		tables.DropMoved(r, w, today, movedDrops)
	}
}
