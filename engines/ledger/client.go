package ledger

import (
	"context"

	"ronbox/appliance/b3"
	"ronbox/appliance/flow"
	"ronbox/engines/ledger/record"
)

// Client is the ledger as its users see it. Local is the one in this process; a wrapper may stall it, fail it or put a wire in between, and a
// caller must not notice the difference. Every call honours ctx. Writes may be repeated safely: an op carries its own dedupe key.
type Client interface {
	// Commit applies independent ops in order, in one ledger batch or, beside ops still on their way from an earlier call, in several. A
	// business refusal is the outcome of its op. An error tells that nothing was applied, or that it is not known whether it was:
	// *UnavailableError (ErrUnavailable), ErrSafeMode, ErrFull, ErrRestored, *OpError, causes of ctx.
	Commit(ctx context.Context, ops []Op) ([]Outcome, error)
	// Find looks for what a dedupe key did since notBefore, Unix ns. An outcome with the Reject idem_conflict means that the key was
	// used for something else.
	Find(ctx context.Context, k DedupeKey, fingerprint b3.Digest, notBefore int64) (Outcome, bool, error)
	// Settle applies ops all or not at all, once for ever under the id of once. It takes at most MaxPostings ops.
	Settle(ctx context.Context, once Once, ops []Op) (Outcome, error)

	// Balance reads an account, at least as new as the record minSeq. An account that is not known has nothing. A minSeq that is not
	// reached yet waits for it until ctx ends.
	Balance(ctx context.Context, account, asset string, minSeq uint64) (BalanceView, error)
	// Account reads what an account has besides balances.
	Account(ctx context.Context, account string) (AccountView, error)
	// Assets lists what was declared, in order.
	Assets(ctx context.Context) ([]AssetView, error)
	// Tx reads one record's outcome. ErrNotFound for any id that was not given out.
	Tx(ctx context.Context, id record.TxID) (Outcome, error)
	// History reads a page of a statement. ErrCursor for a cursor of another query.
	History(ctx context.Context, q HistoryQuery) (Page, error)
	// Roots lists up to n batch headers after sinceBatch.
	Roots(ctx context.Context, sinceBatch uint64, n int) ([]record.Batch, error)
	// Head is where journal and log end.
	Head(ctx context.Context) (record.Head, error)
	// Prove gives a proof of one record in the log as of atBatch, 0 for the newest. ErrNotFound, ErrRange.
	Prove(ctx context.Context, id record.TxID, atBatch uint64) (record.Proof, error)
	// Consistency proves that the log at batch to holds the log at batch from. ErrRange.
	Consistency(ctx context.Context, from, to uint64) (record.Consistency, error)
	// Export gives fn the journal's records from one seq to another, both included, each batch's header after its last record, in
	// order; to 0 is the head as of the call. It reads in slices, so a slow fn holds up nothing.
	Export(ctx context.Context, from, to uint64, fn func(record.Line) error) error

	// Probe passes through the committer and one sync, and changes nothing.
	Probe(ctx context.Context) error
	// Events gives a cursor over the batches committed from now on; consumer names the reader in metrics. A reader that lags must take
	// everything for changed. The caller closes it.
	Events(consumer string) *flow.Subscription[Committed]
	// Close ends the intake and waits for the calls under way until ctx ends.
	Close(ctx context.Context) error
}
