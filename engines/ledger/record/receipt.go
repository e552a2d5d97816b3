package record

import (
	"errors"
	"strconv"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"ronbox/appliance/b3"
	"ronbox/engines"
)

// The renderers of receipts, by the version of the record. A renderer is never edited: its bytes
// were given to callers.
const (
	ReceiptVersion = 1
	ReceiptNamed   = 2 // as ReceiptVersion, with the flags that were set and cleared
)

// Receipt is the answer to an accepted op and to each repetition. Members that the op lacks are
// zero and not rendered.
type Receipt struct {
	TxID    TxID
	Op      Op
	From    string // "" for an issue
	To      string // "" for a burn
	Asset   string
	Amount  engines.Amount // shown for ops that move money; of an OpScale, shown as the decimals of Asset
	Set     Flags          // as Clear: zero in ReceiptVersion
	Clear   Flags
	Nonce   uint64
	Idem    string
	At      int64 // ns since 1970; shown in ms, truncated
	Hold    TxID  // of the hold that a capture, a release or an expiry ends
	Seq     uint64
	Batch   uint64
	Root    b3.Digest // of the batch
	Version uint8     // of the renderer
}

// Names are the names of a record's refs.
type Names struct {
	From, To, Asset string
	Hold            TxID // of the record Hold: records hold only its Seq
}

// Receipt returns the receipt of r, with the names n and the root of its batch. It leaves out the
// issuance account of an issue, a burn or an asset.
func (r *Record) Receipt(n Names, root b3.Digest) Receipt {
	v := Receipt{
		TxID:    r.TxID(),
		Op:      r.Op,
		From:    n.From,
		To:      n.To,
		Asset:   n.Asset,
		Amount:  r.Amount,
		Nonce:   r.Nonce,
		Idem:    r.Idem,
		At:      r.At,
		Seq:     r.Seq,
		Batch:   r.Batch,
		Root:    root,
		Version: ReceiptVersion,
	}
	if r.Named {
		v.Set, v.Clear, v.Version = r.Set, r.Clear, ReceiptNamed
	}
	switch r.Op {
	case OpIssue, OpAsset:
		v.From = ""
	case OpBurn:
		v.To = ""
	case OpCapture, OpRelease, OpExpire:
		v.Hold = n.Hold
	}
	return v
}

// AppendJSON appends the receipt as its version renders it: one object without spaces, its members
// in the order txid op from to asset amount_minor decimals set clear nonce idem ts receipt_hash
// hold ledger. It allocates only to grow dst.
func (r *Receipt) AppendJSON(dst []byte) []byte {
	if r.Version != ReceiptVersion && r.Version != ReceiptNamed {
		panic("record: no renderer of receipts has version " + strconv.Itoa(int(r.Version)))
	}
	var ts [stampRoom]byte
	stamp := appendStamp(ts[:0], r.At)
	dst = append(dst, `{"txid":"`...)
	dst = r.TxID.append(dst)
	dst = append(append(append(dst, `","op":"`...), r.Op.String()...), '"')
	dst = appendMember(dst, `,"from":"`, r.From)
	dst = appendMember(dst, `,"to":"`, r.To)
	dst = appendMember(dst, `,"asset":"`, r.Asset)
	if r.Op.MovesMoney() {
		dst, _ = r.Amount.AppendText(append(dst, `,"amount_minor":"`...))
		dst = append(dst, '"')
	}
	if r.Op == OpScale {
		dst, _ = r.Amount.AppendText(append(dst, `,"decimals":`...))
	}
	if r.Set != 0 {
		dst = appendFlags(append(dst, `,"set":[`...), r.Set)
	}
	if r.Clear != 0 {
		dst = appendFlags(append(dst, `,"clear":[`...), r.Clear)
	}
	if r.Nonce != 0 {
		dst = strconv.AppendUint(append(dst, `,"nonce":`...), r.Nonce, 10)
	}
	dst = appendMember(dst, `,"idem":"`, r.Idem)
	dst = append(append(dst, `,"ts":"`...), stamp...)
	dst = append(dst, `","receipt_hash":"`...)
	var canon [canonicalMost]byte
	dst, _ = b3.Sum(r.appendCanonical(canon[:0], stamp)).AppendText(dst)
	dst = append(dst, '"')
	if !r.Hold.IsZero() {
		dst = append(r.Hold.append(append(dst, `,"hold":"`...)), '"')
	}
	dst = strconv.AppendUint(append(dst, `,"ledger":{"seq":`...), r.Seq, 10)
	dst = strconv.AppendUint(append(dst, `,"batch":`...), r.Batch, 10)
	dst, _ = r.Root.AppendText(append(dst, `,"root":"`...))
	return append(dst, `"}}`...)
}

// Hash returns the receipt_hash: the hash of the canonical JSON, with members sorted by name. It
// does not cover the record's place in the ledger.
func (r *Receipt) Hash() b3.Digest {
	var ts [stampRoom]byte
	var canon [canonicalMost]byte
	return b3.Sum(r.appendCanonical(canon[:0], appendStamp(ts[:0], r.At)))
}

// canonicalMost is the longest canonical JSON: names and values of 2 accounts, an asset, all flags
// twice, a key, 39 and 20 digits, a time and a txid.
const canonicalMost = 160 + 2*len(
	`"clear":["frozen","no_debit","no_credit","closed"],`,
) + 2*engines.MaxAccount + engines.MaxAsset + MaxIdem + 39 + 20 + len(stampLayout) + txTextLen

// appendCanonical appends the canonical JSON of r: the members that Hash covers, sorted by name.
func (r *Receipt) appendCanonical(dst, stamp []byte) []byte {
	dst = append(dst, '{')
	if r.Op.MovesMoney() {
		dst, _ = r.Amount.AppendText(append(dst, `"amount_minor":"`...))
		dst = append(dst, `",`...)
	}
	if r.Asset != "" {
		dst = append(append(append(dst, `"asset":"`...), r.Asset...), `",`...)
	}
	if r.Clear != 0 {
		dst = append(appendFlags(append(dst, `"clear":[`...), r.Clear), ',')
	}
	if r.Op == OpScale {
		dst, _ = r.Amount.AppendText(append(dst, `"decimals":`...))
		dst = append(dst, ',')
	}
	if r.From != "" {
		dst = append(append(append(dst, `"from":"`...), r.From...), `",`...)
	}
	if r.Idem != "" {
		dst = append(append(append(dst, `"idem":"`...), r.Idem...), `",`...)
	}
	if r.Nonce != 0 {
		dst = append(strconv.AppendUint(append(dst, `"nonce":`...), r.Nonce, 10), ',')
	}
	dst = append(append(append(dst, `"op":"`...), r.Op.String()...), '"')
	if r.Set != 0 {
		dst = appendFlags(append(dst, `,"set":[`...), r.Set)
	}
	dst = appendMember(dst, `,"to":"`, r.To)
	dst = append(append(dst, `,"ts":"`...), stamp...)
	dst = append(r.TxID.append(append(dst, `","txid":"`...)), `"}`...)
	return dst
}

// appendFlags appends the words of f, which is not 0, and ends the list.
func appendFlags(dst []byte, f Flags) []byte {
	for i, name := range flagNames {
		if f&(1<<i) != 0 {
			dst = append(append(append(dst, '"'), name...), '"', ',')
		}
	}
	dst[len(dst)-1] = ']'
	return dst
}

// appendMember appends a member, unless it is "". Names, keys and words need no escapes: their
// grammars leave out all that would.
func appendMember(dst []byte, open, value string) []byte {
	if value == "" {
		return dst
	}
	return append(append(append(dst, open...), value...), '"')
}

// receiptWire is a receipt's JSON.
type receiptWire struct {
	TxID   TxID            `json:"txid"`
	Op     string          `json:"op"`
	From   string          `json:"from"`
	To     string          `json:"to"`
	Asset  string          `json:"asset"`
	Amount *engines.Amount `json:"amount_minor"`
	Scale  uint64          `json:"decimals"`
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

// ParseReceipt takes a receipt's JSON as a renderer gave it, spaces between its tokens aside. It
// judges the form, the names, receipt_hash and txid; that a ledger holds it is for a Proof to show.
// The time comes back in whole ms.
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

// receipt converts w. It checks the grammar of all texts.
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
		TxID:    w.TxID,
		Op:      op,
		From:    w.From,
		To:      w.To,
		Asset:   w.Asset,
		Nonce:   w.Nonce,
		Idem:    w.Idem,
		At:      at,
		Hold:    w.Hold,
		Seq:     w.Ledger.Seq,
		Batch:   w.Ledger.Batch,
		Root:    w.Ledger.Root,
		Version: ReceiptVersion,
	}
	switch {
	case op == OpScale:
		r.Amount = engines.AmountOf(0, w.Scale)
	case w.Amount != nil:
		r.Amount = *w.Amount
	}
	if op == OpFlags && set|clear != 0 {
		r.Set, r.Clear, r.Version = set, clear, ReceiptNamed
	}
	return r, errors.Join(errSet, errClear, given(w.From, engines.CheckAccount), given(w.To, engines.CheckAccount),
		given(w.Asset, engines.CheckAsset), given(w.Idem, CheckIdem))
}

// given judges a text that need not be there.
func given(s string, check func(string) error) error {
	if s == "" {
		return nil
	}
	return check(s)
}
