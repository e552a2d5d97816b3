package wallet_test

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"ronbox/engines"
	"ronbox/engines/ledger"
	"ronbox/engines/ledger/record"
	"ronbox/engines/wallet"
)

// A malformed request is refused with the name of the invalid field.
func TestMalformedRequests(t *testing.T) {
	hold := record.NewTxID(1, 2, 3)
	good := map[string]ledger.Op{
		"issue":    issue("bo", 1, 1),
		"transfer": transfer("alice", "bo", 1, 1),
		"burn":     {Code: record.OpBurn, From: "alice", Asset: "ron", Amount: amountOf(1), Nonce: 1},
		"hold": {
			Code:      record.OpHold,
			From:      "alice",
			To:        "bo",
			Asset:     "ron",
			Amount:    amountOf(1),
			Nonce:     1,
			ExpiresIn: time.Second,
		},
		"capture": {Code: record.OpCapture, Hold: hold},
		"release": {Code: record.OpRelease, Hold: hold},
		"flags":   {Code: record.OpFlags, From: "alice", Set: record.Frozen},
		"asset":   {Code: record.OpAsset, Asset: "ron"},
	}
	for name, q := range good {
		if err := wallet.Check(&q); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, tt := range []struct {
		of, field string
		spoil     func(*ledger.Op)
	}{
		{"transfer", "op", func(q *ledger.Op) { q.Code = record.OpExpire }},
		{"transfer", "op", func(q *ledger.Op) { q.Code = 0 }},
		{"transfer", "from", func(q *ledger.Op) { q.From = "" }},
		{"transfer", "from", func(q *ledger.Op) { q.From = "a b" }},
		{"transfer", "from", func(q *ledger.Op) { q.From = strings.Repeat("a", 257) }},
		{"transfer", "to", func(q *ledger.Op) { q.To = "é" }},
		{"transfer", "to", func(q *ledger.Op) { q.To = q.From }},
		{"transfer", "asset", func(q *ledger.Op) { q.Asset = "RON" }},
		{"transfer", "asset", func(q *ledger.Op) { q.Asset = strings.Repeat("a", 17) }},
		{"transfer", "amount_minor", func(q *ledger.Op) { q.Amount = engines.Amount{} }},
		{"transfer", "hold", func(q *ledger.Op) { q.Hold = hold }},
		{"transfer", "expires_in_s", func(q *ledger.Op) { q.ExpiresIn = time.Second }},
		{"transfer", "clear", func(q *ledger.Op) { q.Clear = record.Closed }},
		{"transfer", "memo", func(q *ledger.Op) { q.Memo = strings.Repeat("m", record.MaxMemo+1) }},
		{"transfer", "memo", func(q *ledger.Op) { q.Memo = "\xff" }},
		{"issue", "from", func(q *ledger.Op) { q.From = "alice" }},
		{"burn", "to", func(q *ledger.Op) { q.To = "bo" }},
		{"hold", "expires_in_s", func(q *ledger.Op) { q.ExpiresIn = 0 }},
		{"hold", "expires_in_s", func(q *ledger.Op) { q.ExpiresIn = 31 * 24 * time.Hour }},
		{"hold", "expires_in_s", func(q *ledger.Op) { q.ExpiresIn = 1500 * time.Millisecond }},
		{"capture", "hold", func(q *ledger.Op) { q.Hold = record.TxID{} }},
		{"capture", "nonce", func(q *ledger.Op) { q.Nonce = 1 }},
		{"capture", "asset", func(q *ledger.Op) { q.Asset = "ron" }},
		{"release", "amount_minor", func(q *ledger.Op) { q.Amount = amountOf(1) }},
		{"flags", "set", func(q *ledger.Op) { q.Set = 0 }},
		{"flags", "clear", func(q *ledger.Op) { q.Clear = record.Frozen }},
		{"asset", "to", func(q *ledger.Op) { q.To = "bo" }},
	} {
		q := good[tt.of]
		tt.spoil(&q)
		var field *wallet.FieldError
		if err := wallet.Check(&q); !errors.As(err, &field) || field.Field != tt.field || field.Reason == "" {
			t.Errorf("%s with a bad %s: %v", tt.of, tt.field, err)
		}
	}
	for _, q := range []ledger.Op{transfer("sys:x", "bo", 1, 1), transfer("bo", "sys:x", 1, 1), issue("sys:issue:ron", 1, 1), {Code: record.OpFlags, From: "sys:x", Set: 1}} {
		if err := wallet.Check(&q); !errors.Is(err, wallet.ErrSystemAccount) {
			t.Errorf("%+v: %v", q, err)
		}
	}
}

func requests() *rapid.Generator[ledger.Op] {
	name := rapid.SampledFrom([]string{"", "a", "b", "ab", "a:b"})
	return rapid.Custom(func(t *rapid.T) ledger.Op {
		q := ledger.Op{
			Code: rapid.SampledFrom(wallet.RequestOps[:]).
				Draw(t, "op"),
			From:      name.Draw(t, "from"),
			To:        name.Draw(t, "to"),
			Asset:     name.Draw(t, "asset"),
			Amount:    engines.AmountOf(rapid.Uint64Range(0, 1).Draw(t, "hi"), rapid.Uint64Range(0, 2).Draw(t, "lo")),
			Nonce:     rapid.Uint64Range(0, 2).Draw(t, "nonce"),
			Memo:      name.Draw(t, "memo"),
			ExpiresIn: time.Duration(rapid.IntRange(0, 2).Draw(t, "expires")) * time.Second,
			Set:       record.Flags(rapid.IntRange(0, 2).Draw(t, "set")),
			Clear:     record.Flags(rapid.IntRange(0, 2).Draw(t, "clear")),
		}
		q.Hold[3] = rapid.ByteRange(0, 1).Draw(t, "hold")
		if s := rapid.Int64Range(0, 2).Draw(t, "until"); s > 0 {
			q.ValidUntil = s * 1e9
		}
		return q
	})
}

// Two requests have the same fingerprint if and only if they are equal. A batch of one op has a
// different fingerprint from the op alone.
func TestFingerprintsTellApart(t *testing.T) {
	f := wallet.NewFingerprints()
	rapid.Check(t, func(t *rapid.T) {
		a, b := requests().Draw(t, "a"), requests().Draw(t, "b")
		if reflect.DeepEqual(a, b) != (f.Single(&a, false) == f.Single(&b, false)) {
			t.Fatalf("%+v and %+v", a, b)
		}
		as, bs := rapid.SliceOfN(requests(), 1, 3).Draw(t, "as"), rapid.SliceOfN(requests(), 1, 3).Draw(t, "bs")
		same := len(as) == len(bs)
		for i := range as {
			same = same && reflect.DeepEqual(as[i], bs[i])
		}
		if same != (f.Batch(true, as) == f.Batch(true, bs)) || f.Batch(true, as) == f.Batch(false, as) ||
			f.Batch(true, as[:1]) == f.Single(&as[0], false) {
			t.Fatalf("%+v and %+v", as, bs)
		}
	})
}
