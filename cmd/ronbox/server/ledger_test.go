package server

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"ronbox/appliance/host/hosttest"
	"ronbox/cmd/ronbox/server/config"
	"ronbox/cmd/ronbox/server/initdir"
	"ronbox/engines/ledger"
	"ronbox/engines/ledger/record"
	"ronbox/httpapi/client"
	nodeapi "ronbox/httpapi/wire/node"
	walletapi "ronbox/httpapi/wire/wallet"
	"ronbox/store"
)

// assets lists the assets of the ledger.
func (r *rig) assets() []string {
	r.t.Helper()
	got := r.v1("GET", "/v1/assets", "", "")
	var list walletapi.AssetList
	must(r.t, json.Unmarshal([]byte(got.body), &list))
	var names []string
	for _, a := range list.Assets {
		names = append(names, a.Asset)
	}
	slices.Sort(names)
	return names
}

// Assets of the configuration exist when the node serves, and new assets of a reload exist when the
// reload is answered. Assets are never removed.
func TestAssetsOfTheConfiguration(t *testing.T) {
	r, rewrite := reloadable(t)
	if got := r.assets(); !slices.Equal(got, []string{"ron"}) {
		t.Errorf("a fresh node has %v", got)
	}
	rewrite("wallet.assets = [\"gold\", \"silver\"]\n")
	_, err := r.socket().Reload(t.Context())
	must(t, err)
	if got := r.assets(); !slices.Equal(got, []string{"gold", "ron", "silver"}) {
		t.Errorf("after a reload: %v", got)
	}
	commits := r.metric("ledger_commits_total")
	must(t, r.services.Ensure(t.Context()))
	if r.metric("ledger_commits_total") != commits {
		t.Error("what is declared is written again")
	}
	if got := r.v1("POST", "/v1/issue", "k",
		strings.Replace(issue("bob", "5", 1), "ron", "gold", 1)); got.status != http.StatusOK {
		t.Errorf("the new asset: %d %s", got.status, got.body)
	}
	r.settled()
	r.halt()
	again := start(t, loaded(t, r.cfg))
	if got := again.assets(); !slices.Equal(got, []string{"gold", "ron", "silver"}) {
		t.Errorf("after a restart: %v", got)
	}
	again.halt()
}

// decimals returns the decimals of the assets of the ledger.
func (r *rig) decimals() string {
	r.t.Helper()
	var list walletapi.AssetList
	must(r.t, json.Unmarshal([]byte(r.v1("GET", "/v1/assets", "", "").body), &list))
	out := map[string]int{}
	for _, a := range list.Assets {
		out[a.Asset] = a.Decimals
	}
	return fmt.Sprint(out)
}

// Decimals of the configuration, also those of earlier releases, move into the ledger, which keeps
// them: doctor names the configuration that says something else.
func TestDecimalsOfTheConfiguration(t *testing.T) {
	r, rewrite := reloadable(t)
	reload := func(text, want string) {
		t.Helper()
		rewrite(text)
		_, err := r.socket().Reload(t.Context())
		must(t, err)
		if got := r.decimals(); got != want {
			t.Errorf("decimals %s, want %s", got, want)
		}
	}
	doctor := func() (seen string) {
		for _, f := range r.services.CheckDecimals() {
			seen += f.Seen
		}
		return seen
	}
	const all = "map[eur:2 gold:0 ron:3]"
	reload("wallet.assets = [\"eur:2\", \"gold\"]\nwallet.decimals = {ron = 3, tin = 4}\n", all)
	got := doctor()
	if !strings.HasPrefix(got, "wallet.decimals is set") || strings.Contains(got, "in the configuration") {
		t.Errorf("doctor: %s", got)
	}
	commits := r.metric("ledger_commits_total")
	reload("wallet.assets = [\"eur:4\", \"gold\"]\nwallet.decimals = {ron = 1}\n", all)
	if r.metric("ledger_commits_total") != commits {
		t.Error("decimals are written again")
	}
	if got := doctor(); !strings.Contains(got, "eur has 2 decimals in the ledger, 4 in the configuration") ||
		!strings.Contains(got, "ron has 3 decimals in the ledger, 1 in the configuration") {
		t.Errorf("doctor: %s", got)
	}
	r.settled()
	r.halt()
	again := start(t, loaded(t, r.cfg))
	if got := again.decimals(); got != all {
		t.Errorf("after a restart: %s", got)
	}
	again.halt()
}

// A reload of the money settings takes effect at once.
func TestMoneyReloads(t *testing.T) {
	t.Parallel()
	r, rewrite := reloadable(t)
	rewrite("wallet.max_amount_per_op = \"9\"\nledger.flush_every = \"20ms\"\n")
	_, err := r.socket().Reload(t.Context())
	must(t, err)
	if got := r.v1("POST", "/v1/transfer", "k", pay("alice", "bob", "10", 1)); got.status != http.StatusForbidden ||
		got.problem.Reason != "limit_op" {
		t.Errorf("beyond the new limit: %d %s", got.status, got.body)
	}
	r.receipt("/v1/transfer", "k", pay("alice", "bob", "9", 1))
	rewrite("wallet.shards = 2\n")
	if _, err := r.socket().Reload(t.Context()); problem(t, err).Reason != "reload_refused" {
		t.Errorf("a key that needs a restart: %v", err)
	}
	r.halt()
}

// Sizes of what tries to spend more than there is.
const (
	poorAccounts = 1000
	poorMost     = 100 // what one has at first, at most
	poorBatches  = 10
	poorBatch    = 500
)

func payer(i int) string { return "acct/" + strconv.Itoa(i) }

// Five thousand transfers of arbitrary amounts between a thousand poor accounts: exactly the
// transfers that a simple model accepts, in order of arrival, are made, and at the end every
// balance matches the model.
func TestOverdraft(t *testing.T) {
	t.Parallel()
	d := rand.New(rand.NewPCG(hosttest.Seed(t, "OVERDRAFT_SEED"), 0))
	cfg, _ := devConfig(t)
	unhurried(cfg)
	r := start(t, cfg)
	have, nonce := make([]int, poorAccounts), make([]int, poorAccounts)
	var ops []string
	for i := range have {
		have[i] = 1 + d.IntN(poorMost)
		ops = append(ops, `{"op":"issue",`+issue(payer(i), strconv.Itoa(have[i]), uint64(i)+2)[1:])
	}
	r.batch("fund", "atomic", ops)
	refused, batches := 0, poorBatches
	if testing.Short() { // one caller has no races
		batches /= 10
	}
	for b := range batches {
		ops, want := ops[:0], make([]bool, poorBatch)
		for i := range want {
			from, amount := d.IntN(poorAccounts), 1+d.IntN(2*poorMost)
			to := (from + 1 + d.IntN(poorAccounts-1)) % poorAccounts
			ops = append(
				ops,
				`{"op":"transfer",`+pay(payer(from), payer(to), strconv.Itoa(amount), uint64(nonce[from])+1)[1:],
			)
			if want[i] = amount <= have[from]; !want[i] {
				refused++
				continue
			}
			have[from], have[to], nonce[from] = have[from]-amount, have[to]+amount, nonce[from]+1
		}
		for i, got := range r.batch(fmt.Sprint("b", b), "independent", ops) {
			if done := got.Status == http.StatusOK; done != want[i] || !done && got.Error.Code != "INSUFFICIENT_FUNDS" {
				t.Fatalf("batch %d, op %d: %d %+v, want done %v\n%s", b, i, got.Status, got.Error, want[i], ops[i])
			}
		}
	}
	if refused == 0 || refused == batches*poorBatch {
		t.Errorf("%d were refused: this proves nothing", refused)
	}
	for i := range have {
		var has walletapi.Balance
		must(t, json.Unmarshal([]byte(r.v1("GET", "/v1/balance?asset=ron&account="+payer(i), "", "").body), &has))
		if has.PostedMinor != strconv.Itoa(have[i]) {
			t.Fatalf("%s has %s, want %d", payer(i), has.PostedMinor, have[i])
		}
	}
	r.halt()
	verified(t, cfg)
}

// batch runs a batch of operations and returns their results.
func (r *rig) batch(key, mode string, ops []string) []walletapi.BatchResult {
	r.t.Helper()
	got := r.v1("POST", "/v1/batch", key, `{"mode":"`+mode+`","ops":[`+strings.Join(ops, ",")+`]}`)
	var out walletapi.BatchAnswer
	if got.status != http.StatusOK && got.status != http.StatusMultiStatus ||
		json.Unmarshal([]byte(got.body), &out) != nil ||
		len(out.Results) != len(ops) {
		r.t.Fatalf("batch %s: %d %.300s", key, got.status, got.body)
	}
	return out.Results
}

// A batch with Prefer: return=minimal is answered with the status and the txid of each operation and
// with one root. A repetition gets the same bytes, and the receipts without the preference.
func TestMinimalBatch(t *testing.T) {
	cfg, _ := devConfig(t)
	r := start(t, cfg)
	w, ctx := r.socket().walletAPI, t.Context()
	one := walletapi.BatchOp{Op: walletapi.OpTransfer, From: "alice", To: "bob", Asset: "ron", AmountMinor: "1"}
	poor := one
	poor.AmountMinor = "999999999999"
	body := walletapi.Batch{Mode: "independent", Ops: []walletapi.BatchOp{one, poor, one}}
	short, err := w.BatchMinimal(ctx, "k", body)
	must(t, err)
	again, err := w.BatchMinimal(ctx, "k", body)
	must(t, err)
	if short.Replayed || !again.Replayed || !bytes.Equal(short.Raw, again.Raw) {
		t.Errorf("%s\nagain %s", short.Raw, again.Raw)
	}
	whole, err := w.Batch(ctx, "k", body)
	must(t, err)
	if len(whole.Answer.Results) != 3 || len(short.Answer.Results) != 3 || short.Answer.Root == "" {
		t.Fatalf("%s\n%s", short.Raw, whole.Raw)
	}
	for i, full := range whole.Answer.Results {
		got := short.Answer.Results[i]
		if got.Status != full.Status || got.Receipt != nil || (got.Error == nil) != (full.Error == nil) {
			t.Errorf("%d: %+v, want %+v", i, got, full)
		}
		if full.Error != nil {
			continue
		}
		var receipt walletapi.Receipt
		must(t, json.Unmarshal(full.Receipt, &receipt))
		if got.TxID != receipt.TxID || short.Answer.Root != receipt.Ledger.Root {
			t.Errorf("%d: %+v of root %s, want %s", i, got, short.Answer.Root, full.Receipt)
		}
	}
	r.halt()
}

// rot flips one bit after a text in the file of a running node.
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

// A read that finds the journal damaged makes the wallet unready for writes at once, before a write
// is refused.
func TestWalletKnowsOfSafeMode(t *testing.T) {
	cfg, _ := devConfig(t)
	r := start(t, cfg)
	paid, _ := r.receipt(
		"/v1/transfer",
		"k",
		strings.Replace(pay("alice", "bob", "10", 1), "{", `{"memo":"rotten-memo",`, 1),
	)
	r.settled() // or a page that is written meanwhile is read
	rot(t, cfg.Path(config.DatabaseName), "rotten-memo")
	if got := r.v1("GET", "/v1/tx/"+paid.TxID+"/proof", "", ""); got.status < 500 {
		t.Fatalf("the proof of a record that does not check: %d %s", got.status, got.body)
	}
	if r.services.Ledger().SafeMode() == "" {
		t.Fatal("the ledger is not in safe mode")
	}
	r.await("the wallet to know", func() bool {
		return r.board.Report("wallet", "").Causes["wallet.ledger_ready"] == ledger.ErrSafeMode.Error()
	})
	if got := r.v1("GET", "/readyz?service=wallet", "", ""); got.status != http.StatusServiceUnavailable {
		t.Errorf("readyz of the wallet: %d %s", got.status, got.body)
	}
	got := r.v1("POST", "/v1/transfer", "k2", pay("alice", "bob", "1", 2))
	if p := got.problem; got.status != http.StatusServiceUnavailable || p.Reason != "upstream" ||
		p.Details["outcome"] != "none" {
		t.Errorf("a payment: %d %s", got.status, got.body)
	}
	r.has("bob", "10", paid.Ledger.Seq)
	r.halt()
}

// A dev node has money from the start. The test issues, pays, repeats, reads, lists and proves
// payments over HTTP; after a restart every receipt is the same, byte for byte.
func TestMoneyOverHTTP(t *testing.T) {
	t.Parallel()
	cfg, res := devConfig(t)
	if res.Account != "alice" || res.Asset != "ron" || res.Amount != "1000000" {
		t.Errorf("init funds %s with %s %s", res.Account, res.Amount, res.Asset)
	}
	r := start(t, cfg)
	if ready := r.v1("GET", "/readyz?service=wallet", "", ""); ready.status != http.StatusOK {
		t.Errorf("readyz of the wallet: %d %s", ready.status, ready.body)
	}
	r.has("alice", "1000000", 0)
	issued, _ := r.receipt("/v1/issue", "k-issue", issue("bob", "500", 2))
	if issued.Op != "issue" || issued.To != "bob" || issued.AmountMinor != "500" || issued.Idem != "k-issue" {
		t.Errorf("issued %+v", issued)
	}
	paid, first := r.receipt("/v1/transfer", "k-pay", pay("alice", "bob", "250000", 1))
	if first.replayed {
		t.Error("the first answer is a replay")
	}
	if again := r.v1("POST", "/v1/transfer", "k-pay",
		pay("alice", "bob", "250000", 1)); again.body != first.body || !again.replayed ||
		again.status != http.StatusOK {
		t.Errorf("again: %d, replayed %v\n%s\nwas\n%s", again.status, again.replayed, again.body, first.body)
	}
	if n := r.metric("wallet_idem_replays_total"); n != 1 {
		t.Errorf("%v replays are counted", n)
	}
	r.has("alice", "750000", paid.Ledger.Seq)
	r.has("bob", "250500", paid.Ledger.Seq)
	r.stated("alice", issueOfInit, paid.TxID)
	if got := r.proven(paid.TxID); got.TxID.String() != paid.TxID || got.Amount.String() != "250000" ||
		got.From != "alice" {
		t.Errorf("the proof proves %+v", got)
	}
	r.halt()
	verified(t, cfg)
	again := start(t, cfg)
	if got := again.v1("POST", "/v1/transfer", "k-pay", pay("alice", "bob", "250000", 1)); got.body != first.body ||
		!got.replayed {
		t.Errorf("after a restart: %d %s\nwas\n%s", got.status, got.body, first.body)
	}
	if got := again.v1("GET", "/v1/tx/"+paid.TxID, "", ""); got.body != first.body {
		t.Errorf("the receipt itself: %d %s", got.status, got.body)
	}
	again.has("alice", "750000", paid.Ledger.Seq)
	again.halt()
}

// issueOfInit is the statement entry of the money that init issued.
const issueOfInit = "init"

// stated checks an account's statement, oldest first: the transaction, or the key, of each entry.
func (r *rig) stated(account string, want ...string) {
	r.t.Helper()
	got := r.v1("GET", "/v1/history?asset=ron&account="+account, "", "")
	var page walletapi.History
	must(r.t, json.Unmarshal([]byte(got.body), &page))
	var have []string
	for _, e := range page.Entries {
		var one walletapi.Receipt
		must(r.t, json.Unmarshal(e.Receipt, &one))
		if have = append(have, one.TxID); one.Idem == issueOfInit {
			have[len(have)-1] = issueOfInit
		}
	}
	slices.Sort(have)
	if slices.Sort(want); !slices.Equal(have, want) {
		r.t.Errorf("the statement of %s has %v, want %v\n%s", account, have, want, got.body)
	}
}

// Acknowledged payments and keys survive a crash before the ledger flushes its rows.
func TestMoneySurvivesAKill(t *testing.T) {
	cfg, _ := devConfig(t)
	must(t, cfg.Ledger.FlushEvery.UnmarshalText([]byte("10s")))
	r := start(t, cfg)
	var bodies []string
	for n := range uint64(20) {
		_, got := r.receipt("/v1/transfer", "k"+string('a'+rune(n)),
			pay("alice", "b:"+string('a'+rune(n%3)), "1000", n+1))
		bodies = append(bodies, got.body)
	}
	// a slow machine may have flushed all rows by now
	for n := uint64(2); r.metric("ledger_overlay_dirty") == 0; n++ {
		r.receipt("/v1/issue", fmt.Sprint("late-", n), issue("carol", "1", n))
	}
	crashed := r.crashed()
	r.halt()
	verified(t, crashed)
	again := start(t, crashed)
	again.logged("unclean_boot")
	for n, want := range bodies {
		got := again.v1("POST", "/v1/transfer", "k"+string('a'+rune(n)),
			pay("alice", "b:"+string('a'+rune(n%3)), "1000", uint64(n)+1))
		if got.body != want || !got.replayed {
			t.Errorf("payment %d after the kill: %d, replayed %v\n%s\nwas\n%s", n, got.status, got.replayed, got.body,
				want)
		}
	}
	again.has("alice", "980000", 0)
	again.has("b:a", "7000", 0)
	again.halt()
	verified(t, crashed)
}

// A restored node reports the state of its ledger, answers reads, and refuses payments until an
// operator accepts the restore.
func TestMoneyAfterARestore(t *testing.T) {
	t.Parallel()
	cfg, _ := devConfig(t)
	r := start(t, cfg)
	kept, first := r.receipt("/v1/transfer", "kept", pay("alice", "bob", "1", 1))
	snap, err := r.socket().Snapshot(t.Context(), nodeapi.SnapshotRequest{Dir: t.TempDir()}, nil)
	must(t, err)
	r.receipt("/v1/transfer", "lost", pay("alice", "bob", "2", 2))
	r.halt()
	back := launch(t, restored(t, cfg, snap.File))
	back.serving()
	must(t, os.WriteFile(back.cfg.Path(config.TokenName), []byte(back.adminToken()+"\n"), 0o600)) // the old ones are void
	back.has("alice", "999999", kept.Ledger.Seq)
	for range 25 { // as many failures as open a breaker
		if got := back.v1("POST", "/v1/transfer", "lost",
			pay("alice", "bob", "2", 2)); got.status != http.StatusServiceUnavailable ||
			!strings.Contains(got.body, "accept-restore") {
			t.Errorf("a payment before accept-restore: %d %s", got.status, got.body)
		}
	}
	must(t, back.socket().AcceptRestore(t.Context())) // the first write from here on is done
	if got := back.v1("POST", "/v1/transfer", "kept", pay("alice", "bob", "1", 1)); got.body != first.body ||
		!got.replayed {
		t.Errorf("what the snapshot has: %d %s\nwas\n%s", got.status, got.body, first.body)
	}
	if _, got := back.receipt("/v1/transfer", "lost", pay("alice", "bob", "2", 2)); got.replayed {
		t.Error("what the snapshot has not is answered as done")
	}
	back.halt()
	verified(t, back.cfg)
}

// adminToken mints a token that may do everything.
func (r *rig) adminToken() string {
	r.t.Helper()
	token, err := r.socket().Mint(r.t.Context(), nodeapi.MintRequest{Sub: "dev", Scopes: []string{"node.admin"}})
	must(r.t, err)
	return token.Token
}

// Without the wallet its routes are missing from the node and from the API document, and the ledger
// still runs. The same holds for the registry.
func TestServicesAreSwitches(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		off          func(*config.Config)
		gone, stays  string
		service      string
		alsoOffReads string
	}{
		{func(c *config.Config) { c.Wallet.Enabled = false }, "/v1/assets", "/registry/head", "wallet",
			"/v1/ledger/head"},
		{func(c *config.Config) { c.Registry.Enabled = false }, "/registry/head", "/v1/assets", "registry",
			"/registry/signers"},
	} {
		cfg, _ := devConfig(t)
		tt.off(cfg)
		r := start(t, cfg)
		for path, want := range map[string]int{tt.gone: 404, tt.alsoOffReads: 404, tt.stays: 200, "/readyz": 200,
			"/readyz?service=" + tt.service: 400, "/readyz?service=ledger": 200} {
			if got := r.v1("GET", path, "", ""); got.status != want {
				t.Errorf("without the %s GET %s is %d %s, want %d", tt.service, path, got.status, got.body, want)
			}
		}
		if doc, err := r.socket().OpenAPI(t.Context()); err != nil || strings.Contains(string(doc), `"`+tt.gone+`"`) {
			t.Errorf("without the %s its document has %s, %v", tt.service, tt.gone, err)
		}
		if v, err := r.socket().
			NodeVersion(t.Context()); err != nil || v.Services[tt.service] != "off" ||
			v.Services["ledger"] != "on" {
			t.Errorf("version %+v, %v", v.Services, err)
		}
		for _, task := range r.Tasks().Tasks {
			if task.Service == tt.service {
				t.Errorf("the %s is off and has the task %s", tt.service, task.Name)
			}
		}
		r.halt()
		verified(t, cfg)
		cfg.Wallet.Enabled, cfg.Registry.Enabled = true, true
		on := start(t, cfg) // all data is still there
		on.has("alice", "1000000", 0)
		if head, err := on.client(client.Options{URL: "http://" + on.Addr()}).
			Head(t.Context()); err != nil ||
			head.Version != 1 {
			t.Errorf("head %+v, %v", head, err)
		}
		on.halt()
	}
}

// A dev node without a registry has money and no signer.
func TestInitWithoutRegistry(t *testing.T) {
	cfg := newConfig(t)
	cfg.Registry.Enabled = false
	res, err := Init(t.Context(), cfg, initdir.Options{Dev: true})
	if err != nil || res.Account != "alice" || res.SignerKey != "" || res.Genesis != "" {
		t.Errorf("%+v, %v", res, err)
	}
}

// Init leaves the ledger of any other node empty; the first start declares its assets.
func TestPlainInitLeavesTheLedgerEmpty(t *testing.T) {
	cfg := newConfig(t)
	_, err := Init(t.Context(), cfg, initdir.Options{})
	must(t, err)
	head := func() (head record.Head) {
		offline(t, cfg, func(r store.Reader) (err error) {
			head, err = ledger.HeadOf(r)
			return err
		})
		return head
	}
	if h := head(); h.Seq != 0 || h.Batches != 0 {
		t.Errorf("after init the ledger has %+v", h)
	}
	r := start(t, cfg)
	token := r.adminToken()
	must(t, os.WriteFile(cfg.Path(config.TokenName), []byte(token+"\n"), 0o600))
	if got := r.assets(); !slices.Equal(got, []string{"ron"}) {
		t.Errorf("assets %v", got)
	}
	r.halt()
	if h := head(); h.Batches != 1 {
		t.Errorf("after a start the ledger has %+v", h)
	}
	verified(t, cfg)
}

// A key counts as long as the configuration says, also where the ledger by itself would have
// forgotten it.
func TestKeysLiveAsLongAsConfigured(t *testing.T) {
	t.Parallel()
	cfg, _ := devConfig(t)
	must(t, cfg.Wallet.IdempotencyTTL.UnmarshalText([]byte("72h")))
	must(t, config.Validate(cfg))
	var shift atomic.Int64
	r := launchAt(t, cfg, passing(&shift))
	first := r.v1("POST", "/v1/transfer", "k1", pay("alice", "bob", "1", 1))
	for n := uint64(2); n <= 4; n++ { // each ends the slot of the one before
		shift.Add(int64(20 * time.Hour))
		r.receipt("/v1/transfer", "k"+string('0'+rune(n)), pay("alice", "bob", "1", n))
		r.await(
			"the slot before to be sealed",
			func() bool { return r.metric("idem_entries", "tier", "sealed") == float64(n) },
		)
	}
	if again := r.v1("POST", "/v1/transfer", "k1",
		pay("alice", "bob", "1", 1)); again.body != first.body || !again.replayed ||
		first.status != http.StatusOK {
		t.Errorf("60 hours later: %d %s\nwas %d %s", again.status, again.body, first.status, first.body)
	}
	r.halt()
}
