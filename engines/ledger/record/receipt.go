package record

import (
	"strconv"

	"ronbox/appliance/b3"
	"ronbox/engines"
)

// The renderers of receipts, by the version of the record. A renderer is never edited: its bytes were given to callers.
const (
	ReceiptVersion = 1
	ReceiptNamed   = 2 // as ReceiptVersion, with the flags that were set and cleared
)

// Receipt is what a caller gets for an op, and again for each repetition. Members that the op lacks are zero, and not shown.
type Receipt struct {
	TxID    TxID
	Op      Op
	From    string // "" for an issue
	To      string // "" for a burn
	Asset   string
	Amount  engines.Amount // shown for ops that move money
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

// Names are what a record's refs stand for.
type Names struct {
	From, To, Asset string
	Hold            TxID // of the record Hold, whose Seq alone a record says
}

// Receipt is r's receipt: n says what r's refs stand for, root is that of its batch. The ledger's own account of an issue, a burn or an
// asset is left out, whatever n says.
func (r *Record) Receipt(n Names, root b3.Digest) Receipt {
	v := Receipt{
		TxID: r.TxID(), Op: r.Op, From: n.From, To: n.To, Asset: n.Asset, Amount: r.Amount, Nonce: r.Nonce, Idem: r.Idem, At: r.At,
		Seq: r.Seq, Batch: r.Batch, Root: root, Version: ReceiptVersion,
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

// AppendJSON appends the receipt as its version renders it: one object without spaces, its members in the order
// txid op from to asset amount_minor set clear nonce idem ts receipt_hash hold ledger. It allocates nothing but what dst lacks.
func (r *Receipt) AppendJSON(dst []byte) []byte {
	if r.Version != ReceiptVersion && r.Version != ReceiptNamed {
		panic("record: no renderer of receipts has version " + strconv.Itoa(int(r.Version)))
	}
	var ts [len(stampLayout)]byte
	stamp := appendStamp(ts[:0], r.At)
	dst = append(dst, `{"txid":"`...)
	dst = r.TxID.append(dst)
	dst = append(append(append(dst, `","op":"`...), r.Op.String()...), '"')
	dst = appendMember(dst, `,"from":"`, r.From)
	dst = appendMember(dst, `,"to":"`, r.To)
	dst = appendMember(dst, `,"asset":"`, r.Asset)
	dst = r.appendAmount(dst, `,"amount_minor":"`)
	dst = appendFlags(dst, `,"set":[`, r.Set)
	dst = appendFlags(dst, `,"clear":[`, r.Clear)
	dst = r.appendNonce(dst, `,"nonce":`)
	dst = appendMember(dst, `,"idem":"`, r.Idem)
	dst = append(append(dst, `,"ts":"`...), stamp...)
	dst = append(dst, `","receipt_hash":"`...)
	dst = appendDigest(dst, r.hash(stamp))
	dst = append(dst, '"')
	if !r.Hold.IsZero() {
		dst = append(r.Hold.append(append(dst, `,"hold":"`...)), '"')
	}
	dst = strconv.AppendUint(append(dst, `,"ledger":{"seq":`...), r.Seq, 10)
	dst = strconv.AppendUint(append(dst, `,"batch":`...), r.Batch, 10)
	dst = appendDigest(append(dst, `,"root":"`...), r.Root)
	return append(dst, `"}}`...)
}

// Hash is the receipt's receipt_hash: over its canonical JSON, which has the members that say what happened and none that say where it is
// kept, sorted by name.
func (r *Receipt) Hash() b3.Digest {
	var ts [len(stampLayout)]byte
	return r.hash(appendStamp(ts[:0], r.At))
}

// canonicalMost is the longest canonical JSON: names and values of 2 accounts, an asset, all flags twice, a key, 39 and 20 digits, a time and
// a txid.
const canonicalMost = 160 + 2*len(`"clear":["frozen","no_debit","no_credit","closed"],`) + 2*engines.MaxAccount + engines.MaxAsset + MaxIdem + 39 + 20 + len(stampLayout) + txTextLen

func (r *Receipt) hash(stamp []byte) b3.Digest {
	var buf [canonicalMost]byte
	return b3.Sum(r.appendCanonical(buf[:0], stamp))
}

func (r *Receipt) appendCanonical(dst, stamp []byte) []byte {
	dst = append(dst, '{')
	dst = r.appendAmount(dst, `"amount_minor":"`)
	if len(dst) > 1 {
		dst = append(dst, ',')
	}
	if r.Asset != "" {
		dst = append(append(append(dst, `"asset":"`...), r.Asset...), `",`...)
	}
	if r.Clear != 0 {
		dst = append(appendFlags(dst, `"clear":[`, r.Clear), ',')
	}
	if r.From != "" {
		dst = append(append(append(dst, `"from":"`...), r.From...), `",`...)
	}
	if r.Idem != "" {
		dst = append(append(append(dst, `"idem":"`...), r.Idem...), `",`...)
	}
	if r.Nonce != 0 {
		dst = append(r.appendNonce(dst, `"nonce":`), ',')
	}
	dst = append(append(append(dst, `"op":"`...), r.Op.String()...), '"')
	dst = appendFlags(dst, `,"set":[`, r.Set)
	dst = appendMember(dst, `,"to":"`, r.To)
	dst = append(append(dst, `,"ts":"`...), stamp...)
	dst = append(r.TxID.append(append(dst, `","txid":"`...)), `"}`...)
	return dst
}

func (r *Receipt) appendAmount(dst []byte, name string) []byte {
	if !r.Op.MovesMoney() {
		return dst
	}
	dst, _ = r.Amount.AppendText(append(dst, name...))
	return append(dst, '"')
}

// appendFlags appends the words of f as a list, unless there are none.
func appendFlags(dst []byte, open string, f Flags) []byte {
	if f == 0 {
		return dst
	}
	dst = append(dst, open...)
	for i, name := range flagNames {
		if f&(1<<i) != 0 {
			dst = append(append(append(dst, '"'), name...), '"', ',')
		}
	}
	dst[len(dst)-1] = ']'
	return dst
}

func (r *Receipt) appendNonce(dst []byte, name string) []byte {
	if r.Nonce == 0 {
		return dst
	}
	return strconv.AppendUint(append(dst, name...), r.Nonce, 10)
}

// appendMember appends a member, unless it is "". Names, keys and words need no escapes: their grammars leave out all that would.
func appendMember(dst []byte, open, value string) []byte {
	if value == "" {
		return dst
	}
	return append(append(append(dst, open...), value...), '"')
}

func appendDigest(dst []byte, d b3.Digest) []byte {
	dst, _ = d.AppendText(dst)
	return dst
}
