package httpapi

import (
	"bytes"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fxamacker/cbor/v2"
	"github.com/go-json-experiment/json"

	"ronbox/engines"
	"ronbox/engines/ledger/record"
	"ronbox/engines/wallet"
	"ronbox/httpapi/wire"
)

const someTransfer = `{"from":"alice","to":"bob","asset":"ron","amount_minor":"5","nonce":1,"memo":"lunch","valid_until":"2100-01-01T02:00:00+02:00"}`

func aTransfer() wallet.Request {
	return wallet.Request{Op: record.OpTransfer, From: "alice", To: "bob", Asset: "ron", Amount: amount("5"), Nonce: 1, Memo: "lunch"}
}

// orderCases are a body for each route that takes one operation, and the order that it is.
func orderCases(t *testing.T) map[string]struct {
	body string
	want wallet.Request
} {
	t.Helper()
	hold, err := record.ParseTxID(txid)
	if err != nil {
		t.Fatal(err)
	}
	paid := aTransfer()
	paid.ValidUntil = time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC)
	return map[string]struct {
		body string
		want wallet.Request
	}{
		"transfer": {someTransfer, paid},
		"issue": {`{"nonce":18446744073709551615,"to":"a/b","asset":"ron","amount_minor":"340282366920938463463374607431768211455"}`, wallet.Request{
			Op: record.OpIssue, To: "a/b", Asset: "ron", Amount: amount("340282366920938463463374607431768211455"), Nonce: 1<<64 - 1,
		}},
		"burn": {`{"from":"a:b","asset":"x1","amount_minor":"1","nonce":2}`, wallet.Request{
			Op: record.OpBurn, From: "a:b", Asset: "x1", Amount: amount("1"), Nonce: 2,
		}},
		"hold": {`{"from":"a","to":"b","asset":"ron","amount_minor":"7","nonce":3,"expires_in_s":2592000}`, wallet.Request{
			Op: record.OpHold, From: "a", To: "b", Asset: "ron", Amount: amount("7"), Nonce: 3, ExpiresIn: 720 * time.Hour,
		}},
		"capture":        {`{"hold":"` + txid + `","amount_minor":"4"}`, wallet.Request{Op: record.OpCapture, Hold: hold, Amount: amount("4")}},
		"release":        {`{"hold":"` + txid + `"}`, wallet.Request{Op: record.OpRelease, Hold: hold}},
		"accounts/flags": {`{"account":"a","set":["frozen","no_debit"],"clear":["no_credit"]}`, wallet.Request{Op: record.OpFlags, From: "a", Set: record.Frozen | record.NoDebit, Clear: record.NoCredit}},
	}
}

// An order reaches the wallet as it was sent, and the wallet's bytes reach the caller as they are.
func TestOrders(t *testing.T) {
	for path, tt := range orderCases(t) {
		r := newRig(t)
		w := r.do("POST", "/v1/"+path, tt.body, writer)
		got := r.wal.order
		if !got.ValidUntil.Equal(tt.want.ValidUntil) {
			t.Errorf("%s: valid until %s", path, got.ValidUntil)
		}
		got.ValidUntil = tt.want.ValidUntil
		if w.Code != http.StatusOK || got != tt.want || r.wal.key != someKey || r.wal.by.Principal != "alice" {
			t.Errorf("%s: %d %s: %+v by %q under %q, want %+v", path, w.Code, w.Body, got, r.wal.by.Principal, r.wal.key, tt.want)
		}
		if want := receiptOf(r.wal.order, someKey); !bytes.Equal(w.Body.Bytes(), want) {
			t.Errorf("%s: sent %s, want %s", path, w.Body, want)
		}
		if h := w.Header(); h.Get("Cache-Control") != "no-store" || h.Get("Content-Type") != typeJSON || h.Get(replayedHeader) != "" {
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
		if w := r.do("POST", "/v1/"+path, body, writer); w.Code != 200 || w.Header().Get("Idempotent-Replayed") != "true" {
			t.Errorf("%s: %d %v", path, w.Code, w.Header())
		}
	}
}

// The deadline of writes is the wallet's, and a reload changes it.
func TestTheWalletsDeadline(t *testing.T) {
	r, cfg := newRig(t), testSettings()
	cfg.WalletTimeout = 2 * time.Second
	r.reload(t, cfg)
	if r.do("POST", "/v1/transfer", someTransfer, writer); r.wal.until <= 0 || r.wal.until > 2*time.Second {
		t.Errorf("%s to the deadline", r.wal.until)
	}
	r.do("GET", "/v1/balance?account=a&asset=ron", "", writer)
	if r.wal.until <= 4*time.Second {
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
	var want []wallet.Request
	for path, tt := range orderCases(t) {
		if path != "accounts/flags" {
			ops, want = append(ops, `{`+strings.Trim(tt.body, "{}")+`,"op":"`+path+`"}`), append(want, tt.want)
		}
	}
	text := `{"ops":[` + strings.Join(ops, ",") + `],"mode":"independent"}`
	for kind, body := range map[string]string{typeJSON: text, typeCBOR: toCBOR(t, text), "application/json; charset=UTF-8": text} {
		r := newRig(t)
		r.wal.status = http.StatusMultiStatus
		w := r.do("POST", "/v1/batch", body, header{"Authorization": "Bearer good", "Content-Type": kind})
		if w.Code != http.StatusMultiStatus || r.wal.atomic || r.wal.key != someKey || len(r.wal.orders) != len(want) {
			t.Fatalf("%s: %d %s, %d ops", kind, w.Code, w.Body, len(r.wal.orders))
		}
		for i, got := range r.wal.orders {
			same := got.ValidUntil.Equal(want[i].ValidUntil)
			if got.ValidUntil = want[i].ValidUntil; !same || got != want[i] {
				t.Errorf("%s: op %d is %+v, want %+v", kind, i, got, want[i])
			}
		}
		var a wire.BatchAnswer
		if err := json.Unmarshal(w.Body.Bytes(), &a); err != nil || len(a.Results) != 2 || a.Results[1].Error.Code != "INSUFFICIENT_FUNDS" {
			t.Errorf("%s: %v %+v", kind, err, a)
		}
	}
	r := newRig(t)
	if r.do("POST", "/v1/batch", batchOf("atomic", maxBatchOps), writer); !r.wal.atomic || len(r.wal.orders) != maxBatchOps {
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
	if w := r.do("POST", "/v1/assets", `{"asset":"eur"}`, writer); w.Code != 200 || !strings.Contains(w.Body.String(), `"op":"asset","asset":"eur"`) {
		t.Errorf("%d %s", w.Code, w.Body)
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
		w := r.do("POST", "/v1/transfer", someTransfer, header{"Authorization": "Bearer good", idemHeader: tt.sent})
		if tt.want != "" {
			if w.Code != 200 || r.wal.key != tt.want {
				t.Errorf("%q: %d, key %q", tt.sent, w.Code, r.wal.key)
			}
			continue
		}
		p := problemIn(t, w.Body.String())
		if w.Code != 400 || p.Code != "BAD_REQUEST" || p.Details["field"] != idemHeader || r.wal.calls != 0 {
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
	for i := range r.routes {
		route := &r.routes[i]
		if route.Service != serviceWallet || !route.writes() {
			continue
		}
		n++
		for _, keys := range [][]string{nil, {"a", "b"}} {
			w := r.ask(socketPeer(), route, func(q *http.Request) {
				q.Header[idemHeader] = keys
				q.Header.Set("Content-Type", typeJSON)
			})
			if p := problemIn(t, w.Body.String()); w.Code != 400 || p.Details["field"] != idemHeader || p.Reason != reasonBadHeader {
				t.Errorf("%s with keys %q: %d %+v", route.Pattern, keys, w.Code, p)
			}
		}
	}
	if n != 9 {
		t.Errorf("%d writes", n)
	}
}

// While the wallet takes no writes, what reads badly is still told so, what reads well is to come later, and reads go on.
func TestReadinessGuard(t *testing.T) {
	r := newRig(t)
	r.wal.notReady = &wallet.NotReadyError{Cause: wallet.CauseLedger}
	for path, tt := range orderCases(t) {
		w := r.do("POST", "/v1/"+path, tt.body, writer)
		p := problemIn(t, w.Body.String())
		if w.Code != 503 || p.Code != "RETRY_LATER" || p.Details["cause"] != wallet.CauseLedger || w.Header().Get("Retry-After") != "2" {
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

// Each answer tells the caller's own rate, also the one that refuses.
func TestRateIsTold(t *testing.T) {
	r := newRig(t, func(c *Settings, _ *Deps) {
		c.Limits[serviceWallet] = Limits{Inflight: 9, PerPrincipal: Rate{RPS: 1, Burst: 2}}
	})
	var got []string
	for range 3 {
		w := r.do("POST", "/v1/transfer", someTransfer, writer)
		h := w.Header()
		got = append(got, h.Get("RateLimit"))
		if w.Code == 429 {
			if p := problemIn(t, w.Body.String()); p.Code != "BUSY" || p.Reason != reasonRate || h.Get("Retry-After") != "1" {
				t.Errorf("%+v, Retry-After %q", p, h.Get("Retry-After"))
			}
		}
	}
	if want := []string{"limit=2, remaining=1, reset=1", "limit=2, remaining=0, reset=2", "limit=2, remaining=0, reset=2"}; !slices.Equal(got, want) {
		t.Errorf("told %q, want %q", got, want)
	}
	if w := r.do("POST", "/v1/transfer", someTransfer, header{"Authorization": "Bearer good bob"}); w.Code != 200 {
		t.Errorf("another caller: %d", w.Code)
	}
	read := r.do("GET", "/v1/balance?account=a&asset=ron", "", header{"Authorization": "Bearer good carol"}).Header()
	if read.Get("RateLimit") == "" || len(read) > 8 {
		t.Errorf("a read has %d headers, which are more than a map holds before it grows: %v", len(read), read)
	}
	if w := newRig(t).do("POST", "/v1/transfer", someTransfer, writer); w.Header().Get("RateLimit") != "" {
		t.Errorf("without a rate: %v", w.Header())
	}
}

// Where a route takes one of several scopes, one is enough and none is not.
func TestOneOfSeveralScopes(t *testing.T) {
	for _, tt := range []struct {
		scopes         []string
		batch, release int
	}{
		{[]string{"wallet.transfer"}, 200, 403}, {[]string{"wallet.release"}, 200, 200}, {[]string{"wallet.admin"}, 200, 200},
		{[]string{"wallet.read", "ledger.export"}, 403, 403}, {nil, 403, 403}, {[]string{"node.admin"}, 200, 200},
	} {
		r := newRig(t, func(c *Settings, d *Deps) {
			d.Auth = holder{tt.scopes}
			c.UDS.Map = map[string][]string{"uid:8": append([]string{"x.y"}, tt.scopes...)}
		})
		for _, ask := range []func(path, body string) int{
			func(path, body string) int { return r.do("POST", path, body, writer).Code },
			func(path, body string) int { return r.as(userPeer(8), "POST", path, body, nil).Code },
		} {
			if b, rel := ask("/v1/batch", batchOf("atomic", 1)), ask("/v1/release", `{"hold":"`+txid+`"}`); b != tt.batch || rel != tt.release {
				t.Errorf("%q: batch %d, release %d", tt.scopes, b, rel)
			}
		}
	}
	r := newRig(t, func(_ *Settings, d *Deps) { d.Auth = holder{} })
	w := r.do("POST", "/v1/batch", "not json", writer)
	if p := problemIn(t, w.Body.String()); p.Code != "FORBIDDEN" || p.Reason != reasonForbidden {
		t.Errorf("%+v", p)
	}
	if n := sum(t, r.metrics, "auth_failures_total", "service", "wallet", "stage", "caveat"); n != 1 {
		t.Errorf("counted %v times", n)
	}
}

// The scopes of who calls reach the wallet: on the socket with a token, those of both.
func TestScopesReachTheWallet(t *testing.T) {
	r := newRig(t, func(c *Settings, d *Deps) {
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

// A node without a wallet has no routes of one, and nothing of it in the document; likewise one without a registry.
func TestServicesThatAreOff(t *testing.T) {
	r := newRig(t, func(_ *Settings, d *Deps) { d.Wallet = nil })
	w := r.do("POST", "/v1/transfer", someTransfer, writer)
	if p := problemIn(t, w.Body.String()); w.Code != 404 || p.Service != serviceNode || p.Code != "NotFound" {
		t.Errorf("%d %+v", w.Code, p)
	}
	if doc := string(r.doc.JSON()); strings.Contains(doc, "/v1/balance") || strings.Contains(doc, `"Receipt"`) {
		t.Error("the document speaks of the wallet")
	}
	r = newRig(t, func(_ *Settings, d *Deps) { d.Registry = nil })
	r.undescribed = true
	if w := r.do("GET", "/registry/head", "", nil); w.Code != 404 {
		t.Errorf("head: %d", w.Code)
	}
	if w := r.do("GET", "/readyz", "", nil); w.Code != 200 && w.Code != 503 || !strings.Contains(w.Body.String(), `"incarnation"`) {
		t.Errorf("readyz: %d %s", w.Code, w.Body)
	}
	for i := range r.routes {
		if r.routes[i].Service == serviceRegistry {
			t.Errorf("%s is there", r.routes[i].Pattern)
		}
	}
}

func grantOf(account string) *engines.Grant {
	g := &engines.Grant{}
	g.NarrowAccount(account)
	return g
}
