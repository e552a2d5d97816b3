package auth

import (
	"encoding/base64"
	"errors"
	"strings"
	"testing"
	"time"
)

func seconds(n int64) time.Duration { return time.Duration(n) * time.Second }

// No text but a token that this authority minted passes, and none panics: garbled is always 401.
func FuzzCheck(f *testing.F) {
	a, k := newTestAuthority()
	root, _ := k.Root("k1")
	id := Identifier{V: identifierVersion, Kid: "k1", TID: "01JTC0000000000000000000AA", Sub: "ops", IssuedAt: noon.Unix(), Epoch: 7}
	// The same in each of the fuzzer's processes, so not from Mint.
	token := appendRaw(f, sealedWith(a, root, id), "scope = registry.propose", "exp < 2026-05-01T13:00:00Z", "path = /registry/*")
	f.Add(token)
	f.Add(strings.ToUpper(token))
	f.Add(token[:len(token)-1])
	f.Add("AgEDYWJjAAAGIA")
	f.Add("")
	raw, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(string(raw))
	f.Fuzz(func(t *testing.T, text string) {
		for _, candidate := range []string{text, base64.RawURLEncoding.EncodeToString([]byte(text))} {
			if _, err := a.Check(candidate, propose()); candidate != token && !errors.Is(err, ErrUnauthenticated) {
				t.Errorf("%q: %v", candidate, err)
			}
			if got, err := Inspect(candidate); err == nil && got.check() != nil {
				t.Errorf("%q inspected as %+v", candidate, got)
			}
		}
	})
}

// No caveat text panics, and one that is understood is understood alike by mint and by check.
func FuzzCaveat(f *testing.F) {
	for _, s := range []string{"scope = a.b", "path = /x/*", "ip = ::1", "exp < 2026-05-01T12:00:00Z", "ttl = 5m", "method = GET", "a b c"} {
		f.Add(s)
	}
	a, _ := newTestAuthority()
	f.Fuzz(func(t *testing.T, text string) {
		c, err := parseCaveat(text)
		if err != nil {
			return
		}
		if c.key+" "+c.op+" "+c.value != text {
			t.Errorf("%q parsed as %+v", text, c)
		}
		token, _, err := a.Mint(MintSpec{Sub: "x", Scopes: []string{"registry.propose"}, Extra: []string{text}, Now: noon})
		if err != nil {
			return
		}
		_, err = a.Check(token, propose())
		if d := new(DeniedError); errors.As(err, &d) && !strings.HasSuffix(d.Reasons[0], "does not hold") {
			t.Errorf("%q was minted, and then not understood: %v", text, d.Reasons)
		}
	})
}

func BenchmarkCheck(b *testing.B) {
	_, k := newTestAuthority()
	a := New(DefaultConfig(), &memoKeys{fakeKeys: k, root: RootKey([]byte("node secret"), []byte("k1"))}, nil)
	token, r := mint(b, a, "path = /registry/*", "method = GET,POST"), propose()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := a.Check(token, r); err != nil {
			b.Fatal(err)
		}
	}
}

// memoKeys keeps the one root key, as a keyring does.
type memoKeys struct {
	*fakeKeys
	root []byte
}

func (k *memoKeys) Root(string) ([]byte, bool) { return k.root, true }

func BenchmarkMint(b *testing.B) {
	a, _ := newTestAuthority()
	b.ReportAllocs()
	for b.Loop() {
		mint(b, a)
	}
}
