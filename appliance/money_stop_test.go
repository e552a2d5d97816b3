package appliance

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"ronbox/appliance/config"
	"ronbox/httpapi/client"
	"ronbox/httpapi/wire"
	"ronbox/store"
)

// Under load a stop answers every payment that was let in, writes down what has changed, and loses nothing: what was
// acknowledged is there at the next start, and no more.
func TestMoneyDrains(t *testing.T) {
	cfg, _ := devConfig(t)
	r := start(t, cfg)
	const payers = 8
	for i := range uint64(payers) {
		r.receipt("/v1/issue", fmt.Sprintf("fund-%d", i), issue(fmt.Sprintf("payer/%d", i), "100000", i+2))
	}
	var acked atomic.Int64
	var wg sync.WaitGroup
	warm := make(chan struct{})
	for i := range payers {
		c := r.tcp()
		wg.Go(func() { r.spend(c, i, &acked, warm) })
	}
	<-warm
	r.stop()
	code := r.end()
	wg.Wait()
	if code != ExitClean {
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

// spend pays one unit after the other until the node says that it drains, or is gone.
func (r *rig) spend(c *client.Client, payer int, acked *atomic.Int64, warm chan struct{}) {
	ctx := context.WithoutCancel(r.t.Context())
	for n := uint64(1); ; n++ {
		body := wire.Transfer{From: fmt.Sprintf("payer/%d", payer), To: "shop", Asset: "ron", AmountMinor: "1", Nonce: n}
		_, err := c.Transfer(ctx, fmt.Sprintf("p%d-%d", payer, n), body)
		var p *wire.Problem
		switch {
		case err == nil:
			if acked.Add(1) == 200 {
				close(warm)
			}
		case errors.Is(err, client.ErrNotReachable), errors.As(err, &p) && p.Status == http.StatusServiceUnavailable && p.Code == "RETRY_LATER":
			return // nothing was done
		default:
			r.t.Errorf("payer %d, payment %d: %v", payer, n, err)
			return
		}
	}
}

// While the disk does not answer, payments are refused at once and told when to come back, balances are read, and nothing that
// was accepted is lost; the node is ready again by itself.
func TestMoneyWhileTheDiskStalls(t *testing.T) {
	s := besiege(t, func(cfg *config.Config) { cfg.Ledger.StallAfter = config.Default().Ledger.StallAfter })
	release := s.holdStore()
	first := s.sends(t.Context(), s.pays("first", pay("alice", "bob", "10", 1)))
	s.inHand(1)
	s.writable(false)
	if r := s.board.Report("", ""); !slices.Contains(r.Missing, "wallet.ledger_ready") {
		t.Errorf("missing is %v", r.Missing)
	}
	got := s.ask(s.attacker(), s.pays("second", pay("alice", "bob", "1", 2)))
	s.told("a payment meanwhile", got, http.StatusServiceUnavailable, "degraded")
	if got.problem.Code != "RETRY_LATER" || got.header.Get("Retry-After") != "2" {
		t.Errorf("a payment meanwhile: %v %s", got.header, got.body)
	}
	s.has("alice", "1000000", 0)
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
	if _, got := s.receipt("/v1/transfer", "second", pay("alice", "bob", "1", 2)); got.replayed {
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
	purged := r.metric("amnesia_purge_total", "kind", kindBalances)
	r.await("a purge", func() bool { return r.metric("amnesia_purge_total", "kind", kindBalances) > purged })
	if again := post("/v1/transfer", "k", pay("alice", "bob", "3", 1)); again.body != first.body || !again.replayed || first.status != http.StatusOK {
		t.Errorf("after a purge: %d %s\nwas %d %s", again.status, again.body, first.status, first.body)
	}
	if left := files(t, cfg.Node.DataDir); !slices.Equal(left, []string{"admin.sock"}) {
		t.Errorf("files: %v", left)
	}
	r.halt()
}

// A worker that is aborted leaves its payment's outcome unknown, and says so; the next start tells.
func TestMoneyAborted(t *testing.T) {
	cfg, _ := devConfig(t)
	must(t, cfg.Wallet.DrainDeadline.UnmarshalText([]byte("1s")))
	s := besieged(start(t, cfg))
	known := s.pays("known", pay("alice", "bob", "10", 1))
	first, release := s.inTheMiddle(known)
	s.stop()
	if code := s.end(); code != ExitAborted {
		t.Errorf("exit %d, want %d\n%s", code, ExitAborted, s.log)
	}
	if got := <-first; got.status != http.StatusServiceUnavailable && got.status != 0 {
		t.Errorf("it was told %d %s", got.status, got.body)
	} else if got.status != 0 && (got.problem.Code != "UPSTREAM_UNAVAILABLE" || got.problem.Details["outcome"] != "unknown") {
		t.Errorf("it was told %s", got.body)
	}
	if s.metric("tasks_aborted_total", "service", "wallet", "kind", "worker") == 0 {
		t.Error("no worker counts as aborted")
	}
	crashed := twin(t, cfg)
	release()
	again := start(t, crashed)
	if got := again.v1("POST", "/v1/transfer", "known", strings.TrimSpace(pay("alice", "bob", "10", 1))); got.status != http.StatusOK {
		t.Errorf("at the next start: %d %s", got.status, got.body)
	}
	again.has("bob", "10", 0)
	again.halt()
}

// inTheMiddle makes a call whose command was applied, in a group that is kept from ending.
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
