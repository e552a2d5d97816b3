package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ronbox/appliance/clock"
	"ronbox/appliance/flow"
	"ronbox/appliance/unit"
	"ronbox/cmd/ronbox/server/config"
	"ronbox/cmd/ronbox/server/initdir"
	"ronbox/cmd/ronbox/server/process"
	"ronbox/engines"
	"ronbox/engines/ledger"
	"ronbox/engines/ledger/record"
	"ronbox/httpapi/auth"
	"ronbox/httpapi/client"
	nodeapi "ronbox/httpapi/wire/node"
	registryapi "ronbox/httpapi/wire/registry"
	"ronbox/store"
)

// pays is a transfer as raw bytes: the body, the key, and what else stands in the head.
func (s *siege) pays(key, body string, headers ...string) string {
	return s.post("/v1/transfer", body, append(headers, "Idempotency-Key: "+key)...)
}

// owns is what an account may spend, by the node's own reading.
func (s *siege) owns(account string) string {
	s.t.Helper()
	b, err := s.services.Ledger().Balance(s.t.Context(), account, "ron", 0)
	must(s.t, err)
	return b.Available.String()
}

// keeps checks that an attack has moved no money.
func (s *siege) keeps(doc, account string, attack func()) {
	s.t.Helper()
	before := s.owns(account)
	attack()
	if now := s.owns(account); now != before {
		s.t.Errorf("%s: %s has %s, had %s", doc, account, now, before)
	}
}

// A payment that is asked for again is answered with the bytes of the first; anything else under
// its key, or its nonce under another key, is refused by name. There is one effect.
func replayedPayments(t *testing.T) {
	s := besiege(t)
	body := pay("alice", "bob", "10", 1)
	made := s.ask(quietHost, s.pays("k", body))
	if made.status != http.StatusOK {
		t.Fatalf("%d %s", made.status, made.body)
	}
	s.look()
	s.keeps("replays", "alice", func() {
		s.counted(
			"the same again",
			map[string]float64{"wallet_idem_replays_total": 4, "store_commands_total": 0},
			func() {
				for _, again := range []string{body, body, " " + body + " ",
					strings.Replace(body, `"from":"alice","to":"bob"`, `"to":"bob","from":"alice"`, 1)} {
					got := s.ask(s.attacker(), s.pays("k", again))
					if got.status != http.StatusOK || got.header.Get("Idempotent-Replayed") != "true" ||
						string(got.body) != string(made.body) {
						t.Errorf("%s: %d %s, want %s", again, got.status, got.body, made.body)
					}
				}
			},
		)
		for _, tt := range []struct {
			doc, raw, reason string
			status           int
		}{
			{"another amount", s.pays("k", pay("alice", "bob", "11", 1)), "idem_conflict", 422},
			{"another receiver", s.pays("k", pay("alice", "eve", "10", 1)), "idem_conflict", 422},
			{"another path", s.post("/v1/issue", issue("bob", "10", 2), "Idempotency-Key: k"), "idem_conflict", 422},
			{"a batch", s.post("/v1/batch", `{"mode":"atomic","ops":[{"op":"transfer",`+body[1:]+`]}`,
				"Idempotency-Key: k"), "idem_conflict", 422},
			{"another key", s.pays("k2", body), "nonce_reused", 409},
			{"a nonce ahead", s.pays("k3", pay("alice", "bob", "10", 9)), "nonce_gap", 409},
			{"no key", s.post("/v1/transfer", body), "bad_header", 400},
			{"a key that is none", s.pays("a b", body), "bad_header", 400},
		} {
			s.counted(
				tt.doc,
				map[string]float64{
					"rejected_total service=wallet reason=" + tt.reason: 1,
					"ledger_commits_total":                              0,
					"wallet_idem_replays_total":                         0,
				},
				func() {
					got := s.ask(s.attacker(), tt.raw)
					s.told(tt.doc, got, tt.status, tt.reason)
					if tt.status == 409 && got.problem.Details["expected_nonce"] != float64(2) {
						t.Errorf("%s: %s", tt.doc, got.body)
					}
				},
			)
		}
	})
	s.look()
	s.holds()
}

// A token for one account, asset or amount cannot move others, and is refused before a command is
// enqueued.
func foreignAccounts(t *testing.T) {
	s := besiege(t)
	must(t, s.fund("bob", "100", 2))
	s.look()
	transfer := func(body string) string { return s.pays("k", body) }
	batch := func(op string) string {
		return s.post("/v1/batch", `{"mode":"independent","ops":[`+op+`]}`, "Idempotency-Key: k")
	}
	for _, tt := range []struct {
		caveat, raw, reason string
	}{
		{"account = alice", transfer(pay("bob", "alice", "1", 1)), "forbidden"},
		{"account = b*", transfer(pay("alice", "bob", "1", 1)), "forbidden"},
		{"account = bob", s.post("/v1/issue", issue("alice", "1", 3), "Idempotency-Key: k"), "forbidden"},
		{"account = bob",
			"GET /v1/balance?account=alice&asset=ron HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + s.token + "\r\n\r\n", "forbidden"},
		{"asset = gold", transfer(pay("alice", "bob", "1", 1)), "forbidden"},
		{"scope = wallet.read", transfer(pay("alice", "bob", "1", 1)), "forbidden"},
		{"scope = wallet.transfer", s.post("/v1/issue", issue("alice", "1", 3), "Idempotency-Key: k"), "forbidden"},
		{"aud = registry", transfer(pay("alice", "bob", "1", 1)), "forbidden"},
		{"account = bob", batch(`{"op":"transfer",` + pay("alice", "bob", "1", 1)[1:]), "forbidden"},
		{"scope = wallet.transfer", batch(`{"op":"issue",` + issue("alice", "1", 3)[1:]), "forbidden"},
		{"asset = ron|ceiling <= 10", transfer(pay("alice", "bob", "11", 1)), "limits_exceeded"},
		{"", transfer(pay("alice", "sys:issue:ron", "1", 1)), "forbidden"},
		{"", transfer(pay("sys:issue:ron", "bob", "1", 3)), "forbidden"},
		{"", transfer(pay("alice", "bob", "200000000000000000000", 1)), "limit_op"},
	} {
		token := s.token
		for caveat := range strings.SplitSeq(tt.caveat, "|") {
			if caveat != "" {
				var err error
				token, err = auth.Attenuate(token, caveat)
				must(t, err)
			}
		}
		doc := fmt.Sprintf("%s: %.40s", tt.caveat, tt.raw)
		s.keeps(doc, "alice", func() {
			s.counted(
				doc,
				map[string]float64{
					"rejected_total reason=" + tt.reason: 1,
					"auth_failures_total":                atTheDoor(tt.caveat, tt.raw),
					"ledger_commits_total":               0,
				},
				func() {
					s.told(doc, s.ask(s.attacker(), strings.Replace(tt.raw, s.token, token, 1)), http.StatusForbidden,
						tt.reason)
				},
			)
		})
	}
	s.look()
	s.holds()
}

// atTheDoor counts the refusals of a token before its body is read: by its audience, and by its
// scope unless the operations of a batch each have their own.
func atTheDoor(caveat, raw string) float64 {
	if strings.HasPrefix(caveat, "aud") || strings.HasPrefix(caveat, "scope") && !strings.Contains(raw, "/v1/batch") {
		return 1
	}
	return 0
}

// fund issues to an account.
func (s *siege) fund(account, amount string, nonce uint64) error {
	got := s.ask(quietHost, s.post("/v1/issue", issue(account, amount, nonce), "Idempotency-Key: fund-"+account))
	if got.status != http.StatusOK {
		return fmt.Errorf("fund %s: %d %s", account, got.status, got.body)
	}
	return nil
}

// A payment's body is refused by the member that is wrong.
func badPayments(t *testing.T) {
	s := besiege(t)
	good := pay("alice", "bob", "1", 1)
	swap := func(old, new string) string { return strings.Replace(good, old, new, 1) }
	for _, tt := range []struct{ doc, body, field string }{
		{"an amount that is a number", swap(`"1"`, `1`), "amount_minor"},
		{"a float", swap(`"1"`, `"1.5"`), "amount_minor"},
		{"a negative one", swap(`"1"`, `"-1"`), "amount_minor"},
		{"with an exponent", swap(`"1"`, `"1e3"`), "amount_minor"},
		{"nothing at all", swap(`"1"`, `"0"`), "amount_minor"},
		{"a zero ahead", swap(`"1"`, `"01"`), "amount_minor"},
		{"40 digits", swap(`"1"`, `"`+strings.Repeat("1", 40)+`"`), "amount_minor"},
		{"beyond 128 bits", swap(`"1"`, `"340282366920938463463374607431768211456"`), "amount_minor"},
		{"a nonce of 0", swap(`"nonce":1`, `"nonce":0`), "nonce"},
		{"a nonce below it", swap(`"nonce":1`, `"nonce":-1`), "nonce"},
		{"a nonce in quotes", swap(`"nonce":1`, `"nonce":"1"`), "nonce"},
		{"an account with a space", swap(`"bob"`, `"b ob"`), "to"},
		{"no receiver", swap(`"bob"`, `""`), "to"},
		{"a NUL", swap(`"bob"`, `"b\u0000"`), "to"},
		{"a receiver of 257 bytes", swap(`"bob"`, `"`+strings.Repeat("b", 257)+`"`), "to"},
		{"to oneself", swap(`"bob"`, `"alice"`), "to"},
		{"an asset in capitals", swap(`"ron"`, `"RON"`), "asset"},
		{"an asset that is not there", swap(`"ron"`, `"gold"`), "asset"},
		{"an unknown member", swap(`{`, `{"extra":1,`), "extra"},
		{"a member twice", swap(`{`, `{"nonce":1,`), "nonce"},
		{"a memo that is too long", swap(`{`, `{"memo":"`+strings.Repeat("m", 129)+`",`), "memo"},
		{"too late", swap(`{`, `{"valid_until":"2001-01-01T00:00:00Z",`), "valid_until"},
	} {
		s.keeps(tt.doc, "alice", func() {
			s.counted(
				tt.doc,
				map[string]float64{
					"ledger_commits_total":                              0,
					"http_requests_total route=/v1/transfer status=400": 1,
					"rejected_total":                                    1,
				},
				func() {
					got := s.ask(s.attacker(), s.pays("k", tt.body))
					if got.status != http.StatusBadRequest || got.problem.Retryable {
						t.Errorf("%s: %d %s", tt.doc, got.status, got.body)
					}
					if field, _ := got.problem.Details["field"].(string); field != tt.field {
						t.Errorf("%s: names %q, want %q\n%s", tt.doc, field, tt.field, got.body)
					}
				},
			)
		})
	}
	s.look()
	s.holds()
}

// steady is a wallet with one worker that hands over one payment at a time, to a ledger that may be
// slow.
func steady(cfg *config.Config) {
	unhurried(cfg)
	cfg.Wallet.Workers, cfg.Wallet.WorkerBurst = 1, 1
	cfg.Ledger.StallAfter = unit.Duration(2 * time.Second)
}

// queued is how many payments wait for a worker.
func (s *siege) queued() int {
	return int(s.metric("queue_depth", "service", "wallet", "queue", "work"))
}

// The queue holds 512 payments. The next one is refused at once with a retry time and counted
// exactly; every accepted payment is made. They enter the queue without HTTP, and the test retries,
// so that a slow machine fills the queue before the node considers its ledger slow.
func fullWork(t *testing.T) {
	const most = 512
	s := besiege(t, steady)
	var nonce uint64
	for begun := time.Now(); ; {
		full, done := s.fill(most, &nonce)
		if full {
			break
		}
		if time.Since(begun) > 3*patience {
			t.Fatalf("the queue was never full; %d payments were done", done)
		}
	}
	s.writable(true)
	s.look()
	s.holds()
}

// fill holds the ledger up and pays until nothing more fits. It reports whether the queue was full
// before the node noticed that its ledger is slow, and how many payments were done in the end.
func (s *siege) fill(most int, nonce *uint64) (full bool, done int) {
	s.t.Helper()
	s.writable(true)
	release := s.holdStore()
	*nonce++
	first := s.sends(s.t.Context(), s.pays(fmt.Sprintf("fill-%d", *nonce), pay("alice", "bob", "1", *nonce)))
	s.inHand(1)
	// payers without money: the worker handles them only after the first payment ends
	in := make(chan error, most)
	for i := range most {
		op := ledger.Op{
			Code:   record.OpTransfer,
			From:   fmt.Sprintf("f%d", i),
			To:     "bob",
			Asset:  "ron",
			Amount: engines.AmountOf(0, 1),
			Nonce:  1,
		}
		by, key := engines.Actor{CapID: "fill", Principal: "fill", Admin: true}, fmt.Sprintf("fill-%d-%d", *nonce, i)
		go func() {
			_, err := s.services.Wallet().Post(s.t.Context(), by, key, "", op)
			in <- err
		}()
	}
	s.await(
		"a full queue, or a ledger that is found slow",
		func() bool { return s.queued() == most || !s.walletReady() },
	)
	if full = s.queued() == most && s.walletReady(); full {
		s.overflow()
	}
	release()
	if got := <-first; got.status == http.StatusOK {
		done++
	} else if full {
		s.t.Errorf("the first payment: %d %s", got.status, got.body)
	}
	for range most {
		var reject *ledger.Reject
		if err := <-in; errors.As(err, &reject) && reject.Code == record.InsufficientFunds {
			done++
		} else if full {
			s.t.Errorf("a payment that was let in: %v", err)
		}
	}
	return full, done
}

// walletReady reports whether the wallet takes writes.
func (s *siege) walletReady() bool { return s.board.Report("wallet", "").WriteReady }

// overflow asks for one payment more than fits.
func (s *siege) overflow() {
	s.t.Helper()
	want := map[string]float64{
		"rejected_total service=wallet reason=busy":              3,
		"busy_rejections_total service=wallet endpoint=transfer": 3,
		"queue_dropped_total service=wallet queue=work":          3,
	}
	s.counted("full queue", want, func() {
		for i := range 3 {
			got := s.ask(s.attacker(), s.pays(fmt.Sprintf("late-%d", i), pay("alice", "bob", "1", 1)))
			s.told("full queue", got, http.StatusTooManyRequests, "busy")
			if got.header.Get("Retry-After") == "" {
				s.t.Errorf("full queue: %v %s", got.header, got.body)
			}
		}
	})
}

// One principal that asks for too much is told when to come back; another one does not notice.
func overPaid(t *testing.T) {
	s := besiege(t, func(cfg *config.Config) { cfg.Wallet.Limits.RatePerSecond, cfg.Wallet.Limits.Burst = 5, 5 })
	before, refused := s.scrape(), 0
	for _, one := range s.atOnce(40, s.pays("k", "{}")) {
		got := <-one
		if got.status == http.StatusTooManyRequests {
			refused++
			s.told("rate", got, http.StatusTooManyRequests, "rate_limit")
			if got.header.Get("Retry-After") == "" {
				t.Errorf("%v %s", got.header, got.body)
			}
		}
	}
	if after := s.scrape(); refused == 0 ||
		grown(before, after, "rejected_total service=wallet reason=rate_limit") != float64(refused) {
		t.Errorf("%d refused", refused)
	}
	other, err := s.socket().Mint(t.Context(), mintFor("other", "wallet.transfer"))
	must(t, err)
	if got := s.ask(
		s.attacker(),
		strings.Replace(s.pays("k", "{}"), s.token, other.Token, 1),
	); got.status != http.StatusBadRequest {
		t.Errorf("another principal: %d %s", got.status, got.body)
	}
}

func mintFor(sub string, scopes ...string) nodeapi.MintRequest {
	return nodeapi.MintRequest{Sub: sub, Scopes: scopes}
}

// If the deadline of a payment passes in the queue, the payment was not made. If it passes later,
// the payment may have been made, and a repeat returns the outcome. A caller that leaves the queue
// pays nothing.
func latePayments(t *testing.T) {
	s := besiege(t, steady)
	known := s.pays("known", pay("alice", "bob", "10", 1))
	first, release := s.inTheMiddle(
		strings.Replace(known, "\r\nIdempotency", "\r\nRequest-Timeout: 1.5\r\nIdempotency", 1),
	)
	got := s.ask(s.attacker(), s.pays("never", pay("alice", "bob", "1", 2), "Request-Timeout: 0.3"))
	s.told("in the queue", got, http.StatusServiceUnavailable, "timeout")
	if !got.problem.Retryable {
		t.Errorf("in the queue: %s", got.body)
	}
	got = <-first
	s.told("behind it", got, http.StatusServiceUnavailable, "upstream")
	if got.problem.Details["outcome"] != "unknown" ||
		!got.problem.Retryable {
		t.Errorf("behind it: %s", got.body)
	}
	release()
	s.writable(true)
	s.await("the outcome", func() bool { return s.owns("bob") == "10" })
	told := s.ask(s.attacker(), known) // it may join the first one, or be its replay
	if told.status != http.StatusOK {
		t.Errorf("the same request again: %d %s", told.status, told.body)
	}
	if again := s.ask(s.attacker(), known); string(again.body) != string(told.body) ||
		again.header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("and once more: %d %v %s, was %s", again.status, again.header, again.body, told.body)
	}
	if s.owns("bob") != "10" {
		t.Errorf("bob has %s: it was paid twice", s.owns("bob"))
	}
	if got := s.ask(s.attacker(), s.pays("never", pay("alice", "bob", "1", 2))); got.status != http.StatusOK ||
		got.header.Get("Idempotent-Replayed") != "" {
		t.Errorf("what was never begun: %d %v %s", got.status, got.header, got.body)
	}
	s.look()
	s.holds()
}

// A journal with a broken chain is read and never written: the node serves and reports the remedy.
func rottenJournal(t *testing.T) {
	cfg, _ := devConfig(t)
	r := start(t, cfg)
	r.receipt("/v1/transfer", "k", strings.Replace(pay("alice", "bob", "10", 1), "{", `{"memo":"rotten-memo",`, 1))
	r.halt()
	flip(t, cfg.Path(config.DatabaseName), "rotten-memo")
	s := &siege{rig: launch(t, cfg).safe(), key: signer(t, cfg)}
	token, err := os.ReadFile(cfg.Path(config.TokenName))
	must(t, err)
	s.token = strings.TrimSpace(string(token))
	if s.metric("ledger_safe_mode") != 1 {
		t.Error("ledger_safe_mode is not 1")
	}
	got := s.ask(s.attacker(), s.pays("k2", pay("alice", "bob", "1", 2)))
	s.told("a payment in safe mode", got, http.StatusServiceUnavailable, "upstream")
	if got.problem.Details["outcome"] != "none" {
		t.Errorf("%s", got.body)
	}
	if s.owns("alice") != "999990" {
		t.Errorf("alice has %s", s.owns("alice"))
	}
	if ready := s.v1("GET", "/readyz?service=ledger", "", ""); ready.status != http.StatusServiceUnavailable {
		t.Errorf("readyz of the ledger: %d %s", ready.status, ready.body)
	}
	s.halt()
}

// safe waits for a node that serves and takes no writes.
func (r *rig) safe() *rig {
	r.t.Helper()
	r.serving()
	r.writable(false)
	return r
}

// smallDisk is where a node's directory will be: a disk of its own, of 64 MiB. It reports whether
// there can be one.
func smallDisk(t *testing.T, dir string) bool {
	t.Helper()
	if err := unix.Mount("none", dir, "tmpfs", 0, "size=64m,mode=0700"); err != nil {
		t.Logf("no small disk can be mounted here (%v): the tests of the store stand in", err)
		return false
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	return true
}

// A full disk takes no payment, told as such however many ask, and counts against no breaker: the
// first one after there is room is taken. Balances and receipts are read all the while.
func fullDiskOfMoney(t *testing.T) {
	cfg := newConfig(t)
	disk := filepath.Dir(cfg.Node.DataDir)
	if !smallDisk(t, disk) {
		return
	}
	_, err := Init(t.Context(), cfg, initdir.Options{Dev: true})
	must(t, err)
	s := besieged(start(t, loaded(t, cfg)))
	paid, first := s.receipt("/v1/transfer", "before", pay("alice", "bob", "1", 1))
	s.look()
	ballast := filepath.Join(disk, "ballast")
	fillDisk(t, ballast)
	s.writable(false)
	const many = 40 // twice what opens the breaker
	s.keeps("full", "alice", func() {
		s.counted(
			"full",
			map[string]float64{
				"rejected_total service=wallet reason=store_full": many,
				"circuit_open_total svc=ledger":                   0,
				"upstream_fail_total svc=ledger":                  0,
				"store_poisoned":                                  0,
			},
			func() {
				for range many {
					got := s.ask(s.attacker(), s.pays("full", pay("alice", "bob", "1", 2)))
					s.told("full", got, http.StatusInsufficientStorage, "store_full")
					if got.header.Get("Retry-After") == "" {
						t.Errorf("full: %v %s", got.header, got.body)
					}
				}
			},
		)
	})
	s.has("alice", "999999", paid.Ledger.Seq)
	if again := s.v1("POST", "/v1/transfer", "before", pay("alice", "bob", "1", 1)); again.body != first.body ||
		!again.replayed {
		t.Errorf("a replay on a full disk: %d %s", again.status, again.body)
	}
	must(t, os.Remove(ballast))
	s.writable(true)
	if got := s.v1("POST", "/v1/transfer", "full", pay("alice", "bob", "1", 2)); got.status != http.StatusOK ||
		got.replayed {
		t.Errorf("once there is room: %d %s", got.status, got.body)
	}
	s.halt()
	verified(t, s.cfg)
}

// If the disk is full before the ledger has begun, the node serves its data and declares its assets
// once there is room.
func fullBeforeTheLedger(t *testing.T) {
	cfg := newConfig(t)
	disk := filepath.Dir(cfg.Node.DataDir)
	if !smallDisk(t, disk) {
		return
	}
	_, err := Init(t.Context(), cfg, initdir.Options{})
	must(t, err)
	ballast := filepath.Join(disk, "ballast")
	fillDisk(t, ballast)
	r := launch(t, loaded(t, cfg))
	r.serving()
	r.writable(false)
	r.logged("assets_not_declared")
	r.await("a payment to be told of the disk", func() bool {
		return r.v1("POST", "/v1/issue", "k", issue("bob", "5", 1)).problem.Reason == "store_full"
	})
	if got := r.v1("GET", "/v1/balance?asset=ron&account=bob", "", ""); got.status != http.StatusBadRequest ||
		got.problem.Details["field"] != "asset" {
		t.Errorf("an asset that could not be declared: %d %s", got.status, got.body)
	}
	must(t, os.Remove(ballast))
	r.writable(true)
	must(t, r.services.Ensure(t.Context())) // as the janitor does every minute
	if got := r.assets(); !slices.Equal(got, []string{"ron"}) {
		t.Errorf("assets %v", got)
	}
	r.receipt("/v1/issue", "k", issue("bob", "5", 1))
	r.halt()
	verified(t, r.cfg)
}

// If the sync of a payment fails, the payment is not acknowledged: its outcome is unknown, or it
// was not made because a flush of the ledger met the fault first. The node exits with 74. After a
// restart the same request is made once, whatever the outcome of the first.
func failedSyncOfMoney(t *testing.T) {
	s := besiege(t)
	_, kept := s.receipt("/v1/transfer", "kept", pay("alice", "bob", "1", 1))
	s.settled()
	s.poison()
	got := s.ask(s.attacker(), s.pays("lost", pay("alice", "bob", "2", 2)))
	want := any("unknown")
	if isRetryLater(&got.problem) {
		want = "none"
	}
	if got.status != http.StatusServiceUnavailable || got.problem.Details["outcome"] != want {
		t.Errorf("a payment on a broken disk: %d %s", got.status, got.body)
	}
	if code := s.end(); code != process.ExitStorage {
		t.Errorf("exit %d, want %d", code, process.ExitStorage)
	}
	again := start(t, twin(t, s.cfg))
	if got := again.v1("POST", "/v1/transfer", "kept", pay("alice", "bob", "1", 1)); got.body != kept.body ||
		!got.replayed {
		t.Errorf("what was acknowledged: %d %s\nwas\n%s", got.status, got.body, kept.body)
	}
	again.receipt("/v1/transfer", "lost", pay("alice", "bob", "2", 2))
	again.has("bob", "3", 0)
	again.halt()
	verified(t, again.cfg)
}

// acknowledged commits n versions and returns the last one.
func (s *siege) acknowledged(n uint64) (last registryapi.Committed) {
	s.t.Helper()
	c := s.socket()
	defer c.Close()
	for range n {
		last = s.mustPut(c, s.key, s.services.Registry().Head().Head.Version+1, "kept")
	}
	return last
}

// At any moment the file boots to the acknowledged state, and the node reports an unclean stop.
func powerCut(t *testing.T) {
	s := besiege(t)
	for range 3 {
		want := s.acknowledged(2)
		again := start(t, s.crashed())
		if again.store.Info().Clean {
			t.Error("the stop was clean")
		}
		again.logged("unclean_boot")
		if got := again.metric("registry_recoveries_total", "kind", "crash"); got != 1 {
			t.Errorf("%v recoveries from a crash", got)
		}
		c := again.tcp()
		v, err := c.Version(t.Context(), want.Version, true)
		if head, herr := c.Head(t.Context()); err != nil || herr != nil || head.Hash != want.Hash ||
			v.PayloadB3 != want.PayloadB3 {
			t.Errorf("HEAD %+v, %v, want %+v", head, errors.Join(err, herr), want)
		}
		c.Close()
		again.halt()
	}
	s.look()
	s.holds()
}

func badDisk(t *testing.T) {
	for _, kind := range []struct {
		doc   string
		prove []func(*testing.T)
	}{
		{"full", []func(*testing.T){fullDisk, fullDiskOfMoney, fullBeforeTheLedger}},
		{"failed sync", []func(*testing.T){failedSync, failedSyncOfMoney}},
		{"short file", []func(*testing.T){oneByOne(shortFile)}},
		{"bit rot", []func(*testing.T){oneByOne(bitRot), oneByOne(rottenJournal)}},
	} {
		for i, prove := range inShort(kind.prove, 1) {
			t.Run(fmt.Sprint(kind.doc, i), prove)
		}
	}
}

// A full disk refuses writes with a clear error. Reads and their probes continue, and the node
// heals by itself once there is room.
func fullDisk(t *testing.T) {
	cfg := newConfig(t)
	disk := filepath.Dir(cfg.Node.DataDir)
	if !smallDisk(t, disk) {
		return
	}
	_, err := Init(t.Context(), cfg, initdir.Options{Dev: true})
	must(t, err)
	s := besieged(start(t, loaded(t, cfg)))
	ballast := filepath.Join(disk, "ballast")
	fillDisk(t, ballast)
	s.writable(false)
	s.counted(
		"full",
		map[string]float64{
			"rejected_total reason=store_full": 3,
			"rejected_total reason=degraded":   1,
			"governance_proposals_total":       0,
			"store_poisoned":                   0,
		},
		func() {
			for range 3 {
				got := s.ask(s.attacker(), s.post("/registry/proposals", s.propose("full")))
				s.told("full", got, http.StatusInsufficientStorage, "store_full")
				if got.header.Get("Retry-After") == "" {
					t.Error("no Retry-After")
				}
			}
			for path, status := range map[string]int{
				"/registry/head": 200, "/registry/1": 200, "/healthz": 200, "/readyz": 503, "/readyz?plane=read": 200,
			} {
				if got := s.ask(quietHost, "GET "+path+" HTTP/1.1\r\nHost: x\r\n\r\n"); got.status != status {
					t.Errorf("%s is %d on a full disk, want %d", path, got.status, status)
				}
			}
		},
	)
	must(t, os.Remove(ballast))
	s.writable(true)
	s.look()
	s.holds()
}

// fillDisk writes until the disk takes no more.
func fillDisk(t *testing.T, path string) {
	t.Helper()
	f, err := os.Create(path)
	must(t, err)
	for chunk := make([]byte, 1<<20); err == nil; {
		_, err = f.Write(chunk)
	}
	if must(t, f.Close()); !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
}

// After a failed sync no write is acknowledged, the metrics name the cause, and the process exits
// with 74. Earlier acknowledged versions are on the disk.
func failedSync(t *testing.T) {
	s := besiege(t)
	want := s.acknowledged(2)
	s.poison()
	got := s.ask(s.attacker(), s.post("/registry/proposals", s.propose("lost")))
	s.told("a write on a broken disk", got, http.StatusServiceUnavailable, "store_failed")
	if got.problem.Details["outcome"] != "unknown" {
		t.Errorf("outcome %v", got.problem.Details)
	}
	if code := s.end(); code != process.ExitStorage {
		t.Errorf("exit %d, want %d", code, process.ExitStorage)
	}
	if s.metric("store_poisoned") != 1 || s.metric("rejected_total", "reason", "store_failed") != 1 {
		t.Errorf("store_poisoned %v", s.metric("store_poisoned"))
	}
	again := start(t, twin(t, s.cfg))
	if head, err := again.tcp().Head(t.Context()); err != nil || head.Hash != want.Hash {
		t.Errorf("HEAD %+v, %v, want %+v", head, err, want)
	}
	again.halt()
}

// A file that is too short for its pages is not mapped: the node exits with 65 and reports the
// fault.
func shortFile(t *testing.T) {
	for _, size := range []int64{0, 1, store.PageSize, 5 * store.PageSize} {
		cfg, _ := devConfig(t)
		must(t, os.Truncate(cfg.Path(config.DatabaseName), size))
		r := launch(t, cfg)
		if code := r.end(); code != process.ExitCorrupt || !strings.Contains(r.log.String(), "ronbox db restore") {
			t.Errorf("%d bytes left: exit %d\n%s", size, code, r.log)
		}
		if info, err := os.Stat(cfg.Path(config.DatabaseName)); err != nil || info.Size() != size {
			t.Errorf("the file was touched: %v, %v", info, err)
		}
	}
}

// A changed bit in the log shuts the registry out, and the log line names the version.
func bitRot(t *testing.T) {
	cfg, _ := devConfig(t)
	flip(t, cfg.Path(config.DatabaseName), `"threshold":1`)
	r := launch(t, cfg)
	r.serving()
	_, err := r.tcp().registryAPI.Head(t.Context())
	if p := problem(t, err); p.Status != http.StatusServiceUnavailable || p.Reason != "corrupt" {
		t.Errorf("HEAD of a damaged log: %v", err)
	}
	if _, err := r.tcp().Balance(t.Context(), "alice", "ron", 0); err != nil {
		t.Errorf("the wallet: %v", err)
	}
	r.logged(`"event":"service_shut_out"`)
	r.logged("version 1")
	r.halt()
}

// There is one writer: a second process ends with 75 and harms nothing, by whatever name it reaches
// the file; a copy of the directory carries no lock with it and is another node's.
func secondProcess(t *testing.T) {
	s := besiege(t)
	for doc, alias := range map[string]func(from, to string) error{"the directory itself": nil, "a hard link": os.Link,
		"a symbolic link": os.Symlink} {
		cfg := loaded(t, s.cfg)
		if alias != nil {
			cfg = twin(t, s.cfg)
			must(t, os.Remove(cfg.Path(config.DatabaseName)))
			must(t, alias(s.cfg.Path(config.DatabaseName), cfg.Path(config.DatabaseName)))
		}
		cfg.Store.LockTimeout = 0
		second := launch(t, cfg)
		if code := second.end(); code != process.ExitLocked || second.Addr() != "" {
			t.Errorf("%s: exit %d, bound %q\n%s", doc, code, second.Addr(), second.log)
		}
	}
	copied := start(t, twin(t, s.cfg))
	copied.halt()
	s.holds()
}

// An invalid configuration is refused as a whole, with the faulty keys, and the old one stays in
// force. At the start it ends the process before a file is opened.
func badConfig(t *testing.T) {
	r, rewrite := reloadable(t)
	s := besieged(r)
	for _, tt := range []struct{ doc, text, cause, key string }{
		{"no TOML", "[[[", "parse", ""},
		{"an unknown key", "server.max_conn = 5\n", "validate", "server.max_conn"},
		{"a value out of its range", "log.level = \"debug\"\nserver.max_conns = 0\n", "validate", "server.max_conns"},
		{"a key that needs a restart", "log.level = \"debug\"\nregistry.queues.proposals = 100\n", "restart",
			"registry.queues.proposals"},
	} {
		rewrite(tt.text)
		want := map[string]float64{
			"registry_reload_fail_total reason=" + tt.cause: 1,
			"registry_reload_success_total":                 0,
			"config_version":                                0,
			"rejected_total reason=reload_refused":          1,
		}
		s.counted(tt.doc, want, func() {
			c := s.socket()
			defer c.Close()
			_, err := c.Reload(t.Context())
			p := problem(t, err)
			if p.Status != http.StatusUnprocessableEntity || p.Details["cause"] != tt.cause ||
				!strings.Contains(p.Detail, tt.key) {
				t.Errorf("%s: %+v", tt.doc, p)
			}
			if s.LogLevel().Level != "info" || s.version() != 1 {
				t.Errorf("%s: half of it is in force", tt.doc)
			}
		})
	}
	rewrite("")
	s.holds()
	for _, text := range []string{"server.max_conns = 0\n", "server.max_conn = 5\n"} {
		cfg := newConfig(t)
		must(t, os.Mkdir(cfg.Node.DataDir, 0o700))
		must(t, os.WriteFile(cfg.Path(config.FileName), []byte("# one\n"+text), 0o600))
		_, err := config.Load(config.LoadOptions{DataDir: cfg.Node.DataDir})
		if err == nil || !strings.Contains(err.Error(), config.FileName+":2:") ||
			!strings.Contains(err.Error(), strings.Fields(text)[0]) {
			t.Errorf("%q at the start: %v", text, err)
		}
	}
}

// A wall clock that jumps, back or ahead, changes no order and refuses nothing. The node says so
// until the clock is right again. Tokens are judged by the wall clock.
func clockJumps(t *testing.T) {
	cfg, _ := devConfig(t)
	var shift atomic.Int64
	s := besieged(launchAt(t, cfg, turned(&shift)))
	told := func() float64 { return s.metric("readyz_degraded", "service", "node", "cause", "clock_ok") }
	const hour = int64(time.Hour)
	first := s.acknowledged(1)
	shift.Store(-hour / 15)
	second := s.acknowledged(2)
	if second.CommittedAt < first.CommittedAt {
		t.Errorf("version %d at %s, after version %d at %s", second.Version, second.CommittedAt, first.Version,
			first.CommittedAt)
	}
	last := int64(0)
	for i, by := range []int64{-hour, 26 * hour, -2 * hour} {
		shift.Store(by)
		s.await("the clock to be told", func() bool { return told() == 1 })
		out, err := s.services.Ledger().Commit(t.Context(), []ledger.Op{{
			Code: record.OpIssue, To: "alice", Asset: "ron", Amount: engines.AmountOf(0, 1), Nonce: uint64(i + 2),
			Principal: "t", CapID: "t",
		}})
		must(t, err)
		at := out[0].Receipt.At
		if out[0].Reject != nil || at <= last || time.Until(time.Unix(0, at)).Abs() > 10*time.Minute {
			t.Errorf("%s off: %+v", time.Duration(by), out[0])
		}
		last = at
	}
	page, err := s.Audit(t.Context(), 1, 100)
	must(t, err)
	for i := 1; i < len(page.Rows); i++ {
		if !page.Rows[i].At.After(page.Rows[i-1].At) {
			t.Errorf("audit row %d at %s, after one at %s", page.Rows[i].Seq, page.Rows[i].At, page.Rows[i-1].At)
		}
	}
	s.counted("a token from the future", map[string]float64{
		"rejected_total reason=unauth":   1,
		"auth_failures_total stage=time": 1,
		"store_commands_total":           0,
	}, func() {
		got := s.ask(s.attacker(), s.post("/registry/proposals", s.propose("late")))
		s.told("a token from the future", got, http.StatusUnauthorized, "unauth")
	})
	shift.Store(0)
	s.await("the clock to be right", func() bool { return told() == 0 })
	s.look()
	s.holds()
}

// turned returns clocks of a machine whose wall clock is off by offset, ns.
func turned(offset *atomic.Int64) func() (time.Time, time.Duration) {
	begun := time.Now()
	return func() (time.Time, time.Duration) {
		return time.Now().Add(time.Duration(offset.Load())), time.Since(begun)
	}
}

// passing returns clocks of a machine on which more time has passed, ns.
func passing(more *atomic.Int64) func() (time.Time, time.Duration) {
	begun := time.Now()
	return func() (time.Time, time.Duration) {
		more := time.Duration(more.Load())
		return time.Now().Add(more), time.Since(begun) + more
	}
}

// launchAt is start of a node with its own clocks.
func launchAt(t *testing.T, cfg *config.Config, read func() (time.Time, time.Duration)) *rig {
	t.Helper()
	r := &rig{t: t, cfg: cfg, log: &logs{}, up: make(chan struct{}), exit: make(chan int, 1)}
	o := Options{within: patientStop, clock: clock.Options{Read: read}}
	n, err := assemble(cfg, Build{Version: "test"}, o, r.log)
	must(t, err)
	r.Node = n
	r.OnRunning(func(nodeapi.Status) { close(r.up) })
	ctx, cancel := context.WithCancel(t.Context())
	r.stop = cancel
	go func() { r.exit <- r.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		r.services.Close(t.Context())
		if t.Failed() {
			t.Log(r.log)
		}
	})
	return r.begin()
}

// A snapshot holds no secret and no token, and its thief can do nothing with it to the node: the
// tokens of the node that it was taken from are void where it is restored, and none can be made
// from it that the node would take.
func stolenSnapshot(t *testing.T) {
	s := besiege(t)
	c := s.socket()
	minted, err := c.Mint(t.Context(), nodeapi.MintRequest{Sub: "me", Scopes: []string{"registry.propose"}})
	must(t, err)
	s.acknowledged(1)
	for _, compact := range []bool{false, true} {
		snap, err := c.Snapshot(t.Context(), nodeapi.SnapshotRequest{Dir: t.TempDir(), Compact: compact}, nil)
		must(t, err)
		raw, err := os.ReadFile(snap.File)
		must(t, err)
		for _, name := range []string{config.SecretName, config.SignerName, config.TokenName, config.LogKeyName} {
			secret, err := os.ReadFile(s.cfg.Path(name))
			if errors.Is(err, os.ErrNotExist) {
				continue
			}
			must(t, err)
			if len(secret) < 16 || strings.Contains(string(raw), strings.TrimSpace(string(secret))) {
				t.Errorf("the snapshot holds %s", name)
			}
		}
		if strings.Contains(string(raw), minted.Token) {
			t.Error("the snapshot holds a token")
		}
		s.thief(snap.File)
	}
	c.Close()
	s.look()
	s.holds()
}

// thief restores a snapshot elsewhere, without the key of the node, and tries what he gets there on
// the node.
func (s *siege) thief(snapshot string) {
	s.t.Helper()
	cfg := restored(s.t, s.cfg, snapshot)
	must(s.t, os.Remove(cfg.Path(config.SecretName)))
	r := launch(s.t, cfg)
	r.serving()
	local := r.socket()
	if _, err := r.tcp().
		Propose(s.t.Context(), draft(3, "x"), ""); problem(
		s.t,
		err,
	).Status != http.StatusUnauthorized {
		s.t.Errorf("a token of the node on its stolen copy: %v", err)
	}
	must(s.t, local.AcceptRestore(s.t.Context()))
	forged, err := local.Mint(s.t.Context(), nodeapi.MintRequest{Sub: "thief", Scopes: []string{"node.admin"}})
	must(s.t, err)
	local.Close()
	victim := s.client(client.Options{URL: "http://" + s.Addr(), Token: forged.Token})
	if _, err := victim.Propose(s.t.Context(), draft(3, "x"), ""); problem(s.t, err).Status != http.StatusUnauthorized {
		s.t.Errorf("a token made from a stolen copy: %v", err)
	}
	victim.Close()
	r.until("running", func(p flow.Phase) bool { return p == flow.Running || p == flow.Degraded })
	r.halt()
}
