package record

import "fmt"

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
)

var resultNames = [...]string{
	"accepted", "replayed", "idem_conflict", "expired", "account_locked", "asset_unknown", "nonce_reused", "nonce_gap", "limit_op", "limit_daily",
	"limit_total", "limit_holds", "hold_unknown", "hold_closed", "hold_expired", "insufficient_funds", "aborted", "once_conflict",
}

// String is the word for r, which metrics and logs use too.
func (r Result) String() string {
	if r.Known() {
		return resultNames[r]
	}
	return fmt.Sprintf("result %d", uint8(r))
}

// Known says whether r is one of the results.
func (r Result) Known() bool { return int(r) < len(resultNames) }

// Refused says whether r is the reason of a refusal.
func (r Result) Refused() bool { return r > Replayed }
