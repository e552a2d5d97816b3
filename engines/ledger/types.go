package ledger

import (
	"time"

	"ronbox/appliance/b3"
	"ronbox/engines"
	"ronbox/engines/ledger/record"
)

// Bounds of a call.
const (
	MaxOps      = 8192 // ops of one Commit, those inside batches included: some 6 MB of journal in one transaction
	MaxPostings = 512  // ops of one Settle
	MaxHistory  = 500  // entries of a page
	MaxRoots    = 1000 // headers of a call of Roots
)

// DedupeKey names a request: who asked, and by which key. The ledger hashes it under a key of its own. An empty Key is none.
type DedupeKey struct{ Scope, Key string }

// Op is one change asked for. Which members count depends on Code:
//
//   - OpIssue: To, Asset, Amount, Nonce of the asset's issuance account. OpBurn: From, Asset, Amount, Nonce. The other side stays empty.
//   - OpTransfer: From, To, Asset, Amount, Nonce. OpHold: likewise, and ExpiresIn.
//   - OpCapture: Hold, Amount (zero: all of it). OpRelease: Hold.
//   - OpFlags: From, Set, Clear; an account that is not known is opened. OpAsset: Asset.
//   - OpBatch: Atomic, Ops.
type Op struct {
	Code      record.Op
	From, To  string
	Asset     string
	Amount    engines.Amount
	Nonce     uint64 // 0 only inside a Settle
	Hold      record.TxID
	ExpiresIn time.Duration // of a hold
	Set       record.Flags
	Clear     record.Flags
	Memo      string // at most record.MaxMemo bytes; not of a batch
	Idem      string // as the receipt shows it; at most record.MaxIdem bytes

	Dedupe      DedupeKey
	Fingerprint b3.Digest      // of what was asked; the same key with another one is refused
	TTL         time.Duration  // how long the key counts, from the record on; more than zero if there is a key
	Principal   string         // who asked; the journal keeps a hash of it
	CapID       string         // by which token, likewise; of an op in a batch the batch's counts
	ValidUntil  int64          // Unix ns after which the op is refused; 0: never
	Limits      *Limits        // shared, immutable; nil: none
	Daily       engines.Amount // most that the token may move of the asset on a UTC day, captures included; zero: no bound

	Atomic bool // of a batch: all its ops or none
	Ops    []Op // of a batch; their own dedupe members stay empty
}

// Limits are the bounds in force when an op was decided. Zero is no bound.
type Limits struct {
	PerOp        engines.Amount // of any op
	Daily        engines.Amount // debited from an account in an asset on a UTC day
	AccountTotal engines.Amount // balance and incoming holds of the receiver
	Monotonic    bool           // nonces may skip, by up to NonceSpan; else each is the last plus 1
	NonceSpan    uint64
	OpenHolds    uint64 // of the whole ledger
}

// Once names a settlement for ever. The same Digest again gives the first outcome, another one is refused. A Guard ties its Key to the first
// Owner that settles under it: another owner is refused. An empty Guard.Key is none.
type Once struct {
	Domain, ID string // 1 to 128 bytes each
	Digest     b3.Digest
	Guard      Guard
	Principal  string
}

// Guard is a key and the one owner that may settle under it.
type Guard struct{ Key, Owner string }

// Outcome is what became of an op.
type Outcome struct {
	Receipt  record.Receipt // of an accepted op
	Memo     string         // of the record; set by Tx and Find
	Replayed bool           // it had been done before, under the same key
	Reject   *Reject        // nil: accepted
	Results  []Outcome      // of a batch or a settlement, one an op
	Batch    bool           // Results counts, and of Receipt only that its Version is record.ReceiptVersion: the answer is of the first renderer
	Atomic   bool           // of a batch
	Parties  Parties        // set by Tx and Find
}

// Parties are the two accounts of a record, the debited first; a capture or a release has those of its hold.
type Parties struct{ From, To string }

// BalanceView is an account's standing in one asset after the record Seq.
type BalanceView struct {
	Account   string
	Asset     string
	Available engines.Amount // Posted less Held
	Posted    engines.Amount // credits less debits
	Held      engines.Amount // set aside by open holds
	At        int64          // Unix ns of the newest record known to have been seen
	Seq       uint64         // of that record
	Known     bool           // the account is known
	Issued    engines.Amount // of an issuance account, whose balance is below zero: what is in circulation
}

// AccountView is what an account has besides balances.
type AccountView struct {
	Account   string
	Known     bool
	LastNonce uint64
	LastTx    record.TxID // that used LastNonce; zero: none did
	Flags     record.Flags
	OpenedAt  int64 // Unix ns
	OpenedSeq uint64
}

// AssetView is a declared asset.
type AssetView struct {
	Asset      string
	DeclaredAt int64 // Unix ns
	Seq        uint64
	Issued     engines.Amount // ever issued and not burnt
}

// HistoryQuery asks for a page of a statement: the records that touched an account in an asset.
type HistoryQuery struct {
	Account, Asset string
	Limit          int    // 1 to MaxHistory
	Cursor         string // of the page before; "" is the first
	Since, Until   int64  // Unix ns: at or after Since, before Until; 0: no bound
	NewestFirst    bool
}

// Page is a page of a statement; Next is the cursor of the one after it, "" at the end.
type Page struct {
	Entries []Entry
	Next    string
}

// Entry is one record as its account sees it.
type Entry struct {
	Receipt   record.Receipt
	Memo      string
	Debit     bool           // the account was the debited side
	Posted    engines.Amount // its balance after the record
	Available engines.Amount
}

// Committed tells of one ledger batch, once it is synced.
type Committed struct {
	First, Last uint64 // seqs of its records
	Batch       uint64
	Root        b3.Digest
	At          int64         // Unix ns
	Touched     []Mark        // of the balances that it may have changed, some twice; at most MaxTouched
	All         bool          // they are too many for Touched: any balance may have changed
	Expired     []record.TxID // the holds that it ended, their time being over
}
