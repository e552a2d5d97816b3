package server

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"gopkg.in/macaroon.v2"

	"ronbox/appliance/b3"
	"ronbox/appliance/unit"
	"ronbox/cmd/ronbox/server/config"
	"ronbox/httpapi/auth"
	nodeapi "ronbox/httpapi/wire/node"
	registryapi "ronbox/httpapi/wire/registry"
)

func adminOnTCP(cfg *config.Config) { cfg.Server.AdminOnTCP = true }

// A body that is not what its route takes is refused by the member that is wrong, and reaches no
// queue.
func badJSON(t *testing.T) {
	s := besiege(t, adminOnTCP)
	const propose, verify = "/registry/proposals", "/admin/v1/tokens/verify"
	wrap := func(payload string) string { return `{"schema_version":"1.0.0","payload":` + payload + `}` }
	good := string(draft(2, "x"))
	amount := func(text string) string { return `{"token":"x","amount":` + text + `}` }
	for _, tt := range []struct{ doc, path, body, field, reason string }{
		{"nothing", propose, " ", "", "schema"},
		{"no object", propose, `[]`, "", "schema"},
		{"a byte order mark", propose, "\xef\xbb\xbf" + wrap(good), "", "schema"},
		{"bytes after it", propose, wrap(good) + "{}", "", "schema"},
		{"an unknown member", propose, strings.Replace(wrap(good), "{", `{"extra":1,`, 1), "extra", "schema"},
		{"a member twice", propose, strings.Replace(wrap(good), "{", `{"schema_version":"1.0.0",`, 1), "schema_version",
			"schema"},
		{"a member twice, spelt otherwise", propose,
			strings.Replace(wrap(good), "{", `{"schema\u005fversion":"1.0.0",`, 1), "schema_version", "schema"},
		{"a member in another case", propose, strings.Replace(wrap(good), "schema_version", "Schema_Version", 1),
			"Schema_Version", "schema"},
		{"null", propose, wrap("null"), "payload", "schema"},
		{"a member twice inside", propose, wrap(strings.Replace(good, "{", `{"version":2,`, 1)), "payload.version",
			"schema"},
		{"an unknown member inside", propose, wrap(strings.Replace(good, "{", `{"extra":1,`, 1)), "extra", "malformed"},
		{"deep nesting", propose, wrap(strings.Repeat(`{"a":`, 40) + "1" + strings.Repeat("}", 40)), "payload.a.",
			"schema"},
		{"a wall of brackets", propose, wrap(strings.Repeat("[", 400_000)), "payload.0.", "schema"},
		{"bad UTF-8", propose, wrap(strings.Replace(good, `"x"`, "\"\xff\"", 1)), "payload.put.0.id", "schema"},
		{"a lone surrogate", propose, wrap(strings.Replace(good, `"x"`, `"\ud800"`, 1)), "payload.put.0.id", "schema"},
		{"a NUL", propose, wrap(strings.Replace(good, `"x"`, "\"\x00\"", 1)), "payload.put.0.id", "schema"},
		{"a NUL in hiding", propose, wrap(strings.Replace(good, `"x"`, `"\u0000"`, 1)), "put.0.id", "malformed"},
		{"a number with a fraction", propose, wrap(strings.Replace(good, `"version":2`, `"version":2.5`, 1)), "version",
			"malformed"},
		{"a number below zero", propose, wrap(strings.Replace(good, `"version":2`, `"version":-2`, 1)), "version",
			"malformed"},
		{"a number beyond all", propose, wrap(strings.Replace(good, `"version":2`, `"version":1e400`, 1)), "version",
			"malformed"},
		{"an amount that is a float", verify, amount("1.5"), "amount", "schema"},
		{"an amount that is a number", verify, amount("1"), "amount", "schema"},
		{"a float in quotes", verify, amount(`"1.5"`), "amount", "schema"},
		{"a negative amount", verify, amount(`"-1"`), "amount", "schema"},
		{"an amount of 40 digits", verify, amount(`"` + strings.Repeat("1", 40) + `"`), "amount", "schema"},
		{"an amount beyond 128 bits", verify, amount(`"340282366920938463463374607431768211456"`), "amount", "schema"},
		{"an amount with a zero ahead", verify, amount(`"01"`), "amount", "schema"},
	} {
		s.counted(
			tt.doc,
			map[string]float64{"rejected_total reason=" + tt.reason: 1, "store_commands_total": 0},
			func() {
				got := s.ask(s.attacker(), s.post(tt.path, tt.body))
				s.told(tt.doc, got, http.StatusBadRequest, tt.reason)
				field, _ := got.problem.Details["field"].(string)
				if field != tt.field && (!strings.HasSuffix(tt.field, ".") || !strings.HasPrefix(field, tt.field)) {
					t.Errorf("%s: names %q, want %q\n%s", tt.doc, field, tt.field, got.body)
				}
			},
		)
	}
	s.holds()
}

// A path matches a route exactly or gets 404: it is not cleaned, decoded twice, redirected, or
// looked up in a file system.
func badPaths(t *testing.T) {
	s := besiege(t)
	for _, tt := range []struct {
		path, reason string
		status       int
	}{
		{"/..", "malformed", 400}, {"/../etc/passwd", "malformed", 400}, {"/registry/../metrics", "malformed", 400},
		{"/registry/%2e%2e/metrics", "malformed", 400}, {"/registry/..%2fhead", "malformed", 400},
		{"/registry/%252e%252e/head", "not_found", 404},
		{"/registry/..%5chead", "malformed", 400}, {`/registry\head`, "malformed", 400},
		{"//registry/head", "malformed", 400},
		{"/registry//head", "malformed", 400}, {"/registry/head/", "not_found", 404},
		{"/registry/./head", "malformed", 400},
		{"/Registry/head", "not_found", 404}, {"/registry/HEAD", "not_found", 404},
		{"/registry/head%00", "malformed", 400},
		{"/registry/1%00/payload", "malformed", 400}, {"/registry/01", "not_found", 404},
		{"/registry/proposals/../1", "malformed", 400}, {"/schema/..%2f..%2fgo.mod", "malformed", 400},
		{"/schema/%2e%2e", "not_found", 404},
		{"/registry/%c0%ae%c0%ae/head", "not_found", 404}, {"/admin/v1/status", "not_found", 404},
		{"http://elsewhere.example/registry/HEAD", "not_found", 404},
		{"/registry/%zz", "malformed", 400}, {"/registry/head\x00", "malformed", 400},
		{"/registry/ head", "malformed", 400},
		{"registry/head", "malformed", 400}, {"/registry/head?x=1", "malformed", 400}, {"/registry/diff?from=1;to=2",
			"malformed", 400},
		{"/" + strings.Repeat("x", 9000), "malformed", 414}, {"/registry/\x7f", "malformed", 400},
	} {
		doc := fmt.Sprintf("GET %.60q", tt.path)
		s.counted(doc, map[string]float64{"rejected_total reason=" + tt.reason: 1, "store_commands_total": 0}, func() {
			got := s.ask(s.attacker(), "GET "+tt.path+" HTTP/1.1\r\nHost: x\r\n\r\n")
			s.told(doc, got, tt.status, tt.reason)
		})
	}
	s.holds()
}

// An invalid token gets the same 401 in every case, before the body is read; the log has the
// reason. An unknown caveat denies.
func badTokens(t *testing.T) {
	s := besiege(t)
	strange := withCaveat(t, s.token, "planet = mars")
	expired, err := auth.Attenuate(s.token, "exp < 2001-01-01T00:00:00Z")
	must(t, err)
	same := "" // but for the correlation
	for _, tt := range []struct {
		doc, header, stage string
		status             int
	}{
		{"none", "X: x", "token", 401},
		{"another scheme", "Authorization: Basic " + s.token, "token", 401},
		{"an empty one", "Authorization: Bearer ", "token", 401},
		{"two", "Authorization: Bearer " + s.token + "\r\nAuthorization: Bearer " + s.token, "token", 401},
		{"garbled", "Authorization: Bearer AgE-garbled", "token", 401},
		{"not base64url", "Authorization: Bearer " + strings.Repeat("+/=", 20), "token", 401},
		{"oversize", "Authorization: Bearer " + strings.Repeat("A", 5000), "token", 401},
		{"bytes behind it", "Authorization: Bearer " + s.token + "AAAA", "token", 401},
		{"one bit of its proof", "Authorization: Bearer " + flipped(t, s.token), "signature", 401},
		{"of another node", "Authorization: Bearer " + foreignToken(t), "signature", 401},
		{"over", "Authorization: Bearer " + expired, "time", 401},
		{"a caveat that nobody knows", "Authorization: Bearer " + strange, "caveat", 403},
	} {
		reason := map[int]string{401: "unauth", 403: "forbidden"}[tt.status]
		want := map[string]float64{
			"auth_failures_total surface=tcp scope=registry.propose stage=" + tt.stage: 1,
			"rejected_total reason=" + reason:                                          1,
			"store_commands_total":                                                     0,
		}
		s.counted(tt.doc, want, func() {
			got := s.ask(
				s.attacker(),
				"POST /registry/proposals HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: "+
					"100\r\nExpect: 100-continue\r\n"+tt.header+"\r\n\r\n",
			)
			s.told(tt.doc, got, tt.status, reason)
			if challenge := got.header.Get("WWW-Authenticate"); (challenge != "") != (tt.status == 401) {
				t.Errorf("%s: WWW-Authenticate %q", tt.doc, challenge)
			}
			body := strings.ReplaceAll(string(got.body), got.problem.CorrID, "")
			if same == "" {
				same = body
			}
			if tt.status == 401 && body != same || strings.Contains(body, "mars") {
				t.Errorf("%s: tells why: %s", tt.doc, body)
			}
		})
	}
	s.await(
		"a line of the caveat that denied",
		func() bool { return strings.Contains(s.log.String(), "planet = mars") },
	)
	if strings.Contains(s.log.String(), s.token) {
		t.Error("the log repeats a token")
	}
	s.guesses()
	s.holds()
}

// guesses lets one address guess until it is no longer listened to; a token that stands is not
// looked at either then, and other addresses do not notice.
func (s *siege) guesses() {
	s.t.Helper()
	const most = 200 // 20 at once and 10 a second: a slow machine may need more than 21
	from, tries := s.attacker(), 0
	for ; tries < most; tries++ {
		got := s.ask(from, strings.Replace(s.post("/registry/proposals", "{}"), s.token, "AgE-guess", 1))
		if got.status == http.StatusTooManyRequests {
			s.told("too many guesses", got, http.StatusTooManyRequests, "rate_limit")
			break
		}
		s.told("a guess", got, http.StatusUnauthorized, "unauth")
	}
	if tries < 20 || tries == most {
		s.t.Errorf("refused to listen after %d guesses", tries)
	}
	if s.scrape().sum("auth_failures_total", "stage", "ip") == 0 {
		s.t.Error("no count of what was not looked at")
	}
	if got := s.ask(s.attacker(), s.post("/registry/proposals", "{}")); got.status != http.StatusBadRequest {
		s.t.Errorf("a token from elsewhere: %d %s", got.status, got.body)
	}
}

// withCaveat adds what attenuate would not.
func withCaveat(t *testing.T, token, caveat string) string {
	t.Helper()
	raw, err := base64.RawURLEncoding.DecodeString(token)
	must(t, err)
	var m macaroon.Macaroon
	must(t, m.UnmarshalBinary(raw))
	must(t, m.AddFirstPartyCaveat([]byte(caveat)))
	raw, err = m.MarshalBinary()
	must(t, err)
	return base64.RawURLEncoding.EncodeToString(raw)
}

// flipped changes one bit of a token's proof.
func flipped(t *testing.T, token string) string {
	t.Helper()
	raw, err := base64.RawURLEncoding.DecodeString(token)
	must(t, err)
	raw[len(raw)-1] ^= 1
	return base64.RawURLEncoding.EncodeToString(raw)
}

// foreignToken is a good token of a node that nobody here knows.
func foreignToken(t *testing.T) string {
	t.Helper()
	cfg, _ := freshDev(t)
	raw, err := os.ReadFile(cfg.Path(config.TokenName))
	must(t, err)
	return strings.TrimSpace(string(raw))
}

// A valid token for another purpose is refused before the body is read, or, if only the engine
// knows the object, before a command is enqueued. Caveats for accounts, tenants and epochs are
// checked as the engine checks them.
func foreignGrants(t *testing.T) {
	s := besiege(t, adminOnTCP)
	for _, caveat := range []string{
		"scope = registry.approve", "aud = wallet", "path = /registry/commit/*", "method = GET,DELETE",
		"ip = 10.0.0.0/8", "amnesia = on",
	} {
		token, err := auth.Attenuate(s.token, caveat)
		must(t, err)
		want := map[string]float64{
			"auth_failures_total stage=caveat": 1,
			"rejected_total reason=forbidden":  1,
			"store_commands_total":             0,
		}
		s.counted(caveat, want, func() {
			raw := s.write("/registry/proposals", "Content-Length: 100", "Expect: 100-continue") + "\r\n"
			s.told(caveat, s.ask(s.attacker(), strings.Replace(raw, s.token, token, 1)), http.StatusForbidden,
				"forbidden")
		})
	}
	s.foreignSigner()
	for _, tt := range []struct{ caveat, scope, own, foreign string }{
		{"account = alice", "wallet.transfer", `"account":"alice"`, `"account":"bob"`},
		{"account = t1/*", "wallet.transfer", `"account":"t1/x"`, `"account":"t2/x"`},
		{"tenant = t1", "rewarder.run", `"tenant":"t1"`, `"tenant":"t2"`},
		{"epoch = 7", "rewarder.run", `"epoch":"7"`, `"epoch":"8"`},
		{"asset = ron", "wallet.issue", `"asset":"ron"`, `"asset":"gold"`},
		{"registry.signer = org:a#1", "registry.approve", `"signer":"org:a#1"`, `"signer":"org:a#2"`},
		{"max_bytes <= 100", "registry.propose", `"bytes":100`, `"bytes":101`},
	} {
		token, err := auth.Attenuate(s.token, tt.caveat)
		must(t, err)
		for ask, allowed := range map[string]bool{tt.own: true, tt.foreign: false} {
			body := fmt.Sprintf(`{"token":%q,"scope":%q,%s}`, token, tt.scope, ask)
			got := s.ask(s.attacker(), s.post("/admin/v1/tokens/verify", body))
			var v nodeapi.Verdict
			if err := json.Unmarshal(got.body, &v); err != nil || got.status != http.StatusOK || v.Allowed != allowed ||
				!v.Authentic {
				t.Errorf("%s, asked for %s: %d %s", tt.caveat, ask, got.status, got.body)
			}
			if !allowed && (len(v.Failed) != 1 || v.Failed[0].Caveat != tt.caveat) {
				t.Errorf("%s, asked for %s: failed %v", tt.caveat, ask, v.Failed)
			}
		}
	}
	s.holds()
}

// foreignSigner signs with a key that the token is not for.
func (s *siege) foreignSigner() {
	s.t.Helper()
	again, id := s.pending("foreign")
	s.look()
	token, err := auth.Attenuate(s.token, "registry.signer = org:elsewhere#1")
	must(s.t, err)
	a := s.key.Sign(b3.Sum(payloadOf(s.t, again)), time.Now())
	body, err := json.Marshal(
		registryapi.Approval{SignerID: a.SignerID, Algo: a.Algo, Sig: a.Sig, SignedAt: a.SignedAt},
	)
	must(s.t, err)
	s.counted(
		"a foreign signer",
		map[string]float64{"rejected_total reason=forbidden": 1, "store_commands_total result=ok": 0},
		func() {
			raw := strings.Replace(s.post("/registry/approvals/"+id, string(body)), s.token, token, 1)
			s.told("a foreign signer", s.ask(s.attacker(), raw), http.StatusForbidden, "forbidden")
		},
	)
}

// payloadOf takes the payload out of a body that proposes it.
func payloadOf(t *testing.T, body string) []byte {
	t.Helper()
	var in registryapi.Propose
	must(t, json.Unmarshal([]byte(body), &in))
	return in.Payload
}

const shortRead = 2 * time.Second // long enough for a busy machine to look at its connections

func quickReads(cfg *config.Config) { cfg.Server.ReadTimeout = unit.Duration(shortRead) }

// A connection with missing headers is closed without an answer; a missing body gets an error.
// Neither holds a place in a queue.
func slowClients(t *testing.T) {
	s := besiege(t, quickReads)
	half := s.post("/registry/proposals", s.propose("x"))
	headers := map[string]string{
		"nothing at all":      "",
		"half a request line": "GET /hea",
		"half open headers":   "GET /healthz HTTP/1.1\r\nHost: x\r\nX-Slow: ",
		"headers of a write":  half[:200],
	}
	s.counted(
		"headers that do not come",
		map[string]float64{"rejected_total reason=timeout": float64(len(headers)), "store_commands_total": 0},
		func() {
			open := map[string]net.Conn{}
			for doc, raw := range headers {
				open[doc] = s.dial(s.attacker())
				_, _ = io.WriteString(open[doc], raw)
			}
			s.await("the connections", func() bool { return int(s.metric("conns_open")) == len(headers) })
			if inside := s.metric("inflight_requests"); inside != 0 {
				t.Errorf("%v calls are inside", inside)
			}
			for doc, c := range open {
				if err := gone(c); err != nil {
					t.Errorf("%s: %v", doc, err)
				}
			}
		},
	)
	s.counted("dripping headers", map[string]float64{"rejected_total reason=timeout": 1}, func() {
		c := s.dial(s.attacker())
		s.drip(c, "GET /healthz HTTP/1.1\r\nX-Slow: "+strings.Repeat("x", 1000))
		if err := gone(c); err != nil {
			t.Errorf("dripping headers: %v", err)
		}
	})
	bodies := map[string]string{
		"a body that was begun":   s.write("/registry/proposals", "Content-Length: 100") + "\r\n{",
		"a body that never comes": s.write("/registry/proposals", "Content-Length: 100") + "\r\n",
		"half a chunk":            s.write("/registry/proposals", "Transfer-Encoding: chunked") + "\r\n5\r\nab",
	}
	s.counted(
		"bodies that do not come",
		map[string]float64{"rejected_total reason=timeout": float64(len(bodies)), "store_commands_total": 0},
		func() {
			answers := map[string]<-chan answer{}
			for doc, raw := range bodies {
				answers[doc] = s.sends(t.Context(), raw)
			}
			for doc, one := range answers {
				got := <-one
				s.told(doc, got, http.StatusRequestTimeout, "timeout")
				if !got.closed || got.problem.Details["outcome"] != "none" {
					t.Errorf("%s: %v", doc, got.problem.Details)
				}
			}
		},
	)
	s.holds()
}

// drip sends byte by byte until the node has had enough.
func (s *siege) drip(c net.Conn, text string) {
	pace := time.NewTicker(10 * time.Millisecond)
	defer pace.Stop()
	for i := range len(text) {
		<-pace.C
		if _, err := io.WriteString(c, text[i:i+1]); err != nil {
			return
		}
	}
	s.t.Errorf("%d bytes dripped in and the connection is still open", len(text))
}

// A body is the same wherever the network splits it. A truncated body is refused and counted.
func brokenBodies(t *testing.T) {
	s := besiege(t, func(cfg *config.Config) { cfg.Registry.Limits.RPS = 0 })
	whole, id := s.pending("split")
	raw := s.post("/registry/proposals", whole)
	from := s.attacker()
	s.look()
	for at := range len(raw) - 1 {
		c := s.dial(from)
		_, _ = io.WriteString(c, raw[:at+1])
		got := s.exchange(c, raw[at+1:])
		_ = c.Close()
		if got.status != http.StatusAccepted || !bytes.Contains(got.body, []byte(id)) ||
			got.header.Get("Idempotent-Replayed") != "true" {
			t.Fatalf("split at %d: %d %s, want %s again", at+1, got.status, got.body, id)
		}
	}
	begun := s.write("/registry/proposals", "Content-Length: 500") + "\r\n" + s.propose("cut")
	s.counted("cut short", map[string]float64{"rejected_total reason=malformed": 1, "store_commands_total": 0}, func() {
		c := s.dial(s.attacker())
		_, _ = io.WriteString(c, begun)
		must(t, c.CloseWrite())
		s.told("cut short", s.exchange(c, ""), http.StatusBadRequest, "malformed")
	})
	s.counted(
		"client gone",
		map[string]float64{"rejected_total reason=malformed": 1, "store_commands_total": 0},
		func() {
			c := s.dial(s.attacker())
			_, _ = io.WriteString(c, begun)
			s.await("the call to begin", func() bool { return s.metric("inflight_requests") == 1 })
			must(t, c.SetLinger(0))
			must(t, c.Close())
		},
	)
	s.holds()
}

// One connection too many of an address, and of all, is told so and closed; probes have places of
// their own.
func connectionFlood(t *testing.T) {
	s := besiege(t, func(cfg *config.Config) {
		cfg.Server.MaxConns, cfg.Server.PerIP, cfg.Server.Reserved = 5, 3, 2
		cfg.Server.ReadTimeout = unit.Duration(patience) // they say nothing
		cfg.Server.HealthCIDRs = []string{quietHost + "/32"}
	})
	greedy := s.attacker()
	var held []net.Conn
	hold := func(from string, n int) {
		for range n {
			held = append(held, s.dial(from))
		}
		s.await("the connections", func() bool { return int(s.metric("conns_open")) == len(held) })
	}
	hold(greedy, 3)
	s.counted(
		"one too many of an address",
		map[string]float64{"conn_rejects_total reason=per_ip": 1, "rejected_total reason=conn_cap": 1},
		func() {
			got := s.ask(greedy, "")
			s.told("one too many of an address", got, http.StatusTooManyRequests, "conn_cap")
			if !got.closed {
				t.Error("it does not close")
			}
		},
	)
	hold(s.attacker(), 2)
	s.counted(
		"one too many of all",
		map[string]float64{"conn_rejects_total reason=total": 1, "rejected_total reason=conn_cap": 1},
		func() {
			got := s.ask(s.attacker(), "")
			s.told("one too many of all", got, http.StatusServiceUnavailable, "conn_cap")
			if !got.closed {
				t.Error("it does not close")
			}
		},
	)
	s.probe()
	for _, c := range held {
		_ = c.Close()
	}
	s.holds()
}

// A body that is longer than declared or larger than allowed is refused, and the connection is
// closed.
func lyingBodies(t *testing.T) {
	s := besiege(t, func(cfg *config.Config) { cfg.Server.AdminOnTCP = true })
	body := s.propose("lying")
	chunk := func(text string) string { return fmt.Sprintf("%x\r\n%s\r\n", len(text), text) }
	for _, tt := range []struct {
		doc, raw, reason string
		status           int
	}{
		{"2 MiB told ahead", s.write("/registry/proposals", "Content-Length: 2097152") + "\r\n" + strings.Repeat("x",
			2<<20), "body_cap", 413},
		{"a length beyond all numbers", s.write("/registry/proposals", "Content-Length: 99999999999999999999") + "\r\n",
			"malformed", 400},
		{"a negative length", s.write("/registry/proposals", "Content-Length: -1") + "\r\n", "malformed", 400},
		{"two lengths", s.write("/registry/proposals", "Content-Length: 3", "Content-Length: 4") + "\r\n{}",
			"malformed", 400},
		{"chunks where a length is asked for",
			s.write("/registry/proposals", "Transfer-Encoding: chunked") + "\r\n" + chunk(body) + "0\r\n\r\n",
			"length_required", 411},
		{"chunks beyond the cap", s.write("/registry/proposals",
			"Transfer-Encoding: chunked") + "\r\n" + chunk(strings.Repeat("x", 1<<20)) + chunk("x"), "body_cap", 413},
		{"a chunk that is none", s.write("/registry/proposals", "Transfer-Encoding: chunked") + "\r\nzz\r\n",
			"malformed", 400},
		{"a coding that is none", s.write("/registry/proposals", "Transfer-Encoding: gzip") + "\r\n", "malformed", 501},
	} {
		s.counted(
			tt.doc,
			map[string]float64{"rejected_total reason=" + tt.reason: 1, "store_commands_total": 0},
			func() {
				got := s.ask(s.attacker(), tt.raw)
				s.told(tt.doc, got, tt.status, tt.reason)
				if !got.closed {
					t.Errorf("%s: the connection lives on", tt.doc)
				}
			},
		)
	}
	s.tooShort(body)
	s.endless()
	s.bothFramings()
	s.holds()
}

// tooShort sends more than the declared length: the node reads the declared part and ignores the
// bytes after it.
func (s *siege) tooShort(body string) {
	s.t.Helper()
	want := map[string]float64{
		"rejected_total reason=schema":    1,
		"rejected_total reason=malformed": 1,
		"store_commands_total":            0,
	}
	s.counted("less than it sends", want, func() {
		c := s.dial(s.attacker())
		_, _ = io.WriteString(c, s.write("/registry/proposals", "Content-Length: 5")+"\r\n"+body+"\r\n\r\n")
		in := bufio.NewReader(c)
		s.told("what it says", s.read(in), http.StatusBadRequest, "schema")
		got := s.read(in)
		s.told("the rest", got, http.StatusBadRequest, "malformed")
		if !got.closed {
			s.t.Error("the connection lives on")
		}
		_ = c.Close()
	})
}

// endless sends chunks without end: the node stops reading near its cap.
func (s *siege) endless() {
	s.t.Helper()
	const most = 64 << 20 // the cap is 1 MiB; kernel buffers on both sides take more
	c, sent, over := s.dial(s.attacker()), 0, make(chan struct{})
	s.counted("chunks without end", map[string]float64{"rejected_total reason=body_cap": 1}, func() {
		go func() {
			defer close(over)
			_, _ = io.WriteString(c, s.write("/registry/proposals", "Transfer-Encoding: chunked")+"\r\n")
			piece := fmt.Sprintf("%x\r\n%s\r\n", 64<<10, strings.Repeat("x", 64<<10))
			for sent < most {
				n, err := io.WriteString(c, piece)
				if sent += n; err != nil {
					return
				}
			}
		}()
		got := s.read(bufio.NewReader(c))
		s.told("chunks without end", got, http.StatusRequestEntityTooLarge, "body_cap")
		_ = c.Close()
		<-over
	})
	if sent >= most {
		s.t.Errorf("the node took %d bytes", sent)
	}
}

// bothFramings sends both a length and chunks. The node reads chunks, as net/http does, and ignores
// the bytes after them because it closes the connection.
func (s *siege) bothFramings() {
	s.t.Helper()
	body := fmt.Sprintf(`{"token":%q,"scope":"registry.propose"}`, s.token)
	hidden := "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
	raw := s.write("/admin/v1/tokens/verify", "Content-Length: 4", "Transfer-Encoding: chunked") + "\r\n" +
		fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(body), body) + hidden
	c := s.dial(s.attacker())
	_, _ = io.WriteString(c, raw)
	in := bufio.NewReader(c)
	if got := s.read(in); got.status != http.StatusOK || !got.closed ||
		!bytes.Contains(got.body, []byte(`"allowed":true`)) {
		s.t.Errorf("both framings: %d %s, closes %v", got.status, got.body, got.closed)
	}
	if got := s.read(in); got.status != 0 {
		s.t.Errorf("what hides behind both framings is answered with %d", got.status)
	}
	_ = c.Close()
}

func gzipped(text string) string {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = io.WriteString(w, text)
	_ = w.Close()
	return b.String()
}

func zstded(t *testing.T, text string) string {
	t.Helper()
	w, err := zstd.NewWriter(nil)
	must(t, err)
	defer func() { _ = w.Close() }()
	return string(w.EncodeAll([]byte(text), nil))
}

// noise is text that no encoding shrinks by much.
func noise(n int) string {
	r, b := rand.New(rand.NewPCG(1, 2)), make([]byte, n)
	for i := range b {
		b[i] = "0123456789abcdef"[r.IntN(16)]
	}
	return string(b)
}

// A compressed body with an excessive ratio or size, a double encoding, or no content is refused
// while it streams.
func bombs(t *testing.T) {
	s := besiege(t, func(cfg *config.Config) { cfg.Server.AbsCap = 1250 << 10 })
	flat := `{"schema_version":"1.0.0","payload":{"pad":"` + strings.Repeat("x", 8<<20) + `"}}`
	noisy := `{"schema_version":"1.0.0","payload":{"pad":"` + noise(1300<<10) + `"}}`
	small := s.propose("packed")
	for _, tt := range []struct {
		doc, coding, body, reason string
		status                    int
	}{
		{"gzip that inflates a thousandfold", "gzip", gzipped(flat), "ratio_cap", 400},
		{"zstd that inflates a thousandfold", "zstd", zstded(t, flat), "ratio_cap", 400},
		{"gzip beyond the absolute cap", "gzip", gzipped(noisy), "decompress_cap", 400},
		{"zstd beyond the absolute cap", "zstd", zstded(t, noisy), "decompress_cap", 400},
		{"one packed in the other", "gzip", gzipped(gzipped(small)), "schema", 400},
		{"two codings told", "gzip, gzip", gzipped(gzipped(small)), "malformed", 400},
		{"a coding told twice", "gzip\r\nContent-Encoding: zstd", gzipped(small), "malformed", 400},
		{"not what it says", "zstd", gzipped(small), "malformed", 400},
		{"cut in the middle", "gzip", gzipped(small)[:60], "malformed", 400},
		{"a sum that is wrong", "gzip", gzipped(small)[:len(gzipped(small))-8] + "12345678", "malformed", 400},
		{"an unknown coding", "br", small, "unsupported_type", 415},
	} {
		s.counted(
			tt.doc,
			map[string]float64{"rejected_total reason=" + tt.reason: 1, "store_commands_total": 0},
			func() {
				got := s.ask(s.attacker(), s.post("/registry/proposals", tt.body, "Content-Encoding: "+tt.coding))
				s.told(tt.doc, got, tt.status, tt.reason)
			},
		)
	}
	if got := s.ask(
		quietHost,
		s.post("/registry/proposals", gzipped(small), "Content-Encoding: gzip"),
	); got.status != http.StatusAccepted {
		t.Errorf("an honest packed body: %d %s", got.status, got.body)
	}
	s.look()
	s.holds()
}
