package wallet

import (
	"fmt"
	"strconv"
	"time"

	"ronbox/engines"
	"ronbox/engines/ledger"
	"ronbox/engines/ledger/record"
)

// Bounds of a request.
const (
	MaxBatchOps = 4096 // half of what one call of the ledger takes, so that a batch and a burst of single requests share a commit
	minHold     = time.Second
	maxHold     = 30 * 24 * time.Hour
)

// Request is one operation asked for. Which members count depends on Op:
//
//   - record.OpIssue: To, Asset, Amount, Nonce of the asset's issuance account. record.OpBurn: From, Asset, Amount, Nonce.
//   - record.OpTransfer: From, To, Asset, Amount, Nonce. record.OpHold: likewise, and ExpiresIn, 1 s to 30 days.
//   - record.OpCapture: Hold, Amount (zero: all of it). record.OpRelease: Hold.
//   - record.OpFlags: From, Set, Clear, and New for an account that is to be opened by it. record.OpAsset: Asset.
//
// Memo and ValidUntil go with any of them. A member that does not count must be zero.
type Request struct {
	Op         record.Op
	From, To   string
	Asset      string
	Amount     engines.Amount
	Nonce      uint64
	Hold       record.TxID
	ExpiresIn  time.Duration
	Memo       string    // at most record.MaxMemo bytes of UTF-8
	ValidUntil time.Time // from then on it is refused; zero: never
	Set, Clear record.Flags
	New        bool // take an account that is not known, too
}

// Answer is what was done: a receipt or, of a batch, the results of its ops, some of which may be refused; CodeOf has the code of each refusal.
// It is shared and must not be changed.
type Answer struct{ ledger.Outcome }

// answerOf is an outcome as its callers see it. A refusal by the rules is a *ledger.Reject; of a batch that stands or falls whole an *IndexError
// around it.
func answerOf(out *ledger.Outcome) (Answer, error) {
	switch {
	case out.Reject == nil:
		return Answer{*out}, nil
	case len(out.Results) > 0:
		return Answer{}, &IndexError{Index: out.Reject.Index, Err: out.Reject}
	}
	return Answer{}, out.Reject
}

// needs are the members that an op takes.
type needs struct{ from, to, asset, amount, nonce, hold, expiry, flags bool }

var opNeeds = map[record.Op]needs{
	record.OpIssue:    {to: true, asset: true, amount: true, nonce: true},
	record.OpTransfer: {from: true, to: true, asset: true, amount: true, nonce: true},
	record.OpBurn:     {from: true, asset: true, amount: true, nonce: true},
	record.OpHold:     {from: true, to: true, asset: true, amount: true, nonce: true, expiry: true},
	record.OpCapture:  {hold: true},
	record.OpRelease:  {hold: true},
	record.OpFlags:    {from: true, flags: true},
	record.OpAsset:    {asset: true},
}

// check finds what is wrong with r by itself: grammar first, then names that nobody may use. Whether its time is over is the ledger's to say,
// after it has looked for a repetition.
func (r *Request) check() error {
	n, ok := opNeeds[r.Op]
	if !ok {
		return &FieldError{"op", fmt.Sprintf("is %s: must be one of issue, transfer, burn, hold, capture, release", r.Op)}
	}
	for _, err := range [...]error{
		r.checkNames(n), r.checkAmount(n), r.checkNonce(n), r.checkHold(n), r.checkFlags(n), r.checkText(), r.checkReserved(),
	} {
		if err != nil {
			return err
		}
	}
	return nil
}

func (r *Request) checkNames(n needs) error {
	if err := checkName("from", r.From, n.from, engines.CheckAccount); err != nil {
		return err
	}
	if err := checkName("to", r.To, n.to, engines.CheckAccount); err != nil {
		return err
	}
	if n.from && n.to && r.From == r.To {
		return &FieldError{"to", "is the same account as from: must be another one"}
	}
	return checkName("asset", r.Asset, n.asset, engines.CheckAsset)
}

func checkName(field, value string, needed bool, grammar func(string) error) error {
	switch {
	case needed:
		if err := grammar(value); err != nil {
			return &FieldError{field, err.Error()}
		}
	case value != "":
		return notTaken(field)
	}
	return nil
}

func notTaken(field string) error {
	return &FieldError{field, "does not belong to this operation: leave it out"}
}

func (r *Request) checkAmount(n needs) error {
	switch {
	case n.amount && r.Amount.IsZero():
		return &FieldError{"amount_minor", "is 0: must be 1 or more"}
	case !n.amount && r.Op != record.OpCapture && !r.Amount.IsZero():
		return notTaken("amount_minor")
	}
	return nil
}

func (r *Request) checkNonce(n needs) error {
	switch {
	case n.nonce && r.Nonce == 0:
		return &FieldError{"nonce", "is missing: must be the account's last nonce plus 1"}
	case !n.nonce && r.Nonce != 0:
		return notTaken("nonce")
	}
	return nil
}

func (r *Request) checkHold(n needs) error {
	switch {
	case n.hold && r.Hold.IsZero():
		return &FieldError{"hold", "is missing: must be the txid of a hold"}
	case !n.hold && !r.Hold.IsZero():
		return notTaken("hold")
	case n.expiry && (r.ExpiresIn < minHold || r.ExpiresIn > maxHold || r.ExpiresIn%time.Second != 0):
		return &FieldError{"expires_in_s", "must be 1 to " + strconv.Itoa(int(maxHold/time.Second)) + " whole seconds"}
	case !n.expiry && r.ExpiresIn != 0:
		return notTaken("expires_in_s")
	}
	return nil
}

func (r *Request) checkFlags(n needs) error {
	switch {
	case n.flags && r.Set|r.Clear == 0:
		return &FieldError{"set", "and clear are both empty: name a flag"}
	case n.flags && r.Set.Has(r.Clear):
		return &FieldError{"clear", "names a flag that set names too"}
	case !n.flags && r.Set|r.Clear != 0:
		return notTaken("set")
	case !n.flags && r.New:
		return notTaken("new")
	}
	return nil
}

func (r *Request) checkText() error {
	if err := record.CheckMemo(r.Memo); err != nil {
		return &FieldError{"memo", err.Error()}
	}
	return nil
}

// checkReserved refuses the ledger's own accounts: only what an operation implies moves them.
func (r *Request) checkReserved() error {
	if engines.IsSystemAccount(r.From) || engines.IsSystemAccount(r.To) {
		return ErrSystemAccount
	}
	return nil
}

// debited is the account whose nonce r uses, "" if it uses none.
func (r *Request) debited() string { return debited(r.Op, r.From, r.Asset) }

func debited(op record.Op, from, asset string) string {
	switch op {
	case record.OpIssue:
		return engines.IssuanceAccount(asset)
	case record.OpTransfer, record.OpBurn, record.OpHold:
		return from
	}
	return ""
}

// checkKey says whether key can be an Idempotency-Key, with a *FieldError if not.
func checkKey(key string) error {
	if key == "" {
		return &FieldError{"idempotency_key", "is missing: send a new one with each new request, and the same one with each repetition"}
	}
	if err := record.CheckIdem(key); err != nil {
		return &FieldError{"idempotency_key", err.Error()}
	}
	return nil
}
