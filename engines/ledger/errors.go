package ledger

import (
	"errors"
	"fmt"

	"ronbox/engines/ledger/record"
	"ronbox/engines/ledger/tables"
)

// What a caller can meet, beside the causes of its context.
var (
	// ErrUnavailable: the ledger did not answer; an *UnavailableError says whether the ops may have been applied.
	ErrUnavailable = errors.New("ledger: unavailable")
	// ErrSafeMode: the journal did not check, so nothing is written until it was verified and the node started again.
	ErrSafeMode = errors.New("ledger: safe mode: reads only; stop the node and run ronbox ledger verify, " +
		"then ronbox ledger rebuild if only derived tables are damaged")
	// ErrFull: there is no room for the write; nothing was applied.
	ErrFull = errors.New("ledger: no room")
	// ErrRestored: the file was restored and nobody has accepted it yet; nothing was applied.
	ErrRestored = errors.New("ledger: restored, not yet accepted")
	// ErrNotFound: there is no such record.
	ErrNotFound = errors.New("ledger: not found")
	// ErrCursor: the cursor is not one of this query.
	ErrCursor = tables.ErrCursor
	// ErrRange: the batch or range asked for is not in the log.
	ErrRange = errors.New("ledger: range is not in the log")
	// ErrLoading: Recover has not ended.
	ErrLoading = errors.New("ledger: loading")
)

// UnavailableError says that a call got no answer. It is ErrUnavailable.
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

// Is says ErrUnavailable.
func (e *UnavailableError) Is(target error) bool { return target == ErrUnavailable }

// Unwrap gives the cause.
func (e *UnavailableError) Unwrap() error { return e.Cause }

// OpError says that an op is malformed, which its caller should have seen: nothing of the call was applied.
type OpError struct {
	Index  int // of the op in the call
	Field  string
	Reason string
}

func (e *OpError) Error() string {
	return fmt.Sprintf("ledger: op %d: %s: %s", e.Index, e.Field, e.Reason)
}

// Reject is a refusal by the rules: final for this state, and nothing was applied.
type Reject struct {
	Code      record.Result
	Expected  uint64      // nonce_reused, nonce_gap: the number that would be taken; 0: there is none left
	Committed record.TxID // nonce_reused: the record that used it, if it was the account's last
	Index     int         // of an atomic batch or a settlement: the first op that failed
	Party     string      // account_locked: whose flag forbids it, "from" or "to"
	Unknown   bool        // insufficient_funds: nobody has ever paid the payer
	Limit     string      // limit_…: which one, "per_op", "daily", "token_daily", "account_total", "open_holds"
}

func (e *Reject) Error() string { return "ledger: refused: " + e.Code.String() }
