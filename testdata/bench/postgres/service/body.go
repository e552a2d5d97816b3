package main

import (
	"math/big"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/jackc/pgx/v5/pgtype"
)

const (
	asset     = "ron" // the only one
	maxMemo   = 128   // bytes
	maxOps    = 4096  // of a batch
	maxDigits = 39    // of an amount: room for 2^128 - 1
	prefix    = "acct/"
)

var maxAmount = new(big.Int).Sub(new(big.Int).Lsh(big.NewInt(1), 128), big.NewInt(1))

// order is a transfer as it is asked for.
type order struct {
	Op     string `json:"op,omitzero"` // of a batch
	From   string `json:"from"`
	To     string `json:"to"`
	Asset  string `json:"asset"`
	Amount string `json:"amount_minor"`
	Nonce  uint64 `json:"nonce"` // see the package
	Memo   string `json:"memo,omitzero"`
}

// orders is a batch. Either mode is done as a whole: so is an independent one none of whose ops is refused, and no other is measured.
type orders struct {
	Mode string  `json:"mode"`
	Ops  []order `json:"ops"`
}

// transfer is an order that was checked.
type transfer struct {
	order
	payer, payee int64
	amount       pgtype.Numeric
}

func decodeTransfer(body []byte) (t transfer, err error) {
	var o order
	if err := json.Unmarshal(body, &o, json.RejectUnknownMembers(true)); err != nil {
		return t, &refusal{400, "BAD_REQUEST", err.Error()}
	}
	if o.Op != "" {
		return t, bad("op", "must be absent")
	}
	return o.check()
}

func decodeBatch(body []byte) ([]transfer, error) {
	var b orders
	if err := json.Unmarshal(body, &b, json.RejectUnknownMembers(true)); err != nil {
		return nil, &refusal{400, "BAD_REQUEST", err.Error()}
	}
	if b.Mode != "atomic" && b.Mode != "independent" {
		return nil, bad("mode", "must be atomic or independent")
	}
	if len(b.Ops) == 0 || len(b.Ops) > maxOps {
		return nil, bad("ops", "must be 1 to 4096")
	}
	out := make([]transfer, len(b.Ops))
	for i, o := range b.Ops {
		if o.Op != "transfer" {
			return nil, bad("op", "must be transfer")
		}
		var err error
		if out[i], err = o.check(); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// check says what is wrong with an order, or what it means.
func (o order) check() (t transfer, err error) {
	t.order = o
	var ok bool
	if t.payer, ok = account(o.From); !ok {
		return t, bad("from", "is not an account")
	}
	if t.payee, ok = account(o.To); !ok {
		return t, bad("to", "is not an account")
	}
	if t.payer == t.payee {
		return t, bad("to", "must not be the payer")
	}
	if o.Asset != asset {
		return t, bad("asset", "is unknown")
	}
	if t.amount, ok = amount(o.Amount); !ok {
		return t, bad("amount_minor", "must be a whole number above 0 and below 2^128, in digits")
	}
	if len(o.Memo) > maxMemo {
		return t, bad("memo", "must be 128 bytes or fewer")
	}
	return t, nil
}

// account is the number of an account, which has one name only.
func account(name string) (int64, bool) {
	digits, ok := strings.CutPrefix(name, prefix)
	if !ok || !plain(digits) || len(digits) > 18 {
		return 0, false
	}
	id, err := strconv.ParseInt(digits, 10, 64)
	return id, err == nil
}

// amount reads one in minor units.
func amount(digits string) (n pgtype.Numeric, ok bool) {
	if !plain(digits) || len(digits) > maxDigits {
		return n, false
	}
	v, ok := new(big.Int).SetString(digits, 10)
	if !ok || v.Sign() == 0 || v.Cmp(maxAmount) > 0 {
		return n, false
	}
	return pgtype.Numeric{Int: v, Valid: true}, true
}

// plain says whether a text is a number in digits, without any that could be left out.
func plain(digits string) bool {
	if digits == "" || digits[0] == '0' && digits != "0" {
		return false
	}
	for i := range len(digits) {
		if digits[i] < '0' || digits[i] > '9' {
			return false
		}
	}
	return true
}
