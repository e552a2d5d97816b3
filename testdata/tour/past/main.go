// Command past writes the export of a ledger of 20 days ago, a record a minute: payments of the
// caller with references, settlements, holds of which one stays open, an account that is frozen, an
// asset with decimals. It writes the id of the open hold to standard error.
//
//	go run ./testdata/tour/past >past.ndjson
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"ronbox/appliance/b3"
	"ronbox/appliance/flow"
	"ronbox/engines"
	"ronbox/engines/ledger"
	"ronbox/engines/ledger/ledgertest"
	"ronbox/engines/ledger/record"
	"ronbox/store"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() (err error) {
	dir, err := os.MkdirTemp("", "past")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	path, ctx := filepath.Join(dir, "ronbox.db"), context.Background()
	clock := ledgertest.NewClock()
	clock.Set(time.Now().Add(-20 * 24 * time.Hour))
	id, err := store.NewIdentity(clock.Now())
	if err := errors.Join(err, store.Create(path, id)); err != nil {
		return err
	}
	catalog := flow.NewCatalog(nil, nil)
	s := store.New(store.DefaultConfig(), store.Options{Path: path, Catalog: catalog, Now: clock.Now})
	m := ledger.New(ledger.DefaultConfig(), ledger.Deps{Catalog: catalog, Store: s, Now: clock.Now})
	if err := errors.Join(s.Open(ctx), s.Prepare(ctx)); err != nil {
		return err
	}
	committed := make(chan error, 1)
	go func() { committed <- s.Tasks()[0].Run(ctx) }()
	err = errors.Join(m.Recover(ctx), pay(ctx, m, clock), export(ctx, m), m.Close(ctx))
	s.CloseLanes()
	return errors.Join(err, <-committed, s.Close())
}

// orders is the number of payments of the caller.
const orders = 300

// pay makes the payments and all else, and writes the id of the hold that stays open.
func pay(ctx context.Context, m *ledger.Local, clock *ledgertest.Clock) error {
	ron := func(n uint64) engines.Amount { return engines.AmountOf(0, n) }
	held := record.TxID{} // the hold that is captured
	do := func(o ledger.Op) error {
		clock.Advance(time.Minute)
		outs, err := m.Commit(ctx, []ledger.Op{o})
		if err == nil && outs[0].Reject != nil {
			err = outs[0].Reject
		}
		if err == nil && o.Code == record.OpHold {
			held = outs[0].Receipt.TxID
		}
		return err
	}
	hold := ledger.Op{
		Code: record.OpHold, From: "alice", To: "hotel", Asset: "ron", Amount: ron(500), ExpiresIn: 720 * time.Hour,
	}
	for _, o := range []ledger.Op{
		{Code: record.OpAsset, Asset: "ron"},
		{Code: record.OpIssue, To: "alice", Asset: "ron", Amount: ron(10_000)},
		hold,
	} {
		if err := do(o); err != nil {
			return err
		}
	}
	fmt.Fprintln(os.Stderr, held)
	hold.Amount = ron(70)
	more := map[int]func() error{
		10:  func() error { return do(hold) },
		20:  func() error { return settle(ctx, m, clock, "epoch 1") },
		100: func() error { return do(ledger.Op{Code: record.OpAsset, Asset: "eur"}) },
		200: func() error { return do(ledger.Op{Code: record.OpCapture, Hold: held, Amount: ron(60)}) },
		210: func() error { return settle(ctx, m, clock, "epoch 2") },
		220: func() error { return do(ledger.Op{Code: record.OpFlags, From: "winner", Set: record.Frozen}) },
		230: func() error { return do(ledger.Op{Code: record.OpScale, Asset: "eur", Amount: ron(2)}) },
	}
	for n := range orders {
		err := do(ledger.Op{
			Code: record.OpTransfer, From: "alice", To: "shop", Asset: "ron", Amount: ron(1 + uint64(n)%9),
			Principal: fmt.Sprintf("uid:%d", os.Getuid()), Reference: fmt.Sprintf("order-%03d", n+1),
		})
		if also := more[n]; err == nil && also != nil {
			err = also()
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// settle pays a prize under a permanent id.
func settle(ctx context.Context, m *ledger.Local, clock *ledgertest.Clock, id string) error {
	clock.Advance(time.Minute)
	o, err := m.Settle(ctx, ledger.Once{
		Domain: "payout", ID: id, Digest: b3.Sum([]byte(id)), Guard: ledger.Guard{Key: "payouts", Owner: "past"},
	}, []ledger.Op{
		{Code: record.OpIssue, To: "pool", Asset: "ron", Amount: engines.AmountOf(0, 50)},
		{Code: record.OpTransfer, From: "pool", To: "winner", Asset: "ron", Amount: engines.AmountOf(0, 30)},
	})
	if err == nil && o.Reject != nil {
		err = o.Reject
	}
	return err
}

func export(ctx context.Context, m *ledger.Local) error {
	out := bufio.NewWriter(os.Stdout)
	err := m.Export(ctx, 0, 0, func(l record.Line) error {
		_, err := out.Write(l.Append(nil))
		return err
	})
	if err != nil {
		return err
	}
	return out.Flush()
}
