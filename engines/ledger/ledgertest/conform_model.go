package ledgertest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"ronbox/engines"
	"ronbox/engines/ledger"
	"ronbox/engines/ledger/record"
)

// againstModel does random ops on the client and on a Model, and compares every outcome and the
// final states.
func againstModel(t *testing.T, open func(*testing.T, *Clock) Rig) {
	seeds, ops := 12, 150
	if testing.Short() {
		seeds = 3
	}
	for seed := range seeds {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			fight(t, open, NewDice(uint64(seed)), ops)
		})
	}
}

// duelBytes is about what one step of a duel takes of its choices.
const duelBytes = 40

// Duel is a course of calls, sweeps and restarts that choices make up, on a client and on a Model
// side by side: a body for fuzzing.
func Duel(t *testing.T, open func(*testing.T, *Clock) Rig, choices []byte) {
	fight(t, open, &Dice{Rand: rand.New(&chosen{choices}), nonces: map[string]uint64{}},
		min(len(choices)/duelBytes+1, 100))
}

// chosen returns bytes as numbers, then zeros.
type chosen struct{ left []byte }

// Uint64 has its bits in the upper half: there the small numbers are drawn from.
func (c *chosen) Uint64() (n uint64) {
	n = 1
	for i := range min(2, len(c.left)) {
		n |= uint64(c.left[i]) << (56 - 8*i)
	}
	c.left = c.left[min(2, len(c.left)):]
	return n | n>>32
}

func fight(t *testing.T, open func(*testing.T, *Clock) Rig, dice *Dice, steps int) {
	s := newSuite(t, open)
	d := &duel{suite: s, model: NewModel(s.clock.Now), Dice: dice, twins: map[record.TxID]record.TxID{}}
	if _, err := d.model.Commit(t.Context(), []ledger.Op{{Code: record.OpAsset, Asset: "ron"}}); err != nil {
		t.Fatal(err)
	}
	for range steps {
		d.step()
	}
	d.compare()
	s.conserved()
}

// duel is a client beside the model of it.
type duel struct {
	*suite
	*Dice
	model *Model
	twins map[record.TxID]record.TxID // the client's id of a record → the model's
}

func (d *duel) step() {
	d.Helper()
	d.clock.Advance(time.Duration(1+d.IntN(1000)) * time.Millisecond)
	if d.IntN(20) == 0 {
		d.clock.Advance(time.Duration(d.IntN(20)) * time.Hour)
	}
	switch n := d.IntN(30); {
	case n == 0 && d.Sweep != nil:
		d.must(d.Sweep())
		d.must(d.model.Sweep(d.Context()))
	case n == 1 && d.Reopen != nil:
		d.Rig = d.Reopen()
	default:
		call := d.Call()
		got, gotErr := d.Client.Commit(d.Context(), call)
		want, wantErr := d.model.Commit(d.Context(), d.translate(call))
		if (gotErr == nil) != (wantErr == nil) || len(got) != len(want) {
			d.Fatalf("%+v:\n%+v, %v\nthe model:\n%+v, %v", call, got, gotErr, want, wantErr)
		}
		for i := range got {
			d.Note(call[i], got[i])
			d.pair(got[i], want[i])
			if a, b := Brief(got[i]), Brief(want[i]); a != b {
				d.Fatalf("op %d of %+v:\n%s\nthe model:\n%s", i, call, a, b)
			}
		}
	}
}

// translate names holds as the model does: random bits are in their ids.
func (d *duel) translate(call []ledger.Op) []ledger.Op {
	call = slices.Clone(call)
	for i, o := range call {
		if twin, ok := d.twins[o.Hold]; ok {
			call[i].Hold = twin
		}
		call[i].Ops = d.translate(o.Ops)
	}
	return call
}

func (d *duel) pair(got, want ledger.Outcome) {
	d.twins[got.Receipt.TxID] = want.Receipt.TxID
	for i := range min(len(got.Results), len(want.Results)) {
		d.pair(got.Results[i], want.Results[i])
	}
}

// compare holds assets, balances, headers and statements side by side.
func (d *duel) compare() {
	d.Helper()
	has, err := d.Client.Assets(d.Context())
	d.must(err)
	should, err := d.model.Assets(d.Context())
	d.must(err)
	if !slices.Equal(has, should) {
		d.Fatalf("assets %+v\nthe model %+v", has, should)
	}
	for _, account := range append(names, "sys:issue:ron") {
		got, err := d.Client.Balance(d.Context(), account, "ron", 0)
		d.must(err)
		want, err := d.model.Balance(d.Context(), account, "ron", 0)
		d.must(err)
		got.At, got.Seq, got.Cold = want.At, want.Seq, want.Cold // these depend on time and memory
		if got != want {
			d.Fatalf("balance %+v\nthe model %+v", got, want)
		}
		a, err := d.Client.Account(d.Context(), account)
		d.must(err)
		b, err := d.model.Account(d.Context(), account)
		d.must(err)
		if a.Known != b.Known || a.LastNonce != b.LastNonce || a.Flags != b.Flags || a.LastTx.Seq() != b.LastTx.Seq() {
			d.Fatalf("account %+v\nthe model %+v", a, b)
		}
		q := ledger.HistoryQuery{Account: account, Asset: "ron", Limit: 17}
		got2 := d.statement(q)
		q.Limit = 1 << 20
		page, err := d.model.History(d.Context(), q)
		d.must(err)
		if len(got2) != len(page.Entries) {
			d.Fatalf("%s: %d entries, the model has %d", account, len(got2), len(page.Entries))
		}
		for i, e := range got2 {
			if w := page.Entries[i]; e.Receipt.Seq != w.Receipt.Seq || e.Posted != w.Posted ||
				e.Available != w.Available ||
				e.Debit != w.Debit {
				d.Fatalf("%s, entry %d: %+v\nthe model %+v", account, i, e, w)
			}
		}
	}
}

// Brief is an outcome without what no two ledgers share: random bits, and the digests over them.
func Brief(o ledger.Outcome) string {
	if len(o.Results) > 0 {
		text := fmt.Sprintf("batch, replayed %t, rejected %t", o.Replayed, o.Reject != nil)
		for _, r := range o.Results {
			text += "\n  " + Brief(r)
		}
		return text
	}
	if r := o.Reject; r != nil {
		return fmt.Sprintf("%s, expected %d, committed %d, limit %s", r.Code, r.Expected, r.Committed.Seq(), r.Limit)
	}
	r := o.Receipt
	return fmt.Sprintf("%s %s>%s %s %s nonce %d idem %q at %d seq %d batch %d hold %d, replayed %t",
		r.Op, r.From, r.To, r.Asset, r.Amount, r.Nonce, r.Idem, r.At, r.Seq, r.Batch, r.Hold.Seq(), o.Replayed)
}

// names are the accounts that Dice deal with.
var names = []string{"alice", "bob", "carol", "dave", "erin", "a/b:c_d-e"}

// Dice make up calls as a seed says: few accounts, small amounts and much that must be refused.
// They learn of holds by Note.
type Dice struct {
	*rand.Rand
	holds  []record.TxID
	nonces map[string]uint64
	asked  []ledger.Op // with a key
	keys   int
	refers []ledger.Op // with a reference
}

// NewDice begin at a seed.
func NewDice(seed uint64) *Dice {
	return &Dice{Rand: rand.New(rand.NewPCG(seed, 1)), nonces: map[string]uint64{}}
}

// Call is one to eight ops.
func (d *Dice) Call() []ledger.Op {
	ops := make([]ledger.Op, 1+d.IntN(8)*d.IntN(2))
	for i := range ops {
		ops[i] = d.Op()
	}
	return ops
}

// Op is one op: fresh, with or without a key, or one that was asked before.
func (d *Dice) Op() ledger.Op {
	if len(d.asked) > 0 && d.IntN(6) == 0 {
		o := d.asked[d.IntN(len(d.asked))]
		if d.IntN(6) == 0 {
			o.Fingerprint[0]++
		}
		return o
	}
	o := d.metered()
	if d.IntN(12) == 0 {
		o = ledger.Op{Code: record.OpBatch, Atomic: d.IntN(2) == 0}
		for len(o.Ops) < 1 || d.IntN(4) > 0 && len(o.Ops) < 6 {
			// assets are declared by calls of their own
			if inner := d.metered(); inner.Code != record.OpAsset && inner.Code != record.OpScale {
				o.Ops = append(o.Ops, inner)
			}
		}
	}
	if d.IntN(2) == 0 {
		d.keys++
		o = keyed(o, "org:"+names[d.IntN(2)], fmt.Sprint("k", d.keys))
		d.asked = append(d.asked, o)
	}
	return o
}

// metered is a fresh op, at times of a token with a ceiling of a day, at times with a reference; or
// an op of a reference that was asked before.
func (d *Dice) metered() ledger.Op {
	if len(d.refers) > 0 && d.IntN(10) == 0 {
		o := d.refers[d.IntN(len(d.refers))]
		if d.IntN(6) == 0 {
			o.Memo += "."
		}
		return o
	}
	o := d.fresh()
	if o.Code.MovesMoney() && d.IntN(5) == 0 {
		o.Reference = fmt.Sprint("r", len(d.refers))
		d.refers = append(d.refers, o)
	}
	if d.IntN(4) == 0 {
		o.CapID, o.Daily = names[d.IntN(2)], ron(400)
	}
	return o
}

func (d *Dice) fresh() ledger.Op {
	from := names[d.IntN(len(names))]
	to := names[(d.IntN(len(names)-1)+1+d.index(from))%len(names)]
	o := ledger.Op{
		Code:   record.OpTransfer,
		From:   from,
		To:     to,
		Asset:  "ron",
		Amount: engines.AmountOf(0, 1+d.Uint64N(100)),
		Memo:   fmt.Sprint("m", d.IntN(5)),
		Limits: &ledger.Limits{PerOp: ron(95), Daily: ron(800), AccountTotal: ron(900), OpenHolds: 6},
	}
	switch n := d.IntN(24); {
	case n < 6:
		o.Code, o.From, from = record.OpIssue, "", "sys:issue:ron"
	case n < 8:
		o.Code, o.To = record.OpBurn, ""
	case n < 12:
		o.Code, o.ExpiresIn = record.OpHold, time.Duration(1+d.IntN(100))*time.Minute
	case n < 15 && len(d.holds) > 0:
		return ledger.Op{Code: record.OpCapture, Hold: d.holds[d.IntN(len(d.holds))], Amount: ron(d.Uint64N(60))}
	case n < 17 && len(d.holds) > 0:
		return ledger.Op{Code: record.OpRelease, Hold: d.holds[d.IntN(len(d.holds))]}
	case n == 17:
		return ledger.Op{
			Code:  record.OpFlags,
			From:  from,
			Set:   record.Flags(d.IntN(16) & d.IntN(16) & d.IntN(16)),
			Clear: 15,
		}
	case n == 18 && d.IntN(2) == 0:
		return ledger.Op{Code: record.OpAsset, Asset: "ron"}
	case n == 18:
		asset := [...]string{"ron", "tin"}[d.IntN(2)]
		return ledger.Op{Code: record.OpScale, Asset: asset, Amount: ron(d.Uint64N(3))}
	case n == 19:
		o.Asset = "gold"
	}
	o.Nonce = d.nonces[from] + 1
	if d.IntN(10) == 0 {
		o.Nonce = d.Uint64N(o.Nonce + 2)
	}
	return o
}

func (d *Dice) index(name string) int {
	for i, n := range names {
		if n == name {
			return i
		}
	}
	return 0
}

// Note records holds and nonces of an outcome for later calls.
func (d *Dice) Note(o ledger.Op, out ledger.Outcome) {
	for i, r := range out.Results {
		d.Note(o.Ops[i], r)
	}
	if out.Reject != nil || out.Replayed || len(out.Results) > 0 {
		return
	}
	switch o.Code {
	case record.OpHold:
		d.holds = append(d.holds, out.Receipt.TxID)
		d.nonces[o.From] = out.Receipt.Nonce
	case record.OpIssue:
		d.nonces["sys:issue:ron"] = out.Receipt.Nonce
	case record.OpTransfer, record.OpBurn:
		d.nonces[o.From] = out.Receipt.Nonce
	}
}
