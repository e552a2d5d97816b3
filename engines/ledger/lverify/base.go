package lverify

import (
	"fmt"
	"slices"
	"strings"

	"ronbox/appliance/b3"
	"ronbox/engines/ledger/record"
	"ronbox/engines/ledger/tables"
)

// closing is the record of a closed period, as ledger/periods has it.
type closing struct {
	period uint64
	digest b3.Digest // of the statement
}

// namesEnd is the number of names given up to the end of a period, with the root of their log.
type namesEnd struct {
	accounts, assets uint64
	root             b3.Digest
}

// start reads the horizon, and makes the chain that begins after it.
func (v *file) start() {
	h := tables.GetHorizon(v.r)
	first := h.Batch + 1
	v.horizon, v.base = h, tables.BaseOf(v.r)
	v.from = max(v.o.From, first)
	v.rep.Whole, v.rep.Periods = v.from == first, h.Period
	v.rep.begins(h.Seq + 1)
	v.total = tables.LastSeq(v.r) - min(h.Seq, tables.LastSeq(v.r))
	if v.rep.Whole {
		v.total *= 2
	}
	v.past = &journalPast{r: v.r, base: v.base, to: h.Seq}
	v.chain = newChain(&v.rep, v.past, v.rep.Whole)
}

// periods checks the statements of the closed periods, one after the other, and that the horizon is
// the end of the newest one, which it returns.
func (v *file) periods() (newest record.Statement, ok bool) {
	bad := func(n uint64, detail any) {
		v.rep.found(Finding{Where: "periods", Detail: fmt.Sprintf("period %d: %v", n, detail)})
	}
	v.closings = map[uint64]closing{}
	last := uint64(0) // record of the closing before
	for n, p := range tables.Periods(v.r, 0) {
		s, err := record.ParseStatement(p.Statement)
		if err == nil {
			err = s.Follows(&newest)
		}
		if err == nil {
			err = checkPeaks(&s)
		}
		switch {
		case err != nil:
			bad(n, err)
			return newest, false
		case s.Period != n:
			bad(n, fmt.Sprintf("it has the statement of period %d", s.Period))
			return newest, false
		case p.CloseSeq <= max(s.ToSeq, last):
			bad(n, fmt.Sprintf("it cannot be closed by record %d", p.CloseSeq))
			return newest, false
		}
		if p.CloseSeq > v.horizon.Seq {
			v.closings[p.CloseSeq] = closing{n, s.Digest()}
		}
		v.names = append(v.names, namesEnd{s.Accounts, uint64(s.Assets), s.NamesRoot})
		newest, last = s, p.CloseSeq
	}
	v.peaks, v.log = newest.Peaks, frontier{newest.ToBatch, slices.Clone(newest.Peaks)}
	end := tables.Horizon{
		Period: newest.Period, Seq: newest.ToSeq, Batch: newest.ToBatch, At: newest.ToAt, LastRoot: newest.LastRoot,
		Accounts: newest.Accounts, Assets: newest.Assets, Generation: v.horizon.Generation,
	}
	if newest.Period != 0 {
		end.Statement = newest.Digest()
	}
	if end != v.horizon {
		v.rep.found(Finding{Where: "horizon", Detail: fmt.Sprintf(
			"it is record %d, the end of period %d, and the last statement is of period %d, which ends with record %d",
			v.horizon.Seq, v.horizon.Period, newest.Period, newest.ToSeq)})
		return newest, false
	}
	return newest, true
}

// closes compares a record that closes a period with ledger/periods, unless it was imported.
func (v *file) closes(r *record.Record) {
	if r.Seq <= tables.GetImported(v.r) {
		return
	}
	_, period := r.Amount.Parts()
	if v.closings[r.Seq] != (closing{period, r.Dedupe.Fingerprint}) {
		v.chain.bad("it closes period %d, and ledger/periods has another statement of it, or another record", period)
	}
	delete(v.closings, r.Seq)
}

// unclosed looks for periods whose record was not met.
func (v *file) unclosed() {
	for seq, c := range v.closings {
		v.rep.found(Finding{Where: "journal", Seq: seq, Detail: fmt.Sprintf("it does not close period %d", c.period)})
	}
}

// resume lets the chain go on from the base, which is the state after the horizon, and reports
// whether the base is that of the statement.
func (v *file) resume(s *record.Statement) bool {
	c, h := v.chain, &v.horizon
	c.seq, c.batch, c.at, c.root, c.counted = h.Seq, h.Batch, h.At, h.LastRoot, false
	hash := tables.NewStateHash()
	for row := range v.base.Rows() {
		if hash.Add(row); !v.step() {
			return false
		}
	}
	if root := hash.Root(); root != s.StateRoot {
		v.table("base", 0, "its root is %s, the statement of period %d has %s", root, s.Period, s.StateRoot)
		return false
	}
	b := baseCheck{chain: c, to: h.Seq, found: func(detail string) { v.table("base", 0, "%s", detail) }}
	for _, part := range []func(*baseCheck){v.baseNames, v.baseAccounts, v.baseAssets, v.baseBalances, v.baseHolds} {
		if part(&b); v.err != nil || len(v.rep.Findings) > 0 {
			return false
		}
	}
	b.end(s)
	return len(v.rep.Findings) == 0
}

// baseNames reads the names up to the horizon, which only ledger/refs has, and compares them with
// their log.
func (v *file) baseNames(b *baseCheck) {
	var log frontier
	var before namesEnd
	for i, end := range v.names {
		all := v.given(b, &log, false, before.accounts, end.accounts) &&
			v.given(b, &log, true, before.assets, end.assets)
		if v.err != nil {
			return
		}
		if !all || log.root() != end.root {
			v.table("refs", 0, "the names given in period %d do not make the root of its statement", i+1)
			return
		}
		before = end
	}
}

// given adds the names of the refs above from up to to, and reports whether all are there.
func (v *file) given(b *baseCheck, log *frontier, asset bool, from, to uint64) bool {
	stored := tables.NameNodes(v.r)
	for n := range tables.Names(v.r, tables.NameChange{Asset: asset, Ref: from + 1}) {
		if n.Asset != asset || n.Ref != from+1 || n.Ref > to || !v.step() {
			break
		}
		b.name(n)
		for _, node := range log.add(record.NameLeaf(asset, n.Ref, n.Name)) {
			if d, err := stored(node.Pos); err != nil || d != node.Hash {
				v.table("nlog", 0, "it has another node, or none, for the name %q", n.Name)
				break
			}
		}
		from++
	}
	return from == to
}

func (v *file) baseAccounts(b *baseCheck) {
	for ref, a := range v.base.Accounts(0) {
		if b.account(ref, &a); !v.step() {
			return
		}
	}
}

func (v *file) baseAssets(b *baseCheck) {
	for ref, a := range v.base.Assets() {
		if b.asset(ref, &a); !v.step() {
			return
		}
	}
}

func (v *file) baseBalances(b *baseCheck) {
	for k, balance := range v.base.Balances(tables.StateKey{}) {
		if b.balance(k, &balance); !v.step() {
			return
		}
	}
}

func (v *file) baseHolds(b *baseCheck) {
	for seq, h := range v.base.Holds(0) {
		if b.hold(seq, &h); !v.step() {
			return
		}
	}
}

// baseCheck takes the rows of a base into a chain that goes on from it, names first, assets before
// balances.
type baseCheck struct {
	chain *chain
	to    uint64 // last record before the chain
	found func(detail string)

	issuers map[string]uint64 // issuance accounts by name
	assets  map[uint32]string // names by ref
}

func (b *baseCheck) bad(format string, args ...any) { b.found(fmt.Sprintf(format, args...)) }

func (b *baseCheck) name(n tables.NameChange) {
	if b.issuers == nil {
		b.issuers, b.assets = map[string]uint64{}, map[uint32]string{}
	}
	switch {
	case n.Asset:
		b.assets[uint32(n.Ref)] = n.Name
	case strings.HasPrefix(n.Name, issuance("")):
		b.issuers[n.Name] = n.Ref
	}
}

func (b *baseCheck) account(ref uint64, a *tables.BaseAccount) {
	switch known := &b.chain.accounts; {
	case !known.open(ref, a.LastSeq):
		b.bad("account %d comes after %d accounts", ref, known.count())
	case a.OpenedSeq == 0 || a.OpenedSeq > a.LastSeq || a.LastSeq > b.to || a.LastNonceSeq > a.LastSeq:
		b.bad("account %d is opened by record %d and changed by record %d", ref, a.OpenedSeq, a.LastSeq)
	default:
		known.use(ref, a.LastNonce, a.LastSeq)
		known.set(ref, a.LastSeq, a.Flags, 0)
	}
}

func (b *baseCheck) asset(ref uint32, a *tables.BaseAsset) {
	issuer := b.issuers[issuance(b.assets[ref])]
	if ref != uint32(len(b.chain.issuers))+1 || issuer == 0 || a.Seq > b.to || a.Scale.Seq > b.to {
		b.bad("asset %d of account %d, declared by record %d, comes after %d assets", ref, issuer, a.Seq,
			len(b.chain.issuers))
	}
	if b.chain.issuers[ref] = issuer; a.Scale != (tables.Scale{}) {
		b.chain.scales[ref] = true
	}
}

func (b *baseCheck) balance(k tables.StateKey, row *tables.Balance) {
	issuer, declared := b.chain.issuers[k.Asset]
	if !b.chain.accounts.known(k.Account) || !declared || row.State.LastSeq > b.to || row.Postings == 0 {
		b.bad("account %d, asset %d: after record %d it has %d postings", k.Account, k.Asset, row.State.LastSeq,
			row.Postings)
	}
	if _, enough := row.State.Available(); !enough && k.Account != issuer {
		b.bad("account %d, asset %d: it holds less than nothing", k.Account, k.Asset)
	}
	b.chain.ends.row(k, row)
	b.chain.sum(k.Asset, &record.State{}, &row.State)
}

func (b *baseCheck) hold(seq uint64, h *tables.BaseHold) {
	open, err := h.Open(seq)
	if err != nil || seq > b.to {
		b.bad("hold %d: %v", seq, err)
	}
	b.chain.open[seq] = held{open.From, open.To, open.Asset, open.Amount, open.At, open.Expires}
}

// end compares the whole base with the statement of the period that it ends.
func (b *baseCheck) end(s *record.Statement) {
	c := b.chain
	if c.accounts.count() != s.Accounts || len(c.issuers) != int(s.Assets) || uint64(len(c.open)) != s.HoldsOpen {
		b.bad("it has %d accounts, %d assets and %d holds, the statement of period %d has %d, %d and %d",
			c.accounts.count(), len(c.issuers), len(c.open), s.Period, s.Accounts, s.Assets, s.HoldsOpen)
	}
	held := map[uint32]wide{}
	for _, h := range c.open {
		sum := held[h.asset]
		sum.add(h.amount)
		held[h.asset] = sum
	}
	for asset, t := range c.totals {
		if t.held != held[asset] {
			b.bad("asset %d: the open holds do not add up to what is held", asset)
		}
	}
	c.balanced("base")
}
