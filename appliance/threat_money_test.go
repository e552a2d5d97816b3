package appliance

import (
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"ronbox/appliance/config"
	"ronbox/httpapi/auth"
	"ronbox/httpapi/wire"
)

// pays is a transfer as raw bytes: the body, the key, and what else stands in the head.
func (s *siege) pays(key, body string, headers ...string) string {
	return s.post("/v1/transfer", body, append(headers, "Idempotency-Key: "+key)...)
}

// owns is what an account may spend, by the node's own reading.
func (s *siege) owns(account string) string {
	s.t.Helper()
	b, err := s.ledger.Balance(s.t.Context(), account, "ron", 0)
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

// A payment that is asked for again is answered with the bytes of the first; anything else under its key, or its nonce under
// another key, is refused by name. There is one effect.
func replayedPayments(t *testing.T) {
	s := besiege(t)
	body := pay("alice", "bob", "10", 1)
	made := s.ask(quietHost, s.pays("k", body))
	if made.status != http.StatusOK {
		t.Fatalf("%d %s", made.status, made.body)
	}
	s.look()
	s.keeps("replays", "alice", func() {
		s.counted("the same again", map[string]float64{"wallet_idem_replays_total": 4, "store_commands_total": 0}, func() {
			for _, again := range []string{body, body, " " + body + " ", strings.Replace(body, `"from":"alice","to":"bob"`, `"to":"bob","from":"alice"`, 1)} {
				got := s.ask(s.attacker(), s.pays("k", again))
				if got.status != http.StatusOK || got.header.Get("Idempotent-Replayed") != "true" || string(got.body) != string(made.body) {
					t.Errorf("%s: %d %s, want %s", again, got.status, got.body, made.body)
				}
			}
		})
		for _, tt := range []struct {
			doc, raw, reason string
			status           int
		}{
			{"another amount", s.pays("k", pay("alice", "bob", "11", 1)), "idem_conflict", 422},
			{"another receiver", s.pays("k", pay("alice", "eve", "10", 1)), "idem_conflict", 422},
			{"another path", s.post("/v1/issue", issue("bob", "10", 2), "Idempotency-Key: k"), "idem_conflict", 422},
			{"a batch", s.post("/v1/batch", `{"mode":"atomic","ops":[{"op":"transfer",`+body[1:]+`]}`, "Idempotency-Key: k"), "idem_conflict", 422},
			{"another key", s.pays("k2", body), "nonce_reused", 409},
			{"a nonce ahead", s.pays("k3", pay("alice", "bob", "10", 9)), "nonce_gap", 409},
			{"no key", s.post("/v1/transfer", body), "bad_header", 400},
			{"a key that is none", s.pays("a b", body), "bad_header", 400},
		} {
			s.counted(tt.doc, map[string]float64{"rejected_total service=wallet reason=" + tt.reason: 1, "ledger_commits_total": 0, "wallet_idem_replays_total": 0}, func() {
				got := s.ask(s.attacker(), tt.raw)
				s.told(tt.doc, got, tt.status, tt.reason)
				if tt.status == 409 && got.problem.Details["expected_nonce"] != float64(2) {
					t.Errorf("%s: %s", tt.doc, got.body)
				}
			})
		}
	})
	s.look()
	s.holds()
}

// A token for one account, asset or amount moves nothing else, and is told so before anything is enqueued.
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
		{"account = bob", "GET /v1/balance?account=alice&asset=ron HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + s.token + "\r\n\r\n", "forbidden"},
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
			s.counted(doc, map[string]float64{"rejected_total reason=" + tt.reason: 1, "auth_failures_total": atTheDoor(tt.caveat, tt.raw), "ledger_commits_total": 0}, func() {
				s.told(doc, s.ask(s.attacker(), strings.Replace(tt.raw, s.token, token, 1)), http.StatusForbidden, tt.reason)
			})
		})
	}
	s.look()
	s.holds()
}

// atTheDoor counts the refusals of a token before its body is read: by its audience, and by its scope unless the operations of
// a batch each have their own.
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
		{"no nonce", swap(`,"nonce":1`, ``), "nonce"},
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
			s.counted(tt.doc, map[string]float64{"ledger_commits_total": 0, "http_requests_total route=/v1/transfer status=400": 1, "rejected_total": 1}, func() {
				got := s.ask(s.attacker(), s.pays("k", tt.body))
				if got.status != http.StatusBadRequest || got.problem.Code != "BAD_REQUEST" || got.problem.Retryable {
					t.Errorf("%s: %d %s", tt.doc, got.status, got.body)
				}
				if field, _ := got.problem.Details["field"].(string); field != tt.field {
					t.Errorf("%s: names %q, want %q\n%s", tt.doc, field, tt.field, got.body)
				}
			})
		})
	}
	s.look()
	s.holds()
}

// steady is a wallet with one worker that hands over one payment at a time, to a ledger that may be slow.
func steady(cfg *config.Config) {
	w := &cfg.Wallet
	w.Workers, w.WorkerBurst = 1, 1
	for _, d := range []struct {
		key interface{ UnmarshalText([]byte) error }
		to  string
	}{{&cfg.Ledger.StallAfter, "2s"}, {&w.Retry.RPCTimeout, "10s"}, {&w.ReqTimeout, "20s"}} {
		if err := d.key.UnmarshalText([]byte(d.to)); err != nil {
			panic(err)
		}
	}
}

// queued is how many payments wait for a worker.
func (s *siege) queued() int {
	return int(s.metric("queue_depth", "service", "wallet", "queue", "work"))
}

// The 512 payments that may wait do, the next one is told when to come back, at once, and counted exactly; each of those that
// were let in is done. A machine that is too slow to fill the queue before the node finds its ledger slow tries again.
func fullWork(t *testing.T) {
	const most = 512
	s := besiege(t, steady, func(cfg *config.Config) { cfg.Server.PerIP = 1024 })
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

// fill holds the ledger up and pays until nothing more fits. It tells whether the queue was full before the node noticed that
// its ledger is slow, and how many payments were done in the end.
func (s *siege) fill(most int, nonce *uint64) (full bool, done int) {
	s.t.Helper()
	s.writable(true)
	release := s.holdStore()
	*nonce++
	in := []<-chan answer{s.sends(s.t.Context(), s.pays(fmt.Sprintf("fill-%d", *nonce), pay("alice", "bob", "1", *nonce)))}
	s.inHand(1)
	for i := range most { // payers who have nothing: a worker asks the ledger for none of them while the first is in its hands
		in = append(in, s.sends(s.t.Context(), s.pays(fmt.Sprintf("fill-%d-%d", *nonce, i), pay(fmt.Sprintf("f%d", i), "bob", "1", 1))))
	}
	s.await("a full queue, or a ledger that is found slow", func() bool { return s.queued() == most || !s.walletReady() })
	if full = s.queued() == most && s.walletReady(); full {
		s.overflow()
	}
	release()
	for i, one := range in {
		switch got := <-one; {
		case i == 0 && got.status == http.StatusOK, i > 0 && got.status == http.StatusConflict:
			done++
		case full:
			s.t.Errorf("the %d. payment that was let in: %d %s", i, got.status, got.body)
		}
	}
	return full, done
}

// walletReady says whether the wallet takes writes.
func (s *siege) walletReady() bool { return s.board.Report("wallet", "").WriteReady }

// overflow asks for one payment more than fits.
func (s *siege) overflow() {
	s.t.Helper()
	want := map[string]float64{
		"rejected_total service=wallet reason=busy": 3, "busy_rejections_total service=wallet endpoint=transfer": 3, "queue_dropped_total service=wallet queue=work": 3,
	}
	s.counted("full queue", want, func() {
		for i := range 3 {
			got := s.ask(s.attacker(), s.pays(fmt.Sprintf("late-%d", i), pay("alice", "bob", "1", 1)))
			s.told("full queue", got, http.StatusTooManyRequests, "busy")
			if got.problem.Code != "BUSY" || got.header.Get("Retry-After") == "" {
				s.t.Errorf("full queue: %v %s", got.header, got.body)
			}
		}
	})
}

// One principal that asks for too much is told when to come back; another one does not notice.
func overPaid(t *testing.T) {
	s := besiege(t, func(cfg *config.Config) { cfg.Wallet.Limits.RatePerSecond, cfg.Wallet.Limits.Burst = 5, 5 })
	before, refused := s.scrape(), 0
	for range 40 {
		got := s.ask(s.attacker(), s.pays("k", "{}"))
		if got.status == http.StatusTooManyRequests {
			refused++
			s.told("rate", got, http.StatusTooManyRequests, "rate_limit")
			if got.problem.Code != "BUSY" || got.header.Get("Retry-After") == "" {
				t.Errorf("%v %s", got.header, got.body)
			}
		}
	}
	if after := s.scrape(); refused == 0 || grown(before, after, "rejected_total service=wallet reason=rate_limit") != float64(refused) {
		t.Errorf("%d refused", refused)
	}
	other, err := s.socket().Mint(t.Context(), mintFor("other", "wallet.transfer"))
	must(t, err)
	if got := s.ask(s.attacker(), strings.Replace(s.pays("k", "{}"), s.token, other.Token, 1)); got.status != http.StatusBadRequest {
		t.Errorf("another principal: %d %s", got.status, got.body)
	}
}

func mintFor(sub string, scopes ...string) wire.MintRequest {
	return wire.MintRequest{Sub: sub, Scopes: scopes}
}

// A payment whose deadline passes in the queue was not made; one that passes behind it may have been, and the same request
// again tells. Whoever leaves the queue pays nothing.
func latePayments(t *testing.T) {
	s := besiege(t, steady)
	known := s.pays("known", pay("alice", "bob", "10", 1))
	first, release := s.inTheMiddle(strings.Replace(known, "\r\nIdempotency", "\r\nRequest-Timeout: 0.5\r\nIdempotency", 1))
	got := s.ask(s.attacker(), s.pays("never", pay("alice", "bob", "1", 2), "Request-Timeout: 0.05"))
	s.told("in the queue", got, http.StatusServiceUnavailable, "timeout")
	if got.problem.Code != "RETRY_LATER" || !got.problem.Retryable {
		t.Errorf("in the queue: %s", got.body)
	}
	got = <-first
	s.told("behind it", got, http.StatusServiceUnavailable, "upstream")
	if got.problem.Code != "UPSTREAM_UNAVAILABLE" || got.problem.Details["outcome"] != "unknown" || !got.problem.Retryable {
		t.Errorf("behind it: %s", got.body)
	}
	release()
	s.writable(true)
	s.await("the outcome", func() bool { return s.owns("bob") == "10" })
	told := s.ask(s.attacker(), known) // it may join the first one, or be its replay
	if told.status != http.StatusOK {
		t.Errorf("the same request again: %d %s", told.status, told.body)
	}
	if again := s.ask(s.attacker(), known); string(again.body) != string(told.body) || again.header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("and once more: %d %v %s, was %s", again.status, again.header, again.body, told.body)
	}
	if s.owns("bob") != "10" {
		t.Errorf("bob has %s: it was paid twice", s.owns("bob"))
	}
	if got := s.ask(s.attacker(), s.pays("never", pay("alice", "bob", "1", 2))); got.status != http.StatusOK || got.header.Get("Idempotent-Replayed") != "" {
		t.Errorf("what was never begun: %d %v %s", got.status, got.header, got.body)
	}
	s.look()
	s.holds()
}

// A journal that does not follow itself is read and never written: the node serves, and says what is to be done.
func rottenJournal(t *testing.T) {
	cfg, _ := devConfig(t)
	r := start(t, cfg)
	r.receipt("/v1/transfer", "k", strings.Replace(pay("alice", "bob", "10", 1), "{", `{"memo":"rotten-memo",`, 1))
	r.halt()
	flip(t, cfg.Path(DatabaseName), "rotten-memo")
	s := &siege{rig: launch(t, cfg).safe(), key: signer(t, cfg)}
	token, err := os.ReadFile(cfg.Path(TokenName))
	must(t, err)
	s.token = strings.TrimSpace(string(token))
	if s.metric("ledger_safe_mode") != 1 {
		t.Error("ledger_safe_mode is not 1")
	}
	got := s.ask(s.attacker(), s.pays("k2", pay("alice", "bob", "1", 2)))
	s.told("a payment in safe mode", got, http.StatusServiceUnavailable, "upstream")
	if got.problem.Code != "UPSTREAM_UNAVAILABLE" || got.problem.Details["outcome"] != "none" {
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
