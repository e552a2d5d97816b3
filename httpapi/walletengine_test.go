package httpapi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"ronbox/appliance/flow"
	"ronbox/appliance/obs"
	"ronbox/engines/ledger"
	"ronbox/engines/ledger/record"
	"ronbox/engines/wallet"
	"ronbox/httpapi/auth"
	"ronbox/httpapi/wire"
	"ronbox/store"
)

// moneyRig is the server over the real wallet, on the real ledger, on a real store.
type moneyRig struct {
	*rig
	nonce map[string]uint64 // last one of each account
	keys  int
}

func newMoneyRig(t *testing.T) *moneyRig {
	t.Helper()
	path := filepath.Join(t.TempDir(), "ronbox.db")
	id, err := store.NewIdentity(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if err := store.Create(path, id); err != nil {
		t.Fatal(err)
	}
	m := obs.NewMetrics()
	cat, board := flow.NewCatalog(m, nil), obs.NewBoard(m)
	st := store.New(store.DefaultConfig(), store.Options{Path: path, Catalog: cat, Metrics: m})
	led := ledger.New(ledger.DefaultConfig(), ledger.Deps{Catalog: cat, Store: st, Metrics: m, Board: board})
	w := wallet.New(wallet.DefaultConfig(), wallet.Deps{Catalog: cat, Ledger: led, Metrics: m, Board: board})
	sup := flow.NewSupervisor(context.Background(), cat, flow.Hooks{})
	if err := errors.Join(st.Open(t.Context()), st.Prepare(t.Context())); err != nil {
		t.Fatal(err)
	}
	sup.Start(st.Tasks()...)
	if err := errors.Join(led.Recover(t.Context()), led.DeclareAssets(t.Context(), []string{"ron"})); err != nil {
		t.Fatal(err)
	}
	sup.Start(led.Tasks()...)
	sup.Start(w.Tasks()...)
	t.Cleanup(func() {
		cat.CloseFedBy("wallet", flow.HTTP)
		sup.CancelBackground()
		for _, service := range []string{"wallet", "ledger"} {
			sup.Drain(service, time.Second, time.Second)
		}
		w.Close()
		_ = led.Close(context.Background())
		st.CloseLanes()
		sup.Drain("store", time.Second, time.Second)
		sup.Close()
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	})
	r := newRig(t, func(_ *Settings, d *Deps) { d.Wallet, d.Metrics, d.Auth = w, m, holder{[]string{auth.ScopeAdmin}} })
	r.metrics = m
	waitFor(t, "wallet to take writes", func() bool { return w.WriteReady() == nil })
	return &moneyRig{rig: r, nonce: map[string]uint64{}}
}

// post sends a body under a key of its own, or the one given, and wants a status.
func (r *moneyRig) post(path, body, key string, status int) []byte {
	r.t.Helper()
	if key == "" {
		r.keys++
		key = fmt.Sprint("key-", r.keys)
	}
	w := r.do("POST", "/v1/"+path, body, header{"Authorization": "Bearer x", idemHeader: key})
	if w.Code != status {
		r.t.Fatalf("POST %s %s: %d %s, want %d", path, body, w.Code, w.Body, status)
	}
	return w.Body.Bytes()
}

func (r *moneyRig) next(account string) uint64 { r.nonce[account]++; return r.nonce[account] }

func (r *moneyRig) pay(from, to, n string) string {
	return fmt.Sprintf(`{"from":%q,"to":%q,"asset":"ron","amount_minor":%q,"nonce":%d}`, from, to, n, r.next(from))
}

func (r *moneyRig) has(account, want string) {
	r.t.Helper()
	if b := read[wire.Balance](r.t.(*testing.T), r.rig, "/v1/balance?account="+account+"&asset=ron&min_seq="+formatUint(r.head().Seq)); b.AmountMinor != want {
		r.t.Errorf("%s has %+v, want %s", account, b, want)
	}
}

func (r *moneyRig) head() wire.LedgerHead {
	return read[wire.LedgerHead](r.t.(*testing.T), r.rig, "/v1/ledger/head")
}

func receiptIn(t *testing.T, raw []byte) (out wire.Receipt) {
	t.Helper()
	if err := json.Unmarshal(raw, &out, json.RejectUnknownMembers(true)); err != nil {
		t.Fatalf("%v: %s", err, raw)
	}
	return out
}

func TestMoneyOverTheEngine(t *testing.T) {
	r := newMoneyRig(t)
	r.post("issue", `{"to":"alice","asset":"ron","amount_minor":"1000","nonce":1}`, "", 200)
	body := r.pay("alice", "bob", "300")
	first := r.post("transfer", body, "again", 200)
	w := r.do("POST", "/v1/transfer", strings.Replace(body, ",", " , ", 1), header{"Authorization": "Bearer x", idemHeader: `"again"`})
	if w.Code != 200 || !bytes.Equal(w.Body.Bytes(), first) || w.Header().Get(replayedHeader) != "true" {
		t.Errorf("again: %d %s %v, want %s", w.Code, w.Body, w.Header(), first)
	}
	if got := r.do("GET", "/v1/tx/"+receiptIn(t, first).TxID, "", writer).Body.Bytes(); !bytes.Equal(got, first) {
		t.Errorf("tx: %s, want %s", got, first)
	}
	r.has("alice", "700")
	r.refusals(t, body)
	r.post("burn", fmt.Sprintf(`{"from":"bob","asset":"ron","amount_minor":"50","nonce":%d}`, r.next("bob")), "", 200)
	r.has("bob", "250")
	r.holds(t)
	r.batches(t)
	r.statement(t)
	r.proven(t, receiptIn(t, first))
	r.locked(t)
}

// refusals are what the rules say to a second try under other keys.
func (r *moneyRig) refusals(t *testing.T, body string) {
	t.Helper()
	want := func(path, body, key string, status int, code string, d details) {
		t.Helper()
		p := problemIn(t, string(r.post(path, body, key, status)))
		for k, v := range d {
			if p.Details[k] != v {
				t.Errorf("%s %s: details %v, want %s = %v", path, body, p.Details, k, v)
			}
		}
		if p.Code != code {
			t.Errorf("%s %s: %+v, want %s", path, body, p, code)
		}
	}
	want("transfer", strings.Replace(body, "300", "301", 1), "again", 422, "IDEMPOTENCY_CONFLICT", nil)
	want("transfer", body, "", 409, "NONCE_CONFLICT", details{"expected_nonce": 2.0, "field": "nonce"})
	want("transfer", strings.Replace(body, `"nonce":1`, `"nonce":9`, 1), "", 409, "NONCE_CONFLICT", details{"expected_nonce": 2.0})
	want("transfer", `{"from":"alice","to":"bob","asset":"ron","amount_minor":"701","nonce":2}`, "", 409, "INSUFFICIENT_FUNDS", details{"asset": "ron"})
	want("transfer", `{"from":"alice","to":"bob","asset":"eur","amount_minor":"1","nonce":2}`, "", 400, "BAD_REQUEST", details{"field": "asset"})
	want("transfer", `{"from":"alice","to":"bob","asset":"ron","amount_minor":"1","nonce":2,"valid_until":"2020-01-01T00:00:00Z"}`, "", 400, "BAD_REQUEST",
		details{"field": "valid_until"})
	want("transfer", `{"from":"alice","to":"sys:issue:ron","asset":"ron","amount_minor":"1","nonce":2}`, "", 403, "FORBIDDEN", nil)
	want("transfer", `{"from":"alice","to":"bob","asset":"ron","amount_minor":"100000000000000000001","nonce":2}`, "", 403, "LIMITS_EXCEEDED", nil)
	want("release", `{"hold":"`+txid+`"}`, "", 404, "HOLD_NOT_FOUND", nil)
	if w := r.do("GET", "/v1/tx/"+txid, "", writer); w.Code != 404 {
		t.Errorf("a txid that was not given: %d", w.Code)
	}
}

func (r *moneyRig) holds(t *testing.T) {
	t.Helper()
	hold := func() string {
		body := fmt.Sprintf(`{"from":"alice","to":"shop","asset":"ron","amount_minor":"100","nonce":%d,"expires_in_s":60}`, r.next("alice"))
		return receiptIn(t, r.post("hold", body, "", 200)).TxID
	}
	id := hold()
	r.has("alice", "600")
	if c := receiptIn(t, r.post("capture", `{"hold":"`+id+`","amount_minor":"30"}`, "", 200)); c.Hold != id || c.AmountMinor != "30" {
		t.Errorf("captured %+v", c)
	}
	r.has("alice", "670")
	r.has("shop", "30")
	if p := problemIn(t, string(r.post("release", `{"hold":"`+id+`"}`, "", 409))); p.Code != "HOLD_CLOSED" {
		t.Errorf("%+v", p)
	}
	r.post("release", `{"hold":"`+hold()+`"}`, "", 200)
	r.has("alice", "670")
}

func (r *moneyRig) batches(t *testing.T) {
	t.Helper()
	op := func(body string) string { return `{"op":"transfer",` + body[1:] }
	many := `{"mode":"independent","ops":[` + op(r.pay("alice", "bob", "70")) + `,` +
		`{"op":"burn","from":"bob","asset":"ron","amount_minor":"9999","nonce":2},` + op(r.pay("alice", "carol", "100")) + `]}`
	first := r.post("batch", many, "many", 207)
	w := r.do("POST", "/v1/batch", toCBOR(t, many), header{"Authorization": "Bearer x", idemHeader: "many", "Content-Type": typeCBOR})
	if w.Code != 207 || !bytes.Equal(w.Body.Bytes(), first) || w.Header().Get(replayedHeader) != "true" {
		t.Errorf("again, as CBOR: %d %s, want %s", w.Code, w.Body, first)
	}
	var a wire.BatchAnswer
	if err := json.Unmarshal(first, &a, json.RejectUnknownMembers(true)); err != nil || len(a.Results) != 3 {
		t.Fatalf("%v %s", err, first)
	}
	if e := a.Results[1].Error; e == nil || e.Code != "INSUFFICIENT_FUNDS" || receiptIn(t, a.Results[2].Receipt).To != "carol" {
		t.Errorf("%s", first)
	}
	atomic := `{"mode":"atomic","ops":[` + op(r.pay("alice", "bob", "1")) + `,{"op":"burn","from":"bob","asset":"ron","amount_minor":"9999","nonce":2}]}`
	if p := problemIn(t, string(r.post("batch", atomic, "", 409))); p.Code != "INSUFFICIENT_FUNDS" || p.Details["index"] != 1.0 || p.Details["asset"] != "ron" {
		t.Errorf("%+v", p)
	}
	r.nonce["alice"]-- // nothing of it was done
	r.has("alice", "500")
	r.has("carol", "100")
}

// statement follows alice's pages to the end, in both orders.
func (r *moneyRig) statement(t *testing.T) {
	t.Helper()
	var down, up []string
	for _, order := range []string{"desc", "asc"} {
		seen := &down
		if order == "asc" {
			seen = &up
		}
		for cursor := ""; ; {
			target := "/v1/history?account=alice&asset=ron&limit=2&order=" + order
			if cursor != "" {
				target += "&cursor=" + cursor
			}
			page := read[wire.History](t, r.rig, target)
			for _, e := range page.Entries {
				*seen = append(*seen, receiptIn(t, e.Receipt).TxID)
			}
			if cursor = page.Next; cursor == "" {
				break
			}
		}
	}
	if len(up) != len(down) || len(up) < 6 {
		t.Fatalf("%d entries up, %d down", len(up), len(down))
	}
	for i := range up {
		if up[i] != down[len(down)-1-i] {
			t.Errorf("up %q, down %q", up, down)
			break
		}
	}
}

// proven checks what the ledger shows of a receipt, of its growth and of all it holds.
func (r *moneyRig) proven(t *testing.T, receipt wire.Receipt) {
	t.Helper()
	var proof record.Proof
	if err := json.Unmarshal(r.do("GET", "/v1/tx/"+receipt.TxID+"/proof", "", writer).Body.Bytes(), &proof); err != nil {
		t.Fatal(err)
	}
	got, err := proof.Verify()
	if err != nil || got.TxID.String() != receipt.TxID || got.From != "alice" || got.Amount.String() != receipt.AmountMinor {
		t.Errorf("proves %+v, %v, want %+v", got, err, receipt)
	}
	head := r.head()
	if proof.Head.Root.String() != head.LogRoot {
		t.Errorf("proven to %s, the head is %s", proof.Head.Root, head.LogRoot)
	}
	var grew record.Consistency
	target := fmt.Sprintf("/v1/ledger/consistency?from=1&to=%d", head.Batches)
	if err := json.Unmarshal(r.do("GET", target, "", writer).Body.Bytes(), &grew); err != nil || grew.Verify() != nil {
		t.Errorf("%v, %v", err, grew.Verify())
	}
	if l := read[wire.Roots](t, r.rig, "/v1/ledger/roots"); len(l.Roots) != int(head.Batches) || l.Roots[len(l.Roots)-1].Root != head.LastRoot {
		t.Errorf("%+v, head %+v", l, head)
	}
	seq := uint64(0)
	for line := range bytes.Lines(r.do("GET", "/v1/ledger/export", "", writer).Body.Bytes()) {
		l, err := record.ParseLine(line)
		if err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		if l.Kind == record.LineRecord {
			if seq++; l.Record.Seq != seq {
				t.Fatalf("record %d, want %d", l.Record.Seq, seq)
			}
		}
	}
	if seq != head.Seq {
		t.Errorf("%d records, the head is at %d", seq, head.Seq)
	}
}

func (r *moneyRig) locked(t *testing.T) {
	t.Helper()
	if f := receiptIn(t, r.post("accounts/flags", `{"account":"bob","set":["frozen"]}`, "", 200)); f.Op != "flags" {
		t.Errorf("%+v", f)
	}
	body := r.pay("alice", "bob", "1")
	if p := problemIn(t, string(r.post("transfer", body, "", 409))); p.Code != "ACCOUNT_LOCKED" {
		t.Errorf("%+v", p)
	}
	if a := read[wire.Account](t, r.rig, "/v1/account?account=bob"); len(a.Flags) != 1 || a.Flags[0] != "frozen" || a.NextNonce != 2 {
		t.Errorf("%+v", a)
	}
	r.post("accounts/flags", `{"account":"bob","clear":["frozen"]}`, "", 200)
	r.post("transfer", body, "", 200)
	r.post("assets", `{"asset":"eur"}`, "", 200)
	if l := read[wire.AssetList](t, r.rig, "/v1/assets"); len(l.Assets) != 2 || l.Assets[1].Asset != "eur" {
		t.Errorf("%+v", l)
	}
	if p := problemIn(t, r.do("GET", "/v1/history?account=bob&asset=ron&cursor=zzz", "", writer).Body.String()); p.Details["field"] != "cursor" {
		t.Errorf("%+v", p)
	}
}
