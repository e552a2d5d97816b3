package httpapi_test

import (
	"strings"
	"testing"

	"ronbox/engines/ledger"
	"ronbox/engines/ledger/record"
	walletapi "ronbox/httpapi/wire/wallet"
)

func TestHolds(t *testing.T) {
	r := newRig(t)
	l := read[walletapi.HoldList](t, r, "/v1/holds?account=alice&after=1-2&limit=7")
	if len(l.Holds) != 1 || l.Next != "5-9" || r.wal.holds != (ledger.HoldsQuery{Account: "alice", After: "1-2", Limit: 7}) {
		t.Fatalf("%+v, asked %+v", l, r.wal.holds)
	}
	h := l.Holds[0]
	if h.State != "open" || h.TxID != txid || h.AmountMinor != "9" || h.ExpiresAt.Sub(h.At.Time).Seconds() != 60 ||
		h.CapturedMinor != "" || h.ClosingTxID != "" {
		t.Errorf("%+v", h)
	}
	for op, want := range map[record.Op][3]string{
		0: {"open", "", ""}, record.OpCapture: {"captured", "4", "5"}, record.OpRelease: {"released", "", "9"},
		record.OpExpire: {"expired", "", "9"},
	} {
		r.wal.closed = op
		h := read[walletapi.HoldInfo](t, r, "/v1/holds/"+txid)
		if got := [3]string{h.State, h.CapturedMinor, h.ReturnedMinor}; got != want || (op != 0) != (h.ClosingTxID == txid) {
			t.Errorf("%s: %+v", op, h)
		}
	}
	for _, query := range []string{"", "?account=a%20b", "?account=a&limit=501", "?account=a&limit=0"} {
		if w := r.do("GET", "/v1/holds"+query, "", writer); w.Code != 400 {
			t.Errorf("%s: %d %s", query, w.Code, w.Body)
		}
	}
}

func TestAccounts(t *testing.T) {
	r := newRig(t)
	l := read[walletapi.AccountList](t, r, "/v1/accounts?prefix=al&after=alf&limit=9")
	if len(l.Accounts) != 1 || l.Next != "alice" || l.Accounts[0].Flags[0] != "no_debit" ||
		r.wal.accounts != (ledger.AccountsQuery{Prefix: "al", After: "alf", Limit: 9}) {
		t.Fatalf("%+v, asked %+v", l, r.wal.accounts)
	}
	if l.Accounts[0].AmountMinor != "" {
		t.Errorf("%+v has a balance", l.Accounts[0])
	}
	l = read[walletapi.AccountList](t, r, "/v1/accounts?asset=ron")
	if a := l.Accounts[0]; r.wal.accounts.Asset != "ron" || a.AmountMinor != "5" || a.PostedMinor != "7" || a.HeldMinor != "2" {
		t.Errorf("%+v, asked %+v", a, r.wal.accounts)
	}
	for _, query := range []string{"?prefix=a%20b", "?after=%2a", "?limit=1001", "?asset=e%20u"} {
		if w := r.do("GET", "/v1/accounts"+query, "", writer); w.Code != 400 {
			t.Errorf("%s: %d %s", query, w.Code, w.Body)
		}
	}
}

func TestDecimals(t *testing.T) {
	r := newRig(t)
	if r.wal.decimals = 2; read[walletapi.AssetList](t, r, "/v1/assets").Assets[0].Decimals != 2 {
		t.Error("no decimals")
	}
}

func TestReference(t *testing.T) {
	r := newRig(t)
	w := r.do("GET", "/v1/tx?reference=2026-12/7&principal=bob", "", writer)
	if w.Code != 200 || r.wal.key != "bob 2026-12/7" {
		t.Errorf("%d %s, asked for %s", w.Code, w.Body, r.wal.key)
	}
	for _, query := range []string{"", "?reference=", "?reference=%01", "?reference=" + strings.Repeat("x", 65)} {
		if w := r.do("GET", "/v1/tx"+query, "", writer); w.Code != 400 {
			t.Errorf("%s: %d %s", query, w.Code, w.Body)
		}
	}
}
