package record

import (
	"errors"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"ronbox/appliance/b3"
	"ronbox/engines"
)

// receiptWire is a receipt's JSON.
type receiptWire struct {
	TxID   TxID            `json:"txid"`
	Op     string          `json:"op"`
	From   string          `json:"from"`
	To     string          `json:"to"`
	Asset  string          `json:"asset"`
	Amount *engines.Amount `json:"amount_minor"`
	Set    []string        `json:"set"`
	Clear  []string        `json:"clear"`
	Nonce  uint64          `json:"nonce"`
	Idem   string          `json:"idem"`
	TS     string          `json:"ts"`
	Hash   b3.Digest       `json:"receipt_hash"`
	Hold   TxID            `json:"hold"`
	Ledger struct {
		Seq   uint64    `json:"seq"`
		Batch uint64    `json:"batch"`
		Root  b3.Digest `json:"root"`
	} `json:"ledger"`
}

var (
	errReceiptHash = errors.New("receipt_hash is not that of the members it covers: they were altered")
	errReceiptTxID = errors.New("txid is not of this ts and ledger.seq")
)

// ParseReceipt takes a receipt's JSON as a renderer gave it, spaces between its tokens aside. It judges the form, the names, receipt_hash
// and txid; that a ledger holds it is for a Proof to show. The time comes back in whole ms.
func ParseReceipt(b []byte) (Receipt, error) {
	r, err := parseReceipt(b)
	if err != nil {
		return Receipt{}, &FormatError{"receipt", err}
	}
	return r, nil
}

func parseReceipt(b []byte) (Receipt, error) {
	var w receiptWire
	if err := json.Unmarshal(b, &w, json.RejectUnknownMembers(true)); err != nil {
		return Receipt{}, err
	}
	r, err := w.receipt()
	if err != nil {
		return Receipt{}, err
	}
	switch {
	case r.Hash() != w.Hash:
		return Receipt{}, errReceiptHash
	case r.TxID.Seq() != r.Seq || r.TxID.millis() != r.At/1e6:
		return Receipt{}, errReceiptTxID
	}
	return r, sameForm(b, jsontext.Value(r.AppendJSON(nil)))
}

// receipt is w as a value whose texts are within their grammars.
func (w *receiptWire) receipt() (Receipt, error) {
	op, err := ParseOp(w.Op)
	if err != nil {
		return Receipt{}, err
	}
	at, err := parseStamp(w.TS)
	if err != nil {
		return Receipt{}, err
	}
	set, errSet := ParseFlags(w.Set...)
	clear, errClear := ParseFlags(w.Clear...)
	r := Receipt{
		TxID: w.TxID, Op: op, From: w.From, To: w.To, Asset: w.Asset, Nonce: w.Nonce, Idem: w.Idem, At: at, Hold: w.Hold,
		Seq: w.Ledger.Seq, Batch: w.Ledger.Batch, Root: w.Ledger.Root, Version: ReceiptVersion,
	}
	if w.Amount != nil {
		r.Amount = *w.Amount
	}
	if op == OpFlags && set|clear != 0 {
		r.Set, r.Clear, r.Version = set, clear, ReceiptNamed
	}
	return r, errors.Join(errSet, errClear, given(w.From, engines.CheckAccount), given(w.To, engines.CheckAccount), given(w.Asset, engines.CheckAsset), given(w.Idem, CheckIdem))
}

// given judges a text that need not be there.
func given(s string, check func(string) error) error {
	if s == "" {
		return nil
	}
	return check(s)
}
