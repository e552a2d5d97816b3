package httpapi

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"ronbox/appliance/b3"
	"ronbox/appliance/flow"
	"ronbox/engines"
	"ronbox/engines/ledger"
	"ronbox/engines/ledger/record"
	"ronbox/engines/wallet"
	"ronbox/httpapi/auth"
	"ronbox/httpapi/front"
)

const (
	txid      = "tx_" + someULID
	ledgerNow = int64(1_800_000_000_123_456_789)
)

// fakeWallet answers from its fields; err, when set, is what every call gets.
type fakeWallet struct {
	mu       sync.Mutex
	err      error
	notReady error
	wait     bool // until the context ends
	replay   bool
	status   int
	calls    int
	key      string
	by       engines.Actor
	order    wallet.Request
	orders   []wallet.Request
	atomic   bool
	minSeq   uint64
	query    ledger.HistoryQuery
	until    time.Duration // how long the last call might have taken
	seq      uint64        // the newest record
	exported [][2]uint64
	broken   uint64           // the record at which an export fails, 0 for none
	reached  func(seq uint64) // of each record that is exported, nil: nobody asks
	issued   string           // of every account, "" for none
	bus      *flow.Broadcast[ledger.Committed]
}

func newFakeWallet(cat *flow.Catalog) *fakeWallet {
	return &fakeWallet{seq: 3, status: 200, bus: flow.NewBroadcast[ledger.Committed](cat, flow.Spec{
		Service: "wallet", Name: "ledger_bus", Cap: 8, Policy: flow.DropOldest, Producers: []string{"committer"}, Consumers: []string{"http"},
	})}
}

func (f *fakeWallet) set(err error) { f.mu.Lock(); f.err = err; f.mu.Unlock() }

func (f *fakeWallet) call(ctx context.Context, by engines.Actor) error {
	f.mu.Lock()
	f.calls++
	f.by = by
	if at, ok := ctx.Deadline(); ok {
		f.until = time.Until(at)
	}
	err, wait := f.err, f.wait
	f.mu.Unlock()
	if wait {
		<-ctx.Done()
		return context.Cause(ctx)
	}
	return err
}

// holder lets in everyone as one who holds scopes.
type holder struct{ scopes []string }

func (h holder) Check(string, auth.Request) (engines.Actor, error) {
	return engines.Actor{CapID: "tid", Principal: "p", Scopes: h.scopes, Admin: slices.Contains(h.scopes, auth.ScopeAdmin)}, nil
}

// granted lets in everyone as one who holds scopes, within a grant.
type granted struct {
	scopes []string
	grant  *engines.Grant
}

func (g granted) Check(string, auth.Request) (engines.Actor, error) {
	return engines.Actor{CapID: "tid", Principal: "p", Scopes: g.scopes, Grant: g.grant}, nil
}

// socketPeer may do everything.
func socketPeer() *front.Peer { return userPeer(7) }

func userPeer(uid uint32) *front.Peer { return &front.Peer{Socket: true, UID: uid} }

// receiptOf is what the ledger would answer.
func receiptOf(r wallet.Request, key string) []byte {
	id, _ := record.ParseTxID(txid)
	out := record.Receipt{
		TxID: id, Op: r.Op, From: r.From, To: r.To, Asset: r.Asset, Amount: r.Amount, Nonce: r.Nonce, Idem: key, At: ledgerNow, Hold: r.Hold,
		Seq: 7, Batch: 2, Version: record.ReceiptVersion,
	}
	return out.AppendJSON(nil)
}

func (f *fakeWallet) WriteReady() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.notReady
}

func (f *fakeWallet) Post(ctx context.Context, by engines.Actor, key, _ string, r wallet.Request) (wallet.Answer, error) {
	f.mu.Lock()
	f.key, f.order = key, r
	replay := f.replay
	f.mu.Unlock()
	return wallet.Answer{Body: receiptOf(r, key), Status: 200, Replayed: replay}, f.call(ctx, by)
}

func (f *fakeWallet) Batch(
	ctx context.Context, by engines.Actor, key, _ string, atomic bool, ops []wallet.Request,
) (wallet.Answer, error) {
	f.mu.Lock()
	f.key, f.orders, f.atomic = key, ops, atomic
	status, replay := f.status, f.replay
	f.mu.Unlock()
	body := `{"results":[{"index":0,"status":200,"receipt":` + string(receiptOf(ops[0], key)) + `}`
	if status == 207 {
		body += `,{"index":1,"status":409,"error":{"code":"INSUFFICIENT_FUNDS","reason":"insufficient_funds","retryable":false}}`
	}
	return wallet.Answer{Body: []byte(body + "]}"), Status: status, Replayed: replay}, f.call(ctx, by)
}

func (f *fakeWallet) DeclareAsset(ctx context.Context, by engines.Actor, key, _, asset string) (wallet.Answer, error) {
	return wallet.Answer{Body: receiptOf(wallet.Request{Op: record.OpAsset, Asset: asset}, key), Status: 200}, f.call(ctx, by)
}

func amount(s string) engines.Amount {
	a, err := engines.ParseAmount(s)
	if err != nil {
		panic(err)
	}
	return a
}

func (f *fakeWallet) Balance(ctx context.Context, by engines.Actor, account, asset string, minSeq uint64) (wallet.Balance, error) {
	f.minSeq = minSeq
	v := ledger.BalanceView{
		Account: account, Asset: asset, Available: amount("90"), Posted: amount("100"), Held: amount("10"), At: ledgerNow, Seq: 7, Known: true,
	}
	if f.issued != "" {
		v.Issued = amount(f.issued)
	}
	return wallet.Balance{BalanceView: v, Stale: 12 * time.Millisecond}, f.call(ctx, by)
}

func (f *fakeWallet) Account(ctx context.Context, by engines.Actor, account string) (wallet.Account, error) {
	v := ledger.AccountView{Account: account, Known: account != "nobody", LastNonce: 4, Flags: record.NoDebit, OpenedAt: ledgerNow}
	return wallet.Account{AccountView: v, NextNonce: 5}, f.call(ctx, by)
}

func (f *fakeWallet) Assets(ctx context.Context, by engines.Actor) ([]ledger.AssetView, error) {
	return []ledger.AssetView{{Asset: "ron", DeclaredAt: ledgerNow, Seq: 1, Issued: amount("1000")}}, f.call(ctx, by)
}

func (f *fakeWallet) Tx(ctx context.Context, by engines.Actor, _ record.TxID) ([]byte, error) {
	return receiptOf(wallet.Request{Op: record.OpTransfer, From: "alice", To: "bob", Asset: "ron", Amount: amount("5"), Nonce: 1}, "k"),
		f.call(ctx, by)
}

func (f *fakeWallet) History(ctx context.Context, by engines.Actor, q ledger.HistoryQuery) (ledger.Page, error) {
	f.query = q
	id, _ := record.ParseTxID(txid)
	r := record.Receipt{
		TxID: id, Op: record.OpTransfer, From: q.Account, To: "bob", Asset: q.Asset, Amount: amount("5"), Nonce: 1, At: ledgerNow, Seq: 7, Batch: 2,
		Version: record.ReceiptVersion,
	}
	e := ledger.Entry{Receipt: r, Memo: "lunch", Debit: true, Posted: amount("95"), Available: amount("85")}
	return ledger.Page{Entries: []ledger.Entry{e}, Next: "more"}, f.call(ctx, by)
}

func (f *fakeWallet) Roots(ctx context.Context, by engines.Actor, since uint64, n int) ([]record.Batch, error) {
	all := make([]record.Batch, min(n, 2))
	for i := range all {
		no := since + uint64(i) + 1
		all[i] = record.Batch{No: no, First: no, Count: 1, At: ledgerNow}
	}
	return all, f.call(ctx, by)
}

func (f *fakeWallet) Head(ctx context.Context, by engines.Actor) (record.Head, error) {
	f.mu.Lock()
	seq := f.seq
	f.mu.Unlock()
	return record.Head{Batches: seq, Root: b3.Sum([]byte("log")), LastRoot: b3.Sum([]byte("last")), Seq: seq}, f.call(ctx, by)
}

func (f *fakeWallet) Proof(ctx context.Context, by engines.Actor, _ record.TxID, _ uint64) (record.Proof, error) {
	in := record.Inclusion{Record: []byte("r"), Path: []b3.Digest{b3.Sum([]byte("x"))}, Header: record.Batch{No: 1, First: 1, Count: 1}}
	return record.Proof{Tx: in, Names: []record.Inclusion{in}, Hold: &in, Last: in.Header, Head: record.Head{Batches: 1, Seq: 1}}, f.call(ctx, by)
}

func (f *fakeWallet) Consistency(ctx context.Context, by engines.Actor, from, to uint64) (record.Consistency, error) {
	return record.Consistency{
		From: record.LogHead{Batches: from}, To: record.LogHead{Batches: to}, Path: []b3.Digest{b3.Sum([]byte("x"))},
	}, f.call(ctx, by)
}

func (f *fakeWallet) Events(consumer string) *flow.Subscription[ledger.Committed] {
	return f.bus.Subscribe(consumer)
}

// commit adds a batch of one record, then tells.
func (f *fakeWallet) commit() {
	f.mu.Lock()
	f.seq++
	seq := f.seq
	f.mu.Unlock()
	f.bus.Publish(ledger.Committed{First: seq, Last: seq, Batch: seq})
}

// Export gives records that are batches of their own.
func (f *fakeWallet) Export(ctx context.Context, by engines.Actor, from, to uint64, fn func(record.Line) error) error {
	f.mu.Lock()
	f.exported = append(f.exported, [2]uint64{from, to})
	broken := f.broken
	f.mu.Unlock()
	if err := f.call(ctx, by); err != nil {
		return err
	}
	switch {
	case !by.Grant.IsZero():
		return wallet.ErrForbidden
	case from > to+1:
		return ledger.ErrRange
	}
	if err := fn(record.Line{Kind: record.LineFormat, From: from}); err != nil {
		return err
	}
	for seq := from; seq <= to; seq++ {
		if seq == broken {
			return fmt.Errorf("record %d: %w", seq, ledger.ErrSafeMode)
		}
		if f.reached != nil {
			f.reached(seq)
		}
		b := record.Batch{No: seq, First: seq, Count: 1, At: ledgerNow}
		for _, l := range []record.Line{recordLine(seq), {Kind: record.LineBatch, Batch: b}} {
			if err := fn(l); err != nil {
				return err
			}
		}
	}
	return nil
}

func recordLine(seq uint64) record.Line {
	r := record.Record{Op: record.OpFlags, Seq: seq, Batch: seq, At: ledgerNow, From: 1, Set: record.Frozen}
	return record.Line{Kind: record.LineRecord, Raw: r.Append(nil), Record: r, Names: record.Names{From: "alice"}}
}
