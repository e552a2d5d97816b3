package main

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"ronbox/appliance/host/hosttest"
	"ronbox/cmd/ronbox/cli"
	"ronbox/cmd/ronbox/server/config"
	"ronbox/engines/ledger/lverify"
	walletapi "ronbox/httpapi/wire/wallet"
)

// keyLine matches the line that a verb prints before it sends a request that changes something.
var keyLine = regexp.MustCompile(`(?m)^key (\S+) `)

// The wallet as a user sees it: money is issued and paid, a repeated payment is the same payment,
// and a payment can be proven without the node.
func TestWalletTour(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	p := b.start(t)
	must(t, nil, b.args("wallet", "issue", "alice", "500", "--json")...)
	first := must(t, nil, b.args("wallet", "transfer", "alice", "bob", "1000", "--memo", "rent", "--json")...)
	key := keyLine.FindStringSubmatch(first.stderr)[1]
	again := must(
		t,
		nil,
		b.args("wallet", "transfer", "alice", "bob", "1000", "--memo", "rent", "--json", "--key", key)...)
	if again.stdout != first.stdout {
		t.Errorf("the repeat is answered\n%s, the first\n%s", again.stdout, first.stdout)
	}
	b.replayOverHTTP(t, key, strings.TrimSuffix(first.stdout, "\n"))
	b.payWithAProgram(t)

	var receipt walletapi.Receipt
	decode(t, first.stdout, &receipt)
	var balance walletapi.Balance
	must(t, &balance, b.args("wallet", "balance", "bob", "--min-seq", fmt.Sprint(receipt.Ledger.Seq), "--json")...)
	if balance.AmountMinor != "1000" {
		t.Errorf("bob has %+v", balance)
	}
	var h walletapi.History
	must(t, &h, b.args("wallet", "history", "bob", "--json")...)
	if len(h.Entries) != 1 || h.Entries[0].Memo != "rent" || h.Entries[0].BalanceMinor != "1000" ||
		string(h.Entries[0].Receipt) != strings.TrimSpace(first.stdout) {
		t.Errorf("bob's history is %+v", h)
	}
	dir := t.TempDir()
	save := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	proof := must(t, nil, b.args("ledger", "proof", receipt.TxID)...)
	head := must(t, nil, b.args("ledger", "head", "--json")...)
	journal := filepath.Join(dir, "journal.ndjson")
	must(t, nil, b.args("ledger", "export", "--out", journal)...)
	if code := p.signal(t, syscall.SIGTERM); code != cli.ExitDone {
		t.Fatalf("exit %d\n%s", code, p.stderr)
	}

	var doc struct {
		OK      bool           `json:"ok"`
		Receipt jsontext.Value `json:"receipt"`
	}
	must(t, &doc, "ledger", "verify-proof", save("proof", proof.stdout), "--receipt", save("receipt", first.stdout),
		"--head", save("head", head.stdout), "--json")
	if !doc.OK || string(doc.Receipt) != strings.TrimSpace(first.stdout) {
		t.Errorf("the proof proves %+v", doc)
	}
	var live, rebuilt, imported, exported lverify.Report
	must(t, &live, b.args("ledger", "verify", "--json")...)
	must(t, &exported, "ledger", "verify", journal, "--json")
	must(t, nil, b.args("ledger", "rebuild")...)
	must(t, &rebuilt, b.args("ledger", "verify", "--json")...)
	other := []string{"--data-dir", filepath.Join(filepath.Dir(b.dir), "other")}
	must(t, nil, append(other, "init")...)
	must(t, &imported, append(other, "ledger", "import", journal, "--json")...)
	for name, r := range map[string]lverify.Report{"rebuilt": rebuilt, "imported": imported, "exported": exported} {
		if !r.OK || r.Head != live.Head || r.Records != live.Records || r.Accounts != live.Accounts {
			t.Errorf("%s: %+v, live: %+v", name, r, live)
		}
	}
}

// replayOverHTTP repeats a payment as a different client and expects the same bytes and the replay
// header. It uses the socket as the verbs do, because a token is another principal with a separate
// set of keys.
func (b *box) replayOverHTTP(t *testing.T, key, receipt string) {
	t.Helper()
	hc := &http.Client{Transport: &http.Transport{DialContext: b.dialSocket}}
	defer hc.CloseIdleConnections()
	// the same members in another order and spacing
	body := `{"memo":"rent", "reference":"` + key + `", "amount_minor":"1000","asset":"ron","to":"bob","from":"alice"}`
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://node/v1/transfer",
		strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Idempotency-Key", key)
	resp, err := hc.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	var got bytes.Buffer
	_, _ = got.ReadFrom(resp.Body)
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusOK || resp.Header.Get("Idempotent-Replayed") != "true" || got.String() != receipt {
		t.Errorf("%s, Idempotent-Replayed %q\n%s, want\n%s", resp.Status, resp.Header.Get("Idempotent-Replayed"),
			got.String(), receipt)
	}
}

// payWithAProgram pays twice under one key with testdata/pay, a client with its own process.
func (b *box) payWithAProgram(t *testing.T) {
	t.Helper()
	hosttest.Sources(t, "../../testdata/pay")
	bin := filepath.Join(t.TempDir(), "pay")
	build := exec.Command("go", "build", "-buildvcs=false", "-ldflags", "-s -w", "-o", bin, "../../testdata/pay")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	token, err := os.ReadFile(filepath.Join(b.dir, config.TokenName))
	if err != nil {
		t.Fatal(err)
	}
	at, err := b.client(t).Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	pay := func() string {
		cmd := exec.CommandContext(t.Context(), bin, at.URL, "alice", "carol", "40", "order-7")
		cmd.Env = append(os.Environ(), "RONBOX_TOKEN="+strings.TrimSpace(string(token)))
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("pay: %v\n%s", err, out)
		}
		return string(out)
	}
	var balance walletapi.Balance
	first, again := pay(), pay()
	must(t, &balance, b.args("wallet", "balance", "carol", "--json")...)
	if first != again || !strings.HasPrefix(first, "tx_") || balance.AmountMinor != "40" {
		t.Errorf("pay printed %q, then %q, and carol has %s", first, again, balance.AmountMinor)
	}
}

// A proof with any changed byte does not verify.
func TestProofsThatAreBent(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	b.start(t)
	r := must(t, nil, b.args("wallet", "transfer", "alice", "bob", "1", "--json")...)
	var receipt walletapi.Receipt
	decode(t, r.stdout, &receipt)
	proof := must(t, nil, b.args("ledger", "proof", receipt.TxID)...).stdout
	path := filepath.Join(t.TempDir(), "proof")
	for i := 0; i < len(proof)-1; i += 7 {
		bent := []byte(proof)
		bent[i] ^= 1
		if err := os.WriteFile(path, bent, 0o600); err != nil {
			t.Fatal(err)
		}
		if r := ronbox(t, "ledger", "verify-proof", path, "--json"); r.code != cli.ExitBad {
			t.Fatalf("byte %d of %q: exit %d, %s", i, proof[max(0, i-20):i+1], r.code, r.stdout)
		}
	}
}

// A batch pays each line once although its run is killed repeatedly and each run has lost the state
// of earlier runs.
func TestBatchIsResumed(t *testing.T) {
	t.Parallel()
	tellSeed(t)
	b := newBox(t)
	b.start(t)
	for payee, lost := range map[string]bool{"bob": false, "carol": true} {
		b.payInKilledRuns(t, payee, lost)
	}
}

func (b *box) payInKilledRuns(t *testing.T, payee string, lost bool) {
	t.Helper()
	var file strings.Builder
	file.WriteString("op,from,to,asset,amount_minor,memo\n")
	const lines = 2000
	for i := range lines {
		file.WriteString("transfer,alice," + payee + ",ron,1," + fmt.Sprint(uint64(i/2)) + "\n") // pairs of lines are equal
	}
	path := filepath.Join(t.TempDir(), "pay.csv")
	if err := os.WriteFile(path, []byte(file.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	var doc batchResult
	runs, d := 0, draws(t, payee)
	for doc.Rows == 0 {
		if runs++; lost {
			_ = os.Remove(path + ".state")
		}
		early := runs <= 12 || !lost && !cli.Exists(path+".state") // on a slow machine no earlier run may have started
		doc = b.batchUntilKilled(t, d, path, runs, early)
	}
	if doc.Accepted != lines || len(doc.Refused) != 0 || doc.Resumed == lost {
		t.Errorf("after %d runs: %+v", runs, doc)
	}
	var balance walletapi.Balance
	must(t, &balance, b.args("wallet", "balance", payee, "--json")...)
	if balance.AmountMinor != fmt.Sprint(lines) {
		t.Errorf("%s has %s", payee, balance.AmountMinor)
	}
	t.Logf("%s: %d runs", payee, runs)
}

// Verify reports that a file is not a database if it is another kind of file. A damaged database is
// still reported as a database.
func TestVerifyOfWhatIsNoLedger(t *testing.T) {
	skipRaceOnly(t)
	t.Parallel()
	b := newBox(t)
	whole, err := os.ReadFile(filepath.Join(b.dir, "ronbox.db"))
	if err != nil {
		t.Fatal(err)
	}
	const smallestPage, metaMagicAt = 4 << 10, 16                         // of bbolt
	second := append(make([]byte, smallestPage), whole[smallestPage:]...) // its first page is zeroed
	torn := append([]byte(nil), whole...)
	copy(torn[smallestPage+metaMagicAt:], "xxxx")
	copy(torn[metaMagicAt+8:], "xxxx")
	for _, tt := range []struct {
		doc, text, want, not string
		code                 int
	}{
		{"text", "hello\n", `begins with "hello\n"`, "db restore", cli.ExitFailed},
		{"nothing", "", "it is empty", "db restore", cli.ExitFailed},
		{"zeros", strings.Repeat("\x00", 1<<17), "neither a database nor an export", "db restore", cli.ExitFailed},
		{"a list", "[1]", `begins with "[1]"`, "db restore", cli.ExitFailed},
		{"a database", string(whole), "", "neither", cli.ExitDone},
		{"one without its first page", string(second), "", "neither", cli.ExitDone},
		{"one with torn pages", string(torn), "damaged", "neither", cli.ExitCorrupt},
		{"an export that is none", "{}\n", "", "neither", cli.ExitBad},
	} {
		path := filepath.Join(t.TempDir(), "file")
		if err := os.WriteFile(path, []byte(tt.text), 0o600); err != nil {
			t.Fatal(err)
		}
		if r := ronbox(t, "ledger", "verify", path); r.code != tt.code || !strings.Contains(r.stderr, tt.want) ||
			strings.Contains(r.stderr, tt.not) {
			t.Errorf("%s: exit %d, %s%s", tt.doc, r.code, r.stdout, r.stderr)
		}
	}
}

// Without a terminal a new payee is paid with a note, also if the token may not look whether it is
// new. A repetition, --new and --quiet have none, and --existing pays nobody.
func TestNotesOnNewPayees(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	b.start(t)
	token := filepath.Join(t.TempDir(), "pays")
	must(t, nil, b.args("token", "mint", "--scope", "wallet.transfer", "--out", token, "-q")...)
	at, err := b.client(t).Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	narrow := []string{"--url", at.URL, "--token-file", token}
	const unknown, fresh = "note: it is not known whether ", "note: "
	for _, tt := range []struct {
		to   string
		more []string
		note string
		code int
	}{
		{"bob", b.args("--key", "once"), "", cli.ExitDone},
		{"bob", b.args("--key", "once"), "", cli.ExitDone},
		{"bob", b.args(), "", cli.ExitDone},
		{"carol", b.args("--existing"), "", cli.ExitFailed},
		{"carol", b.args(), fresh + "carol is a new account", cli.ExitDone},
		{"dave", b.args("--new"), "", cli.ExitDone},
		{"erin", b.args("-q"), "", cli.ExitDone},
		{"frank", narrow, unknown + "frank", cli.ExitDone},
		{"frank", append(narrow, "--existing"), "", cli.ExitDone},
		{"grace", append(narrow, "--existing"), "", cli.ExitFailed},
	} {
		r := ronbox(t, append([]string{"wallet", "transfer", "alice", tt.to, "5", "--json"}, tt.more...)...)
		if r.code != tt.code || strings.Contains(r.stderr, "note: ") != (tt.note != "") || !strings.Contains(r.stderr, tt.note) {
			t.Errorf("%s %q: exit %d, %s", tt.to, tt.more, r.code, r.stderr)
		}
	}
}
