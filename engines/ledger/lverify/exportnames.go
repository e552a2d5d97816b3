package lverify

import "ronbox/engines/ledger/record"

// names are those that the records of an export have given, or its lines have shown: one name a ref, and one ref a name.
type names struct {
	whole    bool
	accounts map[uint64]string
	refs     map[string]uint64 // the same, the other way round
	assets   map[uint32]string
	kinds    map[string]uint32 // likewise
}

func newNames(whole bool) names {
	return names{
		whole: whole, accounts: map[uint64]string{}, refs: map[string]uint64{}, assets: map[uint32]string{}, kinds: map[string]uint32{},
	}
}

// check compares the names that a line shows with those that its record's refs were given.
func (n *names) check(l *record.Line, x *export) {
	r := &l.Record
	switch r.Op {
	case record.OpOpen:
		n.account(r, r.From, r.Name, true, x)
	case record.OpAsset:
		n.asset(r, r.Name, true, x)
	}
	n.account(r, r.From, l.Names.From, !n.whole, x)
	n.account(r, r.To, l.Names.To, !n.whole, x)
	n.asset(r, l.Names.Asset, !n.whole, x)
}

// account takes the name of an account. Whether one that was not seen may be given it there is for the caller to say.
func (n *names) account(r *record.Record, ref uint64, name string, may bool, x *export) {
	was, known := n.accounts[ref]
	other, taken := n.refs[name]
	switch {
	case known && was != name:
		x.bad("record %d: account %d is %q, not %q", r.Seq, ref, was, name)
	case taken && other != ref:
		x.bad("record %d: %q is account %d, not %d", r.Seq, name, other, ref)
	case !known && ref != 0 && may:
		n.accounts[ref], n.refs[name] = name, ref
	}
}

// asset takes the name of the record's asset.
func (n *names) asset(r *record.Record, name string, may bool, x *export) {
	was, known := n.assets[r.Asset]
	other, taken := n.kinds[name]
	switch {
	case known && was != name:
		x.bad("record %d: asset %d is %q, not %q", r.Seq, r.Asset, was, name)
	case taken && other != r.Asset:
		x.bad("record %d: %q is asset %d, not %d", r.Seq, name, other, r.Asset)
	case !known && r.Asset != 0 && may:
		n.assets[r.Asset], n.kinds[name] = name, r.Asset
	}
}

// onces are the permanent ids and guards that the records of an export have bound.
type onces struct {
	ids    map[[16]byte]uint64 // to the seq of the record
	guards map[[16]byte][16]byte
}

func newOnces() onces { return onces{map[[16]byte]uint64{}, map[[16]byte][16]byte{}} }

// check takes what a record binds: an id once, and a guard to one owner.
func (o *onces) check(r *record.Record, x *export) {
	if r.Op != record.OpOnce {
		return
	}
	if by, bound := o.ids[r.Dedupe.Key]; bound {
		x.bad("record %d: record %d has settled under its permanent id", r.Seq, by)
	}
	o.ids[r.Dedupe.Key] = r.Seq
	if r.Guard == (record.Guard{}) {
		return
	}
	if owner, bound := o.guards[r.Guard.Key]; bound && owner != r.Guard.Owner {
		x.bad("record %d: its guard belongs to another owner", r.Seq)
		return
	}
	o.guards[r.Guard.Key] = r.Guard.Owner
}
