package httpapi

import (
	"strings"
	"time"

	"ronbox/engines"
	"ronbox/engines/ledger/record"
	"ronbox/engines/wallet"
	"ronbox/httpapi/wire"
)

// members are those of an operation's body, as a set.
type members uint16

const (
	memberFrom members = 1 << iota
	memberTo
	memberAsset
	memberAmount
	memberNonce
	memberExpires
	memberHold
	memberMemo
	memberValidUntil
	memberOp // in a batch
)

// memberNames are the names on the wire, by bit.
func memberNames() [10]string {
	return [...]string{"from", "to", "asset", "amount_minor", "nonce", "expires_in_s", "hold", "memo", "valid_until", "op"}
}

// memberOf is the member called name, 0 if there is none.
func memberOf(name []byte) members {
	switch string(name) {
	case "from":
		return memberFrom
	case "to":
		return memberTo
	case "asset":
		return memberAsset
	case "amount_minor":
		return memberAmount
	case "nonce":
		return memberNonce
	case "expires_in_s":
		return memberExpires
	case "hold":
		return memberHold
	case "memo":
		return memberMemo
	case "valid_until":
		return memberValidUntil
	case "op":
		return memberOp
	}
	return 0
}

// first is the name of the first member of m.
func (m members) first() string {
	for i, name := range memberNames() {
		if m&(1<<i) != 0 {
			return name
		}
	}
	return ""
}

// shapeOf is what an operation must have, and what it may have besides.
func shapeOf(op record.Op) (must, may members) {
	const money, notes = memberAsset | memberAmount | memberNonce, memberMemo | memberValidUntil
	switch op {
	case record.OpIssue:
		return memberTo | money, notes
	case record.OpTransfer:
		return memberFrom | memberTo | money, notes
	case record.OpBurn:
		return memberFrom | money, notes
	case record.OpHold:
		return memberFrom | memberTo | money | memberExpires, notes
	case record.OpCapture:
		return memberHold, memberAmount
	case record.OpRelease:
		return memberHold, 0
	}
	return 0, 0
}

// opOf is the operation of a batch that is called name, 0 if there is none.
func opOf(name []byte) record.Op {
	switch string(name) {
	case wire.OpIssue:
		return record.OpIssue
	case wire.OpTransfer:
		return record.OpTransfer
	case wire.OpBurn:
		return record.OpBurn
	case wire.OpHold:
		return record.OpHold
	case wire.OpCapture:
		return record.OpCapture
	case wire.OpRelease:
		return record.OpRelease
	}
	return 0
}

// Bounds of an order's members.
const maxExpiresIn = 30 * 24 * 3600 // seconds: a hold that nobody ends binds its money for a month at most

// Reasons that a member is wrong.
const (
	wantAmount  = "must be a string of decimal digits, from 1 to 2^128-1, without sign, leading zero, point or exponent"
	wantNonce   = "must be a whole number from 1"
	wantAccount = "must be 1 to 256 of the characters A-Z a-z 0-9 : / _ -"
	wantAsset   = "must be 1 to 16 of the characters a-z 0-9"
	wantTxID    = `must be the txid of a hold: "tx_" and 26 characters`
	wantSeconds = "must be a whole number of seconds from 1 to 2592000"
	wantMemo    = "must be at most 128 bytes"
	wantTime    = "must be an RFC 3339 time before the year 2262, such as 2030-01-02T15:04:05Z"
	wantOther   = "must be another account than from"
	wantOp      = "must be one of issue, transfer, burn, hold, capture, release"
	wantFewer   = "is no member of this operation"
)

// orderReader reads operations, one after the other.
type orderReader struct {
	in    bodyReader
	asset string // named last: a batch names few
	seen  members
	req   wallet.Request
}

// single reads the body of a route that stands for one operation.
func (o *orderReader) single(op record.Op) (wallet.Request, error) {
	req, err := o.order(op)
	if err == nil {
		err = o.in.end()
	}
	return req, err
}

// order reads one operation. Without op it is one of a batch and says itself which it is.
func (o *orderReader) order(op record.Op) (wallet.Request, error) {
	o.seen, o.req = 0, wallet.Request{Op: op}
	inBatch := op == 0
	err := o.in.object(func(name []byte) error { return o.member(memberOf(name), inBatch) })
	if err == nil {
		err = o.whole(inBatch)
	}
	return o.req, err
}

// member reads the value of m.
func (o *orderReader) member(m members, inBatch bool) error {
	switch must, may := shapeOf(o.req.Op); {
	case m == 0, m == memberOp && !inBatch, !inBatch && m&(must|may) == 0:
		return o.in.fail("", wantKnown)
	case o.seen&m != 0:
		return o.in.fail("", wantOnce)
	}
	o.seen |= m
	if m == memberNonce || m == memberExpires {
		return o.number(m)
	}
	v, err := o.in.text()
	if err != nil {
		return err
	}
	if reason := o.text(m, v); reason != "" {
		return o.in.fail("", reason)
	}
	return nil
}

func (o *orderReader) number(m members) error {
	n, err := o.in.number()
	switch {
	case err != nil:
		return err
	case m == memberNonce && n == 0:
		return o.in.fail("", wantNonce)
	case m == memberNonce:
		o.req.Nonce = n
	case n == 0 || n > maxExpiresIn:
		return o.in.fail("", wantSeconds)
	default:
		o.req.ExpiresIn = time.Duration(n) * time.Second
	}
	return nil
}

// text takes the value of a member that is text, or says what is wrong with it.
func (o *orderReader) text(m members, v []byte) (reason string) {
	switch m {
	case memberFrom:
		o.req.From = string(v)
		return unless(engines.CheckAccount(o.req.From), wantAccount)
	case memberTo:
		o.req.To = string(v)
		return unless(engines.CheckAccount(o.req.To), wantAccount)
	case memberAsset:
		if string(v) != o.asset {
			o.asset = string(v)
		}
		o.req.Asset = o.asset
		return unless(engines.CheckAsset(o.req.Asset), wantAsset)
	case memberAmount:
		var err error
		if o.req.Amount, err = engines.ParseAmount(string(v)); err == nil && o.req.Amount.IsZero() {
			return wantAmount
		}
		return unless(err, wantAmount)
	case memberHold:
		var err error
		o.req.Hold, err = record.ParseTxID(string(v))
		return unless(err, wantTxID)
	case memberMemo:
		if len(v) > record.MaxMemo {
			return wantMemo
		}
		o.req.Memo = string(v)
	case memberValidUntil:
		return o.validUntil(string(v))
	case memberOp:
		if o.req.Op = opOf(v); o.req.Op == 0 {
			return wantOp
		}
	}
	return ""
}

func unless(err error, reason string) string {
	if err == nil {
		return ""
	}
	return reason
}

// validUntil takes a time that is over too: what was done before it was is still answered as it was then, and the ledger alone
// knows whether it was done.
func (o *orderReader) validUntil(v string) (reason string) {
	at, ok := parseInstant(v)
	if !ok {
		return wantTime
	}
	o.req.ValidUntil = at
	return ""
}

// parseInstant takes an RFC 3339 time that Unix nanoseconds reach, after their 0, which stands for none.
func parseInstant(v string) (time.Time, bool) {
	at, err := time.Parse(time.RFC3339, v)
	if err != nil || looseTime(v) {
		return at, false
	}
	return at, at.Year() >= 1970 && at.Year() < 2262 && at.UnixNano() > 0
}

// looseTime finds what time.Parse takes beyond RFC 3339: an hour of one digit, a comma before the fraction, and offsets of a day.
func looseTime(v string) bool {
	const hour, zone = len("2006-01-02T15"), len("07:00")
	offset := v[len(v)-zone:]
	return v[hour] != ':' || strings.Contains(v, ",") || v[len(v)-1] != 'Z' && (offset[:2] > "23" || offset[3:] > "59")
}

// whole says what the operation lacks, or has and should not.
func (o *orderReader) whole(inBatch bool) error {
	must, may := shapeOf(o.req.Op)
	if inBatch {
		must |= memberOp
	}
	switch {
	case o.seen&must != must && o.req.Op == 0:
		return o.in.fail(memberOp.first(), wantThere)
	case o.seen&^(must|may) != 0:
		return o.in.fail((o.seen &^ (must | may)).first(), wantFewer)
	case o.seen&must != must:
		return o.in.fail((must &^ o.seen).first(), wantThere)
	case must&(memberFrom|memberTo) == memberFrom|memberTo && o.req.From == o.req.To:
		return o.in.fail(memberTo.first(), wantOther)
	}
	return nil
}
