package auth

import (
	"encoding/base64"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
	"time"

	"gopkg.in/macaroon.v2"

	"ronbox/appliance/obs"
)

// counted makes the rig count its MACs, by the hashes in each.
func (r *rig) counted() *[]int {
	var hashes []int
	r.verify = func(m *macaroon.Macaroon, key []byte) ([]string, error) {
		traces, _ := m.TraceVerify(key, nil)
		n := 0
		for _, op := range traces[0].Ops {
			if op.Kind == macaroon.TraceMakeKey || op.Kind == macaroon.TraceHash {
				n++
			}
		}
		hashes = append(hashes, n)
		return verifySignature(m, key)
	}
	return &hashes
}

// An unknown key, a retired key, a wrong MAC and a malformed text take the same steps.
func TestRefusalsTakeTheSameSteps(t *testing.T) {
	a := newRig()
	caveats := []string{"scope = registry.propose", "exp < 2026-05-01T13:00:00Z", "path = /registry/*", "method = POST"}
	id := Identifier{
		V:        identifierVersion,
		Kid:      "k1",
		TID:      "01JTC0000000000000000000AA",
		Sub:      "ops",
		IssuedAt: noon.Unix(),
		Epoch:    7,
	}
	by := func(kid string, key []byte) string {
		id.Kid = kid
		return appendRaw(t, sealedWith(key, id), caveats...)
	}
	good := by("k1", rootKey(secret, []byte("k1")))
	a.keys[1].State = KeyRetired
	a.reload()
	hashes := a.counted()
	for _, tt := range []struct{ doc, token string }{
		{"good", good}, {"bad MAC", by("k1", []byte("guess"))}, {"unknown key", by("k9", []byte("guess"))}, {"its key is retired", by("k2", rootKey(secret, []byte("k2")))},
		{"not base64", "%" + good[1:]}, {"cut short", good[:len(good)-4]}, {"V1", "M" + good[1:]}, {"too long", strings.Repeat(good, 20)},
	} {
		*hashes = nil
		_, err := a.Check(tt.token, unnamed())
		if (err == nil) != (tt.doc == "good") || err != nil && !errors.Is(err, ErrUnauthenticated) {
			t.Errorf("%s: %v", tt.doc, err)
		}
		if len(*hashes) != 1 || (*hashes)[0] != 2+len(caveats) {
			t.Errorf("%s: MACs of %v hashes, want one of %d", tt.doc, *hashes, 2+len(caveats))
		}
	}
	*hashes = nil
	if _, err := a.Check(good, unnamed()); err != nil || len(*hashes) != 0 {
		t.Errorf("once verified: %v, %d MACs", err, len(*hashes))
	}
	if _, err := a.Check("", unnamed()); !errors.Is(err, ErrUnauthenticated) || len(*hashes) != 0 {
		t.Errorf("no token: %v, %d MACs", err, len(*hashes))
	}
}

func TestTooManyFailures(t *testing.T) {
	m := obs.NewMetrics()
	a := newRig()
	a.Authority = New(DefaultConfig(), m)
	a.reload()
	hashes := a.counted()
	good := mint(t, a)
	narrow := mint(t, a, "method = GET")
	r := propose()
	for range 100 { // neither success nor a token that is too narrow is a failure, nor is no token a guess
		if _, err := a.Check(good, r); err != nil {
			t.Fatal(err)
		}
		if _, err := a.Check(narrow, r); outcomeOf(t, err) != denied {
			t.Fatal(err)
		}
		if _, err := a.Check("", r); outcomeOf(t, err) != rejected {
			t.Fatal(err)
		}
	}
	for range failuresBurst {
		if _, err := a.Check("guess", r); outcomeOf(t, err) != rejected {
			t.Fatal(err)
		}
	}
	*hashes = nil
	var limited *LimitedError
	for _, token := range []string{"guess", mint(t, a)} {
		if _, err := a.Check(token, r); !errors.As(err, &limited) || limited.Stage != "ip" ||
			limited.RetryAfter != 100*time.Millisecond {
			t.Fatalf("%v, %+v", err, limited)
		}
	}
	if len(*hashes) != 0 {
		t.Error("a MAC was computed for a refused address")
	}
	if !strings.Contains(
		scrape(m),
		`auth_failures_total{scope="registry.propose",service="registry",stage="ip",surface="tcp"} 2`,
	) {
		t.Error("not counted")
	}
	other := r
	other.IP = netip.MustParseAddr("192.0.2.8")
	if _, err := a.Check(good, other); err != nil {
		t.Errorf("another address: %v", err)
	}
	if _, err := a.Check(good, unnamed()); err != nil {
		t.Errorf("the admin socket: %v", err)
	}
	r.Now = r.Now.Add(100 * time.Millisecond)
	if _, err := a.Check(mint(t, a), r); err != nil {
		t.Errorf("after the wait: %v", err)
	}
	if _, err := a.Check("guess", r); outcomeOf(t, err) != rejected {
		t.Errorf("one more guess: %v", err)
	}
	if _, err := a.Check(mint(t, a), r); !errors.As(err, &limited) {
		t.Errorf("after it: %v", err)
	}
}

// A client that guesses does not lock out one that was there before behind the same address; an
// invalid token is a guess.
func TestFailuresOfNeighbours(t *testing.T) {
	a := newRig()
	good, narrow, gone, id := mint(t, a), mint(t, a, "method = GET"), "", Identifier{}
	gone, id, err := a.Mint(MintSpec{Sub: "ops", Scopes: []string{"registry.propose"}, Now: noon})
	if err != nil {
		t.Fatal(err)
	}
	r := propose()
	for _, token := range []string{good, narrow, gone} {
		_, _ = a.Check(token, r)
	}
	for range failuresBurst {
		_, _ = a.Check("guess", r)
	}
	hashes := a.counted()
	a.Swap(a.State().With(Revocation{What: "tid", Value: id.TID, At: noon}))
	if _, err := a.Check(good, r); err != nil {
		t.Errorf("a valid one: %v", err)
	}
	if _, err := a.Check(narrow, r); outcomeOf(t, err) != denied {
		t.Errorf("one that is too narrow: %v", err)
	}
	for _, token := range []string{gone, "guess", mint(t, a)} {
		limited := new(LimitedError)
		if _, err := a.Check(token, r); !errors.As(err, &limited) || limited.Stage != "ip" {
			t.Errorf("one that does not: %v", err)
		}
	}
	if len(*hashes) != 0 {
		t.Errorf("%d MACs", len(*hashes))
	}
}

// A client that a proxy does not name clearly, which it can bring about itself, is no peer of the
// socket: all of them share one count.
func TestFailuresWithoutAddress(t *testing.T) {
	m := obs.NewMetrics()
	a := newRig()
	a.Authority = New(DefaultConfig(), m)
	a.reload()
	r := propose()
	r.IP = netip.Addr{}
	for range failuresBurst {
		if _, err := a.Check("guess", r); outcomeOf(t, err) != rejected {
			t.Fatal(err)
		}
	}
	limited := new(LimitedError)
	if _, err := a.Check("guess", r); !errors.As(err, &limited) || limited.Stage != "ip" {
		t.Errorf("one more guess: %v", err)
	}
	if !strings.Contains(scrape(m), `stage="token",surface="tcp"} 20`) {
		t.Error("counted as of the socket")
	}
	for range 3 * failuresBurst {
		if _, err := a.Check("guess", unnamed()); outcomeOf(t, err) != rejected {
			t.Fatal(err)
		}
	}
}

// 10,000 garbled tokens, each a mutation of a good one: no panic, and 401 for all.
func TestGarbledTokens(t *testing.T) {
	a := newRig()
	good := mint(t, a, "path = /registry/*", "method = POST")
	raw, err := base64.RawURLEncoding.DecodeString(good)
	if err != nil {
		t.Fatal(err)
	}
	rnd := rand.New(rand.NewPCG(1, 2))
	for i := range 10_000 {
		b := append([]byte{}, raw...)
		switch i % 4 {
		case 0:
			b = b[:rnd.IntN(len(b))]
		case 1:
			b = append(b, byte(i))
		case 2:
			at := rnd.IntN(len(b))
			b = append(b[:at], b[min(len(b), at+1+rnd.IntN(8)):]...)
		}
		for range 1 + rnd.IntN(4) {
			if len(b) > 0 {
				b[rnd.IntN(len(b))] ^= byte(1 + rnd.IntN(255))
			}
		}
		token := base64.RawURLEncoding.EncodeToString(b)
		if i%5 == 0 && len(token) > 0 {
			token = token[:rnd.IntN(len(token))] + string(rune(rnd.IntN(300))) + token[rnd.IntN(len(token)):]
		}
		if token == good {
			continue
		}
		if _, err := a.Check(token, unnamed()); !errors.Is(err, ErrUnauthenticated) {
			t.Fatalf("%q: %v", token, err)
		}
	}
}

func TestRate(t *testing.T) {
	a := newRig()
	wide := mint(t, a, "rate <= 5/s")
	narrow := appendRaw(t, wide, "rate <= 2/s", "rate <= 3/s")
	r := propose()
	var limited *LimitedError
	take := func(doc, token string, want bool) {
		t.Helper()
		_, err := a.Check(token, r)
		if want != (err == nil) ||
			!want &&
				(!errors.As(err, &limited) || limited.Stage != "rate" || limited.RetryAfter <= 0 || limited.TID == "") {
			t.Errorf("%s: %v", doc, err)
		}
	}
	for i := range 3 {
		take(fmt.Sprintf("narrowed, %d", i), narrow, i < 2)
	}
	again := r
	again.Again = true
	for range 3 {
		if _, err := a.Check(narrow, again); err != nil {
			t.Errorf("an open stream is checked again: %v", err)
		}
	}
	r.Path = "/elsewhere"
	r.Now = r.Now.Add(time.Second)
	for range 20 {
		if _, err := a.Check(appendRaw(t, narrow, "path = /registry/*"), r); outcomeOf(t, err) != denied {
			t.Fatal(err)
		}
	}
	r.Path = "/registry/proposals"
	take("what was denied took nothing", narrow, true)
	take("both share the token's", wide, true)
	take("another token has its own", mint(t, a, "rate <= 1/s"), true)
}

// The series stay few, for any number of scopes.
func TestSeriesAreBounded(t *testing.T) {
	m := obs.NewMetrics()
	failures := newFailureCounter(m)
	for i := range 3000 {
		failures.count(stageToken, &Request{Service: "registry", Scope: fmt.Sprintf("registry.verb%d", i)})
	}
	if n := strings.Count(scrape(m), "\nauth_failures_total{"); n != maxFailureSeries+1 {
		t.Errorf("%d series, want %d", n, maxFailureSeries+1)
	}
	if !strings.Contains(
		scrape(m),
		fmt.Sprintf(
			`auth_failures_total{scope="other",service="node",stage="token",surface="tcp"} %d`,
			3000-maxFailureSeries,
		),
	) {
		t.Error("the rest is not counted as other")
	}
}
