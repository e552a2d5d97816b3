package ledger

import (
	"strings"

	"ronbox/engines"
	"ronbox/engines/ledger/record"
)

// opened is p, opened if it was not known.
func (x *run) opened(p party, name string, at place) party {
	if p.ref != 0 {
		return p
	}
	b, rec := x.b, x.record(record.OpOpen)
	b.cur.Accounts++
	p.ref = b.cur.Accounts
	rec.From, rec.Name, rec.Flags = p.ref, name, at.flags
	seq := x.write(rec)
	c := b.names.fresh(name)
	b.names.change(c, seq)
	c.cur.v = p.ref
	byRef := b.refs.fresh(p.ref)
	b.refs.change(byRef, seq)
	byRef.cur.v = name
	p.account = b.accounts.fresh(p.ref)
	b.accounts.change(p.account, seq)
	p.account.cur.v, _ = p.account.cur.v.After(rec)
	return p
}

// flag sets and clears flags of an account.
func (x *run) flag(a *action, p place) result {
	o := a.op
	if r := x.late(o); r != nil {
		return refused(r)
	}
	who := x.filled(x.named(a.from, o.From, 0), 0)
	if who.ref == 0 && strings.HasPrefix(o.From, engines.IssuanceAccount("")) {
		return refused(refuse(record.AssetUnknown)) // an asset's issuance account is opened by its declaration
	}
	who = x.opened(who, o.From, p)
	rec := x.record(record.OpFlags)
	rec.From, rec.Set, rec.Clear, rec.Named = who.ref, o.Set, o.Clear, o.Set|o.Clear != 0
	x.asked(rec, a, p)
	x.b.accounts.change(who.account, x.next())
	seq := x.write(rec)
	who.account.cur.v, _ = who.account.cur.v.After(rec)
	return accepted(seq)
}

// late refuses what its caller no longer wants.
func (x *run) late(o *Op) *Reject {
	if o.ValidUntil != 0 && x.at > o.ValidUntil {
		return refuse(record.Expired)
	}
	return nil
}

// declare makes an asset and its issuance account. An asset that is there was declared by the record that is answered.
func (x *run) declare(a *action, p place) result {
	o, cur := a.op, &x.b.cur
	if r := x.late(o); r != nil {
		return refused(r)
	}
	if known := cur.assets.get(o.Asset); known != nil {
		return replay(known.seq)
	}
	issuer := x.opened(party{}, engines.IssuanceAccount(o.Asset), p)
	rec := x.record(record.OpAsset)
	cur.Assets++
	rec.Asset, rec.Name, rec.From = cur.Assets, o.Asset, issuer.ref
	x.asked(rec, a, p)
	seq := x.write(rec)
	cur.assets = cur.assets.with(newAsset(cur.Assets, o.Asset, issuer.ref, seq))
	return accepted(seq)
}
