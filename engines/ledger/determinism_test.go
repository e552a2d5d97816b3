package ledger

import (
	"errors"
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"ronbox/appliance/b3"
	"ronbox/appliance/flow"
	"ronbox/engines"
	"ronbox/engines/ledger/idem"
	"ronbox/engines/ledger/record"
	"ronbox/engines/ledger/tables"
	"ronbox/store"
	"ronbox/store/storetest"
)

// stage runs commands on a state in memory, in groups chosen by the test.
type stage struct {
	tx *storetest.Tx
	b  *books
}

func newStage(t storetest.Cleaner) *stage {
	s := &stage{tx: storetest.NewTx(t, tables.Buckets()...)}
	s.b = newBooks(idem.New(4, idem.Cut{Width: 1 << 40, Max: 1 << 20}), deaf{})
	s.b.loaded.Store(true)
	s.tx.Register(s.b)
	return s
}

// deaf is an observer that ignores all calls.
type deaf struct{}

func (deaf) committed([]Committed) {}

func (deaf) keyLife() int64 { return 0 }

// nap is a command that only consumes a stamp, in place of a flush in the other run.
type nap struct{}

func (nap) Kind() string { return "ledger.nap/1" }

func (nap) Apply(store.Reader, store.Stamp, *store.Writes) (struct{}, error) { return struct{}{}, nil }

// draft describes a command. Each run makes its own command from it.
type draft struct {
	ops  []Op
	once *once
	seed uint64
}

func (d *draft) command() *post {
	c := &post{once: d.once, seed: d.seed, reply: flow.NewReply[*posted](), strays: newStrays()}
	for i := range d.ops {
		c.ops = append(c.ops, actionOf(&d.ops[i]))
	}
	return c
}

// actionOf converts an op to an action without resolved accounts or rows.
func actionOf(o *Op) action {
	a := action{op: o, hold: o.Hold.Seq(), capID: hash8(o.CapID)}
	if o.Dedupe.Key != "" {
		a.keyed, a.key = true, idem.Key(digest16(b3.Sum([]byte(o.Dedupe.Key))))
		a.ttl = int64(o.TTL)
	}
	for i := range o.Ops {
		a.inner = append(a.inner, actionOf(&o.Ops[i]))
	}
	return a
}

func drawOp(t *rapid.T, inner bool) Op {
	names := []string{"a", "b", "c"}
	from := rapid.IntRange(0, 2).Draw(t, "from")
	o := Op{
		From:   names[from],
		To:     names[(from+rapid.IntRange(1, 2).Draw(t, "to"))%3],
		Asset:  rapid.SampledFrom([]string{"ron", "ron", "ron", "gold"}).Draw(t, "asset"),
		Amount: engines.AmountOf(0, rapid.Uint64Range(1, 50).Draw(t, "amount")),
		Nonce:  rapid.Uint64Range(1, 4).Draw(t, "nonce"),
		Code: rapid.SampledFrom([]record.Op{
			record.OpIssue,
			record.OpIssue,
			record.OpTransfer,
			record.OpTransfer,
			record.OpBurn,
			record.OpHold,
			record.OpCapture,
			record.OpRelease,
			record.OpFlags,
		}).Draw(t, "code"),
		Limits: &Limits{Monotonic: true, NonceSpan: 1 << 30, Daily: engines.AmountOf(0, 300), OpenHolds: 3},
	}
	if rapid.Bool().Draw(t, "metered") {
		o.CapID, o.Daily = rapid.SampledFrom(names).Draw(t, "token"), engines.AmountOf(0, 100)
	}
	o.Nonce *= rapid.Uint64Range(1, 20).Draw(t, "times")
	switch o.Code {
	case record.OpIssue:
		o.From = ""
	case record.OpBurn:
		o.To = ""
	case record.OpHold:
		o.ExpiresIn = 1 << rapid.IntRange(2, 40).Draw(t, "ns")
	case record.OpCapture, record.OpRelease:
		o.Hold = record.NewTxID(0, rapid.Uint64Range(1, 60).Draw(t, "hold"), 0)
	case record.OpFlags:
		o.Set, o.Clear = record.Flags(rapid.IntRange(0, 3).Draw(t, "set")), 15
	}
	if !inner && rapid.IntRange(0, 2).Draw(t, "keyed") == 0 {
		o.Dedupe.Key, o.TTL = fmt.Sprint("k", rapid.IntRange(0, 9).Draw(t, "key")), 1<<40
	}
	return o
}

func drawDraft(t *rapid.T) (d draft) {
	d.seed = rapid.Uint64().Draw(t, "seed")
	for range rapid.IntRange(1, 4).Draw(t, "ops") {
		o := drawOp(t, false)
		if rapid.IntRange(0, 4).Draw(t, "batch") == 0 {
			o = Op{Code: record.OpBatch, Atomic: rapid.Bool().Draw(t, "atomic"), Dedupe: o.Dedupe, TTL: o.TTL}
			for range rapid.IntRange(1, 4).Draw(t, "inner") {
				o.Ops = append(o.Ops, drawOp(t, true))
			}
		}
		d.ops = append(d.ops, o)
	}
	if rapid.IntRange(0, 5).Draw(t, "settle") == 0 {
		d.once = hashOnce(
			&Once{
				Domain: "d",
				ID:     fmt.Sprint(rapid.IntRange(0, 3).Draw(t, "id")),
				Guard:  Guard{"g", fmt.Sprint(rapid.IntRange(0, 1).Draw(t, "owner"))},
			},
		)
		for i := range d.ops {
			if d.ops[i].Code == record.OpBatch {
				d.ops[i] = drawOp(t, true)
			}
			d.ops[i].Dedupe = DedupeKey{}
		}
	}
	return d
}

// play runs the drafts. Between two drafts the group may end and rows may be flushed. A nap
// consumes the stamp where no rows are flushed.
func (s *stage) play(t *rapid.T, drafts []draft, ends, flushes func(i int) bool, rows int) (outcomes string) {
	s.b.Begin()
	for i := range drafts {
		out, err := storetest.Do(s.tx, drafts[i].command())
		if none, ok := err.(refusal); ok {
			out, err = none.posted, nil
		}
		if err != nil {
			t.Fatal(err)
		}
		outcomes += fmt.Sprintln(brief(out.results))
		f := flush{rows: rows}
		if flushes(i) {
			f.pass = s.b.newPass()
		}
		if _, err := storetest.Do(s.tx, f); err != nil {
			if _, err := storetest.Do(s.tx, nap{}); err != nil {
				t.Fatal(err)
			}
		}
		if ends(i) {
			s.end()
			s.b.Begin()
		}
	}
	s.end()
	return outcomes
}

// end ends a group. The transaction of the state continues and keeps the bytes passed to it.
func (s *stage) end() {
	s.b.arena = arena{}
	s.b.Committed()
}

func brief(results []result) (out string) {
	for _, r := range results {
		out += fmt.Sprint(r.code, r.seq, brief(r.inner), " ")
	}
	return out
}

// The same commands produce the same outcomes, records, roots and state hash, regardless of where
// groups end and when rows are flushed.
func TestDeterminism(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		drafts := []draft{{ops: []Op{{Code: record.OpAsset, Asset: "ron"}}}}
		for range rapid.IntRange(1, 25).Draw(t, "commands") {
			drafts = append(drafts, drawDraft(t))
		}
		never := func(int) bool { return false }
		want, got := newStage(t), newStage(t)
		first := want.play(t, drafts, never, never, 1)
		drawn := func(label string) func(int) bool {
			return func(int) bool { return rapid.Bool().Draw(t, label) }
		}
		got.b.clean = rapid.SampledFrom([]int64{0, 2, 1 << 16}).Draw(t, "clean")
		if second := got.play(t, drafts, drawn("ends"), drawn("flush"),
			rapid.IntRange(1, 5).Draw(t, "rows")); second != first {
			t.Fatalf("outcomes:\n%s\nin one group:\n%s", second, first)
		}
		if a, b := store.StateHash(got.tx.Reader(), tables.Buckets()), store.StateHash(
			want.tx.Reader(),
			tables.Buckets(),
		); a != b {
			t.Fatalf("hash of the truth %v, in one group %v", a, b)
		}
	})
}

// bug is a command that panics after its ops are applied.
type bug struct{ post }

func (*bug) Kind() string { return "ledger.bug/1" }

func (c *bug) Apply(r store.Reader, at store.Stamp, w *store.Writes) (*posted, error) {
	if _, err := c.post.Apply(r, at, w); err != nil {
		return nil, err
	}
	panic("a bug")
}

// A command that panics leaves no changes in memory.
func TestPanicLeavesNoTrace(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want, got := newStage(t), newStage(t)
		do := func(s *stage, c store.Command[*posted]) (string, error) {
			out, err := storetest.Do(s.tx, c)
			if none, ok := err.(refusal); ok {
				out, err = none.posted, nil
			}
			if err != nil {
				return "", err
			}
			return brief(out.results), nil
		}
		drafts := []draft{{ops: []Op{{Code: record.OpAsset, Asset: "ron"}}}}
		for range rapid.IntRange(1, 15).Draw(t, "commands") {
			drafts = append(drafts, drawDraft(t))
		}
		for i := range drafts {
			if rapid.Bool().Draw(t, "bug") {
				other := drawDraft(t)
				if _, err := do(got, &bug{*other.command()}); err != nil && !errors.Is(err, store.ErrInternal) {
					t.Fatal(err)
				}
			}
			first, err := do(want, drafts[i].command())
			second, err2 := do(got, drafts[i].command())
			if first != second || err != nil || err2 != nil {
				t.Fatalf("command %d: %s, %v; without the others %s, %v", i, second, err2, first, err)
			}
		}
		want.end()
		got.end()
		if a, b := store.StateHash(got.tx.Reader(), tables.Buckets()), store.StateHash(
			want.tx.Reader(),
			tables.Buckets(),
		); a != b {
			t.Fatalf("hash of the truth %v, without the others %v", a, b)
		}
	})
}
