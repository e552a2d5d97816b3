package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"ronbox/appliance/unit"
	"ronbox/cmd/ronbox/server/config"
	"ronbox/cmd/ronbox/server/process"
	"ronbox/cmd/ronbox/server/wiring"
	"ronbox/engines"
	"ronbox/engines/ledger"
	"ronbox/engines/ledger/record"
	"ronbox/httpapi/client"
	"ronbox/httpapi/wire"
	nodeapi "ronbox/httpapi/wire/node"
	walletapi "ronbox/httpapi/wire/wallet"
	"ronbox/store"
)

// reply is the whole answer to a call of /v1, byte for byte.
type reply struct {
	status   int
	body     string
	replayed bool
	problem  wire.Problem
}

// v1 makes one call of the wallet over TCP with the token that init wrote. A key is only sent with
// a body.
func (r *rig) v1(method, path, key, body string) reply {
	r.t.Helper()
	token, err := os.ReadFile(r.cfg.Path(config.TokenName))
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

// isRetryLater reports whether p refuses a payment that was not made, and that may be made soon.
func isRetryLater(p *wire.Problem) bool {
	return p.Status == http.StatusServiceUnavailable && p.Retryable && !p.Unknown() && p.Reason != "upstream"
}

// receipt makes a call that must succeed and returns its receipt. It retries if the node reports a
// slow disk.
func (r *rig) receipt(path, key, body string) (walletapi.Receipt, reply) {
	r.t.Helper()
	got := r.v1("POST", path, key, body)
	for late := time.Now().Add(patience); isRetryLater(&got.problem) && time.Now().Before(late); {
		r.writable(true)
		got = r.v1("POST", path, key, body)
	}
	var out walletapi.Receipt
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
	var b walletapi.Balance
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

// settled waits until the ledger has flushed all dirty rows.
func (r *rig) settled() {
	r.t.Helper()
	r.await("the ledger to rest", func() bool { return r.metric("ledger_overlay_dirty") == 0 })
}

// verified holds a stopped node's file against itself, as db verify does.
func verified(t *testing.T, cfg *config.Config) {
	t.Helper()
	report, err := store.Verify(t.Context(), cfg.Path(config.DatabaseName), nil,
		append(wiring.All()[0].Checks(t.Context()), ledger.Checks()...), nil)
	must(t, err)
	if !report.OK {
		t.Errorf("checked and found bad: %s", report.Problem)
	}
}

// A stop under load answers every accepted payment and flushes all changes: at the next start
// exactly the acknowledged payments exist.
func TestMoneyDrains(t *testing.T) {
	t.Parallel()
	cfg, _ := devConfig(t)
	r := start(t, cfg)
	const payers = 8
	for i := range uint64(payers) {
		r.receipt("/v1/issue", fmt.Sprintf("fund-%d", i), issue(fmt.Sprintf("payer/%d", i), "100000", i+2))
	}
	var acked atomic.Int64
	var stopping atomic.Bool
	var wg sync.WaitGroup
	for i := range payers {
		c := r.tcp()
		wg.Go(func() { r.spend(c, i, &acked, &stopping) })
	}
	r.await("a warm node", func() bool { return acked.Load() >= 200 || t.Failed() })
	stopping.Store(true)
	r.stop()
	code := r.end()
	wg.Wait()
	if code != process.ExitClean {
		t.Errorf("exit %d", code)
	}
	if n := r.metric("ledger_overlay_dirty"); n != 0 {
		t.Errorf("%v rows were not written", n)
	}
	verified(t, cfg)
	again := start(t, cfg)
	again.has("shop", strconv.FormatInt(acked.Load(), 10), 0)
	again.halt()
	t.Logf("%d payments", acked.Load())
}

// againAfter is the pause before a payer retries.
const againAfter = 10 * time.Millisecond

// spend pays one unit after another until the node reports that it drains or has stopped.
func (r *rig) spend(c *apiClient, payer int, acked *atomic.Int64, stopping *atomic.Bool) {
	ctx := context.WithoutCancel(r.t.Context())
	for n := uint64(1); ; {
		body := walletapi.Transfer{
			From:        fmt.Sprintf("payer/%d", payer),
			To:          "shop",
			Asset:       "ron",
			AmountMinor: "1",
			Nonce:       n,
		}
		_, err := c.Transfer(ctx, fmt.Sprintf("p%d-%d", payer, n), body)
		var p *wire.Problem
		switch {
		case err == nil:
			acked.Add(1)
			n++
		case errors.Is(err, client.ErrNotReachable), errors.As(err, &p) && p.Reason == "draining":
			return // the payment was not made
		case errors.Is(err, client.ErrUnknown) && stopping.Load():
			return // the stop has closed its connection; the balance is compared in the end
		case errors.As(err, &p) && isRetryLater(p):
			<-time.After(againAfter) // the disk is slow, the payment was not made
		default:
			r.t.Errorf("payer %d, payment %d: %v", payer, n, err)
			return
		}
	}
}

// While the disk stalls, payments are refused at once with a retry time, balances can be read, and
// accepted payments are kept. The node recovers by itself.
func TestMoneyWhileTheDiskStalls(t *testing.T) { // alone: it counts goroutines
	s := besiege(t, steady, func(cfg *config.Config) { cfg.Ledger.StallAfter = unit.Duration(time.Second) })
	s.receipt("/v1/transfer", "quick", pay("alice", "bob", "1", 1)) // so that the pace of the disk is known
	release := s.holdStore()
	first := s.sends(t.Context(), s.pays("first", pay("alice", "bob", "10", 2)))
	s.inHand(1)
	s.writable(false)
	if r := s.board.Report("", ""); !slices.Contains(r.Missing, "wallet.ledger_ready") {
		t.Errorf("missing is %v", r.Missing)
	}
	got := s.ask(s.attacker(), s.pays("second", pay("alice", "bob", "1", 3)))
	s.told("a payment meanwhile", got, http.StatusServiceUnavailable, "degraded")
	if got.header.Get("Retry-After") != "2" {
		t.Errorf("a payment meanwhile: %v %s", got.header, got.body)
	}
	s.has("alice", "999999", 0)
	for path, status := range map[string]int{"/readyz": 503, "/readyz?service=wallet": 503, "/readyz?plane=read": 200, "/healthz": 200} {
		if got := s.v1("GET", path, "", ""); got.status != status {
			t.Errorf("%s is %d, want %d: %s", path, got.status, status, got.body)
		}
	}
	release()
	if got := <-first; got.status != http.StatusOK {
		t.Errorf("the payment in hand: %d %s", got.status, got.body)
	}
	s.writable(true)
	if _, got := s.receipt("/v1/transfer", "second", pay("alice", "bob", "1", 3)); got.replayed {
		t.Error("what was refused had been done")
	}
	s.look()
	s.holds()
}

// In memory there is money as on a disk, until the node stops; purges forget no receipt.
func TestMoneyInMemory(t *testing.T) {
	cfg := newConfig(t)
	cfg.Amnesia.Enabled, cfg.Amnesia.AllowSwap, cfg.Amnesia.PurgeIntervalMS = true, true, 100
	must(t, config.Validate(cfg))
	r := launch(t, cfg)
	r.serving()
	token := r.adminToken()
	post := func(path, key, body string) reply { return r.v1As(token, "POST", path, key, body) }
	if got := post("/v1/issue", "i", issue("alice", "10", 1)); got.status != http.StatusOK {
		t.Fatalf("issue: %d %s", got.status, got.body)
	}
	first := post("/v1/transfer", "k", pay("alice", "bob", "3", 1))
	purged := r.metric("amnesia_purge_total", "kind", "balances")
	r.await("a purge", func() bool { return r.metric("amnesia_purge_total", "kind", "balances") > purged })
	if again := post("/v1/transfer", "k", pay("alice", "bob", "3", 1)); again.body != first.body || !again.replayed ||
		first.status != http.StatusOK {
		t.Errorf("after a purge: %d %s\nwas %d %s", again.status, again.body, first.status, first.body)
	}
	if left := files(t, cfg.Node.DataDir); !slices.Equal(left, []string{"admin.sock"}) {
		t.Errorf("files: %v", left)
	}
	r.halt()
}

// A worker that is aborted leaves its payment's outcome unknown, and says so; the next start tells.
func TestMoneyAborted(t *testing.T) {
	t.Parallel()
	cfg, _ := devConfig(t)
	must(t, cfg.Wallet.DrainDeadline.UnmarshalText([]byte("1s")))
	unhurried(cfg) // the call is in the ledger when its worker is aborted
	s := besieged(launchWith(t, cfg, hurried(cfg)).begin())
	known := s.pays("known", pay("alice", "bob", "10", 1))
	first, release := s.inTheMiddle(known)
	s.stop()
	if code := s.end(); code != process.ExitAborted {
		t.Errorf("exit %d, want %d\n%s", code, process.ExitAborted, s.log)
	}
	if got := <-first; got.status != http.StatusServiceUnavailable && got.status != 0 {
		t.Errorf("it was told %d %s", got.status, got.body)
	} else if got.status != 0 && (got.problem.Reason != "upstream" || got.problem.Details["outcome"] != "unknown") {
		t.Errorf("it was told %s", got.body)
	}
	if s.metric("tasks_aborted_total", "service", "wallet", "kind", "worker") == 0 {
		t.Error("no worker counts as aborted")
	}
	crashed := twin(t, cfg)
	release()
	again := start(t, crashed)
	if got := again.v1("POST", "/v1/transfer", "known",
		strings.TrimSpace(pay("alice", "bob", "10", 1))); got.status != http.StatusOK {
		t.Errorf("at the next start: %d %s", got.status, got.body)
	}
	again.has("bob", "10", 0)
	again.halt()
}

// inTheMiddle makes a call and returns after its command was applied. The commit group cannot end
// until release is called.
func (s *siege) inTheMiddle(raw string) (first <-chan answer, release func()) {
	s.t.Helper()
	s.settled()
	before := s.holdStore()
	first = s.sends(s.t.Context(), raw)
	s.inHand(1)
	h, done := hold{make(chan struct{}), make(chan struct{})}, make(chan struct{})
	go func() {
		defer close(done)
		_, _ = store.Commit(context.WithoutCancel(s.t.Context()), s.store, store.Work, store.Command[struct{}](h))
	}()
	s.inHand(2)
	before() // the committer takes both into one group, in their order
	<-h.in
	release = sync.OnceFunc(func() { close(h.out); <-done })
	s.t.Cleanup(release)
	return first, release
}

// live runs a node on cfg from boot to stop and stops it as soon as it serves. At the nth reading
// of its clock the node calls do. It returns the exit code and the number of clock readings.
func (r *rig) live(nth int64, do func(*rig)) (exit int, reads int64) {
	r.t.Helper()
	var count, loads atomic.Int64
	load := func() (*config.Config, []config.Entry, error) {
		next := *r.cfg
		next.Registry.Limits.RPS = 1000 + int(loads.Add(1))
		next.Server.Bind = []string{"127.0.0.1:0", "127.0.0.2:0"}[loads.Load()%2]
		return &next, nil, nil
	}
	n, err := assemble(
		r.cfg,
		Build{Version: "test"},
		Options{Load: load, within: patientStop, reading: func() {
			if count.Add(1) == nth {
				do(r)
			}
		}},
		r.log,
	)
	must(r.t, err)
	ctx, cancel := context.WithCancel(r.t.Context())
	defer cancel()
	r.Node, r.stop, r.exit = n, cancel, make(chan int, 1)
	r.OnRunning(func(nodeapi.Status) { cancel() })
	go func() { r.exit <- r.Run(ctx) }()
	exit = r.end()
	return exit, count.Load()
}

// An event at any moment between boot and stop leads to a stop in order: every reload is answered,
// and the next start finds a cleanly closed file.
func TestAnyMoment(t *testing.T) {
	t.Parallel()
	step := int64(1)
	if testing.Short() {
		step = 5
	}
	for _, tt := range []struct {
		doc  string
		do   func(r *rig, reload func())
		most int // the exit code
	}{
		{"a signal", func(r *rig, _ func()) { r.stop() }, process.ExitClean},
		{"two signals", func(r *rig, _ func()) { r.stop(); r.Abort() }, process.ExitAborted},
		{"a hangup", func(r *rig, _ func()) { r.Hangup() }, process.ExitClean},
		{"a signal between reloads", func(r *rig, reload func()) {
			reload()
			r.Hangup()
			r.stop()
			reload()
		}, process.ExitClean},
	} {
		t.Run(tt.doc, func(t *testing.T) {
			t.Parallel()
			var asked sync.WaitGroup
			cfg, _ := devConfig(t)
			closed := true
			for nth, reads := int64(1), int64(1); nth <= reads; nth += step {
				r := &rig{t: t, cfg: cfg, log: &logs{}}
				var exit int
				exit, reads = r.live(nth, func(r *rig) {
					n, ctx := r.Node, r.t.Context()
					tt.do(r, func() { asked.Go(func() { _, _ = n.Reload(ctx, engines.Actor{}, "") }) })
				})
				all := r.log.String()
				if exit != process.ExitClean && exit != tt.most || closed && strings.Contains(all, "unclean_boot") ||
					strings.Contains(all, `"level":"error"`) {
					t.Errorf("at read %d of the clock: exit %d\n%s", nth, exit, all)
				}
				closed = exit == process.ExitClean
				answered := make(chan struct{})
				go func() { asked.Wait(); close(answered) }()
				select {
				case <-answered:
				case <-time.After(patience):
					t.Fatalf("at read %d of the clock: a reload was not answered\n%s", nth, all)
				}
			}
		})
	}
}
