package record

import "ronbox/engines"

const (
	// MaxRecord is the longest record in bytes. The store's file splits no page that holds four values or fewer, so values of this size
	// keep what a commit rewrites at its end within one page.
	MaxRecord = 800
	// MaxImages is how many images a record has at most: two sides, and as many again in reserve.
	MaxImages = 4
	// MaxIdem is the longest idempotency key in bytes.
	MaxIdem = 64
	// MaxMemo is the longest memo in bytes: with every other part present and MaxImages images a record of 661 bytes leaves room for 139.
	MaxMemo = 128
	// MaxResults is how many results one record of a batch holds: 4096 ops make eight records.
	MaxResults = 512
)

// Flags of a record.
const (
	FlagInner  uint16 = 1 << iota // part of a batch: the key and the principal are in the batch's own record
	FlagAtomic                    // with all others of its batch or not at all

	allRecordFlags = FlagInner | FlagAtomic
)

// Kinds of Dedupe.
const (
	DedupeNone uint8 = iota
	DedupeKey        // a caller's idempotency key; it counts for a time
	DedupeOnce       // a permanent id
)

// Dedupe is by what a repetition is known.
type Dedupe struct {
	Kind        uint8
	Key         [16]byte
	Fingerprint [32]byte // of what was asked, so that another question under the same key is seen
}

// Guard binds a key of a permanent id to one owner, both as hashes. The zero Guard binds nothing.
type Guard struct{ Key, Owner [16]byte }

// Image is one side of a record: the state after it.
type Image struct {
	Account uint64 // ref
	Asset   uint32 // the record's, always
	State   State  // its LastSeq is the record's Seq, always
	Prev    uint64 // Seq of the record before that touched this account and asset, 0 for none
}

// Record is one entry of the journal. Members that its Op does not need are zero, and take no room.
type Record struct {
	Op         Op
	Flags      uint16 // FlagInner, FlagAtomic
	Set, Clear Flags  // OpFlags
	Named      bool   // OpFlags, OpBatch: of version 2, whose receipt names Set and Clear, whose answer is of renderer 2; records from before there was one lack it
	Rand       uint16 // the random bits of its TxID
	Asset      uint32 // ref, 0 for none
	Seq, Batch uint64 // from 1 on
	At         int64  // the ledger's time in ns since 1970
	Amount     engines.Amount
	From, To   uint64 // refs of accounts, 0 for none
	Nonce      uint64
	Principal  [8]byte // who asked, as a hash
	CapID      [8]byte // by which token, as a hash
	Dedupe     Dedupe
	Guard      Guard  // OpOnce
	Hold       uint64 // Seq of the hold: OpCapture, OpRelease, OpExpire
	Expires    int64  // OpHold: the time it ends, in ns since 1970
	Idem       string // the caller's key as it was given
	Memo       string
	Name       string // OpOpen: of the account From; OpAsset: of Asset
	Part       uint16 // OpBatch: which of Parts this is, from 0 on
	Parts      uint16
	Results    []byte // OpBatch: a Result for each op; every part but the last has MaxResults
	Images     []Image
}

// TxID names r.
func (r *Record) TxID() TxID { return NewTxID(r.At, r.Seq, r.Rand) }
