package auth

import (
	"encoding/base64"
	"errors"
	"strings"
	"testing"

	"gopkg.in/macaroon.v2"
)

// A token has one spelling: whatever else decodes to the same bytes, or the same macaroon, is
// refused.
func TestOneSpelling(t *testing.T) {
	a := newRig()
	token := mint(t, a)
	raw, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil {
		t.Fatal(err)
	}
	root := rootKey(secret, []byte("k1"))
	d, err := decode(a.codec, token, 4096, 64)
	if err != nil {
		t.Fatal(err)
	}
	v1, _ := macaroon.New(root, []byte("text"), "", macaroon.V1)
	located, _ := macaroon.New(root, d.mac.Id(), "here", macaroon.V2)
	third := d.mac.Clone()
	if err := third.AddThirdPartyCaveat([]byte("k"), []byte("ask them"), "elsewhere"); err != nil {
		t.Fatal(err)
	}
	text := func(m *macaroon.Macaroon) string { return sealed(t, m) }
	for doc, bad := range map[string]string{
		"space":      " " + token,
		"line break": token[:20] + "\n" + token[20:], "carriage return": token + "\r",
		"padding": base64.URLEncoding.EncodeToString(append(raw, 0)), "trailing byte": base64.RawURLEncoding.EncodeToString(append(raw, 0)),
		"standard alphabet": base64.RawStdEncoding.EncodeToString(append([]byte{0xff, 0xff}, raw...)),
		"two tokens":        base64.RawURLEncoding.EncodeToString(append(append([]byte{}, raw...), raw...)),
		"long varint":       base64.RawURLEncoding.EncodeToString(stretched(raw)),
		"V1":                text(v1), "location": text(located), "third party": text(third),
		"too long":         strings.Repeat("A", 4097),
		"too many caveats": sealed(t, d.mac.Clone(), strings.Split(strings.Repeat("aud = registry;", 64), ";")[:64]...),
	} {
		_, err := a.Check(bad, propose())
		if outcomeOf(t, err) != rejected {
			t.Errorf("%s: %v, want 401", doc, err)
		}
		if _, err := Inspect(bad); err == nil && doc != "too many caveats" { // for this node
			t.Errorf("%s: inspected", doc)
		}
	}
}

// stretched writes the identifier's length, at offset 2, with one byte more than it takes.
func stretched(raw []byte) []byte {
	if raw[2]&0x80 == 0 {
		return append([]byte{raw[0], raw[1], raw[2] | 0x80, 0}, raw[3:]...)
	}
	return append([]byte{raw[0], raw[1], raw[2], raw[3] | 0x80, 0}, raw[4:]...)
}

// The identifier too has one encoding.
func TestIdentifierIsStrict(t *testing.T) {
	c := newCodec()
	good := Identifier{V: 1, Kid: "k1", TID: "01JTC0000000000000000000AA", Sub: "ops", IssuedAt: 5}
	raw, err := c.encode(good)
	if err != nil {
		t.Fatal(err)
	}
	if back, err := c.decode(raw); err != nil || back != good {
		t.Fatalf("%+v, %v", back, err)
	}
	for doc, spoil := range map[string]func(*Identifier){
		"version": func(i *Identifier) { i.V = 2 }, "lower-case tid": func(i *Identifier) { i.TID = strings.ToLower(i.TID) },
		"short tid": func(i *Identifier) { i.TID = "01J" }, "no kid": func(i *Identifier) { i.Kid = "" }, "iat": func(i *Identifier) { i.IssuedAt = -1 },
		"iat of no year": func(i *Identifier) { i.IssuedAt = 1 << 60 },
	} {
		id := good
		spoil(&id)
		if _, err := c.encode(id); err == nil {
			t.Errorf("%s: encoded", doc)
		}
	}
	loose := map[string]any{"v": 1, "kid": "k1", "tid": good.TID, "sub": "ops", "tenant": "", "iat": 5, "epoch": 0}
	for doc, change := range map[string]func(map[string]any){
		"unknown member": func(m map[string]any) { m["x"] = 1 }, "missing member": func(m map[string]any) { delete(m, "tenant") },
		"wrong type": func(m map[string]any) { m["iat"] = "5" }, "float": func(m map[string]any) { m["iat"] = 5.0 },
	} {
		m := map[string]any{}
		for k, v := range loose {
			m[k] = v
		}
		change(m)
		b, err := c.enc.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.decode(b); err == nil {
			t.Errorf("%s: decoded", doc)
		}
	}
	for doc, b := range map[string][]byte{
		"empty": {}, "trailing": append(append([]byte{}, raw...), 0), "indefinite": append([]byte{0xbf}, append(raw[1:len(raw):len(raw)], 0xff)...),
		"tagged": append([]byte{0xc1}, raw...), "array": {0x80},
	} {
		if _, err := c.decode(b); err == nil {
			t.Errorf("%s: decoded", doc)
		}
	}
}

// One flipped bit anywhere in a token voids it.
func TestEveryBitCounts(t *testing.T) {
	a := newRig()
	raw, err := base64.RawURLEncoding.DecodeString(mint(t, a, "aud = registry"))
	if err != nil {
		t.Fatal(err)
	}
	for i := range raw {
		for bit := range 8 {
			raw[i] ^= 1 << bit
			if _, err := a.Check(base64.RawURLEncoding.EncodeToString(raw), unnamed()); outcomeOf(t, err) != rejected {
				t.Fatalf("byte %d bit %d flipped: %v", i, bit, err)
			}
			raw[i] ^= 1 << bit
		}
	}
}

// No text but a token that this authority minted passes, and none panics: garbled is always 401.
func FuzzCheck(f *testing.F) {
	a := newRig()
	root := rootKey(secret, []byte("k1"))
	id := Identifier{
		V:        identifierVersion,
		Kid:      "k1",
		TID:      "01JTC0000000000000000000AA",
		Sub:      "ops",
		IssuedAt: noon.Unix(),
		Epoch:    7,
	}
	// The same in each of the fuzzer's processes, so not from Mint.
	token := appendRaw(f, sealedWith(root, id), "scope = registry.propose", "exp < 2026-05-01T13:00:00Z",
		"path = /registry/*")
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
		token, _, err := a.Mint(
			MintSpec{Sub: "x", Scopes: []string{"registry.propose"}, Caveats: []string{text}, Now: noon},
		)
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
			t.Errorf("%q: Check returns %v, Verify %+v", text, err, d)
		}
	})
}
