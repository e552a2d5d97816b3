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
	ledgerapi "ronbox/httpapi/ledger"
	walletapi "ronbox/httpapi/wallet"
	"ronbox/httpapi/wire"
)

// fakeBank is a node that knows transfers: strict nonces, balances, answers kept under keys. It loses requests and
// answers, and dies, as drawn.
type fakeBank struct {
	name     string
	balance  map[string]int
	nonces   map[string]uint64 // last
	answers  map[string]string // by key: the request
	results  map[string]walletapi.BatchAnswer
	memos    []string // of what was done, in order
	posted   []walletapi.BatchOp
	log      []walletapi.HistoryEntry
	roots    []string // of batches, each of which is a record here
	deny     func(walletapi.Batch) error
	asked    func() // before a nonce is told
	draw     func(n int) int
	thief    string // an account that somebody else spends from now and then
	blind    bool   // statements may not be read
	hidden   string // an account whose statement may not be read
	down     bool   // it cannot be reached
	locked   bool   // nobody may pay
	since    int64  // when its first record is made
	requests int
}

var errKilled = errors.New("killed")

func newFakeBank(draw func(int) int) *fakeBank {
	return &fakeBank{balance: map[string]int{}, nonces: map[string]uint64{}, answers: map[string]string{}, results: map[string]walletapi.BatchAnswer{}, draw: draw,
		since: time.Now().UnixMilli() * 1e6}
}

// History gives the whole log for any account, a page of 3 at a time, the newest first.
func (f *fakeBank) History(_ context.Context, q walletapi.HistoryQuery) (out walletapi.History, _ error) {
	if f.blind || q.Account == f.hidden {
		return out, &wire.Problem{Status: http.StatusForbidden}
	}
	if q.Asset != "ron" {
		return out, &wire.Problem{Status: http.StatusBadRequest, Code: "BAD_REQUEST", Reason: "asset_unknown"}
	}
	at := len(f.log)
	if q.Cursor != "" {
		_, _ = fmt.Sscan(q.Cursor, &at)
	}
	for at--; at >= 0 && len(out.Entries) < 3; at-- {
		out.Entries = append(out.Entries, f.log[at])
	}
	if at >= 0 {
		out.Next = fmt.Sprint(at + 1)
	}
	return out, nil
}

func (f *fakeBank) Tx(_ context.Context, id string) ([]byte, error) {
	return nil, &wire.Problem{Status: http.StatusNotFound}
}

func (f *fakeBank) LedgerHead(context.Context) (h ledgerapi.LedgerHead, _ error) {
	if f.down {
		return h, client.ErrNotReachable
	}
	n := len(f.roots)
	h.Batches, h.Seq, h.LastRoot = uint64(n), uint64(n), b3.Digest{}.String()
	if n > 0 {
		h.LastRoot = f.roots[n-1]
	}
	return h, nil
}

func (f *fakeBank) Roots(_ context.Context, since uint64, _ int) (out ledgerapi.Roots, _ error) {
	if since < uint64(len(f.roots)) {
		out.Roots = []ledgerapi.Root{{Batch: since + 1, Root: f.roots[since]}}
	}
	return out, nil
}

func (f *fakeBank) Account(_ context.Context, account string) (walletapi.Account, error) {
	if f.asked != nil {
		f.asked()
	}
	return walletapi.Account{NextNonce: f.nonces[account] + 1}, nil
}

func (f *fakeBank) Batch(_ context.Context, key string, b walletapi.Batch) (walletapi.BatchPosted, error) {
	f.requests++
	if f.deny != nil {
		if err := f.deny(b); err != nil {
			return walletapi.BatchPosted{}, err
		}
	}
	if f.thief != "" && f.draw(4) == 0 {
		f.nonces[f.thief]++
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
	raw, _ := json.Marshal(b, json.Deterministic(true))
	if was, known := f.answers[key]; known {
		if was != string(raw) {
			return walletapi.BatchPosted{}, &wire.Problem{Status: 422, Code: codeIdem, Reason: "idem_conflict"}
		}
		return walletapi.BatchPosted{Answer: f.results[key], Replayed: true}, nil
	}
	if b.Mode == modeAtomic {
		if p := f.atomic(b); p != nil {
			return walletapi.BatchPosted{}, p
		}
	}
	var answer walletapi.BatchAnswer
	accepted := false
	for i, op := range b.Ops {
		code := f.refuse(op)
		r := walletapi.BatchResult{Index: i, Status: http.StatusOK}
		if code != "" {
			r.Status, r.Error = http.StatusConflict, &walletapi.BatchError{Code: code, Reason: strings.ToLower(code)}
		} else {
			r.Receipt = f.post(op, key)
			accepted = true
		}
		answer.Results = append(answer.Results, r)
	}
	if accepted {
		f.answers[key], f.results[key] = string(raw), answer
	}
	return walletapi.BatchPosted{Answer: answer}, nil
}

func (f *fakeBank) refuse(op walletapi.BatchOp) string {
	var n int
	_, _ = fmt.Sscan(op.AmountMinor, &n)
	switch {
	case f.locked:
		return "ACCOUNT_LOCKED"
	case op.Nonce != f.nonces[op.From]+1:
		return codeNonce
	case op.Asset != "ron":
		return "ASSET_UNKNOWN"
	case f.balance[op.From] < n:
		return "INSUFFICIENT_FUNDS"
	}
	return ""
}

func (f *fakeBank) post(op walletapi.BatchOp, key string) (receipt []byte) {
	var n int
	_, _ = fmt.Sscan(op.AmountMinor, &n)
	f.balance[op.From] -= n
	f.balance[op.To] += n
	f.nonces[op.From]++
	f.memos, f.posted = append(f.memos, op.Memo), append(f.posted, op)
	seq := uint64(len(f.log) + 1)
	at := f.since + int64(seq)*1e6
	r := record.Receipt{
		TxID: record.NewTxID(at, seq, 0), Op: record.OpTransfer, From: op.From, To: op.To, Asset: op.Asset, Amount: engines.AmountOf(0, uint64(n)),
		Nonce: op.Nonce, Idem: key, At: at, Seq: seq, Batch: seq, Root: b3.Sum([]byte(fmt.Sprint(f.name, seq))), Version: 1,
	}
	f.roots = append(f.roots, r.Root.String())
	f.log = append(f.log, walletapi.HistoryEntry{Receipt: r.AppendJSON(nil), Memo: op.Memo})
	return r.AppendJSON(nil)
}

// atomic refuses all when one is refused.
func (f *fakeBank) atomic(b walletapi.Batch) *wire.Problem {
	try := newFakeBank(nil)
	try.locked = f.locked
	for k, v := range f.balance {
		try.balance[k] = v
	}
	for k, v := range f.nonces {
		try.nonces[k] = v
	}
	for i, op := range b.Ops {
		if code := try.refuse(op); code != "" {
			return &wire.Problem{Status: http.StatusConflict, Code: code, Reason: strings.ToLower(code), Details: map[string]any{"index": float64(i)}}
		}
		try.post(op, "")
	}
	return nil
}
