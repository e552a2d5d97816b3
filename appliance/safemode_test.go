package appliance

import (
	"bytes"
	"net/http"
	"os"
	"strings"
	"testing"

	"ronbox/engines/ledger"
)

// rot changes one bit behind a text in the file of a node that runs.
func rot(t *testing.T, path, text string) {
	t.Helper()
	raw, err := os.ReadFile(path)
	must(t, err)
	at := bytes.Index(raw, []byte(text))
	if at < 0 {
		t.Fatalf("%s does not hold %s", path, text)
	}
	at += len(text) - 1
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	must(t, err)
	_, err = f.WriteAt([]byte{raw[at] ^ 1}, int64(at))
	must(t, err)
	must(t, f.Close())
}

// A read that finds the journal damaged takes writes away from the wallet too, at once: it has not to be refused one first.
func TestWalletKnowsOfSafeMode(t *testing.T) {
	cfg, _ := devConfig(t)
	r := start(t, cfg)
	paid, _ := r.receipt("/v1/transfer", "k", strings.Replace(pay("alice", "bob", "10", 1), "{", `{"memo":"rotten-memo",`, 1))
	rot(t, cfg.Path(DatabaseName), "rotten-memo")
	if got := r.v1("GET", "/v1/tx/"+paid.TxID+"/proof", "", ""); got.status < 500 {
		t.Fatalf("the proof of a record that does not check: %d %s", got.status, got.body)
	}
	if r.ledger.SafeMode() == "" {
		t.Fatal("the ledger is not in safe mode")
	}
	r.await("the wallet to know", func() bool {
		return r.board.Report("wallet", "").Causes["wallet.ledger_ready"] == ledger.ErrSafeMode.Error()
	})
	if got := r.v1("GET", "/readyz?service=wallet", "", ""); got.status != http.StatusServiceUnavailable {
		t.Errorf("readyz of the wallet: %d %s", got.status, got.body)
	}
	got := r.v1("POST", "/v1/transfer", "k2", pay("alice", "bob", "1", 2))
	if p := got.problem; got.status != http.StatusServiceUnavailable || p.Code != "UPSTREAM_UNAVAILABLE" || p.Details["outcome"] != "none" {
		t.Errorf("a payment: %d %s", got.status, got.body)
	}
	r.has("bob", "10", paid.Ledger.Seq)
	r.halt()
}
