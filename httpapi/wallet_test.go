package httpapi_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fxamacker/cbor/v2"
	"github.com/go-json-experiment/json"

	"ronbox/appliance/unit"
	"ronbox/engines"
	"ronbox/engines/ledger"
	"ronbox/engines/ledger/record"
	"ronbox/engines/wallet"
	"ronbox/httpapi"
	"ronbox/httpapi/front"
	wallethttp "ronbox/httpapi/wallet"
	ledgerapi "ronbox/httpapi/wire/ledger"
	walletapi "ronbox/httpapi/wire/wallet"
)

const someTransfer = `{"from":"alice","to":"bob","asset":"ron","amount_minor":"5","nonce":1,"memo":"lunch","valid_until":"2100-01-01T02:00:00+02:00"}`

func aTransfer() ledger.Op {
	return ledger.Op{
		Code:   record.OpTransfer,
		From:   "alice",
		To:     "bob",
		Asset:  "ron",
		Amount: amount("5"),
		Nonce:  1,
		Memo:   "lunch",
	}
}

// orderCases are a body for each route that takes one operation, and the order that it is.
func orderCases(t *testing.T) map[string]struct {
	body string
	want ledger.Op
} {
	t.Helper()
	hold, err := record.ParseTxID(txid)
	if err != nil {
		t.Fatal(err)
	}
	paid := aTransfer()
	paid.ValidUntil, paid.Reference = time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC).UnixNano(), "march/7"
	return map[string]struct {
		body string
		want ledger.Op
	}{
		"transfer": {strings.TrimSuffix(someTransfer, "}") + `,"reference":"march/7"}`, paid},
		"issue": {
			`{"nonce":18446744073709551615,"to":"a/b","asset":"ron","amount_minor":"340282366920938463463374607431768211455"}`,
			ledger.Op{
				Code:   record.OpIssue,
				To:     "a/b",
				Asset:  "ron",
				Amount: amount("340282366920938463463374607431768211455"),
				Nonce:  1<<64 - 1,
			},
		},
		"burn": {`{"from":"a:b","asset":"x1","amount_minor":"1","nonce":2}`, ledger.Op{
			Code: record.OpBurn, From: "a:b", Asset: "x1", Amount: amount("1"), Nonce: 2,
		}},
		"hold": {
			`{"from":"a","to":"b","asset":"ron","amount_minor":"7","nonce":3,"expires_in_s":2592000}`,
			ledger.Op{
				Code:      record.OpHold,
				From:      "a",
				To:        "b",
				Asset:     "ron",
				Amount:    amount("7"),
				Nonce:     3,
				ExpiresIn: 720 * time.Hour,
			},
		},
		"capture": {
			`{"hold":"` + txid + `","amount_minor":"4"}`,
			ledger.Op{Code: record.OpCapture, Hold: hold, Amount: amount("4")},
		},
		"release": {`{"hold":"` + txid + `"}`, ledger.Op{Code: record.OpRelease, Hold: hold}},
		"accounts/flags": {
			`{"account":"a","set":["frozen","no_debit"],"clear":["no_credit"],"new":true}`,
			ledger.Op{
				Code:  record.OpFlags,
				From:  "a",
				Set:   record.Frozen | record.NoDebit,
				Clear: record.NoCredit,
			},
		},
	}
}

// sameOp reports whether got is want and was found well-formed.
func sameOp(got, want ledger.Op) bool {
	_, _ = ledger.Check(&want, want.Has())
	return got.Checked() && reflect.DeepEqual(got, want)
}

// An order reaches the wallet as it was sent, and the wallet's bytes reach the caller as they are.
func TestOrders(t *testing.T) {
	for path, tt := range orderCases(t) {
		r := newRig(t)
		w := r.do("POST", "/v1/"+path, tt.body, writer)
		got := r.wal.order
		if w.Code != http.StatusOK || !sameOp(got, tt.want) || r.wal.opens != (path == "accounts/flags") || r.wal.key != someKey || r.wal.by.Principal != "alice" {
			t.Errorf("%s: %d %s: %+v by %q under %q, want %+v", path, w.Code, w.Body, got, r.wal.by.Principal,
				r.wal.key, tt.want)
		}
		if want := receiptOf(r.wal.order, someKey); !bytes.Equal(w.Body.Bytes(), want) {
			t.Errorf("%s: sent %s, want %s", path, w.Body, want)
		}
		if h := w.Header(); h.Get("Cache-Control") != "no-store" || h.Get("Content-Type") != httpapi.TypeJSON ||
			h.Get(httpapi.ReplayedHeader) != "" {
			t.Errorf("%s: headers %v", path, h)
		}
		if r.wal.until <= 2*time.Second || r.wal.until > 5*time.Second {
			t.Errorf("%s: %s to the deadline", path, r.wal.until)
		}
	}
}

func TestReplaysSayThatTheyAre(t *testing.T) {
	r := newRig(t)
	r.wal.replay = true
	for path, body := range map[string]string{"transfer": someTransfer, "batch": batchOf("atomic", 1)} {
		if w := r.do("POST", "/v1/"+path, body, writer); w.Code != 200 ||
			w.Header().Get("Idempotent-Replayed") != "true" {
			t.Errorf("%s: %d %v", path, w.Code, w.Header())
		}
	}
}

// The deadline of writes is the wallet's, and a reload changes it.
func TestTheWalletsDeadline(t *testing.T) { synctest.Test(t, theWalletsDeadline) }

func theWalletsDeadline(t *testing.T) {
	r, cfg := newRig(t), testSettings()
	l := cfg.Limits[serviceWallet]
	l.Timeout = 2 * time.Second
	cfg.Limits[serviceWallet] = l
	r.reload(t, cfg)
	if r.do("POST", "/v1/transfer", someTransfer, writer); r.wal.until != 2*time.Second {
		t.Errorf("%s to the deadline", r.wal.until)
	}
	r.do("GET", "/v1/balance?account=a&asset=ron", "", writer)
	if r.wal.until != 5*time.Second {
		t.Errorf("a read has %s", r.wal.until)
	}
}

// batchOf is a batch of n transfers.
func batchOf(mode string, n int) string {
	one := `{"op":"transfer",` + someTransfer[1:]
	return `{"mode":"` + mode + `","ops":[` + strings.Repeat(one+",", n-1) + one + `]}`
}

// A batch is the same in both encodings, whatever the order of its members.
func TestBatches(t *testing.T) {
	var ops []string
	var want []ledger.Op
	for path, tt := range orderCases(t) {
		if path != "accounts/flags" {
			ops, want = append(ops, `{`+strings.Trim(tt.body, "{}")+`,"op":"`+path+`"}`), append(want, tt.want)
		}
	}
	text := `{"ops":[` + strings.Join(ops, ",") + `],"mode":"independent"}`
	for kind, body := range map[string]string{httpapi.TypeJSON: text, httpapi.TypeCBOR: toCBOR(t, text), "application/json; charset=UTF-8": text} {
		r := newRig(t)
		r.wal.status = http.StatusMultiStatus
		w := r.do("POST", "/v1/batch", body, header{"Authorization": "Bearer good", "Content-Type": kind})
		if w.Code != http.StatusMultiStatus || r.wal.atomic || r.wal.key != someKey || len(r.wal.orders) != len(want) {
			t.Fatalf("%s: %d %s, %d ops", kind, w.Code, w.Body, len(r.wal.orders))
		}
		for i, got := range r.wal.orders {
			if !sameOp(got, want[i]) {
				t.Errorf("%s: op %d is %+v, want %+v", kind, i, got, want[i])
			}
		}
		var a walletapi.BatchAnswer
		if err := json.Unmarshal(w.Body.Bytes(), &a); err != nil || len(a.Results) != 2 ||
			a.Results[1].Error.Code != "INSUFFICIENT_FUNDS" {
			t.Errorf("%s: %v %+v", kind, err, a)
		}
	}
	r := newRig(t)
	if r.do("POST", "/v1/batch", batchOf("atomic", 4096), writer); !r.wal.atomic || len(r.wal.orders) != 4096 {
		t.Errorf("%d ops", len(r.wal.orders))
	}
}

// toCBOR writes JSON as CBOR.
func toCBOR(t testing.TB, text string) string {
	t.Helper()
	var v any
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatal(err)
	}
	raw, err := cbor.CanonicalEncOptions().EncMode()
	if err != nil {
		t.Fatal(err)
	}
	out, err := raw.Marshal(whole(v))
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// whole makes whole numbers of the floats that a JSON reader gives.
func whole(v any) any {
	switch v := v.(type) {
	case float64:
		if v >= 1<<63 {
			return uint64(1<<64 - 1) // the only one so large in these tests
		}
		return uint64(v)
	case []any:
		for i := range v {
			v[i] = whole(v[i])
		}
	case map[string]any:
		for k := range v {
			v[k] = whole(v[k])
		}
	}
	return v
}

func TestDeclareAsset(t *testing.T) {
	r := newRig(t)
	for _, tt := range []struct {
		body string
		code int
		has  string
	}{
		{`{"asset":"eur"}`, 200, `"op":"asset","asset":"eur",`},
		{`{"asset":"eur","decimals":0}`, 200, `"op":"scale","asset":"eur","decimals":0,`},
		{`{"asset":"eur","decimals":18}`, 200, `"op":"scale","asset":"eur","decimals":18,`},
		{`{"asset":"eur","decimals":19}`, 400, `"decimals: must be a whole number from 0 to 18"`},
		{`{"asset":"eur","decimals":-1}`, 400, `"decimals: must be a whole number from 0 to 18"`},
		{`{"asset":"eur","decimals":"2"}`, 400, `decimals`},
	} {
		w := r.do("POST", "/v1/assets", tt.body, writer)
		if w.Code != tt.code || !strings.Contains(w.Body.String(), tt.has) {
			t.Errorf("%s: %d %s, want %d and %s", tt.body, w.Code, w.Body, tt.code, tt.has)
		}
	}
}

// Keys in quotes are the same keys.
func TestKeys(t *testing.T) {
	longest := strings.Repeat("k", 64)
	for _, tt := range []struct{ sent, want string }{
		{"a", "a"}, {`"a"`, "a"}, {"01J.a_b:c-d", "01J.a_b:c-d"}, {longest, longest}, {`"` + longest + `"`, longest},
		{"", ""}, {`""`, ""}, {`"`, ""}, {longest + "k", ""}, {`"` + longest + `k"`, ""}, {"a b", ""}, {"a,b", ""}, {`"a`, ""}, {`a"`, ""},
		{`"a";x=1`, ""}, {`"a\"b"`, ""}, {"ü", ""}, {"a/b", ""}, {"'a'", ""}, {`""a""`, ""},
	} {
		r := newRig(t)
		w := r.do("POST", "/v1/transfer", someTransfer,
			header{"Authorization": "Bearer good", "Idempotency-Key": tt.sent})
		if tt.want != "" {
			if w.Code != 200 || r.wal.key != tt.want {
				t.Errorf("%q: %d, key %q", tt.sent, w.Code, r.wal.key)
			}
			continue
		}
		p := problemIn(t, w.Body.String())
		if w.Code != 400 || p.Reason != httpapi.ReasonBadHeader || p.Details["field"] != "Idempotency-Key" || r.wal.calls != 0 {
			t.Errorf("%q: %d %+v", tt.sent, w.Code, p)
		}
		if len(tt.sent) > 2 && strings.Contains(w.Body.String(), tt.sent) {
			t.Errorf("%q is repeated: %s", tt.sent, w.Body)
		}
	}
}

// Every write of the wallet needs a key, one of them.
func TestEveryWriteNeedsAKey(t *testing.T) {
	r := newRig(t)
	n := 0
	for i := range r.Table() {
		route := &r.Table()[i]
		if route.Service != serviceWallet || !route.Writes() {
			continue
		}
		n++
		for _, keys := range [][]string{nil, {"a", "b"}} {
			w := r.ask(socketPeer(), route, func(q *http.Request) {
				q.Header["Idempotency-Key"] = keys
				q.Header.Set("Content-Type", httpapi.TypeJSON)
			})
			if p := problemIn(t, w.Body.String()); w.Code != 400 || p.Details["field"] != "Idempotency-Key" ||
				p.Reason != httpapi.ReasonBadHeader {
				t.Errorf("%s with keys %q: %d %+v", route.Pattern, keys, w.Code, p)
			}
		}
	}
	if n != 9 {
		t.Errorf("%d writes", n)
	}
}

// While the wallet takes no writes, what reads badly is still told so, what reads well is to come
// later, and reads go on.
func TestReadinessGuard(t *testing.T) {
	r := newRig(t)
	r.wal.notReady = &wallet.NotReadyError{Cause: wallet.CauseLedger}
	for path, tt := range orderCases(t) {
		w := r.do("POST", "/v1/"+path, tt.body, writer)
		p := problemIn(t, w.Body.String())
		if w.Code != 503 || p.Reason != "degraded" || p.Details["cause"] != wallet.CauseLedger ||
			w.Header().Get("Retry-After") != "2" {
			t.Errorf("%s: %d %+v", path, w.Code, p)
		}
		if w := r.do("POST", "/v1/"+path, `{}`, writer); w.Code != 400 {
			t.Errorf("%s, nothing in it: %d", path, w.Code)
		}
	}
	for path, body := range map[string]string{"batch": batchOf("atomic", 1), "assets": `{"asset":"eur"}`} {
		if w := r.do("POST", "/v1/"+path, body, writer); w.Code != 503 {
			t.Errorf("%s: %d", path, w.Code)
		}
	}
	if r.wal.calls != 0 {
		t.Errorf("%d calls", r.wal.calls)
	}
	if w := r.do("GET", "/v1/balance?account=a&asset=ron", "", writer); w.Code != 200 {
		t.Errorf("balance: %d", w.Code)
	}
}

// Each answer to a write tells the caller's own rate, also the one that refuses.
func TestRateIsTold(t *testing.T) {
	r := newRig(t, func(c *httpapi.Settings, _ *deps) {
		c.Limits[serviceWallet] = httpapi.Limits{Inflight: 9, PerPrincipal: httpapi.Rate{RPS: 1, Burst: 2}}
	})
	var got []string
	for range 3 {
		w := r.do("POST", "/v1/transfer", someTransfer, writer)
		h := w.Header()
		got = append(got, h.Get("RateLimit"))
		if w.Code == 429 {
			if p := problemIn(t, w.Body.String()); p.Reason != httpapi.ReasonRate ||
				h.Get("Retry-After") != "1" {
				t.Errorf("%+v, Retry-After %q", p, h.Get("Retry-After"))
			}
		}
	}
	if want := []string{
		"limit=2, remaining=1, reset=1",
		"limit=2, remaining=0, reset=2",
		"limit=2, remaining=0, reset=2",
	}; !slices.Equal(got, want) {
		t.Errorf("told %q, want %q", got, want)
	}
	if w := r.do("POST", "/v1/transfer", someTransfer, header{"Authorization": "Bearer good bob"}); w.Code != 200 {
		t.Errorf("another caller: %d", w.Code)
	}
	read := r.do("GET", "/v1/balance?account=a&asset=ron", "", header{"Authorization": "Bearer good carol"}).Header()
	if read.Get("RateLimit") != "" || len(read) > 8 {
		t.Errorf("a read, which no rate bounds, has %d headers, or more than a map holds before it grows: %v",
			len(read), read)
	}
	if w := newRig(t).do("POST", "/v1/transfer", someTransfer, writer); w.Header().Get("RateLimit") != "" {
		t.Errorf("without a rate: %v", w.Header())
	}
}

// Where a route has alternative scopes, one is sufficient and required.
func TestOneOfSeveralScopes(t *testing.T) {
	for _, tt := range []struct {
		scopes         []string
		batch, release int
	}{
		{[]string{"wallet.transfer"}, 200, 403}, {[]string{"wallet.release"}, 200, 200}, {[]string{"wallet.admin"}, 200, 200},
		{[]string{"wallet.read", "ledger.export"}, 403, 403}, {nil, 403, 403}, {[]string{"node.admin"}, 200, 200},
	} {
		r := newRig(t, func(c *httpapi.Settings, d *deps) {
			d.Auth = holder{tt.scopes}
			c.UDS.Map = map[string][]string{"uid:8": append([]string{"x.y"}, tt.scopes...)}
		})
		for _, ask := range []func(path, body string) int{
			func(path, body string) int { return r.do("POST", path, body, writer).Code },
			func(path, body string) int { return r.as(userPeer(8), "POST", path, body, nil).Code },
		} {
			if b, rel := ask("/v1/batch", batchOf("atomic", 1)), ask(
				"/v1/release",
				`{"hold":"`+txid+`"}`,
			); b != tt.batch ||
				rel != tt.release {
				t.Errorf("%q: batch %d, release %d", tt.scopes, b, rel)
			}
		}
	}
	r := newRig(t, func(_ *httpapi.Settings, d *deps) { d.Auth = holder{} })
	w := r.do("POST", "/v1/batch", "not json", writer)
	if p := problemIn(t, w.Body.String()); p.Reason != httpapi.ReasonForbidden {
		t.Errorf("%+v", p)
	}
	if n := sum(t, r.metrics, "auth_failures_total", "service", "wallet", "stage", "caveat"); n != 1 {
		t.Errorf("counted %v times", n)
	}
}

// A token that may do anything with money may read the assets, because amounts need their decimals.
func TestAssetsForEveryWalletScope(t *testing.T) {
	for scope, want := range map[string]int{
		"wallet.read": 200, "wallet.transfer": 200, "wallet.capture": 200, "wallet.admin": 200, "ledger.export": 403,
	} {
		r := newRig(t, func(_ *httpapi.Settings, d *deps) { d.Auth = holder{[]string{scope}} })
		if w := r.do("GET", "/v1/assets", "", writer); w.Code != want {
			t.Errorf("%s: %d %s", scope, w.Code, w.Body)
		}
	}
}

// The scopes of the caller are passed to the wallet. On the socket with a token they are those in
// both.
func TestScopesReachTheWallet(t *testing.T) {
	r := newRig(t, func(c *httpapi.Settings, d *deps) {
		d.Auth = holder{[]string{"wallet.transfer", "wallet.issue"}}
		c.UDS.Map = map[string][]string{"uid:8": {"wallet.transfer", "wallet.burn"}}
	})
	holds := func(want ...string) {
		t.Helper()
		for _, s := range []string{"wallet.transfer", "wallet.issue", "wallet.burn"} {
			if r.wal.by.May(s) != slices.Contains(want, s) {
				t.Errorf("%s: %v, want %q", s, r.wal.by.May(s), want)
			}
		}
	}
	r.do("POST", "/v1/transfer", someTransfer, writer)
	holds("wallet.transfer", "wallet.issue")
	r.as(userPeer(8), "POST", "/v1/transfer", someTransfer, nil)
	holds("wallet.transfer", "wallet.burn")
	r.as(userPeer(8), "POST", "/v1/transfer", someTransfer, writer)
	holds("wallet.transfer")
}

// A node without a wallet has no routes of one, and no description in the document. The same holds
// for the registry.
func TestServicesThatAreOff(t *testing.T) {
	r := newRig(t, func(_ *httpapi.Settings, d *deps) { d.Wallet = nil })
	w := r.do("POST", "/v1/transfer", someTransfer, writer)
	if p := problemIn(t, w.Body.String()); w.Code != 404 || p.Service != serviceNode || p.Reason != "not_found" {
		t.Errorf("%d %+v", w.Code, p)
	}
	if doc := string(r.Document().JSON()); strings.Contains(doc, "/v1/balance") || strings.Contains(doc, `"Receipt"`) {
		t.Error("the document speaks of the wallet")
	}
	r = newRig(t, func(_ *httpapi.Settings, d *deps) { d.Registry = nil })
	r.undescribed = true
	if w := r.do("GET", "/registry/head", "", nil); w.Code != 404 {
		t.Errorf("head: %d", w.Code)
	}
	if w := r.do("GET", "/readyz", "", nil); w.Code != 200 && w.Code != 503 ||
		!strings.Contains(w.Body.String(), `"incarnation"`) {
		t.Errorf("readyz: %d %s", w.Code, w.Body)
	}
	for i := range r.Table() {
		if r.Table()[i].Service == serviceRegistry {
			t.Errorf("%s is there", r.Table()[i].Pattern)
		}
	}
}

func grantOf(account string) *engines.Grant {
	g := &engines.Grant{}
	g.NarrowAccount(account)
	return g
}

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
	b := read[walletapi.Balance](t, r, "/v1/balance?account=a:b/c&asset=ron&min_seq=7")
	want := walletapi.Balance{
		Account:     "a:b/c",
		Asset:       "ron",
		Known:       true,
		AmountMinor: "90",
		PostedMinor: "100",
		HeldMinor:   "10",
		AsOf:        b.AsOf,
		AsOfSeq:     7,
	}
	if b != want || b.AsOf.Format(time.RFC3339Nano) != at || r.wal.minSeq != 7 {
		t.Errorf("%+v, min_seq %d", b, r.wal.minSeq)
	}
	r.wal.issued = "5000"
	if b := read[walletapi.Balance](t, r, "/v1/balance?account=sys:issue:ron&asset=ron"); b.IssuedMinor != "5000" {
		t.Errorf("%+v", b)
	}
	if r.wal.by.Principal != "alice" || !r.wal.by.May(scopeRead) {
		t.Errorf("asked by %+v", r.wal.by)
	}
}

func TestAccount(t *testing.T) {
	r := newRig(t)
	a := read[walletapi.Account](t, r, "/v1/account?account=alice")
	if !a.Known || a.LastNonce != 4 || a.NextNonce != 5 || len(a.Flags) != 1 || a.Flags[0] != "no_debit" ||
		a.OpenedAt.IsZero() {
		t.Errorf("%+v", a)
	}
	if a := read[walletapi.Account](t, r, "/v1/account?account=nobody"); a.Known || !a.OpenedAt.IsZero() {
		t.Errorf("%+v", a)
	}
}

func TestAssets(t *testing.T) {
	l := read[walletapi.AssetList](t, newRig(t), "/v1/assets")
	if len(l.Assets) != 1 || l.Assets[0].Asset != "ron" || l.Assets[0].SupplyMinor != "1000" ||
		l.Assets[0].DeclaredAt.Format(time.RFC3339Nano) != at {
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
		if w := r.do("GET", "/v1/tx/"+id, "", writer); w.Code != 400 ||
			problemIn(t, w.Body.String()).Details["field"] != "txid" {
			t.Errorf("%s: %d %s", id, w.Code, w.Body)
		}
	}
	for _, path := range []string{"/v1/tx/", "/v1/tx/" + txid + "/x", "/v1/tx/tx_x/x"} {
		if w := r.do("GET", path, "", writer); w.Code != 404 || problemIn(t, w.Body.String()).Reason != "not_found" {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
	}
}

func TestHistory(t *testing.T) {
	r := newRig(t)
	h := read[walletapi.History](t, r, "/v1/history?account=alice&asset=ron")
	var receipt walletapi.Receipt
	if len(h.Entries) != 1 || h.Next != "more" || h.Opening != nil || json.Unmarshal(h.Entries[0].Receipt, &receipt) != nil {
		t.Fatalf("%+v", h)
	}
	if e := h.Entries[0]; e.Memo != "lunch" || e.Side != "debit" || e.BalanceMinor != "95" ||
		e.AvailableMinor != "85" ||
		receipt.TS != at {
		t.Errorf("%+v %+v", e, receipt)
	}
	h = read[walletapi.History](t, r, "/v1/history?account=alice&asset=ron&cursor=last")
	if o := h.Opening; h.Next != "" || o == nil || o.Period != 2 || o.Postings != 9 || o.PostedMinor != "70" ||
		o.AvailableMinor != "60" || o.At.UnixMilli() != ledgerNow/1e6 {
		t.Errorf("%+v", o)
	}
	day := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).UnixNano()
	for query, want := range map[string]ledger.HistoryQuery{
		"": {Limit: 100, NewestFirst: true}, "&order=asc&limit=500": {Limit: 500}, "&order=desc&cursor=x&limit=1": {Limit: 1, Cursor: "x", NewestFirst: true},
		"&since=2026-01-01T00:00:00Z&until=2026-01-01T01:00:00%2B01:00": {Limit: 100, NewestFirst: true, Since: day, Until: day},
	} {
		want.Account, want.Asset = "alice", "ron"
		if read[walletapi.History](t, r, "/v1/history?account=alice&asset=ron"+query); r.wal.query != want {
			t.Errorf("%s: asked for %+v, want %+v", query, r.wal.query, want)
		}
	}
	for query, field := range map[string]string{
		"asset=ron": "account", "account=alice": "asset", "account=a.b&asset=ron": "account", "account=a&asset=RON": "asset",
		"account=a&asset=ron&limit=501": "limit", "account=a&asset=ron&order=up": "order", "account=a&asset=ron&order=": "order",
		"account=a&asset=ron&since=yesterday": "since", "account=a&asset=ron&until=1970-01-01T00:00:00Z": "until", "account=a&asset=ron&since=": "since",
	} {
		if p := problemIn(t, r.do("GET", "/v1/history?"+query, "", writer).Body.String()); p.Reason != "malformed" ||
			p.Details["field"] != field {
			t.Errorf("%s: %+v", query, p)
		}
	}
}

// A read in an unknown asset is refused like a payment in it.
func TestReadsOfNoAsset(t *testing.T) {
	r := newRig(t)
	r.wal.set(refusedBy(record.AssetUnknown))
	for _, path := range []string{"/v1/balance", "/v1/history"} {
		w := r.do("GET", path+"?account=a&asset=gold", "", writer)
		if p := problemIn(
			t,
			w.Body.String(),
		); w.Code != 400 || p.Reason != "asset_unknown" || p.Details["field"] != "asset" ||
			!strings.Contains(p.Detail, "/v1/assets") {
			t.Errorf("%s: %d %+v", path, w.Code, p)
		}
	}
}

func TestLedgerReads(t *testing.T) {
	r := newRig(t)
	if h := read[ledgerapi.LedgerHead](t, r, "/v1/ledger/head"); h.Batches != 3 || h.Seq != 3 ||
		h.LogRoot == h.LastRoot {
		t.Errorf("%+v", h)
	}
	if l := read[ledgerapi.Roots](t, r,
		"/v1/ledger/roots?since=5&limit=2"); len(l.Roots) != 2 || l.Roots[0].Batch != 6 || l.Roots[1].Seq != 7 ||
		l.Next != 7 {
		t.Errorf("%+v", l)
	}
	if l := read[ledgerapi.Roots](t, r, "/v1/ledger/roots"); len(l.Roots) != 2 || l.Next != 0 {
		t.Errorf("%+v", l)
	}
	r.wal.first = 10
	for query, first := range map[string]uint64{"": 10, "?since=9": 0, "?since=12": 0} {
		if l := read[ledgerapi.Roots](t, r, "/v1/ledger/roots"+query); l.FirstBatch != first || l.Roots[0].Batch < 10 {
			t.Errorf("%s: %+v", query, l)
		}
	}
	var proof record.Proof
	if err := json.Unmarshal(r.do("GET", "/v1/tx/"+txid+"/proof?at=1", "", writer).Body.Bytes(), &proof); err != nil ||
		proof.Head.Batches != 1 {
		t.Errorf("%v %+v", err, proof)
	}
	var grew record.Consistency
	if err := json.Unmarshal(
		r.do("GET", "/v1/ledger/consistency?from=2&to=3", "", writer).Body.Bytes(),
		&grew,
	); err != nil ||
		grew.From.Batches != 2 {
		t.Errorf("%v %+v", err, grew)
	}
	for target, field := range map[string]string{
		"/v1/ledger/consistency?from=3&to=2": "to", "/v1/ledger/consistency?to=2": "from", "/v1/ledger/roots?limit=1001": "limit",
		"/v1/tx/" + txid + "/proof?at=x": "at",
	} {
		if p := problemIn(t, r.do("GET", target, "", writer).Body.String()); p.Reason != "malformed" ||
			p.Details["field"] != field {
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
		if w := r.do("GET", target, "", writer); w.Code != 403 || problemIn(t, w.Body.String()).Reason != "forbidden" {
			t.Errorf("%s: %d %s", target, w.Code, w.Body)
		}
	}
}

// While the ledger stalls, or the node drains, reads go on.
func TestReadsGoOn(t *testing.T) {
	r := newRig(t)
	r.wal.notReady = &wallet.NotReadyError{Cause: wallet.CauseLedger}
	r.SetGate(httpapi.GateDraining)
	for _, target := range []string{"/v1/balance?account=a&asset=ron", "/v1/account?account=a", "/v1/tx/" + txid, "/v1/ledger/head"} {
		if w := r.do("GET", target, "", writer); w.Code != 200 {
			t.Errorf("%s: %d", target, w.Code)
		}
	}
	if w := r.do("GET", "/v1/ledger/export", "", writer); w.Code != 503 ||
		problemIn(t, w.Body.String()).Reason != httpapi.ReasonDraining {
		t.Errorf("an export: %d", w.Code)
	}
}

// bodyWatcher is a wallet that looks whether the call still holds its body.
type bodyWatcher struct {
	*fakeWallet
	c    *httpapi.Request
	held int // bytes
}

func (w *bodyWatcher) Post(
	ctx context.Context,
	by engines.Actor,
	key, corrID string,
	r ledger.Op,
) (wallet.Answer, error) {
	w.held = len(w.c.Body())
	return w.fakeWallet.Post(ctx, by, key, corrID, r)
}

func (w *bodyWatcher) SetFlags(
	ctx context.Context, by engines.Actor, key, corrID string, r ledger.Op, opens bool,
) (wallet.Answer, error) {
	w.held = len(w.c.Body())
	return w.fakeWallet.SetFlags(ctx, by, key, corrID, r, opens)
}

func (w *bodyWatcher) Batch(
	ctx context.Context, by engines.Actor, key, corrID string, atomic bool, ops []ledger.Op,
) (wallet.Answer, error) {
	w.held = len(w.c.Body())
	return w.fakeWallet.Batch(ctx, by, key, corrID, atomic, ops)
}

// A request that waits for the ledger holds its decoded operations but not its body, which may be
// 10 MiB of spaces, for a thousand requests.
func TestBodiesAreNotHeld(t *testing.T) {
	rig := newRig(t)
	for path, body := range map[string]string{
		"transfer": someTransfer, "batch": `{"mode":"atomic","ops":[{"op":"release","hold":"` + txid + `"}]}`,
		"accounts/flags": `{"account":"a","set":["frozen"]}`,
	} {
		req := httptest.NewRequest(http.MethodPost, "/v1/"+path, nil)
		keyed(req)
		w := &bodyWatcher{fakeWallet: rig.wal}
		for _, route := range wallethttp.New(w).Routes {
			if route.Pattern != "/v1/"+path || route.Method != http.MethodPost {
				continue
			}
			route.Service = serviceWallet
			w.c = rig.NewRequest(httptest.NewRecorder(), req, &route, &front.Peer{})
			w.c.SetBody([]byte(body))
			w.held = -1
			if err := route.Handle(w.c); err != nil || w.held != 0 {
				t.Errorf("%s: %v, %d bytes held", path, err, w.held)
			}
		}
	}
}

// bigWallet returns receipts larger than any socket buffer.
type bigWallet struct{ *fakeWallet }

func (bigWallet) Post(context.Context, engines.Actor, string, string, ledger.Op) (wallet.Answer, error) {
	return wallet.Answer{Outcome: outcomeOf(aTransfer(), strings.Repeat("k", 64<<20))}, nil
}

// An answer that its client does not read is aborted in time and counted once for its service,
// regardless of earlier requests on the connection.
func TestUnreadAnswersAreTheServices(t *testing.T) {
	for _, tt := range []struct{ doc, method, path, body string }{
		{"one piece", "POST", "/v1/transfer", someTransfer}, {"a stream", "GET", "/v1/ledger/export", ""},
	} {
		t.Run(tt.doc, func(t *testing.T) {
			t.Parallel()
			overBoth(t, func(c *httpapi.Settings, d *deps) {
				l := c.Limits[serviceWallet]
				l.Timeout = 500 * time.Millisecond
				c.Limits[serviceWallet], c.Server.WriteTimeout = l, unit.Duration(50*time.Millisecond)
				w := d.Wallet.(*fakeWallet)
				w.seq = 100_000 // 70 MB of them
				d.Wallet = bigWallet{w}
			}, func(t *testing.T, r *rig) {
				c := r.open(t)
				for _, path := range []string{"/healthz", "/registry/head"} {
					fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: x\r\n\r\n", path)
					if got := readStatus(t, c); got != http.StatusOK {
						t.Fatalf("%s: %d", path, got)
					}
				}
				fmt.Fprintf(c, "%s %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer good\r\n%s: %s\r\n", tt.method,
					tt.path, "Idempotency-Key", someKey)
				if tt.body != "" {
					fmt.Fprintf(c, "Content-Type: %s\r\nContent-Length: %d\r\n", httpapi.TypeJSON, len(tt.body))
				}
				fmt.Fprintf(c, "\r\n%s", tt.body)
				late := func(pairs ...string) float64 { return sum(t, r.metrics, "io_timeouts_total", pairs...) }
				waitFor(t, "write that is given up", func() bool { return late() > 0 })
				_, _ = io.Copy(io.Discard, c) // until the connection is closed
				if n := late("op", "write", "service", "wallet"); n != 1 || late() != 1 {
					t.Errorf("%v of the wallet's answers were not written in time, want 1; %v in all", n, late())
				}
			})
		})
	}
}

// A payment that must not open its payee is refused for a new one. A balance shows whether its
// account exists; so does the issuance account of an asset that was never issued.
func TestNewPayeeOverTheEngine(t *testing.T) {
	r := newMoneyRig(t)
	known := func(account, asset string) bool {
		t.Helper()
		return read[walletapi.Balance](t, r.rig, "/v1/balance?account="+account+"&asset="+asset).Known
	}
	r.post("assets", `{"asset":"eur"}`, "", 200)
	if !known("sys:issue:eur", "eur") || known("bbo", "ron") {
		t.Error("an account is known as another one should be")
	}
	r.post("issue", `{"to":"alice","asset":"ron","amount_minor":"1000"}`, "", 200)
	pay := `{"from":"alice","to":"bbo","asset":"ron","amount_minor":"5"}`
	hold := strings.Replace(pay, `"5"`, `"5","expires_in_s":60`, 1)
	for path, body := range map[string]string{"transfer?payee=existing": pay, "hold?payee=existing": hold} {
		if p := problemIn(t, string(r.post(path, body, "", 404))); p.Reason != "payee_unknown" || p.Details["field"] != "to" {
			t.Errorf("%s: %+v", path, p)
		}
	}
	if r.has("alice", "1000"); known("bbo", "ron") {
		t.Error("a refused payment has opened its payee")
	}
	first := r.post("transfer", pay, "k", 200)
	if again := r.post("transfer?payee=existing", pay, "k", 200); !bytes.Equal(again, first) || !known("bbo", "ron") {
		t.Errorf("again: %s, want %s", again, first)
	}
	r.post("hold?payee=existing", hold, "", 200)
}
