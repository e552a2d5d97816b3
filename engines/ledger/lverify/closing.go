package lverify

import (
	"context"
	"fmt"
	"slices"

	"ronbox/appliance/b3"
	"ronbox/appliance/merkle"
	"ronbox/engines/ledger/record"
	"ronbox/engines/ledger/tables"
	"ronbox/store"
)

// View calls fn in a view of a file that is written meanwhile. It may rest before that.
type View func(ctx context.Context, fn func(r store.Reader) error) error

// closingSlice is how many records one view of Closing reads: some 20 ms.
const closingSlice = 2048

// Closing checks the closing under way, before its period is closed: the records of the period
// follow on the horizon, and its base and statement are what they make. A difference is told in the
// report; the error is ctx's, or of view. Memory: as a Verify takes for accounts and states.
func Closing(ctx context.Context, view View, o Options) (Report, error) {
	c := &closingCheck{}
	c.o, c.each, c.stop = o, c.record, func() error {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return nil
	}
	run := func(where string, fn func()) error {
		return view(ctx, func(r store.Reader) error {
			c.reads(r)
			c.guard(where, fn)
			return c.err
		})
	}
	err := run("journal", c.begin)
	for err == nil && len(c.rep.Findings) == 0 && c.chain.seq < c.s.ToSeq {
		err = run("journal", c.slice)
	}
	if err == nil && len(c.rep.Findings) == 0 {
		err = run("base", c.compare)
	}
	c.rep.OK = err == nil && len(c.rep.Findings) == 0
	return c.rep, err
}

// closingCheck is one run over a closing.
type closingCheck struct {
	file
	prev   record.Statement
	s      record.Statement // of the closing
	next   tables.Base      // that it has made
	onces  uint64           // of the base that the period begins with, and of its records
	refs   uint64           // references bound
	fromAt int64            // of the first batch
}

// reads goes on in another view.
func (c *closingCheck) reads(r store.Reader) {
	if c.r = r; c.past == nil {
		return
	}
	c.base, c.next = tables.BaseAt(r, c.horizon.Generation), tables.BaseAt(r, c.s.Period)
	c.past.r, c.past.base = r, c.base
}

func (c *closingCheck) bad(format string, args ...any) { c.table("base", 0, format, args...) }

// begin starts the chain at the horizon.
func (c *closingCheck) begin() {
	c.start()
	prev, ok := c.periods()
	if !ok || prev.Period != 0 && !c.resume(&prev) {
		return
	}
	s, err := record.ParseStatement(tables.GetClosing(c.r).File.Statement)
	if err == nil {
		err = s.Follows(&prev)
	}
	if err != nil {
		c.bad("%v", err)
	}
	c.prev, c.s, c.next = prev, s, tables.BaseAt(c.r, s.Period)
	for k, was := range c.base.Onces() {
		if c.onces++; !c.binds(k, was) {
			c.bad("the permanent id or guard that record %d has bound is not in it", was.Seq)
		}
	}
}

// binds reports whether the base has a permanent id or a guard.
func (c *closingCheck) binds(k tables.OnceKey, want tables.Once) bool {
	o, known := c.next.Once(k)
	return known && o == want
}

// slice takes some records. That one is missing ends the check.
func (c *closingCheck) slice() {
	before := c.chain.seq
	if c.stretch(c.s.ToSeq+1, closingSlice); c.err == nil && c.chain.seq == before && len(c.rep.Findings) == 0 {
		c.rep.found(Finding{Where: "journal", Seq: before + 1, Detail: "it is missing"})
	}
}

// record takes what the chain does not keep.
func (c *closingCheck) record(r *record.Record) {
	if c.fromAt == 0 {
		c.fromAt = r.At
	}
	if r.Op.MovesMoney() && r.Guard != (record.Guard{}) {
		c.refs++
	}
	switch r.Op {
	case record.OpOpen:
		a, _ := c.next.Account(r.From)
		if name, _ := tables.Name(c.r, r.From); a.OpenedSeq != r.Seq || a.OpenedAt != r.At || name != r.Name {
			c.bad("account %d is opened by record %d as %q, and called %q", r.From, a.OpenedSeq, r.Name, name)
		}
	case record.OpAsset:
		a, _ := c.next.Asset(r.Asset)
		if name, _ := tables.AssetName(c.r, r.Asset); a.Seq != r.Seq || a.DeclaredAt != r.At || name != r.Name {
			c.bad("asset %d is declared by record %d as %q, and called %q", r.Asset, a.Seq, r.Name, name)
		}
	case record.OpScale:
		if a, _ := c.next.Asset(r.Asset); a.Scale != (tables.Scale{Seq: r.Seq, Decimals: r.Decimals()}) {
			c.bad("asset %d has decimals from record %d", r.Asset, a.Scale.Seq)
		}
	case record.OpOnce:
		c.once(r)
	}
}

// once looks for the permanent id of a settlement, and for its guard.
func (c *closingCheck) once(r *record.Record) {
	if repeats(r) {
		return
	}
	c.onces++
	if !c.binds(tables.OnceKey{Key: r.Dedupe.Key}, tables.Once{Seq: r.Seq, Digest: r.Dedupe.Fingerprint}) {
		c.bad("the permanent id of record %d is not in it", r.Seq)
	}
	if r.Guard == (record.Guard{}) {
		return
	}
	guard, known := c.next.Once(tables.OnceKey{Guard: true, Key: r.Guard.Key})
	if !known || guard.Seq > r.Seq || [16]byte(guard.Digest[:16]) != r.Guard.Owner {
		c.bad("the guard of record %d is not in it", r.Seq)
	}
	if guard.Seq == r.Seq {
		c.onces++
	}
}

// compare compares statement and base with the records.
func (c *closingCheck) compare() {
	if !c.complete() {
		return
	}
	c.chain.balanced("sums")
	made := c.chain.statement(&c.prev, &c.log)
	made.FromAt, made.References, made.NamesRoot = c.fromAt, c.refs, c.namesRoot()
	hash := tables.NewStateHash()
	for row := range c.next.Rows() {
		if hash.Add(row); !c.step() {
			return
		}
	}
	made.StateRoot = hash.Root()
	differences(&c.s, &made, c.bad)
	for _, part := range []func(){c.accounts, c.balances, c.holds, c.others} {
		if part(); c.err != nil || c.rep.full() {
			return
		}
	}
}

// namesRoot is the root of the log with the names that the period has given.
func (c *closingCheck) namesRoot() b3.Digest {
	c.names = append(c.names, namesEnd{c.s.Accounts, uint64(c.s.Assets), c.s.NamesRoot})
	c.baseNames(&baseCheck{})
	return c.s.NamesRoot // baseNames has found another one
}

func (c *closingCheck) accounts() {
	known, n := &c.chain.accounts, uint64(0)
	for ref, a := range c.next.Accounts(0) {
		if n++; ref != n || !known.known(ref) {
			c.bad("account %d is the %d. of %d", ref, n, known.count())
			return
		}
		b, i := known.at(ref)
		if a.LastNonce != b.nonces[i] || a.LastSeq != b.seqs[i] || a.Flags != b.flags[i] || !c.kept(ref, &a) {
			c.bad("account %d has nonce %d and flags %q after record %d, the records make nonce %d and flags %q", ref,
				a.LastNonce, a.Flags, a.LastSeq, b.nonces[i], b.flags[i])
		}
		if !c.step() {
			return
		}
	}
	if n != known.count() {
		c.bad("it has %d accounts, of %d", n, known.count())
	}
}

// kept reports whether the records that an account names are those of the base before, or of the
// period. That which opened it was compared if it is of the period.
func (c *closingCheck) kept(ref uint64, a *tables.BaseAccount) bool {
	was, based := c.base.Account(ref)
	if based && (a.OpenedSeq != was.OpenedSeq || a.OpenedAt != was.OpenedAt) {
		return false
	}
	if a.LastNonceSeq <= c.horizon.Seq {
		return a.LastNonceSeq == was.LastNonceSeq && a.LastTx == was.LastTx
	}
	r := &c.past.rec
	return c.past.read(a.LastNonceSeq) == nil && r.From == ref && r.Nonce == a.LastNonce && r.TxID() == a.LastTx
}

func (c *closingCheck) balances() {
	got, sums := ends{seed: c.chain.ends.seed}, map[uint32]*totals{}
	for k, b := range c.next.Balances(tables.StateKey{}) {
		was, same := c.base.Balance(k)
		if same = same && was == b; b.State.LastSeq > c.horizon.Seq {
			im, err := c.past.imageOf(b.State.LastSeq, k.Account, k.Asset)
			same = err == nil && im.State == b.State
		}
		if !same {
			c.bad("account %d, asset %d: it is not the state after record %d", k.Account, k.Asset, b.State.LastSeq)
		}
		got.row(k, &b)
		if sums[k.Asset] == nil {
			sums[k.Asset] = new(totals)
		}
		if sums[k.Asset].put(&b.State); !c.step() {
			return
		}
	}
	want := &c.chain.ends
	if got.count != want.count || got.newest != want.newest || got.images != want.images {
		c.bad("of %d balances one is not the newest, or counts other postings; the records make %d", got.count,
			want.count)
	}
	for asset, t := range c.chain.totals {
		if sum := sums[asset]; sum == nil || *sum != *t {
			c.bad("asset %d: the balances add up to other sums than the records", asset)
		}
	}
}

// holds checks that the base has the open holds, each with its place in the log.
func (c *closingCheck) holds() {
	n := 0
	for seq, b := range c.next.Holds(0) {
		n++
		h, err := b.Open(seq)
		is := held{h.From, h.To, h.Asset, h.Amount, h.At, h.Expires}
		if want, open := c.chain.open[seq]; err != nil || !open || want != is || !c.placed(&b.Inclusion) {
			c.bad("hold %d is not open, or is another one, or its place in the log is not shown: %v", seq, err)
		}
	}
	if n != len(c.chain.open) {
		c.bad("it has %d holds, and %d are open", n, len(c.chain.open))
	}
}

// placed reports whether an inclusion leads to the peak over its batch.
func (c *closingCheck) placed(in *record.Inclusion) bool {
	index := in.Header.No - 1
	if in.Header.No == 0 || index >= c.s.ToBatch {
		return false
	}
	root := in.Header.Root()
	batch, ok := merkle.Climb(merkle.Leaf(in.Record), in.Index, in.Header.Count, in.Path)
	size := uint64(1) << merkle.PeakLevel(c.s.ToBatch, index)
	peak, placed := merkle.Climb(merkle.Leaf(root[:]), index%size, size, in.LogPath)
	return ok && placed && batch == in.Header.Merkle && slices.Contains(c.s.Peaks, peak)
}

// others checks assets, and counts permanent ids and guards.
func (c *closingCheck) others() {
	n, onces := uint32(0), uint64(0)
	for ref, a := range c.next.Assets() {
		was, based := c.base.Asset(ref)
		other := based && (a.Seq != was.Seq || a.DeclaredAt != was.DeclaredAt)
		scaled := (a.Scale != tables.Scale{})
		if n++; ref != n || other || scaled != c.chain.scales[ref] || was.Scale.Seq != 0 && a.Scale != was.Scale {
			c.bad("asset %d is the %d., or another one than the records make", ref, n)
		}
	}
	for range c.next.Onces() {
		onces++
	}
	if int(n) != len(c.chain.issuers) || onces != c.onces {
		c.bad("it has %d assets, %d permanent ids and guards, the records make %d and %d", n, onces,
			len(c.chain.issuers), c.onces)
	}
}

// statement returns what the chain makes of the statement of a period: all but its times, roots of
// names and state, and references.
func (c *chain) statement(prev *record.Statement, log *frontier) record.Statement {
	s := record.Statement{
		Period: prev.Period + 1, FromSeq: prev.ToSeq + 1, FromBatch: prev.ToBatch + 1, ToSeq: c.seq,
		ToBatch: c.batch, ToAt: c.at, LastRoot: c.root, LogRoot: log.root(), Peaks: log.open,
		Accounts: c.accounts.count(), Assets: uint32(len(c.issuers)), HoldsOpen: uint64(len(c.open)),
	}
	if prev.Period != 0 {
		s.Prev = prev.Digest()
	}
	return s
}

// differences tells bad in what a statement is not what the records make.
func differences(s, made *record.Statement, bad func(format string, args ...any)) {
	for _, m := range []struct {
		name      string
		got, want any
	}{
		{"period", s.Period, made.Period},
		{"prev", s.Prev, made.Prev},
		{"from_seq", s.FromSeq, made.FromSeq},
		{"to_seq", s.ToSeq, made.ToSeq},
		{"from_batch", s.FromBatch, made.FromBatch},
		{"to_batch", s.ToBatch, made.ToBatch},
		{"from_at", s.FromAt, made.FromAt},
		{"to_at", s.ToAt, made.ToAt},
		{"last_root", s.LastRoot, made.LastRoot},
		{"log_root", s.LogRoot, made.LogRoot},
		{"peaks", fmt.Sprint(s.Peaks), fmt.Sprint(made.Peaks)},
		{"accounts", s.Accounts, made.Accounts},
		{"assets", s.Assets, made.Assets},
		{"holds_open", s.HoldsOpen, made.HoldsOpen},
		{"names_root", s.NamesRoot, made.NamesRoot},
		{"state_root", s.StateRoot, made.StateRoot},
		{"references", s.References, made.References},
	} {
		if m.got != m.want {
			bad("%s of the statement is %v, the records make %v", m.name, m.got, m.want)
		}
	}
}
