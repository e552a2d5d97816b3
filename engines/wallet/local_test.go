package wallet_test

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"ronbox/appliance/flow"
	"ronbox/appliance/host/hosttest"
	"ronbox/appliance/obs"
	"ronbox/engines/ledger"
	"ronbox/engines/ledger/ledgertest"
	"ronbox/engines/ledger/record"
	"ronbox/engines/wallet"
	"ronbox/store"
)

// node is a wallet on a real ledger in a file.
type node struct {
	*rig
	path    string
	memory  *store.AmnesiaConfig // used instead of the file if set
	store   *store.Store
	local   *ledger.Local
	blocks  sync.WaitGroup // commands that block the committer
	stopped bool
}

func newNode(t testing.TB, opts ...option) *node {
	t.Helper()
	n := &node{path: filepath.Join(t.TempDir(), "ronbox.db")}
	id, err := store.NewIdentity(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if err := store.Create(n.path, id); err != nil {
		t.Fatal(err)
	}
	n.boot(t, opts...)
	t.Cleanup(n.halt)
	return n
}

// boot starts the process.
func (n *node) boot(t testing.TB, opts ...option) {
	t.Helper()
	n.rig = &rig{t: t, cfg: wallet.DefaultConfig(), metrics: obs.NewMetrics(), model: ledgertest.NewModel(nil)}
	r := n.rig
	r.cfg.ReqTimeout, r.cfg.Retry.RPCTimeout = seconds(60), seconds(10)
	r.board, r.now = obs.NewBoard(r.metrics), time.Now
	r.catalog = flow.NewCatalog(r.metrics, nil)
	now := func() time.Time { return r.now() } // an option may change r.now
	n.store = store.New(
		store.DefaultConfig(),
		store.Options{Path: n.path, Memory: n.memory, Catalog: r.catalog, Metrics: r.metrics, Now: now},
	)
	n.local = ledger.New(
		ledger.DefaultConfig(),
		ledger.Deps{Catalog: r.catalog, Store: n.store, Metrics: r.metrics, Board: r.board, Now: now},
	)
	r.client = n.local
	for _, o := range opts {
		o(r)
	}
	r.e = wallet.New(r.cfg, wallet.Deps{
		Catalog:    r.catalog,
		Ledger:     r.client,
		Metrics:    r.metrics,
		Board:      r.board,
		Now:        now,
		StallAfter: func() time.Duration { return time.Minute },
		Warm:       n.local.WarmBalance,
	})
	r.sup = flow.NewSupervisor(context.Background(), r.catalog, flow.Hooks{})
	if err := errors.Join(n.store.Open(context.Background()), n.store.Prepare(context.Background())); err != nil {
		t.Fatal(err)
	}
	r.sup.Start(n.store.Tasks()...)
	if err := errors.Join(
		n.local.Recover(context.Background()),
		n.local.Declare(context.Background(), ledger.Op{Code: record.OpAsset, Asset: "ron"}),
	); err != nil {
		t.Fatal(err)
	}
	r.sup.Start(n.local.Tasks()...)
	r.start()
	n.stopped = false
}

// halt stops the process in order. It is idempotent.
func (n *node) halt() {
	if n.stopped {
		return
	}
	n.stopped = true
	n.catalog.CloseFedBy(wallet.Service, flow.HTTP)
	n.sup.CancelBackground()
	n.sup.Drain(wallet.Service, 5*time.Second, time.Second)
	n.sup.Drain("ledger", time.Minute, time.Second)
	err := n.local.Close(context.Background())
	n.store.CloseLanes()
	n.sup.Drain("store", time.Minute, time.Second)
	n.sup.Close()
	n.e.Close()
	_ = n.model.Close(context.Background())
	if err = errors.Join(err, n.store.Close()); err != nil {
		n.t.Errorf("halt: %v", err)
	}
}

// die simulates a crash: it copies the file as written so far, closes the old one, and continues
// with the copy.
func (n *node) die() {
	n.stopped = true
	n.rig.die()
	written, err := os.ReadFile(n.path)
	n.path += "+"
	err = errors.Join(err, os.WriteFile(n.path, written, 0o600), n.local.Close(context.Background()), n.store.Close(),
		n.model.Close(context.Background()))
	if err != nil {
		n.t.Fatal(err)
	}
}

// pay issues amount to each account, in batches.
func (n *node) pay(accounts int, amount uint64) {
	n.t.Helper()
	for first := 0; first < accounts; first += 1000 {
		var ops []ledger.Op
		for i := first; i < min(first+1000, accounts); i++ {
			n.issued++
			ops = append(
				ops,
				ledger.Op{
					Code:      record.OpIssue,
					To:        name(i),
					Asset:     "ron",
					Amount:    amountOf(amount),
					Nonce:     n.issued,
					Principal: "test",
				},
			)
		}
		outs, err := n.local.Commit(context.Background(), ops)
		if err != nil || outs[0].Reject != nil {
			n.t.Fatalf("pay: %+v, %v", outs, err)
		}
	}
}

// A request answered before a restart gets the same bytes after it.
func TestReplayAfterRestart(t *testing.T) {
	n := newNode(t)
	n.pay(2, 100)
	ops := []ledger.Op{
		transfer(name(0), "shop", 10, 2),
		transfer(name(1), "shop", 1000, 1),
		transfer(name(1), "shop", 5, 1),
	}
	whole := []ledger.Op{issue("shop", 5, n.issued+1), transfer(name(1), "shop", 3, 2)}
	first := [3]wallet.Answer{}
	ask := func() (got [3]wallet.Answer) {
		var errs [3]error
		got[0], errs[0] = n.post("single", transfer(name(0), "shop", 10, 1))
		got[1], errs[1] = n.e.Batch(context.Background(), alice, "batch", "", false, ops)
		got[2], errs[2] = n.e.Batch(context.Background(), alice, "whole", "", true, whole)
		if err := errors.Join(errs[:]...); err != nil {
			t.Fatal(err)
		}
		return got
	}
	first = ask()
	for i, key := range []string{"single", "batch", "whole"} {
		if done := bytes.Count(
			bytesOf(first[i]),
			[]byte(`"receipt_hash"`),
		); done == 0 ||
			bytes.Count(bytesOf(first[i]), []byte(`"idem":"`+key+`"`)) != done {
			t.Errorf("not every receipt names its key: %s", bytesOf(first[i]))
		}
	}
	n.halt()
	n.boot(t)
	for i, again := range ask() {
		if !again.Replayed || string(bytesOf(again)) != string(bytesOf(first[i])) {
			t.Errorf("answer %d: %+v\nwant %s", i, again, bytesOf(first[i]))
		}
	}
	if b, err := n.balance("shop", 0); err != nil || b.Available != amountOf(33) {
		t.Errorf("%+v, %v", b, err)
	}
}

// Balances are current after the bus has lagged. The test commits ten times the capacity of the bus
// while the invalidator does not read it, and each balance includes the newest record immediately.
func TestLedgerBusOverrun(t *testing.T) {
	if hosttest.UnderRace() {
		t.Skip("nothing runs beside it: left to the run without -race")
	}
	const room, over = 1024, 10 * 1024
	n := &node{memory: &store.AmnesiaConfig{MaxBytes: 64 << 20, PurgeIntervalMS: 30_000}}
	n.boot(t, func(r *rig) { r.without = wallet.TaskInvalidator })
	t.Cleanup(n.halt)
	n.pay(1, room+over)
	sub := n.local.Events(wallet.TaskInvalidator)
	defer sub.Close()
	if _, err := n.balance("shop", 0); err != nil {
		t.Fatal(err)
	}
	pay := func(to string, nonce uint64) {
		op := ledger.Op{
			Code:      record.OpTransfer,
			From:      name(0),
			To:        to,
			Asset:     "ron",
			Amount:    amountOf(1),
			Nonce:     nonce,
			Principal: "test",
		}
		if outs, err := n.local.Commit(context.Background(), []ledger.Op{op}); err != nil || outs[0].Reject != nil {
			t.Fatalf("%+v, %v", outs, err)
		}
	}
	pay("shop", 1) // the event that is lost
	for nonce := range uint64(room + over - 1) {
		pay("bo", nonce+2)
	}
	coherent := func(when string) {
		t.Helper()
		for account, want := range map[string]uint64{"shop": 1, "bo": room + over - 1, name(0): 0} {
			if b, err := n.balance(account, 0); err != nil || b.Available != amountOf(want) {
				t.Errorf("%s: %s: %+v, %v, want %d", when, account, b, err, want)
			}
		}
	}
	coherent("nobody has read the bus")
	n.e.CatchUp(sub)
	n.want(over, "bus_lagged_total", "service", "ledger", "bus", "ledger", "consumer", wallet.TaskInvalidator)
	coherent("after the overrun")
	n.sup.Start(n.e.Tasks()[1]) // the audit stream waits for its end
}

// The engine is linearizable on the real ledger, without faults but with real concurrency.
func TestLinearizableOnTheRealLedger(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	for round := range few(20) {
		start := linearState{}
		h := &linearRun{r: n.rig, ledger: n.local, prefix: "r" + name(round)}
		for i := range linearAccounts {
			n.issued++
			h.account[i] = h.prefix + name(i)
			outs, err := n.local.Commit(context.Background(), []ledger.Op{
				{
					Code:      record.OpIssue,
					To:        h.account[i],
					Asset:     "ron",
					Amount:    amountOf(100),
					Nonce:     n.issued,
					Principal: "test",
				},
			})
			if err != nil || outs[0].Reject != nil {
				t.Fatal(outs, err)
			}
			start.balance[i] = 100
		}
		var wg sync.WaitGroup
		for c := range linearClients {
			wg.Go(func() { h.client(c, rand.New(rand.NewPCG(uint64(round), uint64(c)))) })
		}
		wg.Wait()
		model := porcupine.Model{Init: func() any { return start }, Step: linearStep}
		if porcupine.CheckOperationsTimeout(model, h.ops, 5*time.Second) == porcupine.Illegal {
			t.Fatalf("round %d: %+v", round, h.ops)
		}
	}
}
