package wallet

import (
	"errors"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"ronbox/engines"
	"ronbox/engines/ledger/record"
)

// Whatever is malformed is refused by the member that is at fault.
func TestMalformedRequests(t *testing.T) {
	hold := record.NewTxID(1, 2, 3)
	good := map[string]Request{
		"issue":    issue("bo", 1, 1),
		"transfer": transfer("alice", "bo", 1, 1),
		"burn":     {Op: record.OpBurn, From: "alice", Asset: "ron", Amount: amountOf(1), Nonce: 1},
		"hold":     {Op: record.OpHold, From: "alice", To: "bo", Asset: "ron", Amount: amountOf(1), Nonce: 1, ExpiresIn: time.Second},
		"capture":  {Op: record.OpCapture, Hold: hold},
		"release":  {Op: record.OpRelease, Hold: hold},
		"flags":    {Op: record.OpFlags, From: "alice", Set: record.Frozen},
		"asset":    {Op: record.OpAsset, Asset: "ron"},
	}
	for name, q := range good {
		if err := q.check(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, tt := range []struct {
		of, field string
		spoil     func(*Request)
	}{
		{"transfer", "op", func(q *Request) { q.Op = record.OpExpire }},
		{"transfer", "op", func(q *Request) { q.Op = 0 }},
		{"transfer", "from", func(q *Request) { q.From = "" }},
		{"transfer", "from", func(q *Request) { q.From = "a b" }},
		{"transfer", "from", func(q *Request) { q.From = strings.Repeat("a", 257) }},
		{"transfer", "to", func(q *Request) { q.To = "é" }},
		{"transfer", "to", func(q *Request) { q.To = q.From }},
		{"transfer", "asset", func(q *Request) { q.Asset = "RON" }},
		{"transfer", "asset", func(q *Request) { q.Asset = strings.Repeat("a", 17) }},
		{"transfer", "amount_minor", func(q *Request) { q.Amount = engines.Amount{} }},
		{"transfer", "nonce", func(q *Request) { q.Nonce = 0 }},
		{"transfer", "hold", func(q *Request) { q.Hold = hold }},
		{"transfer", "expires_in_s", func(q *Request) { q.ExpiresIn = time.Second }},
		{"transfer", "set", func(q *Request) { q.Clear = record.Closed }},
		{"transfer", "memo", func(q *Request) { q.Memo = strings.Repeat("m", record.MaxMemo+1) }},
		{"transfer", "memo", func(q *Request) { q.Memo = "\xff" }},
		{"issue", "from", func(q *Request) { q.From = "alice" }},
		{"burn", "to", func(q *Request) { q.To = "bo" }},
		{"hold", "expires_in_s", func(q *Request) { q.ExpiresIn = 0 }},
		{"hold", "expires_in_s", func(q *Request) { q.ExpiresIn = maxHold + time.Second }},
		{"hold", "expires_in_s", func(q *Request) { q.ExpiresIn = 1500 * time.Millisecond }},
		{"capture", "hold", func(q *Request) { q.Hold = record.TxID{} }},
		{"capture", "nonce", func(q *Request) { q.Nonce = 1 }},
		{"capture", "asset", func(q *Request) { q.Asset = "ron" }},
		{"release", "amount_minor", func(q *Request) { q.Amount = amountOf(1) }},
		{"flags", "set", func(q *Request) { q.Set = 0 }},
		{"flags", "clear", func(q *Request) { q.Clear = record.Frozen }},
		{"asset", "to", func(q *Request) { q.To = "bo" }},
	} {
		q := good[tt.of]
		tt.spoil(&q)
		var field *FieldError
		if err := q.check(); !errors.As(err, &field) || field.Field != tt.field || field.Reason == "" {
			t.Errorf("%s with a bad %s: %v", tt.of, tt.field, err)
		}
	}
	for _, q := range []Request{transfer("sys:x", "bo", 1, 1), transfer("bo", "sys:x", 1, 1), issue("sys:issue:ron", 1, 1), {Op: record.OpFlags, From: "sys:x", Set: 1}} {
		if err := q.check(); !errors.Is(err, ErrSystemAccount) {
			t.Errorf("%+v: %v", q, err)
		}
	}
}

func requests() *rapid.Generator[Request] {
	name := rapid.SampledFrom([]string{"", "a", "b", "ab", "a:b"})
	return rapid.Custom(func(t *rapid.T) Request {
		q := Request{
			Op: rapid.SampledFrom(requestOps[:]).Draw(t, "op"), From: name.Draw(t, "from"), To: name.Draw(t, "to"), Asset: name.Draw(t, "asset"),
			Amount: engines.AmountOf(rapid.Uint64Range(0, 1).Draw(t, "hi"), rapid.Uint64Range(0, 2).Draw(t, "lo")),
			Nonce:  rapid.Uint64Range(0, 2).Draw(t, "nonce"), Memo: name.Draw(t, "memo"),
			ExpiresIn: time.Duration(rapid.IntRange(0, 2).Draw(t, "expires")) * time.Second,
			Set:       record.Flags(rapid.IntRange(0, 2).Draw(t, "set")), Clear: record.Flags(rapid.IntRange(0, 2).Draw(t, "clear")),
		}
		q.Hold[3] = rapid.ByteRange(0, 1).Draw(t, "hold")
		if s := rapid.Int64Range(0, 2).Draw(t, "until"); s > 0 {
			q.ValidUntil = time.Unix(s, 0)
		}
		return q
	})
}

// Two requests have one fingerprint exactly if they are the same; a batch of one is not its op.
func TestFingerprintsTellApart(t *testing.T) {
	f := newFingerprints()
	rapid.Check(t, func(t *rapid.T) {
		a, b := requests().Draw(t, "a"), requests().Draw(t, "b")
		if (a == b) != (f.single(&a) == f.single(&b)) {
			t.Fatalf("%+v and %+v", a, b)
		}
		as, bs := rapid.SliceOfN(requests(), 1, 3).Draw(t, "as"), rapid.SliceOfN(requests(), 1, 3).Draw(t, "bs")
		same := len(as) == len(bs)
		for i := range as {
			same = same && as[i] == bs[i]
		}
		if same != (f.batch(true, as) == f.batch(true, bs)) || f.batch(true, as) == f.batch(false, as) || f.batch(true, as[:1]) == f.single(&as[0]) {
			t.Fatalf("%+v and %+v", as, bs)
		}
	})
}
