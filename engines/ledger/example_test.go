package ledger_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"ronbox/appliance/flow"
	"ronbox/engines"
	"ronbox/engines/ledger"
	"ronbox/engines/ledger/record"
	"ronbox/store"
)

// A ledger moves money between accounts. An op with a key can be sent again: the ledger answers it
// as the first time. A refusal by the rules is an outcome, not an error.
func Example() {
	dir, err := os.MkdirTemp("", "ledger")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	ctx, path := context.Background(), filepath.Join(dir, "example.db")
	id, err := store.NewIdentity(time.Now())
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := store.Create(path, id); err != nil {
		fmt.Println(err)
		return
	}
	catalog := flow.NewCatalog(nil, nil)
	s := store.New(store.DefaultConfig(), store.Options{Path: path, Catalog: catalog})
	l := ledger.New(ledger.DefaultConfig(), ledger.Deps{Catalog: catalog, Store: s})
	if err := s.Open(ctx); err != nil {
		fmt.Println(err)
		return
	}
	defer s.Close()
	if err := s.Prepare(ctx); err != nil {
		fmt.Println(err)
		return
	}
	tasks := flow.NewSupervisor(ctx, catalog, flow.Hooks{})
	tasks.Start(s.Tasks()...)
	if err := l.Recover(ctx); err != nil {
		fmt.Println(err)
		return
	}

	pay(ctx, l,
		ledger.Op{Code: record.OpAsset, Asset: "ron"},
		ledger.Op{Code: record.OpIssue, To: "alice", Asset: "ron", Amount: engines.AmountOf(0, 100)},
	)
	rent := ledger.Op{
		Code: record.OpTransfer, From: "alice", To: "bob", Asset: "ron", Amount: engines.AmountOf(0, 70),
		Dedupe: ledger.DedupeKey{Scope: "alice", Key: "rent-2026-11"}, TTL: time.Hour,
	}
	pay(ctx, l, rent)
	pay(ctx, l, rent) // again
	rent.Dedupe.Key = "rent-2026-12"
	pay(ctx, l, rent)

	b, err := l.Balance(ctx, "alice", "ron", 0)
	fmt.Println("alice has", b.Available, err)
	if err := l.Close(ctx); err != nil {
		fmt.Println(err)
	}
	s.CloseLanes()
	tasks.Close()
	// Output:
	// asset done, replayed: false
	// issue done, replayed: false
	// transfer done, replayed: false
	// transfer done, replayed: true
	// ledger: refused: insufficient_funds
	// alice has 30 <nil>
}

// pay commits ops and prints their outcomes.
func pay(ctx context.Context, c ledger.Client, ops ...ledger.Op) {
	outs, err := c.Commit(ctx, ops)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, out := range outs {
		if out.Reject != nil {
			fmt.Println(out.Reject)
			continue
		}
		fmt.Printf("%s done, replayed: %v\n", out.Receipt.Op, out.Replayed)
	}
}
