package wallet

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"ronbox/appliance/b3"
	"ronbox/engines"
	"ronbox/engines/ledger/record"
	"ronbox/httpapi/client"
	"ronbox/httpapi/wire"
	walletapi "ronbox/httpapi/wire/wallet"
)

// fakeBank is a node with balances, references, and answers stored by key. It loses requests and
// answers, and is killed, at random.
type fakeBank struct {
	lister
	balance  map[string]int
	refs     map[string]posted // by reference
	answers  map[string]walletapi.BatchAnswer
	memos    []string // memos of the executed ops, in order
	posts    int
	deny     func(walletapi.Batch) error
	closed   bool // all references are those of a closed period
	draw     func(n int) int
	since    time.Time // time of its first record
	requests int
}

// posted is the operation that is bound to a reference.
type posted struct {
	words   string
	receipt []byte
}

var errKilled = errors.New("killed")

func newFakeBank(draw func(int) int) *fakeBank {
	return &fakeBank{
		balance: map[string]int{}, refs: map[string]posted{}, answers: map[string]walletapi.BatchAnswer{},
		draw: draw, since: time.Now(), lister: ofAssets(),
	}
}

// sound never draws a fault.
func sound(int) int { return 7 }

func (f *fakeBank) Tx(_ context.Context, id string) ([]byte, error) {
	for _, p := range f.refs {
		if strings.Contains(string(p.receipt), id) {
			return p.receipt, nil
		}
	}
	return nil, &wire.Problem{Status: http.StatusNotFound}
}

func (f *fakeBank) Batch(_ context.Context, key string, b walletapi.Batch) (walletapi.BatchPosted, error) {
	f.requests++
	if f.deny != nil {
		if err := f.deny(b); err != nil {
			return walletapi.BatchPosted{}, err
		}
	}
	switch f.draw(8) {
	case 0:
		return walletapi.BatchPosted{}, fmt.Errorf("lost: %w", client.ErrUnknown)
	case 1:
		_, _ = f.apply(key, b)
		return walletapi.BatchPosted{}, fmt.Errorf("lost: %w", client.ErrUnknown)
	case 2:
		_, _ = f.apply(key, b)
		return walletapi.BatchPosted{}, errKilled
	case 3:
		return walletapi.BatchPosted{}, errKilled
	}
	return f.apply(key, b)
}

func (f *fakeBank) apply(key string, b walletapi.Batch) (walletapi.BatchPosted, error) {
	if was, known := f.answers[key]; known {
		return walletapi.BatchPosted{Answer: was, Replayed: true}, nil
	}
	if b.Mode == modeAtomic {
		left := map[string]int{}
		for i, op := range b.Ops {
			if code := f.refuse(op, left); code != "" {
				return walletapi.BatchPosted{}, &wire.Problem{Status: http.StatusConflict,
					Reason: strings.ToLower(code), Details: map[string]any{"index": float64(i)}}
			}
			left[op.From] -= minor(op)
		}
	}
	var answer walletapi.BatchAnswer
	for i, op := range b.Ops {
		r := walletapi.BatchResult{Index: i, Status: http.StatusOK}
		if code := f.refuse(op, nil); code != "" {
			r.Status, r.Error = http.StatusConflict, &walletapi.BatchError{Code: code, Reason: strings.ToLower(code)}
		} else {
			r.Receipt = f.post(op, key)
		}
		answer.Results = append(answer.Results, r)
	}
	f.answers[key] = answer
	return walletapi.BatchPosted{Answer: answer}, nil
}

func minor(op walletapi.BatchOp) (n int) {
	_, _ = fmt.Sscan(op.AmountMinor, &n)
	return n
}

func words(op walletapi.BatchOp) string {
	op.Reference, op.Nonce = "", 0
	raw, _ := json.Marshal(op, json.Deterministic(true))
	return string(raw)
}

func (f *fakeBank) refuse(op walletapi.BatchOp, more map[string]int) string {
	p, known := f.refs[op.Reference]
	switch {
	case known && f.closed:
		return "PERIOD_CLOSED"
	case known && p.words != words(op):
		return "REFERENCE_CONFLICT"
	case known:
		return ""
	case f.balance[op.From]+more[op.From] < minor(op):
		return "INSUFFICIENT_FUNDS"
	}
	return ""
}

// post executes op unless its reference is bound.
func (f *fakeBank) post(op walletapi.BatchOp, key string) (receipt []byte) {
	if p, known := f.refs[op.Reference]; known {
		return p.receipt
	}
	f.balance[op.From] -= minor(op)
	f.balance[op.To] += minor(op)
	f.memos = append(f.memos, op.Memo)
	f.posts++
	seq := uint64(f.posts)
	at := f.since.UnixMilli()*1e6 + int64(seq)*1e6
	r := record.Receipt{
		TxID: record.NewTxID(at, seq, 0), Op: record.OpTransfer, From: op.From, To: op.To, Asset: op.Asset,
		Amount: engines.AmountOf(0, uint64(minor(op))), Nonce: seq, Idem: key, At: at, Seq: seq, Batch: seq,
		Root: b3.Sum([]byte(fmt.Sprint(seq))), Version: 1,
	}
	receipt = r.AppendJSON(nil)
	f.refs[op.Reference] = posted{words(op), receipt}
	return receipt
}
