package tables

import (
	"fmt"

	"ronbox/appliance/b3"
	"ronbox/engines/ledger/record"
	"ronbox/store"
)

// Former reads the derived rows before a record. A missing row is zero and not known.
type Former interface {
	Balance(k StateKey) Balance
	Account(ref uint64) Account
	Hold(seq uint64) (Hold, bool)
	Scale(asset uint32) Scale
	Once(k OnceKey) (Once, bool)
}

// Changes holds the changes that one record makes in the derived tables. Derive fills it. The next
// Derive uses its slices again.
type Changes struct {
	Balances []BalanceChange
	Onces    []OnceChange
	Account  AccountChange // Ref 0: none
	Name     NameChange    // Ref 0: none
	Hold     HoldChange    // Seq 0: none
	Scale    ScaleChange   // Asset 0: none
}

// BalanceChange is a balance after a record.
type BalanceChange struct {
	Key StateKey
	New Balance
}

// Mark returns the mark at the newest posting of the balance, and reports whether there is one.
func (c *BalanceChange) Mark() (Mark, bool) {
	n := c.New.Postings
	return Mark{MarkKey{c.Key, n / MarkEvery}, c.New.State.LastSeq}, n != 0 && n%MarkEvery == 0
}

// AccountChange is an account after a record.
type AccountChange struct {
	Ref uint64
	New Account
}

// NameChange is a name given.
type NameChange struct {
	Asset bool // of an asset, else of an account
	Ref   uint64
	Name  string
}

// HoldChange is a hold after a record.
type HoldChange struct {
	Seq uint64
	New Hold
}

// ScaleChange is an asset that got its decimals.
type ScaleChange struct {
	Asset uint32
	New   Scale
}

// OnceChange is a permanent id or a guard bound.
type OnceChange struct {
	Key OnceKey
	New Once
}

// Derive fills c with the changes that rec makes to the rows before it. Rows that have seen rec
// already are left out, so a record may come again. An error means that rec contradicts the rows:
// the journal is damaged, or rows are missing.
func (c *Changes) Derive(rec *record.Record, f Former) error {
	*c = Changes{Balances: c.Balances[:0], Onces: c.Onces[:0]}
	for i := range rec.Images {
		if err := c.image(&rec.Images[i], f); err != nil {
			return fmt.Errorf("record %d: %w", rec.Seq, err)
		}
	}
	if ChangesAccount(rec) {
		a, changed := f.Account(rec.From).After(rec)
		if a.OpenedSeq == 0 {
			return fmt.Errorf("record %d: account %d was not opened", rec.Seq, rec.From)
		}
		if changed {
			c.Account = AccountChange{rec.From, a}
		}
	}
	if rec.Op == record.OpOnce || rec.Guard != (record.Guard{}) {
		c.once(rec, f)
	}
	switch rec.Op {
	case record.OpOpen:
		c.Name = NameChange{Ref: rec.From, Name: rec.Name}
	case record.OpAsset:
		c.Name = NameChange{Asset: true, Ref: uint64(rec.Asset), Name: rec.Name}
	case record.OpScale:
		return c.scale(rec, f)
	case record.OpHold:
		if _, known := f.Hold(rec.Seq); !known {
			c.Hold = HoldChange{rec.Seq, Hold{
				From: rec.From, To: rec.To, Asset: rec.Asset, Amount: rec.Amount, At: rec.At, Expires: rec.Expires,
			}}
		}
	case record.OpCapture, record.OpRelease, record.OpExpire:
		return c.end(rec, f)
	}
	return nil
}

// image adds the balance after an image, unless the balance has seen it.
func (c *Changes) image(im *record.Image, f Former) error {
	k := StateKey{im.Account, im.Asset}
	b := f.Balance(k)
	if im.State.LastSeq <= b.State.LastSeq {
		return nil
	}
	if im.Prev != b.State.LastSeq {
		return fmt.Errorf("account %d, asset %d: it follows on record %d, and the balance is after %d",
			im.Account, im.Asset, im.Prev, b.State.LastSeq)
	}
	c.Balances = append(c.Balances, BalanceChange{k, Balance{State: im.State, Postings: b.Postings + 1}})
	return nil
}

// ChangesAccount reports whether rec changes the row of the account rec.From: opens it, sets its
// flags or uses a nonce.
func ChangesAccount(rec *record.Record) bool {
	return rec.Op == record.OpOpen || rec.Op == record.OpFlags || rec.Nonce != 0
}

// After is the account rec.From after rec, which changes it, unless a has seen that already.
func (a Account) After(rec *record.Record) (after Account, changed bool) {
	if rec.Seq <= a.LastSeq {
		return a, false
	}
	a.LastSeq = rec.Seq
	if rec.Nonce != 0 {
		a.LastNonce, a.LastNonceSeq = rec.Nonce, rec.Seq
	}
	switch rec.Op {
	case record.OpOpen:
		a.OpenedSeq = rec.Seq
	case record.OpFlags:
		a.Flags = a.Flags&^rec.Clear | rec.Set
	}
	return a, true
}

// once adds the permanent id and the guard that rec binds.
func (c *Changes) once(rec *record.Record, f Former) {
	if rec.Op == record.OpOnce && rec.Dedupe.Kind == record.DedupeOnce {
		c.bind(OnceKey{Key: rec.Dedupe.Key}, Once{Seq: rec.Seq, Digest: b3.Digest(rec.Dedupe.Fingerprint)}, f)
	}
	if repeats := rec.Op == record.OpOnce && rec.Flags&record.FlagInner != 0; repeats {
		return // an earlier record has bound its guard, which may be of a closed period
	}
	if (rec.Op == record.OpOnce || rec.Op.MovesMoney()) && rec.Guard != (record.Guard{}) {
		owner := Once{Seq: rec.Seq}
		copy(owner.Digest[:], rec.Guard.Owner[:])
		c.bind(OnceKey{Guard: true, Key: rec.Guard.Key}, owner, f)
	}
}

// bind keeps the first binding for ever.
func (c *Changes) bind(k OnceKey, o Once, f Former) {
	if _, bound := f.Once(k); !bound {
		c.Onces = append(c.Onces, OnceChange{k, o})
	}
}

// scale adds the decimals that rec sets, unless the row has seen rec.
func (c *Changes) scale(rec *record.Record, f Former) error {
	switch was := f.Scale(rec.Asset); was.Seq {
	case rec.Seq:
	case 0:
		c.Scale = ScaleChange{rec.Asset, Scale{rec.Seq, rec.Decimals()}}
	default:
		return fmt.Errorf("record %d: asset %d has decimals from record %d", rec.Seq, rec.Asset, was.Seq)
	}
	return nil
}

// end adds the hold that rec ends, unless the hold has seen it.
func (c *Changes) end(rec *record.Record, f Former) error {
	h, known := f.Hold(rec.Hold)
	if !known {
		return fmt.Errorf("record %d: it closes the hold %d, which is not there", rec.Seq, rec.Hold)
	}
	if !h.Open() && h.Closing != rec.Seq {
		return fmt.Errorf("record %d: it closes the hold %d, which the record %d has closed", rec.Seq, rec.Hold,
			h.Closing)
	}
	if h.Open() {
		h.Closed, h.Closing = rec.Op, rec.Seq
		c.Hold = HoldChange{rec.Hold, h}
	}
	return nil
}

// Put writes the changes.
func (c *Changes) Put(w *store.Writes) {
	for _, b := range c.Balances {
		if m, ok := b.Mark(); ok {
			PutMark(w, m)
		}
		PutBalance(w, b.Key, b.New)
	}
	for _, o := range c.Onces {
		PutOnce(w, o.Key, o.New)
	}
	if c.Account.Ref != 0 {
		PutAccount(w, c.Account.Ref, c.Account.New)
	}
	if c.Name.Ref != 0 {
		c.Name.Put(w)
	}
	if c.Hold.Seq != 0 {
		PutHold(w, c.Hold.Seq, c.Hold.New)
	}
	if c.Scale.Asset != 0 {
		PutScale(w, c.Scale.Asset, c.Scale.New)
	}
}

// Put writes the name.
func (n NameChange) Put(w *store.Writes) {
	if n.Asset {
		PutAsset(w, uint32(n.Ref), n.Name)
		return
	}
	PutName(w, n.Ref, n.Name)
}

// IdemKey returns the hashed idempotency key of rec, and reports whether there is one. The key of a
// batch leads to its first part; inner records have none.
func IdemKey(rec *record.Record) (key [16]byte, ok bool) {
	ok = rec.Dedupe.Kind == record.DedupeKey && rec.Flags&record.FlagInner == 0 && rec.Part == 0
	return rec.Dedupe.Key, ok
}

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

// MustLack ends the command or the view if the balance k, which ledger/state lacks, has been posted
// to by a record that the rows have seen: one of a closed period, the one for which its account was
// opened, or the one that used the account's last nonce.
func MustLack(r store.Reader, k StateKey) {
	s, low, h := Stored{r}, GetFlushed(r).Seq, GetHorizon(r)
	if was, known := BaseAt(r, h.Generation).Balance(k); known {
		s.mustLack(k, was.State.LastSeq)
	}
	a := s.Account(k.Account)
	var rec record.Record
	for _, seq := range [...]uint64{a.OpenedSeq + 1, a.LastNonceSeq} {
		if a.OpenedSeq == 0 || seq > low || seq <= h.Seq || !ReadRecord(r, seq, &rec) {
			continue
		}
		for i := range rec.Images {
			if im := &rec.Images[i]; im.Account == k.Account && im.Asset == k.Asset {
				s.mustLack(k, seq)
			}
		}
	}
}

// mustLack ends the command or the view if no table has the balance k, to which the record seq has
// posted.
func (s Stored) mustLack(k StateKey, seq uint64) {
	if s.Balance(k) == (Balance{}) {
		panic(wrong(bState, stateKeys().Append(nil, k), "it is not there, and record %d has posted to it", seq))
	}
}

// Hold reads the hold of record seq.
func (s Stored) Hold(seq uint64) (Hold, bool) { return GetHold(s.Reader, seq) }

// Scale reads the decimals of an asset.
func (s Stored) Scale(asset uint32) Scale {
	v, _ := GetScale(s.Reader, asset)
	return v
}

// Once reads a permanent id or a guard.
func (s Stored) Once(k OnceKey) (Once, bool) { return GetOnce(s.Reader, k) }
