package lverify

import (
	"ronbox/engines"
	"ronbox/engines/ledger/record"
	"ronbox/engines/ledger/tables"
)

// issuance is the name of an asset's issuance account.
func issuance(asset string) string { return engines.IssuanceAccount(asset) }

// states checks accounts and balances: those of the file row by row, then those that are not
// flushed.
func (d *derived) states() {
	met := map[tables.StateKey]bool{} // of those that are not flushed
	for k, row := range d.newest() {
		if k.Asset == 0 {
			if _, newer := d.over.accounts[k.Account]; newer {
				met[k] = true
			}
			d.account(k.Account)
		} else {
			d.stored(k, &row.Balance)
			b, newer := d.over.balances[k]
			if newer {
				met[k] = true
			} else {
				b = row.Balance
			}
			d.balance(k, &b)
		}
		if !d.step() {
			return
		}
	}
	for ref := range d.over.accounts {
		if !met[tables.StateKey{Account: ref}] {
			d.account(ref)
		}
	}
	for k, b := range d.over.balances {
		if !met[k] {
			d.balance(k, &b)
		}
	}
	d.whole()
}

// stored checks a row of the file, which may be older than the newest record of its account.
func (d *derived) stored(k tables.StateKey, b *tables.Balance) {
	was, same := d.base.Balance(k)
	if same = same && was == *b; b.State.LastSeq > d.horizon.Seq {
		im, err := d.past.imageOf(b.State.LastSeq, k.Account, k.Asset)
		same = err == nil && im.State == b.State
	}
	if !same {
		d.table("state", b.State.LastSeq, "account %d, asset %d: the row is not the state after that record", k.Account,
			k.Asset)
	}
}

func (d *derived) balance(k tables.StateKey, b *tables.Balance) {
	d.ends.row(k, b)
	t := d.totals[k.Asset]
	if t == nil {
		t = new(totals)
		d.totals[k.Asset] = t
	}
	t.put(&b.State)
}

// account checks what an account has besides balances.
func (d *derived) account(ref uint64) {
	known := &d.chain.accounts
	if !known.known(ref) {
		d.table("state", 0, "account %d was never opened", ref)
		return
	}
	a := d.over.Account(ref)
	if b, i := known.at(ref); a.LastNonce != b.nonces[i] || a.LastSeq != b.seqs[i] || a.Flags != b.flags[i] {
		d.table("state", a.LastSeq,
			"account %d has nonce %d and flags %q, the records make nonce %d and flags %q at record %d", ref,
			a.LastNonce, a.Flags, b.nonces[i], b.flags[i], b.seqs[i])
	}
	if a.LastNonceSeq <= d.horizon.Seq {
		if was, _ := d.base.Account(ref); was.LastNonceSeq != a.LastNonceSeq || was.LastNonce != a.LastNonce {
			d.table("state", a.LastNonceSeq, "account %d: the record did not use nonce %d", ref, a.LastNonce)
		}
		return
	}
	if err := d.past.read(a.LastNonceSeq); err != nil || a.LastNonce == 0 || d.past.rec.From != ref ||
		d.past.rec.Nonce != a.LastNonce {
		d.table("state", a.LastNonceSeq, "account %d: the record did not use nonce %d", ref, a.LastNonce)
	}
}

// whole holds all rows together against all records.
func (d *derived) whole() {
	want := &d.chain.ends
	switch {
	case d.ends.count != want.count:
		d.table("state", 0, "%d balances, the records make %d", d.ends.count, want.count)
	case d.ends.newest != want.newest:
		d.table("state", 0, "a balance is not the newest of its account")
	case d.ends.images != want.images:
		d.table("state", 0, "a balance counts other postings than it has")
	}
	for asset, t := range d.chain.totals {
		if got := d.totals[asset]; got == nil || *got != *t {
			d.table("sums", 0, "asset %d: the balances add up to other sums than the records", asset)
		}
	}
}

// names checks both ways between names and refs. That each account has its name was seen from its
// record.
func (d *derived) names() {
	n, accounts := &namesCheck{derived: d, refs: map[tables.NameChange]bool{}}, d.chain.accounts.count()
	for ref, name := range d.over.names {
		n.unflushed(tables.NameChange{Ref: ref, Name: name})
	}
	for ref, name := range d.over.assets {
		n.unflushed(tables.NameChange{Asset: true, Ref: uint64(ref), Name: name})
	}
	for ref, name := range tables.Accounts(d.r, 0) {
		if ref == 0 || ref > accounts {
			d.table("refs", 0, "account %d is called %q, and was never opened", ref, name)
		}
		n.stored(tables.NameChange{Ref: ref, Name: name})
		if !d.step() {
			return
		}
	}
	for ref, name := range tables.Assets(d.r) {
		if ref == 0 || ref > uint32(len(d.chain.issuers)) {
			d.table("refs", 0, "asset %d is called %q, and was never declared", ref, name)
		}
		n.stored(tables.NameChange{Asset: true, Ref: uint64(ref), Name: name})
	}
	if rows := d.rows("ledger/refs", nil); rows != n.inRefs {
		d.table("refs", 0, "it has %d rows, %d names were given", rows, n.inRefs)
	}
	if rows := d.rows("ledger/names", nil); rows != n.inNames {
		d.table("names", 0, "it has %d rows, %d names were given", rows, n.inNames)
	}
}

// namesCheck counts the rows that belong to names.
type namesCheck struct {
	*derived
	refs            map[tables.NameChange]bool // names that are not flushed, by themselves and without their refs
	inRefs, inNames uint64
}

// unflushed takes a name that may have its rows or not. No other account has the name.
func (n *namesCheck) unflushed(c tables.NameChange) {
	back, ok := n.ref(c)
	if ok && back != c.Ref || n.refs[tables.NameChange{Asset: c.Asset, Name: c.Name}] {
		n.table("names", 0, "%q is the name of %d, and of another", c.Name, c.Ref)
	} else if ok {
		n.inNames++
	}
	n.refs[c], n.refs[tables.NameChange{Asset: c.Asset, Name: c.Name}] = true, true
}

// stored takes a row of refs; a flushed one has its row in names.
func (n *namesCheck) stored(c tables.NameChange) {
	n.inRefs++
	if n.refs[c] {
		return
	}
	if back, ok := n.ref(c); !ok || back != c.Ref {
		n.table("names", 0, "%q leads to %d, not %d", c.Name, back, c.Ref)
	}
	n.inNames++
}

// ref is where a name leads.
func (n *namesCheck) ref(c tables.NameChange) (uint64, bool) {
	if c.Asset {
		ref, ok := tables.AssetRef(n.r, c.Name)
		return uint64(ref), ok
	}
	return tables.Ref(n.r, c.Name)
}

// scales checks that no asset has decimals but those that records set.
func (d *derived) scales() {
	n := uint64(0)
	for range tables.AllScales(d.r) {
		n++
	}
	for asset := range d.over.scales {
		if _, ok := tables.GetScale(d.r, asset); !ok {
			n++
		}
	}
	if n != d.scale {
		d.table("scales", 0, "%d assets have decimals, the records set those of %d", n, d.scale)
	}
}

// holds checks that there are no holds but those that records made, and that the open ones are in
// the order of expiry. Holds that ended up to the horizon may be there or not.
func (d *derived) holds() {
	stored, open := uint64(0), uint64(0)
	for seq, h := range tables.Holds(d.r, 0) {
		if !h.Open() && h.Closing <= d.horizon.Seq {
			continue
		}
		if !d.knows(seq) {
			d.table("holds", seq, "no record made the hold")
		}
		if stored++; h.Open() {
			open++
		}
		if !d.step() {
			return
		}
	}
	for seq := range d.over.holds {
		if _, ok := tables.GetHold(d.r, seq); !ok {
			stored++
		}
	}
	if stored != d.held {
		d.table("holds", 0, "%d holds, the records make %d", stored, d.held)
	}
	for end := range tables.HoldEnds(d.r, tables.HoldEnd{}) {
		h, ok := tables.GetHold(d.r, end.Seq)
		if newer, redone := d.over.holds[end.Seq]; !ok && redone && newer.Expires == end.Expires {
			continue // a rebuild was interrupted: it goes with the hold, or is written with it
		}
		if open--; !ok || !h.Open() || h.Expires != end.Expires {
			d.table("hold_ends", end.Seq, "no hold that is open ends at %d", end.Expires)
		}
		if !d.step() {
			return
		}
	}
	if open != 0 {
		d.table("hold_ends", 0, "an open hold is not in the order of expiry, or one too many is")
	}
}

// knows reports whether a record made a hold that has not ended up to the horizon.
func (d *derived) knows(seq uint64) bool {
	if seq <= d.horizon.Seq {
		_, known := d.base.Hold(seq)
		return known
	}
	return d.past.read(seq) == nil && d.past.rec.Op == record.OpHold
}

// onces checks that no permanent id or guard is bound but by records. References of closed periods
// may be there or not.
func (d *derived) onces() {
	n := uint64(0)
	for k, o := range tables.Onces(d.r) {
		if _, based := d.base.Once(k); !k.Guard || o.Seq > d.horizon.Seq || based {
			n++
		}
		if !d.step() {
			return
		}
	}
	for k := range d.over.onces {
		if _, ok := tables.GetOnce(d.r, k); !ok {
			n++
		}
	}
	if n != d.bound {
		d.table("once", 0, "%d permanent ids and guards, the records bind %d", n, d.bound)
	}
}

// closed checks the references of closed periods.
func (d *derived) closed() {
	if err := tables.CheckClosed(d.r, d.step); err != nil {
		d.table("closed", 0, "%v", err)
	}
}

// marks checks that each stands where it says: as many postings behind the mark before it as lie
// between two marks.
func (d *derived) marks() {
	for k, seq := range tables.Marks(d.r) {
		if !d.mark(k, seq) {
			d.table("marks", seq, "account %d, asset %d: mark %d does not stand at posting %d", k.Account, k.Asset, k.N,
				k.N*tables.MarkEvery)
		}
		if !d.step() {
			return
		}
	}
	for k, row := range d.newest() {
		for n := d.closedMarks(k) + 1; n <= row.Balance.Postings/tables.MarkEvery; n++ {
			if _, ok := tables.GetMark(d.r, tables.MarkKey{StateKey: k, N: n}); !ok {
				d.table("marks", row.Balance.State.LastSeq, "account %d, asset %d: mark %d is missing", k.Account,
					k.Asset, n)
				break
			}
		}
		if !d.step() {
			return
		}
	}
}

// closedMarks returns how many marks of a balance are of closed periods.
func (d *derived) closedMarks(k tables.StateKey) uint64 {
	was, _ := d.base.Balance(k)
	return was.Postings / tables.MarkEvery
}

// mark reports whether the mark before is MarkEvery postings back, or the account has no earlier
// posting. The first mark after the horizon is as many back from the base as their postings are
// apart. Marks of closed periods may be there or not.
func (d *derived) mark(k tables.MarkKey, seq uint64) bool {
	was, _ := d.base.Balance(k.StateKey)
	closed := was.Postings / tables.MarkEvery
	if k.N != 0 && k.N <= closed {
		return seq != 0 && seq <= d.horizon.Seq
	}
	steps, before := uint64(tables.MarkEvery), was.State.LastSeq
	if k.N > closed+1 {
		before, _ = tables.GetMark(d.r, tables.MarkKey{StateKey: k.StateKey, N: k.N - 1})
	} else {
		steps = k.N*tables.MarkEvery - was.Postings
	}
	for n := range steps {
		im, err := d.past.imageOf(seq, k.Account, k.Asset)
		if seq = im.Prev; err != nil || seq == 0 && n < steps-1 {
			return false
		}
	}
	return k.N != 0 && seq == before
}
