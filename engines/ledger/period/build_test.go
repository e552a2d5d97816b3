package period_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"ronbox/appliance/b3"
	"ronbox/appliance/flow"
	"ronbox/appliance/merkle"
	"ronbox/engines"
	"ronbox/engines/ledger"
	"ronbox/engines/ledger/ledgertest"
	"ronbox/engines/ledger/period"
	"ronbox/engines/ledger/record"
	"ronbox/engines/ledger/tables"
	"ronbox/store"
)

// node is a running ledger in a temporary file.
type node struct {
	*testing.T
	clock *ledgertest.Clock
	s     *store.Store
	l     *ledger.Local
	dice  *ledgertest.Dice
	epoch int
	c     atomic.Pointer[period.Closer]

	unsettled atomic.Bool // the clock cannot tell yet which keys have ended
}

func newNode(t *testing.T, seed uint64, change ...func(*store.Config)) *node {
	t.Helper()
	n := &node{T: t, clock: ledgertest.NewClock(), dice: ledgertest.NewDice(seed)}
	path := filepath.Join(t.TempDir(), "ronbox.db")
	id, err := store.NewIdentity(n.clock.Now())
	if err := errors.Join(err, store.Create(path, id)); err != nil {
		t.Fatal(err)
	}
	catalog := flow.NewCatalog(nil, nil)
	cfg := store.DefaultConfig()
	for _, fn := range change {
		fn(&cfg)
	}
	n.s = store.New(cfg, store.Options{Path: path, Catalog: catalog, Now: n.clock.Now})
	n.s.SetReclaimable(func() int64 {
		if c := n.c.Load(); c != nil {
			return c.Reclaimable()
		}
		return 0
	})
	n.l = ledger.New(ledger.DefaultConfig(), ledger.Deps{
		Catalog: catalog, Store: n.s, Now: n.clock.Now, Settled: func() bool { return !n.unsettled.Load() },
	})
	ctx, cancel := context.WithCancel(t.Context())
	if err := errors.Join(n.s.Open(ctx), n.s.Prepare(ctx)); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() { _ = n.s.Tasks()[0].Run(ctx) })
	t.Cleanup(func() {
		n.s.CloseLanes()
		wg.Wait()
		cancel()
		if err := n.s.Close(); err != nil {
			t.Error(err)
		}
	})
	n.must(n.l.Recover(ctx))
	n.do(ledger.Op{Code: record.OpAsset, Asset: "ron"})
	return n
}

func (n *node) must(err error) {
	n.Helper()
	if err != nil {
		n.Fatal(err)
	}
}

func (n *node) do(ops ...ledger.Op) []ledger.Outcome {
	n.Helper()
	n.clock.Advance(time.Second)
	outs, err := n.l.Commit(n.Context(), ops)
	n.must(err)
	return outs
}

// live makes calls and a settlement, and flushes all rows.
func (n *node) live(calls int) {
	n.Helper()
	for range calls {
		ops := n.dice.Call()
		for i, out := range n.do(ops...) {
			n.dice.Note(ops[i], out)
		}
	}
	n.epoch++
	name := fmt.Sprint("epoch ", n.epoch)
	_, err := n.l.Settle(n.Context(), ledger.Once{
		Domain: "payout", ID: name, Digest: b3.Sum([]byte(name)), Guard: ledger.Guard{Key: "tenant", Owner: "run"},
	}, []ledger.Op{{Code: record.OpIssue, To: "pool", Asset: "ron", Amount: engines.AmountOf(0, 70)}})
	n.must(err)
	n.must(n.l.Flush(n.Context()))
}

func (n *node) view(fn func(r store.Reader)) {
	n.Helper()
	n.must(n.s.View(n.Context(), func(r store.Reader) error { fn(r); return nil }))
}

// state is what the live rows say of a ledger that is flushed.
type state struct {
	seq      uint64
	accounts map[uint64]tables.Account
	balances map[tables.StateKey]tables.Balance
	scales   map[uint32]tables.Scale
	open     map[uint64]record.Record
	logRoot  b3.Digest
}

func (n *node) state() state {
	s := state{
		accounts: map[uint64]tables.Account{}, balances: map[tables.StateKey]tables.Balance{},
		open: map[uint64]record.Record{},
	}
	n.view(func(r store.Reader) {
		head, _ := tables.GetHead(r)
		s.seq = head.Seq
		live := tables.Stored{Reader: r}
		for k := range tables.States(r, tables.StateKey{}) {
			s.add(live, k)
		}
		for k := range tables.Recents(r, nil) {
			s.add(live, k)
		}
		s.scales = maps.Collect(tables.AllScales(r))
		for seq, h := range tables.Holds(r, 0) {
			if h.Open() {
				s.open[seq] = n.holdRecord(r, seq)
			}
		}
		s.logRoot, _ = merkle.LogRoot(head.Batches, tables.LogNodes(r))
	})
	return s
}

// holdRecord reads the record of a hold, which may be in the base alone.
func (n *node) holdRecord(r store.Reader, seq uint64) record.Record {
	if h, known := tables.BaseOf(r).Hold(seq); known {
		rec, err := record.Decode(h.Record)
		n.must(err)
		return rec
	}
	return tables.MustRecord(r, seq)
}

func (s *state) add(live tables.Stored, k tables.StateKey) {
	if k.Asset == 0 {
		s.accounts[k.Account] = live.Account(k.Account)
	} else {
		s.balances[k] = live.Balance(k)
	}
}

// compare compares the base of a horizon with a state.
func (n *node) compare(want state) {
	n.Helper()
	n.view(func(r store.Reader) {
		h, b := tables.GetHorizon(r), tables.BaseOf(r)
		s := tables.StatementOf(r, h.Period)
		if h.Seq != want.seq || s.LogRoot != want.logRoot || s.HoldsOpen != uint64(len(want.open)) {
			n.Errorf("horizon %+v, statement %+v, want record %d, %s", h, s, want.seq, want.logRoot)
		}
		if s.StateRoot != b.StateRoot() || h.Statement != s.Digest() {
			n.Error("the statement is not that of the base, or not that of the horizon")
		}
		accounts := map[uint64]tables.Account{}
		for ref, a := range b.Accounts(0) {
			accounts[ref] = a.Account
			if a.OpenedAt == 0 || a.LastTx.Seq() != a.LastNonceSeq {
				n.Errorf("account %d: opened at %d, last nonce by %s", ref, a.OpenedAt, a.LastTx)
			}
		}
		if !maps.Equal(accounts, want.accounts) {
			n.Errorf("accounts %+v, want %+v", accounts, want.accounts)
		}
		if balances := maps.Collect(b.Balances(tables.StateKey{})); !maps.Equal(balances, want.balances) {
			n.Errorf("balances %+v, want %+v", balances, want.balances)
		}
		for ref, a := range b.Assets() {
			if a.Scale != want.scales[ref] || a.DeclaredAt == 0 {
				n.Errorf("asset %d is %+v, want the scale %+v", ref, a, want.scales[ref])
			}
		}
		n.compareHolds(b, &s, want.open)
		if onces := maps.Collect(b.Onces()); len(onces) != n.settled(h.Seq) {
			n.Errorf("%d permanent ids and guards", len(onces))
		}
	})
}

// settled returns the number of permanent ids and guards up to a record.
func (n *node) settled(seq uint64) (rows int) {
	n.view(func(r store.Reader) {
		for k, v := range tables.Onces(r) {
			if v.Seq <= seq && (!k.Guard || v.Digest == guardOwner()) {
				rows++
			}
		}
	})
	return rows
}

func guardOwner() (d b3.Digest) {
	owner := b3.Derive("ronbox ledger once owner v1").Sum([]byte("run"))
	copy(d[:16], owner[:16])
	return d
}

// compareHolds compares the holds of a base, and proves each by its path to a peak of the log.
func (n *node) compareHolds(b tables.Base, s *record.Statement, want map[uint64]record.Record) {
	n.Helper()
	holds := maps.Collect(b.Holds(0))
	if len(holds) != len(want) {
		n.Errorf("%d holds, want %d", len(holds), len(want))
	}
	for seq, rec := range want {
		h := holds[seq]
		if got, err := record.Decode(h.Record); err != nil || !reflect.DeepEqual(got, rec) {
			n.Errorf("hold %d is %+v, %v", seq, got, err)
			continue
		}
		root, ok := merkle.Climb(merkle.Leaf(h.Record), h.Index, h.Header.Count, h.Path)
		if !ok || root != h.Header.Merkle {
			n.Errorf("hold %d: its path does not lead to the root of its batch", seq)
		}
		leaf, index, size := h.Header.Root(), h.Header.No-1, uint64(1)<<len(h.LogPath)
		peak, ok := merkle.Climb(merkle.Leaf(leaf[:]), index%size, size, h.LogPath)
		if !ok || !slices.Contains(s.Peaks, peak) {
			n.Errorf("hold %d: its path does not lead to a peak of the log", seq)
		}
	}
}

// TestBaseIsTheState closes periods at places that the ledger has passed since, and compares each
// base with the live rows as they were there.
func TestBaseIsTheState(t *testing.T) {
	for seed := range uint64(6) {
		n := newNode(t, seed)
		for range 4 {
			n.live(15)
			want := n.state()
			n.live(10)
			n.clock.Advance(25 * time.Hour) // keys end
			_, err := ledgertest.Close(t.Context(), n.s, want.seq)
			n.must(err)
			n.compare(want)
		}
	}
}

func (n *node) horizon() (h tables.Horizon) {
	n.view(func(r store.Reader) { h = tables.GetHorizon(r) })
	return h
}

// TestBuildBeginsAgain interrupts a build at each of its commands. The next build makes the same
// statement.
func TestBuildBeginsAgain(t *testing.T) {
	n := newNode(t, 7)
	n.live(30)
	var p period.Plan
	n.view(func(r store.Reader) {
		var err error
		p, err = period.Next(r, 1<<62, 1<<62, false)
		n.must(err)
	})
	n.must(period.Begin(t.Context(), n.s, p, period.Request{}))
	texts := map[string]bool{}
	for ends := 1; ; ends++ {
		ctx, cancel := context.WithCancel(t.Context())
		left := ends
		err := period.BuildRests(ctx, n.s, 3, func() {
			if left--; left == 0 {
				cancel()
			}
		})
		cancel()
		var c tables.Closing
		n.view(func(r store.Reader) { c = tables.GetClosing(r) })
		if err == nil {
			texts[c.File.Statement] = true
		}
		if err == nil && left > 0 {
			break
		}
		if c.Step == tables.Exporting {
			n.must(period.Turn(t.Context(), n.s, 1, tables.Exporting, tables.Building, nil))
		}
	}
	if len(texts) != 1 {
		t.Errorf("the statements are %v", texts)
	}
}

// TestCanceledBuildEndsAtOnce cancels a closing in each pause of its build. The build goes no
// further than to the next view.
func TestCanceledBuildEndsAtOnce(t *testing.T) {
	n := newNode(t, 7)
	n.live(30)
	for at := 1; ; at++ {
		var p period.Plan
		n.view(func(r store.Reader) {
			var err error
			p, err = period.Next(r, 1<<62, 1<<62, false)
			n.must(err)
		})
		n.must(period.Begin(t.Context(), n.s, p, period.Request{}))
		rests := 0
		err := period.BuildRests(t.Context(), n.s, 3, func() {
			if rests++; rests == at {
				n.must(period.Cancel(t.Context(), n.s, 0, ""))
			}
		})
		if err == nil && rests < at {
			break
		}
		if err == nil || rests != at {
			t.Errorf("canceled in pause %d, the build ends after %d with %v", at, rests, err)
		}
	}
}
