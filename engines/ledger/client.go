package ledger

import (
	"context"
	"errors"
	"fmt"
	"time"

	"ronbox/appliance/b3"
	"ronbox/appliance/flow"
	"ronbox/engines"
	"ronbox/engines/ledger/record"
	"ronbox/engines/ledger/tables"
)

// Pending is a command that was submitted.
type Pending interface {
	// Wait returns one outcome for each op, in order, as Commit does. If ctx ends before the
	// command has its turn, no op is applied.
	Wait(ctx context.Context) ([]Outcome, error)
}

// Client is the interface to a ledger. Local implements it over the node's store; a wrapper may add
// delays, failures or a network. Every call honours ctx. A write with a key or a reference may be
// repeated safely. A write, and a read of holds or balances, first ends the holds that are overdue.
// A read of a record, a batch or a time of a closed period returns a *ClosedError.
type Client interface {
	// Prepare runs in its caller's goroutine. It checks op, hashes its key and reference and looks
	// for a record done under them, and reads names and rows that are not in memory. It does not
	// see a command that is still queued. After an error, an *OpError or one of Commit's, nothing
	// was applied.
	Prepare(ctx context.Context, op *Op) (*Prepared, error)
	// Submit queues ops that this client has prepared as one command, in order. It waits for a
	// place in the queue until ctx ends. The caller must call Wait once. The same ops may be
	// submitted again.
	Submit(ctx context.Context, ops []*Prepared) (Pending, error)
	// Commit is Prepare, Submit and Wait: it applies independent ops in order, in one batch of the
	// ledger. A refusal by the rules is the outcome of its op. After an error, either no op was
	// applied or the outcome is unknown. Errors are *UnavailableError (ErrUnavailable),
	// ErrSafeMode, ErrFull, ErrRestored, *OpError and causes of ctx.
	Commit(ctx context.Context, ops []Op) ([]Outcome, error)
	// Find returns the outcome of a dedupe key since notBefore, Unix ns, and reports whether there
	// is one. The outcome has the Reject idem_conflict if the key was used with another
	// fingerprint.
	Find(ctx context.Context, k DedupeKey, fingerprint b3.Digest, notBefore int64) (Outcome, bool, error)
	// Settle applies all ops or none, at most once under the id of once. It takes at most
	// MaxPostings ops. A settlement of a closed period is Replayed without Results.
	Settle(ctx context.Context, once Once, ops []Op) (Outcome, error)

	// Balance reads the balance of an account after the record minSeq or a later one. It waits for
	// that record until ctx ends. An unknown account has a zero balance.
	Balance(ctx context.Context, account, asset string, minSeq uint64) (BalanceView, error)
	// Account reads the nonce, flags and opening of an account.
	Account(ctx context.Context, account string) (AccountView, error)
	// Assets lists the declared assets, in order.
	Assets(ctx context.Context) ([]AssetView, error)
	// Tx reads the outcome of a record. It returns ErrNotFound if no record has the id.
	Tx(ctx context.Context, id record.TxID) (Outcome, error)
	// Reference reads the outcome of the record with a principal's reference. It returns
	// ErrNotFound if no record has it, and a *ClosedError if a closed period has the record.
	Reference(ctx context.Context, principal, reference string) (Outcome, error)
	// History reads a page of a statement, which goes down to the end of the last closed period. It
	// returns ErrCursor if the cursor is of another query.
	History(ctx context.Context, q HistoryQuery) (Page, error)
	// Holds reads a page of an account's open holds. ErrCursor for an After of another form.
	Holds(ctx context.Context, q HoldsQuery) (HoldsPage, error)
	// Hold reads one hold, open or not, unless it ended in a closed period. ErrNotFound if id is
	// not the id of a hold.
	Hold(ctx context.Context, id record.TxID) (HoldView, error)
	// Accounts reads a page of the accounts in the order of their names.
	Accounts(ctx context.Context, q AccountsQuery) (AccountsPage, error)
	// Roots lists up to n batch headers after sinceBatch. They begin after the last closed period.
	// If that has the next n batches after one that is not 0, the error is a *ClosedError.
	Roots(ctx context.Context, sinceBatch uint64, n int) ([]record.Batch, error)
	// Head reads the end of the journal and of the log of batch roots.
	Head(ctx context.Context) (record.Head, error)
	// Prove returns a proof of one record in the log as of atBatch, 0 for the newest. It returns
	// ErrNotFound or ErrRange, and a *ClosedError if a closed period has the record, or has a name
	// in it and that log lacks the record which closed the newest period.
	Prove(ctx context.Context, id record.TxID, atBatch uint64) (record.Proof, error)
	// Consistency proves that the log at batch from is a prefix of the log at batch to. It returns
	// ErrRange.
	Consistency(ctx context.Context, from, to uint64) (record.Consistency, error)
	// Export calls fn with the records from one seq to another, both included, and with each batch
	// header after the batch's last record. If to is 0, it ends with the head as of the call. No
	// view is open while fn runs.
	Export(ctx context.Context, from, to uint64, fn func(record.Line) error) error
	// Payments calls fn with the outcomes, as Tx reads them, of the records from one seq to
	// another, both included, that f selects. from may be to + 1: there are none then. It returns
	// ErrRange if the journal does not reach to, and a *ClosedError when it comes to a closed
	// period: with f.Newest after the records that are there. No view is open while fn runs, which
	// must not keep the outcome.
	Payments(ctx context.Context, f PaymentFilter, from, to uint64, fn func(*Outcome) error) error

	// Probe queues a command without effect and waits for its sync.
	Probe(ctx context.Context) error
	// Events subscribes to the batches committed from now on; consumer names the reader in metrics.
	// A reader that lags must assume that everything has changed. The caller closes it.
	Events(consumer string) *flow.Subscription[Committed]
	// Close ends the intake and waits for the calls under way until ctx ends.
	Close(ctx context.Context) error
}

// Bounds of a call.
const (
	MaxOps      = 8192 // ops of one Commit, those inside batches included: some 6 MB of journal in one transaction
	MaxPostings = 512  // ops of one Settle
	MaxHistory  = 500  // entries of a page
	MaxRoots    = 1000 // headers of a call of Roots
)

// DedupeKey names a request by scope and idempotency key. The ledger stores a keyed hash of it. An
// op with an empty Key has none.
type DedupeKey struct{ Scope, Key string }

// Op is one requested change. The members that count depend on Code:
//
//   - OpIssue: To, Asset, Amount, Nonce of the asset's issuance account. OpBurn: From, Asset,
//     Amount, Nonce. The other side stays empty.
//   - OpTransfer: From, To, Asset, Amount, Nonce. OpHold: likewise, and ExpiresIn.
//   - OpCapture: Hold, Amount (zero: all of it). OpRelease: Hold.
//   - OpFlags: From, Set, Clear; an unknown account is opened. OpAsset: Asset.
//   - OpScale: Asset, Amount (its decimals, 0 to engines.MaxDecimals); an unknown asset is
//     declared.
//   - OpBatch: Atomic, Ops.
type Op struct {
	Code      record.Op
	From, To  string
	Asset     string
	Amount    engines.Amount
	Nonce     uint64 // 0: the next one of the account; inside a Settle: none
	Hold      record.TxID
	ExpiresIn time.Duration // of a hold
	Set       record.Flags
	Clear     record.Flags
	Memo      string // at most record.MaxMemo bytes; not of a batch
	Idem      string // as the receipt shows it; at most record.MaxIdem bytes

	// Reference is a permanent id of the op, per principal: at most record.MaxReference bytes of
	// printable text, "" for none. Ops that move money may have one, those of a batch too, those
	// of a settlement not. See doc.go.
	Reference string

	Dedupe      DedupeKey
	Fingerprint b3.Digest     // of the request; the same key with another fingerprint is refused
	TTL         time.Duration // how long the key counts, from the record on; more than zero if there is a key
	Principal   string        // of the caller; the journal keeps a hash. In a batch the batch's counts
	CapID       string        // id of the caller's token, likewise
	ValidUntil  int64         // Unix ns after which the op is refused; 0: never
	Limits      *Limits       // shared, immutable; nil: none
	// Daily is the most that the token may move of the asset on a UTC day, captures included; zero
	// is no bound.
	Daily engines.Amount

	Atomic bool // of a batch: all its ops or none
	Ops    []Op // of a batch; their own dedupe members stay empty

	checked bool // Check has found it well-formed
}

// Limits are the bounds that an op is decided under. Zero is no bound.
type Limits struct {
	PerOp        engines.Amount // of any op
	Daily        engines.Amount // debited from an account in an asset on a UTC day
	AccountTotal engines.Amount // balance and incoming holds of the receiver
	Monotonic    bool           // nonces may skip, by up to NonceSpan; else each is the last plus 1
	NonceSpan    uint64
	OpenHolds    uint64 // of the whole ledger
}

// Once is the permanent id of a settlement. A repetition with the same Digest gets the first
// outcome; one with another Digest is refused. A Guard binds its Key to the first Owner that
// settles under it; other owners are refused. An empty Guard.Key binds nothing.
type Once struct {
	Domain, ID string // 1 to 128 bytes each
	Digest     b3.Digest
	Guard      Guard
	Principal  string
}

// Guard is a key and the only owner that may settle under it.
type Guard struct{ Key, Owner string }

// Prepared is an op that Prepare has checked and looked up.
type Prepared struct {
	// Op is the op. Its Nonce may be set until Submit. Other fields must not change until Wait
	// returns.
	Op *Op
	// Known is the outcome if the key or the reference of the op already decides it, else nil. If
	// Known is set, the op need not be submitted.
	Known *Outcome

	action action
	size   int
}

// Outcome is the outcome of an op.
type Outcome struct {
	Receipt  record.Receipt // of an accepted op
	Memo     string         // of the record; set by Tx and Find
	Replayed bool           // the op was done before, under the same key or reference
	Reject   *Reject        // nil: accepted
	// Period is the closed period in which a settlement was done: it is Replayed, and Results is
	// nil. 0: the records are there.
	Period  uint64
	Results []Outcome // of a batch or a settlement, one an op
	// Batch says that Results counts, and that Receipt has at most a Version: record.ReceiptVersion
	// for the first renderer of answers.
	Batch   bool
	Atomic  bool    // of a batch
	Parties Parties // set by Tx and Find
}

// Parties are the two accounts of a record, the debited account first. A capture or a release has
// the parties of its hold.
type Parties struct{ From, To string }

// BalanceView is the balance of an account in one asset after the record Seq.
type BalanceView struct {
	Account   string
	Asset     string
	Available engines.Amount // Posted less Held
	Posted    engines.Amount // credits less debits
	Held      engines.Amount // set aside by open holds
	At        int64          // Unix ns, of the newest record that the view includes
	Seq       uint64         // of that record
	Known     bool           // the account is known
	Issued    engines.Amount // the amount in circulation; only for an issuance account, which has a negative balance
	Cold      bool           // it was read from the file, because memory does not have it
}

// AccountView is an account without its balances.
type AccountView struct {
	Account   string
	Known     bool
	LastNonce uint64
	LastTx    record.TxID // of the record that used LastNonce; zero if none did
	Flags     record.Flags
	OpenedAt  int64 // Unix ns
	OpenedSeq uint64
}

// AssetView is a declared asset.
type AssetView struct {
	Asset      string
	DeclaredAt int64 // Unix ns
	Seq        uint64
	Issued     engines.Amount // issued and not burnt
	Decimals   int            // of an amount that people read: 0 to engines.MaxDecimals; 0 if it was never set
	Scaled     bool           // Decimals was set
}

// HistoryQuery asks for a page of a statement: the records that touched an account in an asset.
type HistoryQuery struct {
	Account, Asset string
	Limit          int    // 1 to MaxHistory
	Cursor         string // of the page before; "" is the first
	Since, Until   int64  // Unix ns: at or after Since, before Until; 0: no bound
	NewestFirst    bool
}

// Page is a page of a statement. Next is the cursor of the next page, "" at the end.
type Page struct {
	Entries []Entry
	Next    string
	Opening *Opening // below the oldest entry, if older ones are in closed periods; else nil
}

// Opening is a balance as the last closed period left it.
type Opening struct {
	Period    uint64
	At        int64  // of the last batch of the period, Unix ns
	Postings  uint64 // in closed periods
	Posted    engines.Amount
	Available engines.Amount
}

// Entry is one record of a statement.
type Entry struct {
	Receipt   record.Receipt
	Memo      string
	Debit     bool           // the account was the debited side
	Posted    engines.Amount // its balance after the record
	Available engines.Amount
}

// Committed describes one ledger batch, after its sync.
type Committed struct {
	First, Last uint64 // seqs of its records
	Batch       uint64
	Root        b3.Digest
	At          int64         // Unix ns
	Expired     []record.TxID // overdue holds that the batch has ended
}

// Errors of a Client, beside the causes of the caller's context.
var (
	// ErrUnavailable is returned when the ledger did not answer. The *UnavailableError reports
	// whether the ops may have been applied.
	ErrUnavailable = errors.New("ledger: unavailable")
	// ErrSafeMode is returned when the journal is damaged. The ledger accepts no writes until the
	// journal has been verified and the node restarted.
	ErrSafeMode = errors.New("ledger: safe mode: reads only; stop the node and run ronbox ledger verify, " +
		"then ronbox ledger rebuild if only derived tables are damaged")
	// ErrFull is returned when there is no room for the write. Nothing was applied.
	ErrFull = errors.New("ledger: no room")
	// ErrRestored is returned when the file was restored and not yet accepted. Nothing was applied.
	ErrRestored = errors.New("ledger: restored, not yet accepted")
	// ErrNotFound is returned when there is no such record.
	ErrNotFound = errors.New("ledger: not found")
	// ErrCursor is returned when the cursor belongs to another query.
	ErrCursor = tables.ErrCursor
	// ErrRange is returned when the requested batch or range is not in the log.
	ErrRange = errors.New("ledger: range is not in the log")
	// ErrLoading is returned until Recover has ended.
	ErrLoading = errors.New("ledger: loading")
)

// UnavailableError is returned for a call without an answer. It is ErrUnavailable.
type UnavailableError struct {
	Unknown bool // the ops may have been applied: the same call again finds out
	Cause   error
}

func (e *UnavailableError) Error() string {
	if e.Unknown {
		return fmt.Sprintf("%v, outcome unknown: %v", ErrUnavailable, e.Cause)
	}
	return fmt.Sprintf("%v, nothing was applied: %v", ErrUnavailable, e.Cause)
}

// Is reports whether target is ErrUnavailable.
func (e *UnavailableError) Is(target error) bool { return target == ErrUnavailable }

// Unwrap returns the cause.
func (e *UnavailableError) Unwrap() error { return e.Cause }

// ClosedError is returned for a record, a batch or a reference of a closed period. The file of the
// period may have it.
type ClosedError struct {
	Period   uint64
	ToSeq    uint64 // the last record of the period
	ToAt     int64  // its time, Unix ns
	File     string // where the closing has written the records
	FirstSeq uint64 // the first record that the ledger still has
}

func (e *ClosedError) Error() string {
	return fmt.Sprintf("ledger: period %d is closed, and its records are in its file", e.Period)
}

// OpError is returned for a malformed op. Nothing of the call was applied.
type OpError struct {
	Index  int // of the op in the call
	Field  string
	Reason string
}

func (e *OpError) Error() string {
	return fmt.Sprintf("ledger: op %d: %s: %s", e.Index, e.Field, e.Reason)
}

// Reject is a refusal by the rules. It is final for the state of the ledger. The op was not
// applied.
type Reject struct {
	Code      record.Result
	Expected  uint64      // nonce_reused, nonce_gap: the next valid nonce; 0: no nonce is left
	Committed record.TxID // nonce_reused: the record that used the nonce, if it was the account's last
	Index     int         // of an atomic batch or a settlement: the first op that failed
	Party     string      // account_locked: the party with the flag, "from" or "to"
	Unknown   bool        // insufficient_funds: the payer has never received a payment
	Limit     string      // limit_…: which one, "per_op", "daily", "token_daily", "account_total", "open_holds"
	// Closed is the period of period_closed; nil in the results of a batch.
	Closed *ClosedError
}

func (e *Reject) Error() string { return "ledger: refused: " + e.Code.String() }
