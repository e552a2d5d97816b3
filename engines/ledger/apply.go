package ledger

import (
	"errors"
	"fmt"

	"ronbox/engines"
	"ronbox/engines/ledger/idem"
	"ronbox/engines/ledger/record"
	"ronbox/engines/ledger/tables"
	"ronbox/store"
)

// post is the command that moves money: independent ops, batches among them, of one caller or several, or one settlement. It is decided when
// its turn comes, but for what only the state can tell.
type post struct {
	shares []*share // of a settlement one
	ops    int      // of all shares, those in batches too
	begun  bool     // nobody gets in any more
	seed   uint64
	flush  flushRule
	in     *joint // nil: it is for one share alone
}

var _ store.Command[*posted] = (*post)(nil)

// Kind is stored by no one and counted by many.
func (*post) Kind() string { return "ledger.post/1" }

// Size is what the command weighs in its group, but for those who get in later: they add some 200 KB at most.
func (c *post) Size() int { return c.shares[0].size }

// Apply runs the ops in turn. If nothing came of them the error is a refusal, which has their results.
func (c *post) Apply(r store.Reader, at store.Stamp, w *store.Writes) (*posted, error) {
	b := store.GroupOf[*books](r)
	x, err := b.start(r, at, w, c.seed)
	if err != nil {
		return nil, err
	}
	shares := c.in.begin(c)
	out := &posted{seed: c.seed, results: make([]result, 0, max(len(shares), len(shares[0].ops)))}
	for _, s := range shares {
		if s.reply.Claim() { // else its caller has left
			x.share(s, out)
		}
	}
	if len(x.raws) == 0 {
		return nil, refusal{out}
	}
	out.batch = x.seal()
	out.root = b.cur.LastRoot
	c.flush.behind(x)
	b.event = Committed{First: out.batch.First, Last: out.batch.Last(), Batch: out.batch.No, Root: out.root, At: out.batch.At}
	b.event.touch(shares)
	w.Then(b.keep)
	return out, nil
}

// share runs the ops of one caller.
func (x *run) share(s *share, out *posted) {
	if s.first = len(out.results); s.once != nil {
		out.results = append(out.results, x.settle(s))
		return
	}
	for i := range s.ops {
		out.results = append(out.results, x.do(&s.ops[i], plain))
	}
}

// errApart tells the callers of a command that a bug has undone, not needs their own, to ask again alone.
var errApart = errors.New("ledger: another op of the command has failed it")

// ended tells everyone who has a share how the command ended.
func (c *post) ended(out *posted, err error) {
	var none refusal
	if errors.As(err, &none) {
		out, err = none.posted, nil
	}
	shares := c.in.begin(c)
	if len(shares) > 1 && errors.Is(err, store.ErrInternal) {
		err = errApart
	}
	for _, s := range shares {
		s.end(out, err)
	}
}

// place is where an op stands: alone, in a batch, in a settlement.
type place struct {
	flags    uint16 // of its record
	unnonced bool
	token    [8]byte // of a batch: the ops inside were asked for by the same
}

var plain = place{}

// do decides one op and, if nothing speaks against it, writes its record.
func (x *run) do(a *action, p place) result {
	if a.keyed {
		if res, done := x.again(a); done {
			return res
		}
	}
	var res result
	switch a.op.Code {
	case record.OpBatch:
		res = x.batch(a)
	case record.OpAsset:
		res = x.declare(a, p)
	case record.OpFlags:
		res = x.flag(a, p)
	default:
		res = x.move(a, p)
	}
	if a.keyed && res.code == record.Accepted && res.seq != 0 {
		x.remember(a.key, res.seq)
	}
	return res
}

// again finds what was done under the op's key, while the key counts.
func (x *run) again(a *action) (result, bool) {
	seq := x.known.Get(a.key)
	if seq == 0 {
		var ok bool
		if seq, ok = x.b.idem.Lookup(x.r, a.key, a.checked, x.at-int64(a.op.TTL)); !ok {
			seq = a.found
		}
	}
	if seq == 0 {
		return result{}, false
	}
	var rec record.Record
	raw := x.raw(seq)
	if raw != nil {
		if err := rec.Decode(raw); err != nil {
			panic(&store.RowError{Bucket: "ledger/journal", Cause: err})
		}
	}
	mustLead(a.key, seq, &rec, raw != nil)
	switch {
	case rec.At <= x.at-int64(a.op.TTL):
		return result{}, false
	case rec.Dedupe.Fingerprint != a.op.Fingerprint:
		return refused(refuse(record.IdemConflict)), true
	}
	return replay(seq), true
}

// mustLead ends the command or the view if the record to which the index leads a key is not there, or was made under another key or none.
func mustLead(k idem.Key, seq uint64, rec *record.Record, known bool) {
	if made, keyed := tables.IdemKey(rec); !known || !keyed || made != k {
		panic(&store.RowError{Bucket: "ledger/idem", Key: k[:], Cause: fmt.Errorf("it leads to record %d, which it did not make", seq)})
	}
}

// party is one side of a move as the books have it. Ref 0 is not known; cells that are not there, or not looked for, are nil.
type party struct {
	ref     uint64
	account *cell[uint64, tables.Account]
	state   *cell[tables.StateKey, balance]
	rows    *rows // what the cells are made of, if memory lacks them; nil: the file is asked
}

// side shows a party to the rules.
func (x *run) side(p party, issuer uint64) side {
	s := side{account: &x.nobody, state: &x.none, issues: p.ref != 0 && p.ref == issuer}
	if p.account != nil {
		s.account = &p.account.cur.v
	}
	if p.state != nil {
		s.state = &p.state.cur.v.State
	}
	return s
}

// move decides an op that moves money, or sets it aside, or frees it.
func (x *run) move(a *action, p place) result {
	o := a.op
	m := &x.m
	*m = move{
		code: o.Code, at: x.at, amount: o.Amount, nonce: o.Nonce, unnonced: p.unnonced, until: o.ValidUntil, limits: o.Limits, daily: o.Daily,
		asset: a.asset, open: x.b.cur.OpenHolds,
	}
	from, to, held, issuer := x.parties(a, m)
	m.from, m.to = x.side(from, issuer), x.side(to, issuer)
	meter := x.meter(a, p)
	if meter != nil {
		m.moved = meter.cur.v
	}
	if r := m.judge(); r != nil {
		r.Unknown = r.Code == record.InsufficientFunds && from.ref == 0
		if r.Code == record.NonceReused && o.Nonce == m.from.account.LastNonce {
			return result{code: r.Code, reject: r, seq: m.from.account.LastNonceSeq}
		}
		return refused(r)
	}
	if meter != nil {
		x.b.moved.touch(meter)
		meter.cur.v = plus(m.moved, m.amount)
	}
	from, to = x.opened(from, o.From, p), x.opened(to, o.To, p)
	return accepted(x.post(a, p, from, to, held, issuer))
}

// meter is what the op's token has moved of the asset today, nil if that bounds nothing. A token and those that were narrowed from it have one
// id and so one meter, to which only ops come that a daily ceiling bounds.
func (x *run) meter(a *action, p place) *cell[tables.MovedKey, engines.Amount] {
	m := &x.m
	if !m.metered() || m.asset == 0 {
		return nil
	}
	token := a.capID
	if p.flags&record.FlagInner != 0 {
		token = p.token
	}
	return x.b.meter(x.r, tables.MovedKey{Day: m.day(), Token: token, Asset: m.asset})
}

// parties finds who pays and who is paid.
func (x *run) parties(a *action, m *move) (from, to party, held *cell[uint64, tables.Hold], issuer uint64) {
	o := a.op
	if resolves(o.Code) {
		if held = x.held(a.hold); held == nil {
			return from, to, nil, 0
		}
		h := &held.cur.v
		m.asset, m.hold = h.Asset, h
		return x.filled(party{ref: h.From}, h.Asset), x.filled(party{ref: h.To}, h.Asset), held, x.b.cur.assets.of(h.Asset).issuer
	}
	declared := x.b.cur.assets.of(a.asset)
	if declared == nil {
		declared = x.b.cur.assets.get(o.Asset)
	}
	if declared == nil {
		return from, to, nil, 0
	}
	m.asset = declared.ref
	from, to = x.named(a.from, o.From, declared.issuer), x.named(a.to, o.To, declared.issuer)
	return x.filled(from, m.asset), x.filled(to, m.asset), nil, declared.issuer
}

// named is p with its ref; "" stands for the issuance account.
func (x *run) named(p party, name string, issuer uint64) party {
	switch {
	case p.ref != 0:
	case name == "":
		p.ref = issuer
	default:
		p.ref = x.b.ref(x.r, name)
	}
	return p
}

// held is the hold of an id, nil if there is none.
func (x *run) held(seq uint64) *cell[uint64, tables.Hold] {
	if seq == 0 || seq >= x.next() {
		return nil
	}
	if c := x.b.hold(x.r, seq); c.cur.v.From != 0 {
		return c
	}
	var rec record.Record
	if raw := x.raw(seq); raw != nil && rec.Decode(raw) == nil && rec.Op == record.OpHold {
		panic(&store.RowError{Bucket: "ledger/holds", Cause: fmt.Errorf("hold %d has no row", seq)})
	}
	return nil
}

// post writes a move that was judged good, and its record.
func (x *run) post(a *action, p place, from, to party, held *cell[uint64, tables.Hold], issuer uint64) uint64 {
	b, o, m, seq := x.b, a.op, &x.m, x.next()
	if from.state == nil { // opened just now
		from.state = b.states.fresh(tables.StateKey{Account: from.ref, Asset: m.asset})
	}
	if to.state == nil {
		to.state = b.states.fresh(tables.StateKey{Account: to.ref, Asset: m.asset})
	}
	x.images[0].Prev, x.images[1].Prev = from.state.cur.v.State.LastSeq, to.state.cur.v.State.LastSeq
	b.states.change(from.state, seq)
	b.states.change(to.state, seq)
	if spends(o.Code) && m.nonce != 0 {
		b.accounts.change(from.account, seq)
	}
	if held != nil {
		b.holds.change(held, seq)
	}
	m.from, m.to = x.side(from, issuer), x.side(to, issuer)
	rec := x.record(o.Code)
	rec.Amount = m.post(seq)
	for i, side := range [...]party{from, to} {
		v := &side.state.cur.v
		v.Postings++
		if mark, ok := v.Mark(side.state.key); ok {
			v.marks = append(v.marks, mark)
		}
		im := &x.images[i]
		im.Account, im.Asset, im.State = side.ref, m.asset, v.State
	}
	rec.Asset, rec.From, rec.To, rec.Images = m.asset, from.ref, to.ref, x.images[:]
	if spends(o.Code) {
		rec.Nonce = m.nonce
	}
	x.holds(o, rec, seq)
	if resolves(o.Code) {
		rec.Hold = a.hold
	}
	x.asked(rec, a, p)
	return x.write(rec)
}

// holds enters a new hold, and counts those that are open.
func (x *run) holds(o *Op, rec *record.Record, seq uint64) {
	switch {
	case o.Code == record.OpHold:
		rec.Expires = x.at + int64(o.ExpiresIn)
		c := x.b.holds.fresh(seq)
		x.b.holds.change(c, seq)
		c.cur.v = tables.Hold{From: rec.From, To: rec.To, Asset: rec.Asset, Amount: rec.Amount, At: x.at, Expires: rec.Expires}
		x.b.cur.OpenHolds++
	case resolves(o.Code):
		x.b.cur.OpenHolds--
	}
}

// asked notes who asked and how.
func (x *run) asked(rec *record.Record, a *action, p place) {
	rec.Flags = p.flags
	rec.Idem, rec.Memo = a.op.Idem, a.op.Memo
	if p.flags&record.FlagInner == 0 {
		rec.Principal, rec.CapID = a.principal, a.capID
	}
	if a.keyed {
		rec.Dedupe = record.Dedupe{Kind: record.DedupeKey, Key: a.key, Fingerprint: a.op.Fingerprint}
	}
}
