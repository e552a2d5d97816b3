package ledgertest

import (
	"context"

	"ronbox/appliance/b3"
	"ronbox/engines/ledger"
	"ronbox/engines/ledger/record"
)

// found is what Find answers.
type found struct {
	out ledger.Outcome
	ok  bool
}

// Find is a read.
func (f *Faulty) Find(ctx context.Context, k ledger.DedupeKey, fp b3.Digest, notBefore int64) (ledger.Outcome, bool, error) {
	got, err := read(ctx, f, "find "+k.Scope+" "+k.Key, func(ctx context.Context) (g found, err error) {
		g.out, g.ok, err = f.inner.Find(ctx, k, fp, notBefore)
		return g, err
	})
	return got.out, got.ok, err
}

// Balance is a read.
func (f *Faulty) Balance(ctx context.Context, account, asset string, minSeq uint64) (ledger.BalanceView, error) {
	return read(ctx, f, "balance "+account+" "+asset, func(ctx context.Context) (ledger.BalanceView, error) {
		return f.inner.Balance(ctx, account, asset, minSeq)
	})
}

// Account is a read.
func (f *Faulty) Account(ctx context.Context, account string) (ledger.AccountView, error) {
	return read(ctx, f, "account "+account, func(ctx context.Context) (ledger.AccountView, error) { return f.inner.Account(ctx, account) })
}

// Assets is a read.
func (f *Faulty) Assets(ctx context.Context) ([]ledger.AssetView, error) {
	return read(ctx, f, "assets", f.inner.Assets)
}

// Tx is a read.
func (f *Faulty) Tx(ctx context.Context, id record.TxID) (ledger.Outcome, error) {
	return read(ctx, f, "tx "+id.String(), func(ctx context.Context) (ledger.Outcome, error) { return f.inner.Tx(ctx, id) })
}

// History is a read.
func (f *Faulty) History(ctx context.Context, q ledger.HistoryQuery) (ledger.Page, error) {
	return read(ctx, f, "history "+q.Account+" "+q.Asset, func(ctx context.Context) (ledger.Page, error) { return f.inner.History(ctx, q) })
}

// Roots is a read.
func (f *Faulty) Roots(ctx context.Context, since uint64, n int) ([]record.Batch, error) {
	return read(ctx, f, "roots", func(ctx context.Context) ([]record.Batch, error) { return f.inner.Roots(ctx, since, n) })
}

// Head is a read.
func (f *Faulty) Head(ctx context.Context) (record.Head, error) {
	return read(ctx, f, "head", f.inner.Head)
}

// Prove is a read.
func (f *Faulty) Prove(ctx context.Context, id record.TxID, atBatch uint64) (record.Proof, error) {
	return read(ctx, f, "prove", func(ctx context.Context) (record.Proof, error) { return f.inner.Prove(ctx, id, atBatch) })
}

// Consistency is a read.
func (f *Faulty) Consistency(ctx context.Context, from, to uint64) (record.Consistency, error) {
	return read(ctx, f, "consistency", func(ctx context.Context) (record.Consistency, error) { return f.inner.Consistency(ctx, from, to) })
}

// Export is a read that fails at its beginning or not at all.
func (f *Faulty) Export(ctx context.Context, from, to uint64, fn func(record.Line) error) error {
	_, err := read(ctx, f, "export", func(ctx context.Context) (struct{}, error) { return struct{}{}, f.inner.Export(ctx, from, to, fn) })
	return err
}
