package wallet

import (
	"context"
	"encoding/binary"
	"errors"
	"strconv"

	"ronbox/appliance/b3"
	"ronbox/engines"
	"ronbox/engines/ledger"
	"ronbox/engines/ledger/record"
)

// MaxBatchOps bounds the ops of a batch: half of what one call of the ledger takes, so that a batch
// and a burst of single requests share a commit.
const MaxBatchOps = 4096

// Answer is the outcome of a request: a receipt or, of a batch, the results of its ops, some of
// which may be refused; ReasonOf returns the reason of each refusal. It is shared and must not be
// changed.
type Answer struct{ ledger.Outcome }

// check returns a *FieldError if op is malformed, or ErrSystemAccount if it names an account that
// only the ledger moves. A front that has called ledger.Check itself is believed.
func check(op *ledger.Op) error {
	if !op.Checked() {
		if wrong, reason := ledger.Check(op, op.Has()); wrong != 0 {
			return &FieldError{wrong.First(), reason}
		}
	}
	if engines.IsSystemAccount(op.From) || engines.IsSystemAccount(op.To) {
		return ErrSystemAccount
	}
	return nil
}

// payerOf returns the account of which op uses a nonce, or "".
func payerOf(op *ledger.Op) string {
	switch op.Code {
	case record.OpIssue:
		return engines.IssuanceAccount(op.Asset)
	case record.OpTransfer, record.OpBurn, record.OpHold:
		return op.From
	}
	return ""
}

// fingerprints hash a request in one canonical form, which does not depend on spelling and order
// and has every member. The form is frozen: the hash of a request is compared with that of its
// record.
type fingerprints struct{ mode *b3.Mode }

func newFingerprints() fingerprints {
	return fingerprints{b3.Derive("ronbox wallet request v1")}
}

// single returns the fingerprint of one op. opens: its flags may open an account.
func (f fingerprints) single(op *ledger.Op, opens bool) b3.Digest {
	var room [512]byte
	return f.mode.Sum(canonical(room[:0], op, opens))
}

// batch returns the fingerprint of a batch.
func (f fingerprints) batch(atomic bool, ops []ledger.Op) b3.Digest {
	b := make([]byte, 0, 16+128*len(ops))
	b = append(b, byte(record.OpBatch), 0)
	if atomic {
		b[1] = 1
	}
	b = binary.LittleEndian.AppendUint32(b, uint32(len(ops)))
	for i := range ops {
		b = canonical(b, &ops[i], false)
	}
	return f.mode.Sum(b)
}

// Bits of the canonical form that no op or flag uses.
const (
	hasReference = 1 << 7 // of the code
	mayOpen      = 1 << 7 // of the flags that are set
)

// canonical appends op in its one binary form: fixed members first, then the texts, each after its
// length. A reference is the last text, if there is one.
func canonical(b []byte, op *ledger.Op, opens bool) []byte {
	code, set := byte(op.Code), byte(op.Set)
	if op.Reference != "" {
		code |= hasReference
	}
	if opens {
		set |= mayOpen
	}
	b = append(b, code, set, byte(op.Clear))
	b = op.Amount.AppendLE(b)
	b = binary.LittleEndian.AppendUint64(b, op.Nonce)
	b = append(b, op.Hold[:]...)
	b = binary.LittleEndian.AppendUint64(b, uint64(op.ExpiresIn))
	b = binary.LittleEndian.AppendUint64(b, uint64(op.ValidUntil))
	for _, s := range [...]string{op.From, op.To, op.Asset, op.Memo} {
		b = append(binary.LittleEndian.AppendUint16(b, uint16(len(s))), s...)
	}
	if op.Reference != "" {
		b = append(binary.LittleEndian.AppendUint16(b, uint16(len(op.Reference))), op.Reference...)
	}
	return b
}

// Scopes that the engine checks itself; the others are checked by the routes.
const (
	scopePrefix = "wallet."
	scopeAdmin  = scopePrefix + "admin"
)

// scopeOf returns the name of the caller under which its idempotency keys and references are kept.
// It does not name the node whose socket the caller uses: in a cluster a repetition may come by
// another node, or by the same one, which then no longer leads.
func scopeOf(by engines.Actor) string {
	if by.UID != nil {
		return "uid:" + strconv.FormatUint(uint64(*by.UID), 10)
	}
	if by.Principal != "" {
		return by.Principal
	}
	return "cap:" + by.CapID
}

// mayOp returns a *ScopeError if by lacks the scope of an op inside a batch.
func mayOp(by engines.Actor, op record.Op) error {
	if op == record.OpRelease && by.May(scopeAdmin) {
		return nil
	}
	if scope := scopePrefix + op.String(); !by.May(scope) {
		return &ScopeError{scope}
	}
	return nil
}

// authorize returns an error if by's grant does not reach the account of op: the debited one, the
// receiver of an issue, the beneficiary of a hold. Amounts are judged later by ceilings, so that a
// replay is not refused by a ceiling that was lowered since.
func (e *Engine) authorize(ctx context.Context, by engines.Actor, op *ledger.Op) error {
	if by.Grant.IsZero() {
		return nil
	}
	account := op.From
	switch op.Code {
	case record.OpIssue:
		account = op.To
	case record.OpAsset, record.OpScale:
		return by.Grant.Asset(op.Asset)
	case record.OpFlags:
		return by.Grant.Account(account)
	case record.OpCapture, record.OpRelease:
		return e.authorizeHold(ctx, by, op)
	}
	if err := by.Grant.Account(account); err != nil {
		return err
	}
	return by.Grant.Asset(op.Asset)
}

// authorizeHold looks the hold up. It belongs to its beneficiary; an admin releases it for either
// party. A hold out of the grant's reach is answered as a hold that does not exist.
func (e *Engine) authorizeHold(ctx context.Context, by engines.Actor, op *ledger.Op) error {
	held, err := e.hold(ctx, op.Hold)
	if err != nil {
		return err
	}
	reached := by.Grant.Account(held.To) == nil ||
		op.Code == record.OpRelease && by.May(scopeAdmin) && by.Grant.Account(held.From) == nil
	if reached && by.Grant.Asset(held.Asset) == nil {
		return nil
	}
	return &ledger.Reject{Code: record.HoldUnknown}
}

// hold reads the receipt of a hold.
func (e *Engine) hold(ctx context.Context, id record.TxID) (record.Receipt, error) {
	out, err := e.lookup(ctx, id)
	if errors.Is(err, ledger.ErrNotFound) || err == nil && out.Receipt.Op != record.OpHold {
		return record.Receipt{}, &ledger.Reject{Code: record.HoldUnknown}
	}
	return out.Receipt, err
}

// bound writes the limits in force into op, and the daily ceiling of by's token, which the ledger
// judges. It returns an error if the amount is above a ceiling of the token. A capture with an
// amount of zero takes the whole hold.
func (e *Engine) bound(ctx context.Context, by engines.Actor, op *ledger.Op) error {
	op.Limits = e.set.Load().limits
	if by.Grant.IsZero() || !op.Code.MovesMoney() || op.Code == record.OpRelease {
		return nil
	}
	amount := op.Amount
	if op.Code == record.OpCapture && amount.IsZero() {
		held, err := e.hold(ctx, op.Hold)
		if err != nil {
			return err
		}
		amount = held.Amount
	}
	if err := by.Grant.Amount(amount); err != nil {
		return err
	}
	op.Daily, _ = by.Grant.MaxDaily()
	return by.Grant.Daily(engines.Amount{}, amount)
}
