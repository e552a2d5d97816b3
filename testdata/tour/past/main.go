// Command past writes the export of a ledger of 20 days ago: payments of the caller with
// references, and an open hold. It writes the id of the hold to standard error.
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

// pay makes the payments, and the hold.
func pay(ctx context.Context, m *ledger.Local, clock *ledgertest.Clock) error {
	ron := func(n uint64) engines.Amount { return engines.AmountOf(0, n) }
	ops := []ledger.Op{
		{Code: record.OpAsset, Asset: "ron"},
		{Code: record.OpIssue, To: "alice", Asset: "ron", Amount: ron(10_000)},
		{Code: record.OpHold, From: "alice", To: "hotel", Asset: "ron", Amount: ron(500), ExpiresIn: 720 * time.Hour},
	}
	for n := range uint64(300) {
		ops = append(ops, ledger.Op{
			Code: record.OpTransfer, From: "alice", To: "shop", Asset: "ron", Amount: ron(1 + n%9),
			Principal: fmt.Sprintf("uid:%d", os.Getuid()), Reference: fmt.Sprintf("order-%03d", n+1),
		})
	}
	for i := range ops {
		clock.Advance(time.Minute)
		outs, err := m.Commit(ctx, ops[i:i+1])
		switch {
		case err != nil:
			return err
		case outs[0].Reject != nil:
			return outs[0].Reject
		case ops[i].Code == record.OpHold:
			fmt.Fprintln(os.Stderr, outs[0].Receipt.TxID)
		}
	}
	return nil
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
