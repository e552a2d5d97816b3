package record

import (
	"errors"
	"fmt"
	"unicode"
	"unicode/utf8"

	"ronbox/engines"
)

const (
	// MaxRecord is the longest record in bytes. The store does not split a page with four values or
	// fewer, so with values of this size a commit rewrites at most one page at the end of the
	// table.
	MaxRecord = 800
	// MaxImages is how many images a record has at most: two sides, and as many again in reserve.
	MaxImages = 4
	// MaxIdem is the longest idempotency key in bytes.
	MaxIdem = 64
	// MaxReference is the longest reference in bytes. The journal keeps a hash of it.
	MaxReference = 64
	// MaxMemo is the longest memo in bytes: with every other part present and MaxImages images a
	// record of 661 bytes leaves room for 139.
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

// Dedupe identifies repetitions of a request.
type Dedupe struct {
	Kind        uint8
	Key         [16]byte
	Fingerprint [32]byte // of the request; detects another request under the same key
}

// Guard binds a key to one owner, both as hashes. The zero Guard binds nothing. The guard of an
// OpOnce that begins a settlement belongs to a permanent id. The guard of an op that moves money is
// its reference: Key is of principal and reference, Owner of the op's words. An OpOnce with
// FlagInner repeats the guard of an op of its batch that an earlier record has answered.
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
	// Named marks an OpFlags or OpBatch of version 2: the receipt names Set and Clear, the answer
	// of the batch uses renderer 2.
	Named      bool
	Rand       uint16         // the random bits of its TxID
	Asset      uint32         // ref, 0 for none
	Seq, Batch uint64         // from 1 on
	At         int64          // the ledger's time in ns since 1970
	Amount     engines.Amount // OpScale: the decimals of Asset; OpClose: the number of the period
	From, To   uint64         // refs of accounts, 0 for none
	Nonce      uint64
	Principal  [8]byte // who asked, as a hash
	CapID      [8]byte // by which token, as a hash
	Dedupe     Dedupe
	Guard      Guard  // OpOnce, and ops that move money but for OpExpire
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

// Op is the operation of a record. The numbers are stored.
type Op uint8

// The ops. Open to Once make the journal explain itself; the rest are what callers ask for.
const (
	OpOpen     Op = 1  // opens an account with its ref
	OpAsset    Op = 2  // declares an asset
	OpFlags    Op = 3  // sets and clears flags of an account
	OpOnce     Op = 4  // binds a permanent id
	OpIssue    Op = 5  // from the asset's issuance account
	OpTransfer Op = 6  // from one account to another
	OpBurn     Op = 7  // back to the asset's issuance account
	OpHold     Op = 8  // sets an amount aside for the payee
	OpCapture  Op = 9  // pays out a hold, whole or in part
	OpRelease  Op = 10 // cancels a hold
	OpExpire   Op = 11 // ends an overdue hold
	OpBatch    Op = 12 // what became of each op of a batch
	OpScale    Op = 13 // sets the decimals of an asset, once
	OpClose    Op = 14 // closes a period: Amount is its number, Dedupe has the digest of its statement
)

var opNames = [...]string{
	OpOpen:     "open",
	OpAsset:    "asset",
	OpFlags:    "flags",
	OpOnce:     "once",
	OpIssue:    "issue",
	OpTransfer: "transfer",
	OpBurn:     "burn",
	OpHold:     "hold",
	OpCapture:  "capture",
	OpRelease:  "release",
	OpExpire:   "expire",
	OpBatch:    "batch",
	OpScale:    "scale",
	OpClose:    "close",
}

// String is the word for o.
func (o Op) String() string {
	if o.known() {
		return opNames[o]
	}
	return fmt.Sprintf("op %d", uint8(o))
}

// ParseOp takes the word that String gives.
func ParseOp(s string) (Op, error) {
	for o, name := range opNames {
		if name == s && s != "" {
			return Op(o), nil
		}
	}
	return 0, fmt.Errorf("record: %q is not an op", s)
}

func (o Op) known() bool { return o >= OpOpen && o <= OpClose }

// MovesMoney reports whether a record of o posts, holds or frees an amount.
func (o Op) MovesMoney() bool { return o >= OpIssue && o <= OpExpire }

// Result is what became of an op. The numbers are stored in records of batches.
type Result uint8

// The results. Past Replayed they are the reasons of a refusal.
const (
	Accepted          Result = 0
	Replayed          Result = 1
	IdemConflict      Result = 2  // the key was used for something else
	Expired           Result = 3  // valid_until is over
	AccountLocked     Result = 4  // a flag forbids it
	AssetUnknown      Result = 5  // nobody declared the asset
	NonceReused       Result = 6  // the nonce is used up
	NonceGap          Result = 7  // a nonce before it was not used yet
	LimitOp           Result = 8  // more than one op may move
	LimitDaily        Result = 9  // more than the account may give in a day
	LimitTotal        Result = 10 // more than the receiver may hold
	LimitHolds        Result = 11 // no more holds may be open
	HoldUnknown       Result = 12 // there is no such hold
	HoldClosed        Result = 13 // it was captured or released
	HoldExpired       Result = 14 // its time is over
	InsufficientFunds Result = 15 // the payer has less
	Aborted           Result = 16 // another op of its atomic batch was refused
	OnceConflict      Result = 17 // the permanent id stands for something else
	ReferenceConflict Result = 18 // the reference stands for something else
	DecimalsSet       Result = 19 // the asset has other decimals
	PeriodClosed      Result = 20 // the payment of the reference was made in a closed period

	LastResult = PeriodClosed
)

var resultNames = [...]string{
	"accepted",
	"replayed",
	"idem_conflict",
	"expired",
	"account_locked",
	"asset_unknown",
	"nonce_reused",
	"nonce_gap",
	"limit_op",
	"limit_daily",
	"limit_total",
	"limit_holds",
	"hold_unknown",
	"hold_closed",
	"hold_expired",
	"insufficient_funds",
	"aborted",
	"once_conflict",
	"reference_conflict",
	"decimals_set",
	"period_closed",
}

// String is the word for r, which metrics and logs use too.
func (r Result) String() string {
	if r.Known() {
		return resultNames[r]
	}
	return fmt.Sprintf("result %d", uint8(r))
}

// Known reports whether r is one of the results.
func (r Result) Known() bool { return int(r) < len(resultNames) }

// Refused reports whether r is the reason for a refusal.
func (r Result) Refused() bool { return r > Replayed }

// ErrIdem is returned for a text that is not an idempotency key.
var ErrIdem = errors.New("not an idempotency key: must be 1 to 64 of the characters A-Z a-z 0-9 . _ : -")

// ErrMemo is returned for a text that is not a memo.
var ErrMemo = fmt.Errorf("not a memo: must be UTF-8 of at most %d bytes", MaxMemo)

// ErrReference is returned for a text that is not a reference.
var ErrReference = fmt.Errorf("not a reference: must be 1 to %d bytes of printable UTF-8", MaxReference)

// CheckReference returns ErrReference if s is not a valid reference.
func CheckReference(s string) error {
	if s == "" || len(s) > MaxReference || !utf8.ValidString(s) {
		return ErrReference
	}
	for _, c := range s {
		if !unicode.IsPrint(c) {
			return ErrReference
		}
	}
	return nil
}

// CheckIdem returns ErrIdem if s is not a valid idempotency key.
func CheckIdem(s string) error {
	if s == "" || len(s) > MaxIdem {
		return ErrIdem
	}
	for i := range len(s) {
		switch c := s[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= ':', c == '.', c == '_', c == '-':
		default:
			return ErrIdem
		}
	}
	return nil
}

// CheckMemo returns ErrMemo if s is not a valid memo. "" is valid.
func CheckMemo(s string) error {
	if len(s) > MaxMemo || !utf8.ValidString(s) {
		return ErrMemo
	}
	return nil
}

// The faults of a record, each of which is a *FormatError's reason.
var (
	errOp      = errors.New("unknown op")
	errFlags   = errors.New("unknown flags")
	errNumber  = errors.New("seq and batch must be from 1 on, times not negative")
	errDedupe  = errors.New("a dedupe of no kind, or of an unknown one")
	errName    = errors.New("a name where none belongs, or none where one does")
	errClose   = errors.New("a closing without the number of its period, or without the digest of a statement")
	errScale   = fmt.Errorf("decimals of no asset, or more than %d", engines.MaxDecimals)
	errResults = errors.New("results where none belong, of no known kind, or in the wrong part")
	errImages  = errors.New("too many images, two of one account, or one of another seq or asset than the record's")
)

// check returns an error if a value of r is invalid. A valid record has exactly one byte form.
func (r *Record) check() error {
	switch {
	case !r.Op.known():
		return errOp
	case r.Flags&^allRecordFlags != 0, (r.Set|r.Clear)&^allFlags != 0:
		return errFlags
	case r.Named && r.Op != OpBatch && (r.Op != OpFlags || r.Set|r.Clear == 0):
		return errVersion
	case r.Seq == 0, r.Batch == 0, r.At < 0, r.Expires < 0:
		return errNumber
	case r.Dedupe.Kind > DedupeOnce, r.Dedupe.Kind == DedupeNone && r.Dedupe != Dedupe{}:
		return errDedupe
	}
	if r.Idem != "" {
		if err := CheckIdem(r.Idem); err != nil {
			return err
		}
	}
	if r.Memo != "" {
		if err := CheckMemo(r.Memo); err != nil {
			return err
		}
	}
	var err error
	switch {
	case r.Op == OpOpen:
		err = engines.CheckAccount(r.Name)
	case r.Op == OpAsset:
		err = engines.CheckAsset(r.Name)
	case r.Name != "":
		err = errName
	}
	switch {
	case err != nil:
		return err
	case r.Op == OpScale && (r.Asset == 0 || CheckScale(r.Amount) != nil):
		return errScale
	case r.Op == OpClose && !r.closes():
		return errClose
	case r.Op == OpBatch && !r.resultsFit():
		return errResults
	case r.Op != OpBatch && (len(r.Results) != 0 || r.Part != 0 || r.Parts != 0):
		return errResults
	}
	return r.checkImages()
}

// maxScale is the largest number of decimals as the amount of an OpScale.
var maxScale = engines.AmountOf(0, engines.MaxDecimals)

// CheckScale returns an error if n is not the amount of an OpScale.
func CheckScale(n engines.Amount) error {
	if maxScale.Less(n) {
		return errScale
	}
	return nil
}

// Decimals returns the decimals that r, an OpScale, sets.
func (r *Record) Decimals() int {
	_, n := r.Amount.Parts()
	return int(n)
}

// resultsFit reports whether the results of r, a record of a batch, are known and as many as its
// part has.
func (r *Record) resultsFit() bool {
	last := r.Part+1 == r.Parts
	if r.Part >= r.Parts || len(r.Results) == 0 || len(r.Results) > MaxResults ||
		!last && len(r.Results) != MaxResults {
		return false
	}
	for _, b := range r.Results {
		if !Result(b).Known() {
			return false
		}
	}
	return true
}

func (r *Record) checkImages() error {
	if len(r.Images) > MaxImages {
		return errImages
	}
	for i := range r.Images {
		m := &r.Images[i]
		if m.Account == 0 || m.Asset == 0 || m.Asset != r.Asset || m.State.LastSeq != r.Seq || m.Prev >= r.Seq {
			return errImages
		}
		for k := range i {
			if r.Images[k].Account == m.Account {
				return errImages
			}
		}
	}
	return nil
}
