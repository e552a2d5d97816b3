package ledger

import (
	"fmt"
	"strings"
	"time"

	"ronbox/engines"
	"ronbox/engines/ledger/record"
)

// Members is a set of the members of an op, as callers name them.
type Members uint16

// The members of an op.
const (
	MemberFrom Members = 1 << iota
	MemberTo
	MemberAsset
	MemberAmount
	MemberNonce
	MemberExpires
	MemberHold
	MemberMemo
	MemberValidUntil
	MemberReference
	MemberSet
	MemberClear
	MemberOp
)

// MemberNames returns the names of the members, by bit.
func MemberNames() [13]string {
	return [...]string{
		"from", "to", "asset", "amount_minor", "nonce", "expires_in_s", "hold", "memo", "valid_until", "reference",
		"set", "clear", "op",
	}
}

// First returns the name of the first member of m, or "".
func (m Members) First() string {
	for i, name := range MemberNames() {
		if m&(1<<i) != 0 {
			return name
		}
	}
	return ""
}

// Takes returns the members that an op must have, and those that it may have besides. Both are
// empty for an op that callers cannot ask for.
func Takes(code record.Op) (must, may Members) {
	const money, notes = MemberAsset | MemberAmount, MemberMemo | MemberValidUntil | MemberReference
	const paid = notes | MemberNonce // without a nonce the next one is assigned
	switch code {
	case record.OpIssue:
		return MemberTo | money, paid
	case record.OpTransfer:
		return MemberFrom | MemberTo | money, paid
	case record.OpBurn:
		return MemberFrom | money, paid
	case record.OpHold:
		return MemberFrom | MemberTo | money | MemberExpires, paid
	case record.OpCapture:
		return MemberHold, MemberAmount | MemberReference
	case record.OpRelease:
		return MemberHold, MemberReference
	case record.OpFlags:
		return MemberFrom, MemberSet | MemberClear
	case record.OpAsset:
		return MemberAsset, 0
	case record.OpScale:
		return MemberAsset, MemberAmount
	}
	return 0, 0
}

// Has returns the members of o that are not zero.
func (o *Op) Has() (m Members) {
	for i, there := range [...]bool{
		o.From != "", o.To != "", o.Asset != "", !o.Amount.IsZero(), o.Nonce != 0, o.ExpiresIn != 0,
		!o.Hold.IsZero(), o.Memo != "", o.ValidUntil != 0, o.Reference != "", o.Set != 0, o.Clear != 0,
	} {
		if there {
			m |= 1 << i
		}
	}
	return m
}

// Longest time of a hold that callers can ask for. The ledger itself takes a day more.
const maxAskedHold = 30 * 24 * time.Hour

// Reasons of Check.
const (
	WantOp       = "must be one of issue, transfer, burn, hold, capture, release"
	WantMember   = "is missing"
	WantNoMember = "is no member of this operation"
	WantAccount  = "must be 1 to 256 of the characters A-Z a-z 0-9 : / _ -"
	WantOther    = "must be another account than from"
	WantAsset    = "must be 1 to 16 of the characters a-z 0-9"
	WantAmount   = "must be a string of decimal digits, from 1 to 2^128-1, without sign, leading zero, point " +
		"or exponent"
	WantNonce     = "must be a whole number from 1"
	WantSeconds   = "must be a whole number of seconds from 1 to 2592000"
	WantTxID      = `must be the txid of a hold: "tx_" and 26 characters`
	WantMemo      = "must be at most 128 bytes of UTF-8"
	WantReference = "must be 1 to 64 bytes of printable UTF-8"
	WantTime      = "must be an RFC 3339 time before the year 2262, such as 2030-01-02T15:04:05Z"
	WantDecimals  = "must be a whole number from 0 to 18"
	WantFlag      = "must name a flag, or clear must"
	WantSetOnly   = "must not name a flag that set names"
)

// Check is the grammar of an op that stands alone or in a batch, for every caller: HTTP, engines
// and command line. given are the members that the caller gave. Check returns the first malformed
// member and the reason, or 0. A well-formed op is marked, and its accounts are not checked again.
// Whether its time is over is decided with the op: an op that was done before is answered all the
// same.
func Check(o *Op, given Members) (wrong Members, reason string) {
	has := func(m Members) bool { return given&m != 0 }
	switch { // a member that is malformed by itself
	case has(MemberFrom) && engines.CheckAccount(o.From) != nil:
		return MemberFrom, WantAccount
	case has(MemberTo) && engines.CheckAccount(o.To) != nil:
		return MemberTo, WantAccount
	case has(MemberAsset) && engines.CheckAsset(o.Asset) != nil:
		return MemberAsset, WantAsset
	case has(MemberAmount) && o.Amount.IsZero():
		return MemberAmount, WantAmount
	case has(MemberNonce) && o.Nonce == 0:
		return MemberNonce, WantNonce
	case has(MemberExpires) &&
		(o.ExpiresIn < time.Second || o.ExpiresIn > maxAskedHold || o.ExpiresIn%time.Second != 0):
		return MemberExpires, WantSeconds
	case has(MemberHold) && o.Hold.IsZero():
		return MemberHold, WantTxID
	case has(MemberMemo) && record.CheckMemo(o.Memo) != nil:
		return MemberMemo, WantMemo
	case has(MemberValidUntil) && o.ValidUntil <= 0:
		return MemberValidUntil, WantTime
	case has(MemberReference) && record.CheckReference(o.Reference) != nil:
		return MemberReference, WantReference
	}
	must, may := Takes(o.Code)
	switch { // members that do not go together
	case must == 0:
		return MemberOp, WantOp
	case given&^(must|may) != 0:
		return given &^ (must | may), WantNoMember
	case must&^given != 0:
		return must &^ given, WantMember
	case o.From == o.To && must&MemberTo != 0:
		return MemberTo, WantOther
	case o.Code == record.OpScale && record.CheckScale(o.Amount) != nil:
		return MemberAmount, WantDecimals
	case o.Code == record.OpFlags && o.Set|o.Clear == 0:
		return MemberSet, WantFlag
	case o.Set.Has(o.Clear) && o.Clear != 0:
		return MemberClear, WantSetOnly
	}
	o.checked = !strings.HasPrefix(o.From, issuancePrefix) && !strings.HasPrefix(o.To, issuancePrefix)
	return 0, ""
}

// Checked reports whether Check has found o well-formed.
func (o *Op) Checked() bool { return o.checked }

// maxHoldTime bounds ExpiresIn: a day more than the API lets a caller ask for.
const maxHoldTime = 31 * 24 * time.Hour

// checkOps returns an *OpError if no state of the ledger could take one of ops, or if there are too
// many.
func checkOps(ops []Op) error {
	n := 0
	for i := range ops {
		if n += 1 + len(ops[i].Ops); n > MaxOps {
			return tooMany(i)
		}
		if field, reason := ops[i].check(false); field != "" {
			return &OpError{Index: i, Field: field, Reason: reason}
		}
	}
	return nil
}

func tooMany(i int) error {
	return &OpError{Index: i, Field: "ops", Reason: fmt.Sprintf("more than %d in a call: split it", MaxOps)}
}

// check returns the first invalid member of o and the reason, or "". It is the ledger's own check,
// for any caller. The accounts and the asset of an op that Check has found well-formed are not
// checked again.
func (o *Op) check(inner bool) (field, reason string) {
	switch {
	case o.Idem != "" && record.CheckIdem(o.Idem) != nil:
		return "idem", record.ErrIdem.Error()
	case record.CheckMemo(o.Memo) != nil:
		return "memo", record.ErrMemo.Error()
	case o.Reference != "" && !o.Code.MovesMoney():
		return "reference", "only an op that moves money has one; of a batch, each of its ops"
	case o.Reference != "" && record.CheckReference(o.Reference) != nil:
		return "reference", record.ErrReference.Error()
	}
	switch {
	case o.Dedupe.Key == "":
	case inner:
		return "dedupe", "an op of a batch has none: the batch's key covers it"
	case strings.IndexByte(o.Dedupe.Key, 0) >= 0:
		return "dedupe", "a key has no zero byte: one divides it from its scope"
	case o.TTL <= 0:
		return "ttl", "must be more than zero for an op with a key"
	}
	if o.checked {
		return "", ""
	}
	return o.checkMembers(inner)
}

// checkMembers is check for the members that depend on the code.
func (o *Op) checkMembers(inner bool) (field, reason string) {
	switch o.Code {
	case record.OpIssue:
		if o.From != "" {
			return "from", "an issue has none: the asset's issuance account is debited"
		}
		return o.checkPayment("", o.To)
	case record.OpBurn:
		if o.To != "" {
			return "to", "a burn has none: the asset's issuance account is credited"
		}
		return o.checkPayment(o.From, "")
	case record.OpTransfer, record.OpHold:
		return o.checkPayment(o.From, o.To)
	case record.OpCapture, record.OpRelease:
		return "", ""
	case record.OpFlags:
		return checkName("from", o.From)
	case record.OpAsset, record.OpScale:
		if inner {
			return "code", "an asset is declared by an op of its own"
		}
		if o.Code == record.OpScale && record.CheckScale(o.Amount) != nil {
			return "amount", WantDecimals
		}
		return o.checkAsset()
	case record.OpBatch:
		return o.checkBatch(inner)
	}
	return "code", "not one of issue, transfer, burn, hold, capture, release, flags, asset, scale, batch"
}

func (o *Op) checkAsset() (field, reason string) {
	if err := engines.CheckAsset(o.Asset); err != nil {
		return "asset", err.Error()
	}
	return "", ""
}

func checkName(field, name string) (string, string) {
	if err := engines.CheckAccount(name); err != nil {
		return field, err.Error()
	}
	return "", ""
}

// issuancePrefix is the prefix of the names of issuance accounts.
var issuancePrefix = engines.IssuanceAccount("")

func (o *Op) checkPayment(from, to string) (field, reason string) {
	if field, reason = o.checkAsset(); field != "" {
		return field, reason
	}
	for _, side := range [...]struct{ field, name string }{{"from", from}, {"to", to}} {
		if side.name == "" &&
			(o.Code == record.OpIssue && side.field == "from" || o.Code == record.OpBurn && side.field == "to") {
			continue
		}
		if field, reason = checkName(side.field, side.name); field != "" {
			return field, reason
		}
		if strings.HasPrefix(side.name, issuancePrefix) {
			return side.field, "only issue and burn move issuance accounts"
		}
	}
	switch {
	case o.Amount.IsZero():
		return "amount", "must be more than zero"
	case from == to:
		return "to", "is the account that pays"
	case o.Code == record.OpHold && (o.ExpiresIn <= 0 || o.ExpiresIn > maxHoldTime):
		return "expires_in", "must be more than zero, and at most 31 days"
	}
	return "", ""
}

func (o *Op) checkBatch(inner bool) (field, reason string) {
	if inner {
		return "code", "a batch in a batch"
	}
	if len(o.Ops) == 0 {
		return "ops", "a batch of none"
	}
	if o.Memo != "" {
		return "memo", "a batch has none: its ops have"
	}
	for i := range o.Ops {
		if field, reason = o.Ops[i].check(true); field != "" {
			return fmt.Sprintf("ops[%d].%s", i, field), reason
		}
	}
	return "", ""
}
