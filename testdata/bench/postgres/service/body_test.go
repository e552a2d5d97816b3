package main

import (
	"errors"
	"strings"
	"testing"
	"time"
)

const good = `{"from":"acct/1","to":"acct/2","asset":"ron","amount_minor":"5","nonce":7,"memo":"rent"}`

func TestDecodeTransfer(t *testing.T) {
	got, err := decodeTransfer([]byte(good))
	if err != nil || got.payer != 1 || got.payee != 2 || got.amount.Int.Int64() != 5 || got.Memo != "rent" {
		t.Errorf("%+v, %v", got, err)
	}
	most := "340282366920938463463374607431768211455"
	if _, err := decodeTransfer([]byte(strings.Replace(good, `"5"`, `"`+most+`"`, 1))); err != nil {
		t.Errorf("the greatest amount: %v", err)
	}
	for _, tt := range []struct{ was, is string }{
		{`"5"`, `"0"`}, {`"5"`, `"-5"`}, {`"5"`, `"05"`}, {`"5"`, `""`}, {`"5"`, `5`}, {`"5"`, `"5.0"`}, {`"5"`, `"340282366920938463463374607431768211456"`},
		{"acct/1", "acct/01"}, {"acct/1", "acct/"}, {"acct/1", "1"}, {"acct/1", "acct/9999999999999999999"}, {"acct/1", "acct/2"},
		{`"ron"`, `"gold"`}, {`"nonce"`, `"none"`}, {"rent", strings.Repeat("r", 129)}, {"}", ""}, {"{", `{"op":"transfer",`},
	} {
		var no *refusal
		if _, err := decodeTransfer([]byte(strings.Replace(good, tt.was, tt.is, 1))); !errors.As(err, &no) || no.status != 400 {
			t.Errorf("%s for %s: %v", tt.is, tt.was, err)
		}
	}
}

func TestDecodeBatch(t *testing.T) {
	op := `{"op":"transfer",` + good[1:]
	got, err := decodeBatch([]byte(`{"mode":"independent","ops":[` + op + `,` + op + `]}`))
	if err != nil || len(got) != 2 || got[1].payee != 2 {
		t.Errorf("%+v, %v", got, err)
	}
	for _, body := range []string{`{"mode":"atomic","ops":[]}`, `{"mode":"some","ops":[` + op + `]}`, `{"mode":"atomic","ops":[` + good + `]}`,
		`{"mode":"atomic","ops":[` + strings.Repeat(op+",", maxOps) + op + `]}`} {
		if _, err := decodeBatch([]byte(body)); err == nil {
			t.Errorf("%.60s was taken", body)
		}
	}
}

func TestKeys(t *testing.T) {
	for key, want := range map[string]bool{"t1-2": true, "a.b_c:D-9": true, "": false, "a b": false, strings.Repeat("k", 65): false} {
		if isKey(key) != want {
			t.Errorf("%q is %v", key, !want)
		}
	}
}

func TestReceipt(t *testing.T) {
	one, err := decodeTransfer([]byte(good))
	if err != nil {
		t.Fatal(err)
	}
	at := time.UnixMilli(1767323045678)
	want := `{"txid":"tx_00000000000000000009","op":"transfer","from":"acct/1","to":"acct/2","asset":"ron","amount_minor":"5","nonce":3,"idem":"k",` +
		`"ts":"2026-01-02T03:04:05.678Z","ledger":{"seq":9}}`
	if got := string(receipt{&one, "k", 9, 3, at}.appendJSON(nil)); got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
	want = `{"results":[{"index":0,"status":200,"receipt":` + strings.Replace(want, `"idem":"k",`, "", 1) + `}]}`
	if got := string(appendBatch(nil, []transfer{one}, []int64{9}, []int64{3}, at)); got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
}
