package httpapi

import (
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"ronbox/engines/ledger"
	"ronbox/engines/ledger/record"
	"ronbox/engines/wallet"
	"ronbox/httpapi/wire"
)

// read asks for a body of the wallet.
func read[T any](t *testing.T, r *rig, target string) (out T) {
	t.Helper()
	w := r.do("GET", target, "", writer)
	if w.Code != 200 || w.Header().Get("Cache-Control") != "no-store" {
		t.Fatalf("GET %s: %d %s %v", target, w.Code, w.Body, w.Header())
	}
	if err := json.Unmarshal(w.Body.Bytes(), &out, json.RejectUnknownMembers(true)); err != nil {
		t.Fatalf("GET %s: %v", target, err)
	}
	return out
}

const at = "2027-01-15T08:00:00.123Z"

func TestBalance(t *testing.T) {
	r := newRig(t)
	b := read[wire.Balance](t, r, "/v1/balance?account=a:b/c&asset=ron&min_seq=7")
	want := wire.Balance{
		Account: "a:b/c", Asset: "ron", AmountMinor: "90", PostedMinor: "100", HeldMinor: "10", AsOf: b.AsOf, AsOfSeq: 7, StaleMS: 12,
	}
	if b != want || b.AsOf.Format(time.RFC3339Nano) != at || r.wal.minSeq != 7 {
		t.Errorf("%+v, min_seq %d", b, r.wal.minSeq)
	}
	r.wal.issued = "5000"
	if b := read[wire.Balance](t, r, "/v1/balance?account=sys:issue:ron&asset=ron"); b.IssuedMinor != "5000" {
		t.Errorf("%+v", b)
	}
	if r.wal.by.Principal != "alice" || !r.wal.by.May(scopeRead) {
		t.Errorf("asked by %+v", r.wal.by)
	}
}

func TestAccount(t *testing.T) {
	r := newRig(t)
	a := read[wire.Account](t, r, "/v1/account?account=alice")
	if !a.Known || a.LastNonce != 4 || a.NextNonce != 5 || len(a.Flags) != 1 || a.Flags[0] != "no_debit" || a.OpenedAt.IsZero() {
		t.Errorf("%+v", a)
	}
	if a := read[wire.Account](t, r, "/v1/account?account=nobody"); a.Known || !a.OpenedAt.IsZero() {
		t.Errorf("%+v", a)
	}
}

func TestAssets(t *testing.T) {
	l := read[wire.AssetList](t, newRig(t), "/v1/assets")
	if len(l.Assets) != 1 || l.Assets[0].Asset != "ron" || l.Assets[0].SupplyMinor != "1000" || l.Assets[0].DeclaredAt.Format(time.RFC3339Nano) != at {
		t.Errorf("%+v", l)
	}
}

// A receipt that is asked for is the one that was given, byte for byte.
func TestTx(t *testing.T) {
	r := newRig(t)
	w := r.do("GET", "/v1/tx/"+txid, "", writer)
	want, err := r.wal.Tx(t.Context(), r.wal.by, record.TxID{})
	if err != nil || w.Body.String() != string(want) {
		t.Errorf("%s, want %s", w.Body, want)
	}
	for _, id := range []string{someULID, strings.ToLower(txid), "tx_", "a%20b", txid + "0", someULID + "/proof"} {
		if w := r.do("GET", "/v1/tx/"+id, "", writer); w.Code != 400 || problemIn(t, w.Body.String()).Details["field"] != "txid" {
			t.Errorf("%s: %d %s", id, w.Code, w.Body)
		}
	}
	for _, path := range []string{"/v1/tx/", "/v1/tx/" + txid + "/x", "/v1/tx", "/v1/tx/tx_x/x"} {
		if w := r.do("GET", path, "", writer); w.Code != 404 || problemIn(t, w.Body.String()).Code != "NOT_FOUND" {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
	}
}

func TestHistory(t *testing.T) {
	r := newRig(t)
	h := read[wire.History](t, r, "/v1/history?account=alice&asset=ron")
	var receipt wire.Receipt
	if len(h.Entries) != 1 || h.Next != "more" || json.Unmarshal(h.Entries[0].Receipt, &receipt) != nil {
		t.Fatalf("%+v", h)
	}
	if e := h.Entries[0]; e.Memo != "lunch" || e.Side != "debit" || e.BalanceMinor != "95" || e.AvailableMinor != "85" || receipt.TS != at {
		t.Errorf("%+v %+v", e, receipt)
	}
	day := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).UnixNano()
	for query, want := range map[string]ledger.HistoryQuery{
		"": {Limit: 100, NewestFirst: true}, "&order=asc&limit=500": {Limit: 500}, "&order=desc&cursor=x&limit=1": {Limit: 1, Cursor: "x", NewestFirst: true},
		"&since=2026-01-01T00:00:00Z&until=2026-01-01T01:00:00%2B01:00": {Limit: 100, NewestFirst: true, Since: day, Until: day},
	} {
		want.Account, want.Asset = "alice", "ron"
		if read[wire.History](t, r, "/v1/history?account=alice&asset=ron"+query); r.wal.query != want {
			t.Errorf("%s: asked for %+v, want %+v", query, r.wal.query, want)
		}
	}
	for query, field := range map[string]string{
		"asset=ron": "account", "account=alice": "asset", "account=a.b&asset=ron": "account", "account=a&asset=RON": "asset",
		"account=a&asset=ron&limit=501": "limit", "account=a&asset=ron&order=up": "order", "account=a&asset=ron&order=": "order",
		"account=a&asset=ron&since=yesterday": "since", "account=a&asset=ron&until=1970-01-01T00:00:00Z": "until", "account=a&asset=ron&since=": "since",
	} {
		if p := problemIn(t, r.do("GET", "/v1/history?"+query, "", writer).Body.String()); p.Code != "BAD_REQUEST" || p.Details["field"] != field {
			t.Errorf("%s: %+v", query, p)
		}
	}
}

// What is asked in an asset that nobody declared is told as a payment in it is.
func TestReadsOfNoAsset(t *testing.T) {
	r := newRig(t)
	r.wal.set(refusedBy(record.AssetUnknown))
	for _, path := range []string{"/v1/balance", "/v1/history"} {
		w := r.do("GET", path+"?account=a&asset=gold", "", writer)
		if p := problemIn(t, w.Body.String()); w.Code != 400 || p.Reason != "asset_unknown" || p.Details["field"] != "asset" || !strings.Contains(p.Detail, "/v1/assets") {
			t.Errorf("%s: %d %+v", path, w.Code, p)
		}
	}
}

func TestLedgerReads(t *testing.T) {
	r := newRig(t)
	if h := read[wire.LedgerHead](t, r, "/v1/ledger/head"); h.Batches != 3 || h.Seq != 3 || h.LogRoot == h.LastRoot {
		t.Errorf("%+v", h)
	}
	if l := read[wire.Roots](t, r, "/v1/ledger/roots?since=5&limit=2"); len(l.Roots) != 2 || l.Roots[0].Batch != 6 || l.Roots[1].Seq != 7 || l.Next != 7 {
		t.Errorf("%+v", l)
	}
	if l := read[wire.Roots](t, r, "/v1/ledger/roots"); len(l.Roots) != 2 || l.Next != 0 {
		t.Errorf("%+v", l)
	}
	var proof record.Proof
	if err := json.Unmarshal(r.do("GET", "/v1/tx/"+txid+"/proof?at=1", "", writer).Body.Bytes(), &proof); err != nil || proof.Head.Batches != 1 {
		t.Errorf("%v %+v", err, proof)
	}
	var grew record.Consistency
	if err := json.Unmarshal(r.do("GET", "/v1/ledger/consistency?from=2&to=3", "", writer).Body.Bytes(), &grew); err != nil || grew.From.Batches != 2 {
		t.Errorf("%v %+v", err, grew)
	}
	for target, field := range map[string]string{
		"/v1/ledger/consistency?from=3&to=2": "to", "/v1/ledger/consistency?to=2": "from", "/v1/ledger/roots?limit=1001": "limit",
		"/v1/tx/" + txid + "/proof?at=x": "at",
	} {
		if p := problemIn(t, r.do("GET", target, "", writer).Body.String()); p.Code != "BAD_REQUEST" || p.Details["field"] != field {
			t.Errorf("%s: %+v", target, p)
		}
	}
}

// A read that fails is told as it fails, on every route.
func TestReadsThatFail(t *testing.T) {
	r := newRig(t)
	r.wal.set(wallet.ErrForbidden)
	for _, target := range []string{
		"/v1/balance?account=a&asset=ron", "/v1/account?account=a", "/v1/assets", "/v1/tx/" + txid, "/v1/history?account=a&asset=ron", "/v1/ledger/head",
		"/v1/ledger/roots", "/v1/tx/" + txid + "/proof", "/v1/ledger/consistency?from=1&to=2", "/v1/ledger/export",
	} {
		if w := r.do("GET", target, "", writer); w.Code != 403 || problemIn(t, w.Body.String()).Code != "FORBIDDEN" {
			t.Errorf("%s: %d %s", target, w.Code, w.Body)
		}
	}
}

// While the ledger stalls, or the node drains, reads go on.
func TestReadsGoOn(t *testing.T) {
	r := newRig(t)
	r.wal.notReady = &wallet.NotReadyError{Cause: wallet.CauseLedger}
	r.SetGate(GateDraining)
	for _, target := range []string{"/v1/balance?account=a&asset=ron", "/v1/account?account=a", "/v1/tx/" + txid, "/v1/ledger/head"} {
		if w := r.do("GET", target, "", writer); w.Code != 200 {
			t.Errorf("%s: %d", target, w.Code)
		}
	}
	if w := r.do("GET", "/v1/ledger/export", "", writer); w.Code != 503 || problemIn(t, w.Body.String()).Code != "RETRY_LATER" {
		t.Errorf("an export: %d", w.Code)
	}
}
