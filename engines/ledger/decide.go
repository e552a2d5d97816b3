package ledger

import (
	"strings"

	"ronbox/engines"
	"ronbox/engines/ledger/record"
	"ronbox/engines/ledger/tables"
)

// state is the input of a decision: the rows after all earlier records.
type state interface {
	tables.Former
	// tip returns the end of the journal, and the assets.
	tip() *tip
	// ref returns the ref of an account, 0 if the name is unknown.
	ref(name string) uint64
	// held returns the hold that the record seq made, unless it ended in a closed period.
	held(seq uint64) (tables.Hold, bool)
	// moved returns the amount that a token has moved of an asset on a day.
	moved(k tables.MovedKey) engines.Amount
}

// decider decides the single ops of one command. It reads a state and changes only itself.
type decider struct {
	state
	at    int64
	batch uint64

	records  [3]record.Record // of the accepted op: the opening of an account, of an asset, then the op
	n        int
	images   [2]record.Image
	accounts [2]tables.Account // of the two sides, before the op
	balances [2]tables.Balance
	hold     tables.Hold
	m        move
	meter    tables.MovedKey // of the row that the op adds to, if m is metered
}

// place is where an op stands: alone, in a batch, in a settlement.
type place struct {
	flags    uint16 // of its record
	unnonced bool
	token    [8]byte // of a batch: the ops inside were asked for by the same
}

var plain = place{}

// decide returns the result of an op that is neither a batch nor a repetition. If the op is
// accepted, d.records[:d.n] are its records, in order.
func (d *decider) decide(a *action, p place) result {
	d.n = 0
	switch a.op.Code {
	case record.OpAsset:
		return d.declare(a, p)
	case record.OpScale:
		return d.scale(a, p)
	case record.OpFlags:
		return d.flag(a, p)
	}
	o, m := a.op, &d.m
	*m = move{
		code:     o.Code,
		at:       d.at,
		amount:   o.Amount,
		nonce:    o.Nonce,
		unnonced: p.unnonced,
		until:    o.ValidUntil,
		limits:   o.Limits,
		daily:    o.Daily,
		open:     d.tip().OpenHolds,
	}
	from, to, issuer := d.parties(a)
	m.from, m.to = d.side(0, from, issuer), d.side(1, to, issuer)
	if o.Nonce == 0 && !p.unnonced && spends(o.Code) {
		m.nonce = m.from.account.LastNonce + 1
	}
	if m.asset != 0 && m.metered() {
		d.meter = meterOf(a, p, m)
		m.moved = d.moved(d.meter)
	}
	if r := m.judge(); r != nil {
		r.Unknown = r.Code == record.InsufficientFunds && from == 0
		res := refused(r)
		switch {
		case r.Code == record.NonceReused && m.nonce == m.from.account.LastNonce:
			res.seq, res.payer = m.from.account.LastNonceSeq, from
		case r.Code == record.PeriodClosed:
			res.seq = a.hold
		}
		return res
	}
	if to == 0 {
		to = d.open(o.To, p)
	}
	return result{code: record.Accepted, seq: d.pay(a, p, from, to), nonce: m.nonce}
}

// record begins the next record of the op.
func (d *decider) record(op record.Op) *record.Record {
	rec := &d.records[d.n]
	d.n++
	*rec = record.Record{Op: op, At: d.at, Batch: d.batch, Seq: d.tip().Seq + uint64(d.n)}
	return rec
}

// open makes the record that opens an account, and returns its ref.
func (d *decider) open(name string, p place) uint64 {
	rec := d.record(record.OpOpen)
	rec.From, rec.Name, rec.Flags = d.tip().Accounts+1, name, p.flags
	return rec.From
}

// declare decides the declaration of an asset, with its issuance account. A repetition is answered
// by the record that declared it.
func (d *decider) declare(a *action, p place) result {
	if r := d.late(a.op); r != nil {
		return refused(r)
	}
	if known := d.tip().assets.byName[a.op.Asset]; known != nil {
		return replay(known.seq)
	}
	rec := d.asset(a.op.Asset, p)
	a.note(rec, p)
	return accepted(rec.Seq)
}

// asset makes the records that declare an asset, and returns the last one.
func (d *decider) asset(name string, p place) *record.Record {
	issuer := d.open(engines.IssuanceAccount(name), p)
	rec := d.record(record.OpAsset)
	rec.Asset, rec.Name, rec.From, rec.Flags = d.tip().Assets+1, name, issuer, p.flags
	return rec
}

// scale decides the decimals of an asset, which an op may set once and for all: another number
// would change the meaning of every amount that people have read. It declares an asset that is not
// known. A repetition is answered by the record that set them.
func (d *decider) scale(a *action, p place) result {
	if r := d.late(a.op); r != nil {
		return refused(r)
	}
	ref := uint32(0)
	switch known := d.tip().assets.byName[a.op.Asset]; {
	case known == nil:
		ref = d.asset(a.op.Asset, p).Asset
	case known.scale.Seq == 0:
		ref = known.ref
	case engines.AmountOf(0, uint64(known.scale.Decimals)) == a.op.Amount:
		return replay(known.scale.Seq)
	default:
		return refused(refuse(record.DecimalsSet))
	}
	rec := d.record(record.OpScale)
	rec.Asset, rec.Amount = ref, a.op.Amount
	a.note(rec, p)
	return accepted(rec.Seq)
}

// flag decides a change of an account's flags, which opens an account that is not known.
func (d *decider) flag(a *action, p place) result {
	o := a.op
	if r := d.late(o); r != nil {
		return refused(r)
	}
	ref := d.party(a.from, o.From, 0)
	if ref == 0 {
		if strings.HasPrefix(o.From, issuancePrefix) {
			return refused(refuse(record.AssetUnknown)) // the declaration of an asset opens its issuance account
		}
		ref = d.open(o.From, p)
	}
	rec := d.record(record.OpFlags)
	rec.From, rec.Set, rec.Clear, rec.Named = ref, o.Set, o.Clear, o.Set|o.Clear != 0
	a.note(rec, p)
	return accepted(rec.Seq)
}

// late refuses an op after its valid_until.
func (d *decider) late(o *Op) *Reject {
	if o.ValidUntil != 0 && d.at > o.ValidUntil {
		return refuse(record.Expired)
	}
	return nil
}

// meterOf returns the key of the amount that the op's token has moved of the asset today. A token
// and its narrowed copies have one id and so one row. Only ops with a daily ceiling add to it.
func meterOf(a *action, p place, m *move) tables.MovedKey {
	token := a.capID
	if p.flags&record.FlagInner != 0 {
		token = p.token
	}
	return tables.MovedKey{Day: m.day(), Token: token, Asset: m.asset}
}

// parties returns the refs of payer, payee and issuance account, 0 for an unknown one.
func (d *decider) parties(a *action) (from, to, issuer uint64) {
	o, m := a.op, &d.m
	if resolves(o.Code) {
		var known bool
		if d.hold, known = d.held(a.hold); !known {
			m.past = a.hold != 0 && a.hold <= d.tip().horizon.Seq
			return 0, 0, 0
		}
		m.asset, m.hold = d.hold.Asset, &d.hold
		return d.hold.From, d.hold.To, d.tip().assets.of(m.asset).issuer
	}
	declared := a.asset
	if declared == nil {
		declared = d.tip().assets.byName[o.Asset]
	}
	if declared == nil {
		return 0, 0, 0
	}
	m.asset = declared.ref
	return d.party(a.from, o.From, declared.issuer), d.party(a.to, o.To, declared.issuer), declared.issuer
}

// party returns the ref of a party; "" stands for the issuance account.
func (d *decider) party(p party, name string, issuer uint64) uint64 {
	switch {
	case p.ref != 0:
		return p.ref
	case name == "":
		return issuer
	}
	return d.ref(name)
}

// side returns copies of the rows of a party, which the rules may change.
func (d *decider) side(i int, ref, issuer uint64) side {
	d.accounts[i], d.balances[i] = tables.Account{}, tables.Balance{}
	if ref != 0 {
		d.accounts[i] = d.Account(ref)
		d.balances[i] = d.Balance(tables.StateKey{Account: ref, Asset: d.m.asset})
	}
	return side{account: &d.accounts[i], state: &d.balances[i].State, issues: ref != 0 && ref == issuer}
}

// pay makes the record of a move that was judged good.
func (d *decider) pay(a *action, p place, from, to uint64) uint64 {
	o, m := a.op, &d.m
	rec := d.record(o.Code)
	rec.Asset, rec.From, rec.To = m.asset, from, to
	for i, ref := range [...]uint64{from, to} {
		d.images[i] = record.Image{Account: ref, Asset: m.asset, Prev: d.balances[i].State.LastSeq}
	}
	rec.Amount = m.post(rec.Seq)
	for i := range d.images {
		d.images[i].State = d.balances[i].State
	}
	rec.Images = d.images[:]
	switch {
	case spends(o.Code):
		rec.Nonce = m.nonce
	case resolves(o.Code):
		rec.Hold = a.hold
	}
	if o.Code == record.OpHold {
		rec.Expires = d.at + int64(o.ExpiresIn)
	}
	a.note(rec, p)
	return rec.Seq
}

// note sets the members of a record that say where the op came from.
func (a *action) note(rec *record.Record, p place) {
	rec.Flags = p.flags
	rec.Idem, rec.Memo = a.op.Idem, a.op.Memo
	if p.flags&record.FlagInner == 0 {
		rec.Principal, rec.CapID = a.principal, a.capID
	}
	if a.reference != nil {
		rec.Guard = a.reference.guard
	}
	if a.keyed {
		rec.Dedupe = record.Dedupe{Kind: record.DedupeKey, Key: a.key, Fingerprint: a.op.Fingerprint}
	}
}
