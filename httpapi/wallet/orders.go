package wallet

import (
	"strconv"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"ronbox/engines"
	"ronbox/engines/ledger"
	"ronbox/engines/ledger/record"
	"ronbox/httpapi"
	walletapi "ronbox/httpapi/wire/wallet"
)

// wantKnown is the reason of a member that a body cannot have. In a batch it is
// ledger.WantNoMember.
const wantKnown = "is not a known member"

// order is the body of an operation, alone or in a batch. A member that is not given is nil, or
// absent.
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
	Reference  string  `json:"reference"`
}

// absent stands for text that is not given. It is not UTF-8, so no body holds it.
const absent = "\xff"

// newOrder returns an order to read into, of which no member is given.
func newOrder() order {
	return order{
		Op: absent, From: absent, To: absent, Asset: absent, Amount: absent, Hold: absent, Memo: absent,
		ValidUntil: absent, Reference: absent,
	}
}

// given returns the members that o has.
func (o *order) given() (m ledger.Members) {
	for i, there := range [...]bool{
		o.From != absent, o.To != absent, o.Asset != absent, o.Amount != absent, o.Nonce != nil,
		o.ExpiresInS != nil, o.Hold != absent, o.Memo != absent, o.ValidUntil != absent, o.Reference != absent,
	} {
		if there {
			m |= 1 << i
		}
	}
	if o.Op != absent {
		m |= ledger.MemberOp
	}
	return m
}

// validate returns the op of o, a body of the route of code or, if code is 0, one of a batch.
func (o *order) validate(code record.Op) (ledger.Op, *httpapi.BodyError) {
	given, notTaken := o.given(), wantKnown
	if code == 0 {
		if given&ledger.MemberOp == 0 {
			return ledger.Op{}, &httpapi.BodyError{Field: "op", Reason: ledger.WantMember}
		}
		code, notTaken = opOf(o.Op), ledger.WantNoMember
		if code == 0 {
			return ledger.Op{}, &httpapi.BodyError{Field: "op", Reason: ledger.WantOp}
		}
		given &^= ledger.MemberOp
	}
	op := ledger.Op{Code: code}
	o.convert(&op, given)
	wrong, reason := ledger.Check(&op, given)
	if wrong == 0 {
		return op, nil
	}
	if reason == ledger.WantNoMember {
		reason = notTaken
	}
	return op, &httpapi.BodyError{Field: wrong.First(), Reason: reason}
}

// convert fills op with the given members. One that cannot be read gets a value that ledger.Check
// refuses. A time that has passed is taken: an op that was done before it is answered as it was
// then.
func (o *order) convert(op *ledger.Op, given ledger.Members) {
	text := func(m ledger.Members, v string) string {
		if given&m == 0 {
			return ""
		}
		return v
	}
	op.From, op.To = text(ledger.MemberFrom, o.From), text(ledger.MemberTo, o.To)
	op.Asset, op.Memo = text(ledger.MemberAsset, o.Asset), text(ledger.MemberMemo, o.Memo)
	op.Reference = text(ledger.MemberReference, o.Reference)
	op.Amount, _ = engines.ParseAmount(text(ledger.MemberAmount, o.Amount))
	if o.Nonce != nil {
		op.Nonce = *o.Nonce
	}
	if o.ExpiresInS != nil {
		op.ExpiresIn = time.Duration(min(*o.ExpiresInS, maxExpiresIn+1)) * time.Second
	}
	if given&ledger.MemberHold != 0 {
		op.Hold, _ = record.ParseTxID(o.Hold)
	}
	if given&ledger.MemberValidUntil != 0 {
		op.ValidUntil = -1
		if at, ok := httpapi.ParseTime(o.ValidUntil); ok {
			op.ValidUntil = at.UnixNano()
		}
	}
}

// maxExpiresIn bounds the seconds that are converted; ledger.Check refuses more than 30 days.
const maxExpiresIn = 30 * 24 * 3600

// opOf returns the code of an operation of a batch, or 0 if name is unknown.
func opOf(name string) record.Op {
	switch name {
	case walletapi.OpIssue:
		return record.OpIssue
	case walletapi.OpTransfer:
		return record.OpTransfer
	case walletapi.OpBurn:
		return record.OpBurn
	case walletapi.OpHold:
		return record.OpHold
	case walletapi.OpCapture:
		return record.OpCapture
	case walletapi.OpRelease:
		return record.OpRelease
	}
	return 0
}

// maxBatchOps bounds the operations of a batch, whatever the configuration of the wallet.
const maxBatchOps = 4096

// BatchSizeError says that a batch holds too many operations.
type BatchSizeError struct{ Max int }

func (e *BatchSizeError) Error() string {
	return "ops: a batch holds at most " + strconv.Itoa(
		e.Max,
	) + " operations; send the rest as another one, under a key of its own"
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

// orders holds the operations of a batch, nil if the member is absent.
type orders []ledger.Op

// UnmarshalJSONFrom reads one operation after the other. It keeps one more than a batch may hold
// and skips the others, because an operation in memory takes a hundred times its shortest form on
// the wire.
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

// readOrder reads the body of the route of op.
func readOrder(body []byte, op record.Op) (ledger.Op, error) {
	in := newOrder()
	if err := httpapi.DecodeTyped(body, &in); err != nil {
		return ledger.Op{}, err
	}
	r, bad := in.validate(op)
	if bad != nil {
		return r, bad
	}
	return r, nil
}

// readBatch reads a batch.
func readBatch(body []byte) (b batch, err error) {
	if b, ok := readPlain(body); ok {
		return b, nil
	}
	return readAny(body)
}

// readAny reads a batch in any form.
func readAny(body []byte) (b batch, err error) {
	if err := httpapi.DecodeTyped(body, &b); err != nil {
		return b, err
	}
	switch {
	case b.Mode == "":
		err = httpapi.BadBody("mode", ledger.WantMember)
	case b.Ops == nil:
		err = httpapi.BadBody("ops", ledger.WantMember)
	case len(b.Ops) == 0:
		err = httpapi.BadBody("ops", "must hold at least one operation")
	case len(b.Ops) > maxBatchOps:
		err = &BatchSizeError{maxBatchOps}
	}
	return b, err
}

// maxIdemKey is the longest key in characters, enough for a ULID, a UUID or a digest in
// hexadecimal.
const maxIdemKey = 64

// Hints about a malformed key. They do not repeat the key.
const (
	keyMissing = "is missing: choose a new one for every new request, and send the same one whenever that " +
		"request is repeated"
	keyGrammar = "must be 1 to 64 of the characters A-Z a-z 0-9 . _ : -"
)

// idempotencyKey returns the Idempotency-Key of a request, which must have one.
func idempotencyKey(c *httpapi.Request) (string, error) {
	v, given, err := c.Single(walletapi.IdemHeader)
	if err != nil {
		return "", err
	}
	if !given || v == "" {
		return "", httpapi.BadHeader(walletapi.IdemHeader, keyMissing)
	}
	key, ok := parseIdemKey(v)
	if !ok {
		return "", httpapi.BadHeader(walletapi.IdemHeader, keyGrammar)
	}
	return key, nil
}

// parseIdemKey accepts a key as it is, or in quotes as a string of a structured field. Both name
// the same request. The characters need no escape, and there are no parameters.
func parseIdemKey(v string) (string, bool) {
	if len(v) >= 2 && v[0] == '"' && v[len(v)-1] == '"' {
		v = v[1 : len(v)-1]
	}
	if v == "" || len(v) > maxIdemKey {
		return "", false
	}
	for i := range len(v) {
		switch c := v[i]; {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '.', c == '_', c == ':', c == '-':
		default:
			return "", false
		}
	}
	return v, true
}
