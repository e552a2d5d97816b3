package appliance

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"ronbox/appliance/config"
	"ronbox/engines/ledger"
	"ronbox/engines/ledger/record"
	"ronbox/httpapi/wire"
	"ronbox/store"
)

// reply is the whole answer to a call of /v1, byte for byte.
type reply struct {
	status   int
	body     string
	replayed bool
	problem  wire.Problem
}

// v1 makes one call of the wallet over TCP with the token that init wrote. A key is only sent with a body.
func (r *rig) v1(method, path, key, body string) reply {
	r.t.Helper()
	token, err := os.ReadFile(r.cfg.Path(TokenName))
	must(r.t, err)
	return r.v1As(strings.TrimSpace(string(token)), method, path, key, body)
}

// v1As is v1 with another token.
func (r *rig) v1As(token, method, path, key, body string) reply {
	r.t.Helper()
	req, err := http.NewRequestWithContext(r.t.Context(), method, "http://"+r.Addr()+path, strings.NewReader(body))
	must(r.t, err)
	req.Header.Set("Authorization", "Bearer "+token)
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Idempotency-Key", key)
	}
	tr := &http.Transport{}
	defer tr.CloseIdleConnections()
	resp, err := tr.RoundTrip(req)
	must(r.t, err)
	raw, err := io.ReadAll(resp.Body)
	must(r.t, err)
	_ = resp.Body.Close()
	out := reply{status: resp.StatusCode, body: string(raw), replayed: resp.Header.Get("Idempotent-Replayed") == "true"}
	if resp.Header.Get("Content-Type") == wire.ProblemType {
		must(r.t, json.Unmarshal(raw, &out.problem))
	}
	return out
}

// pay is a transfer's body.
func pay(from, to, amount string, nonce uint64) string {
	return fmt.Sprintf(`{"from":%q,"to":%q,"asset":"ron","amount_minor":%q,"nonce":%d}`, from, to, amount, nonce)
}

// issue is that of an issue.
func issue(to, amount string, nonce uint64) string {
	return fmt.Sprintf(`{"to":%q,"asset":"ron","amount_minor":%q,"nonce":%d}`, to, amount, nonce)
}

// receipt is a call that must be done, and gives its receipt. A node that finds its disk slow is asked again.
func (r *rig) receipt(path, key, body string) (wire.Receipt, reply) {
	r.t.Helper()
	got := r.v1("POST", path, key, body)
	for late := time.Now().Add(patience); got.problem.Code == "RETRY_LATER" && time.Now().Before(late); {
		r.writable(true)
		got = r.v1("POST", path, key, body)
	}
	var out wire.Receipt
	if got.status != http.StatusOK || json.Unmarshal([]byte(got.body), &out) != nil {
		r.t.Fatalf("%s %s: %d %s\n%s", path, body, got.status, got.body, r.log)
	}
	return out, got
}

// has checks what an account may spend, as of a record.
func (r *rig) has(account, want string, seq uint64) {
	r.t.Helper()
	path := "/v1/balance?asset=ron&account=" + url.QueryEscape(account)
	if seq > 0 {
		path += fmt.Sprintf("&min_seq=%d", seq)
	}
	got := r.v1("GET", path, "", "")
	var b wire.Balance
	if got.status != http.StatusOK || json.Unmarshal([]byte(got.body), &b) != nil || b.AmountMinor != want {
		r.t.Errorf("%s has %d %s, want %s", account, got.status, got.body, want)
	}
}

// proven asks for the proof of a receipt and checks it without the node.
func (r *rig) proven(txid string) record.Receipt {
	r.t.Helper()
	got := r.v1("GET", "/v1/tx/"+txid+"/proof", "", "")
	var p record.Proof
	if got.status != http.StatusOK {
		r.t.Fatalf("proof of %s: %d %s", txid, got.status, got.body)
	}
	must(r.t, json.Unmarshal([]byte(got.body), &p))
	receipt, err := p.Verify()
	must(r.t, err)
	return receipt
}

// settled waits until nothing is left to be written behind the journal.
func (r *rig) settled() {
	r.t.Helper()
	r.await("the ledger to rest", func() bool { return r.metric("ledger_overlay_dirty") == 0 })
}

// verified holds a stopped node's file against itself, as db verify does.
func verified(t *testing.T, cfg *config.Config) {
	t.Helper()
	report, err := store.Verify(t.Context(), cfg.Path(DatabaseName), nil, append([]store.Check{registryCheck(t.Context())}, ledger.Checks()...), nil)
	must(t, err)
	if !report.OK {
		t.Errorf("checked and found bad: %s", report.Problem)
	}
}
