package wallet

import (
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"ronbox/engines"
	"ronbox/engines/ledger/record"
	"ronbox/engines/wallet"
	"ronbox/httpapi"
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

// Bounds of an order's members.
const maxExpiresIn = 30 * 24 * 3600 // seconds: a hold that nobody ends binds its money for a month at most

// Reasons that a member is wrong.
const (
	wantKnown   = "is not a known member"
	wantThere   = "is missing"
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

// order is the body of an operation, alone or in a batch. What is not there is nil, or absent.
type order struct {
	Op         string  `json:"op"`
	From       string  `json:"from"`
	To         string  `json:"to"`
	Asset      string  `json:"asset"`
	Amount     string  `json:"amount_minor"`
	Nonce      *uint64 `json:"nonce"`
	ExpiresInS *uint64 `json:"expires_in_s"`
	Hold       string  `json:"hold"`
	Memo       string  `json:"memo"`
	ValidUntil string  `json:"valid_until"`
}

// absent stands for text that is not there. It is no UTF-8, so no body holds it.
const absent = "\xff"

// newOrder is an order to read into: of none of its members is there anything.
func newOrder() order {
	return order{Op: absent, From: absent, To: absent, Asset: absent, Amount: absent, Hold: absent, Memo: absent, ValidUntil: absent}
}

// members are those that o has.
func (o *order) members() (m members) {
	for i, there := range [...]bool{
		o.From != absent, o.To != absent, o.Asset != absent, o.Amount != absent, o.Nonce != nil, o.ExpiresInS != nil, o.Hold != absent,
		o.Memo != absent, o.ValidUntil != absent, o.Op != absent,
	} {
		if there {
			m |= 1 << i
		}
	}
	return m
}

// validate gives o, a body of op or without op one of a batch, as the wallet takes it.
func (o *order) validate(op record.Op) (wallet.Request, *httpapi.BodyError) {
	have, extra, inBatch := o.members(), wantKnown, members(0)
	if op == 0 {
		op, extra, inBatch = opOf(o.Op), wantFewer, memberOp
	}
	r := wallet.Request{Op: op}
	must, may := shapeOf(op)
	m, reason := o.convert(&r, have)
	switch must |= inBatch; {
	case have&inBatch != inBatch:
		m, reason = memberOp, wantThere
	case inBatch != 0 && op == 0:
		m, reason = memberOp, wantOp
	case reason != "":
	case have&^(must|may) != 0:
		m, reason = have&^(must|may), extra
	case must&^have != 0:
		m, reason = must&^have, wantThere
	case must&(memberFrom|memberTo) == memberFrom|memberTo && r.From == r.To:
		m, reason = memberTo, wantOther
	}
	if reason != "" {
		return r, &httpapi.BodyError{Field: m.first(), Reason: reason}
	}
	return r, nil
}

// convert fills r with what o has, and says which of it is wrong and how. A time that is over is taken too: what was done before
// it was is still answered as it was then, and the ledger alone knows whether it was done.
func (o *order) convert(r *wallet.Request, have members) (wrong members, reason string) {
	var errAmount, errHold error
	timely := true
	if have&memberFrom != 0 {
		r.From = o.From
	}
	if have&memberTo != 0 {
		r.To = o.To
	}
	if have&memberAsset != 0 {
		r.Asset = o.Asset
	}
	if have&memberAmount != 0 {
		r.Amount, errAmount = engines.ParseAmount(o.Amount)
	}
	if have&memberNonce != 0 {
		r.Nonce = *o.Nonce
	}
	if have&memberExpires != 0 {
		r.ExpiresIn = time.Duration(min(*o.ExpiresInS, maxExpiresIn+1)) * time.Second
	}
	if have&memberHold != 0 {
		r.Hold, errHold = record.ParseTxID(o.Hold)
	}
	if have&memberMemo != 0 {
		r.Memo = o.Memo
	}
	if have&memberValidUntil != 0 {
		r.ValidUntil, timely = parseInstant(o.ValidUntil)
	}
	switch {
	case have&memberFrom != 0 && engines.CheckAccount(r.From) != nil:
		return memberFrom, wantAccount
	case have&memberTo != 0 && engines.CheckAccount(r.To) != nil:
		return memberTo, wantAccount
	case have&memberAsset != 0 && engines.CheckAsset(r.Asset) != nil:
		return memberAsset, wantAsset
	case errAmount != nil || have&memberAmount != 0 && r.Amount.IsZero():
		return memberAmount, wantAmount
	case have&memberNonce != 0 && r.Nonce == 0:
		return memberNonce, wantNonce
	case have&memberExpires != 0 && (r.ExpiresIn == 0 || r.ExpiresIn > maxExpiresIn*time.Second):
		return memberExpires, wantSeconds
	case errHold != nil:
		return memberHold, wantTxID
	case len(r.Memo) > record.MaxMemo:
		return memberMemo, wantMemo
	case !timely:
		return memberValidUntil, wantTime
	}
	return 0, ""
}

// opOf is the operation of a batch that is called name, 0 if there is none.
func opOf(name string) record.Op {
	switch name {
	case OpIssue:
		return record.OpIssue
	case OpTransfer:
		return record.OpTransfer
	case OpBurn:
		return record.OpBurn
	case OpHold:
		return record.OpHold
	case OpCapture:
		return record.OpCapture
	case OpRelease:
		return record.OpRelease
	}
	return 0
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

// maxBatchOps is how many operations a batch may hold, whatever the wallet would take: as many as one ledger batch is made for.
const maxBatchOps = 4096

// BatchSizeError says that a batch holds too many operations.
type BatchSizeError struct{ Max int }

func (e *BatchSizeError) Error() string {
	return "ops: a batch holds at most " + strconv.Itoa(e.Max) + " operations; send the rest as another one, under a key of its own"
}

// batch is a body of POST /v1/batch.
type batch struct {
	Mode mode   `json:"mode"`
	Ops  orders `json:"ops"`
}

type mode string

func (m *mode) UnmarshalText(b []byte) error {
	*m = mode(b)
	return m.check()
}

func (m *mode) check() error {
	if *m != "atomic" && *m != "independent" {
		return httpapi.BadBody("", "must be atomic or independent")
	}
	return nil
}

// orders are the operations of a batch, nil if none are given.
type orders []wallet.Request

// UnmarshalJSONFrom has the library read one operation after the other. It keeps one more than a batch may hold and skips the
// rest: an operation takes a hundred times the room of the three bytes that may stand for it on the wire.
func (o *orders) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	if dec.PeekKind() != '[' {
		return httpapi.BadBody("", "must be an array")
	}
	var one order
	_, err := dec.ReadToken()
	for *o = (orders{}); err == nil && dec.PeekKind() != ']'; {
		if len(*o) > maxBatchOps {
			err = dec.SkipValue()
		} else {
			err = o.next(dec, &one)
		}
	}
	if err == nil {
		_, err = dec.ReadToken()
	}
	return err
}

func (o *orders) next(dec *jsontext.Decoder, one *order) error {
	*one = newOrder()
	if err := json.UnmarshalDecode(dec, one); err != nil {
		return err
	}
	r, bad := one.validate(0)
	if bad != nil {
		return httpapi.BadBody(strconv.Itoa(len(*o))+"."+bad.Field, bad.Reason)
	}
	*o = append(*o, r)
	return nil
}

// readOrder reads the body of a route that stands for op.
func readOrder(body []byte, op record.Op) (wallet.Request, error) {
	in := newOrder()
	if err := httpapi.DecodeTyped(body, &in); err != nil {
		return wallet.Request{}, err
	}
	r, bad := in.validate(op)
	if bad != nil {
		return r, bad
	}
	return r, nil
}

// readBatch reads a batch.
func readBatch(body []byte) (b batch, err error) {
	if err := httpapi.DecodeTyped(body, &b); err != nil {
		return b, err
	}
	switch {
	case b.Mode == "":
		err = httpapi.BadBody("mode", wantThere)
	case b.Ops == nil:
		err = httpapi.BadBody("ops", wantThere)
	case len(b.Ops) == 0:
		err = httpapi.BadBody("ops", "must hold at least one operation")
	case len(b.Ops) > maxBatchOps:
		err = &BatchSizeError{maxBatchOps}
	}
	return b, err
}
