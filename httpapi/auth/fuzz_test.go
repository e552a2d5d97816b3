package auth

import (
	"encoding/base64"
	"errors"
	"strings"
	"testing"
)

// No text but a token that this authority minted passes, and none panics: garbled is always 401.
func FuzzCheck(f *testing.F) {
	a := newRig()
	root := rootKey(secret, []byte("k1"))
	id := Identifier{V: identifierVersion, Kid: "k1", TID: "01JTC0000000000000000000AA", Sub: "ops", IssuedAt: noon.Unix(), Epoch: 7}
	// The same in each of the fuzzer's processes, so not from Mint.
	token := appendRaw(f, sealedWith(root, id), "scope = registry.propose", "exp < 2026-05-01T13:00:00Z", "path = /registry/*")
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
			if _, err := a.Check(candidate, unnamed()); candidate != token && !errors.Is(err, ErrUnauthenticated) {
				t.Errorf("%q: %v", candidate, err)
			}
			got, err := Inspect(candidate)
			if err == nil && got.check() != nil {
				t.Errorf("%q inspected as %+v", candidate, got)
			}
			if _, err := got.ExpiresAt.MarshalText(); err != nil {
				t.Errorf("%q: %v", candidate, err)
			}
		}
	})
}

// No caveat text panics, and one that is understood is understood alike by mint and by check.
func FuzzCaveat(f *testing.F) {
	for _, s := range []string{"scope = a.b", "account = a*", "asset = ron", "ceiling <= 5", "max_runs <= 3", "rate <= 5/s", "amnesia = on", "tenant = x", "epoch = e",
		"max_bytes <= 12", "ceiling_daily <= 9", "path = /x/*", "ip = ::1", "exp < 2026-05-01T12:00:00Z", "ttl = 5m", "method = GET", "a b c"} {
		f.Add(s)
	}
	a := newRig()
	f.Fuzz(func(t *testing.T, text string) {
		c, err := parseCaveat(text)
		if err != nil {
			return
		}
		if c.key+" "+c.op+" "+c.value != text {
			t.Errorf("%q parsed as %+v", text, c)
		}
		token, _, err := a.Mint(MintSpec{Sub: "x", Scopes: []string{"registry.propose"}, Caveats: []string{text}, Now: noon})
		if err != nil {
			return
		}
		got, err := Inspect(token)
		if err != nil {
			t.Fatal(err)
		}
		if faults := readPolicy(got.Identifier, got.Caveats).faults(); len(faults) > 0 {
			t.Errorf("%q was minted, and then not understood: %v", text, faults)
		}
		_, err = a.Check(token, unnamed())
		if d := a.Verify(token, unnamed()); d.Allowed != (err == nil) || !d.Authentic {
			t.Errorf("%q: Check says %v, Verify %+v", text, err, d)
		}
	})
}
