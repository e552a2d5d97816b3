package record

import (
	"bytes"
	"crypto/ed25519"
	"errors"
	"strings"
	"testing"
	"time"

	"ronbox/appliance/b3"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// The published vector for other implementations of this signature.
func TestPinnedVector(t *testing.T) {
	seed := make([]byte, ed25519.SeedSize)
	for i := range seed {
		seed[i] = byte(i)
	}
	canon, err := Canonical([]byte(` { "version" : 1, "type":"ron.registry\/set/v1" } `))
	if err != nil {
		t.Fatal(err)
	}
	if want := `{"type":"ron.registry/set/v1","version":1}`; string(canon) != want {
		t.Fatalf("canonical = %s, want %s", canon, want)
	}
	sum := b3.Sum(canon)
	if want := "b3:a7350725b4aebd5e4b37a980e709006f936820f9eb35a26cd7d8df0f159c28e3"; sum.String() != want {
		t.Errorf("payload_b3 = %s, want %s", sum, want)
	}
	if n := len(SigningBytes(sum)); n != 87 {
		t.Errorf("%d bytes are signed, want 87", n)
	}
	k, err := NewKey("org:test#pinned", bytes.NewReader(seed))
	if err != nil {
		t.Fatal(err)
	}
	if want := "A6EHv/POEL4dcN0Y50vAmWfk1jCbpQ1fHdyGZBJVMbg="; k.Public() != want {
		t.Errorf("public key = %s, want %s", k.Public(), want)
	}
	a := k.Sign(sum, noon)
	if want := "zvpnr0rOSR8bwRpv4y9UXO1nEoFYvRxCYhMu1NyzfWdZ4BDRFtvciziSqqzAwC9e4kS2+K+CX2XFS7vNpiJKDQ=="; a.Sig != want {
		t.Errorf("sig = %s, want %s", a.Sig, want)
	}
	if err := VerifyApproval(a, k.Signer(1), sum); err != nil {
		t.Error(err)
	}
}

func TestVerifyApprovalRefuses(t *testing.T) {
	k, other := testKey(t, 1), testKey(t, 2)
	sum := b3.Sum([]byte("payload"))
	good := k.Sign(sum, noon)
	for _, tt := range []struct {
		doc  string
		edit func(a *Approval, s *Signer)
	}{
		{"another key", func(_ *Approval, s *Signer) { s.PublicKey = other.Public() }},
		{"another signer", func(a *Approval, _ *Signer) { a.SignerID = other.SignerID }},
		{"another algorithm", func(a *Approval, _ *Signer) { a.Algo = "ed448" }},
		{"loose base64", func(a *Approval, _ *Signer) { a.Sig = a.Sig[:40] + "\n" + a.Sig[40:] }},
		{"the identity key, under which a fixed signature fits all", func(a *Approval, s *Signer) {
			s.PublicKey = encode64(append([]byte{1}, make([]byte, 31)...))
			a.Sig = encode64(append([]byte{1}, make([]byte, 63)...))
		}},
	} {
		a, s := good, testSet(t, 1, 3).Signers[1]
		s.sound = s.PublicKey // as parsed: another key must be judged all the same
		tt.edit(&a, &s)
		if err := VerifyApproval(a, s, sum); !errors.Is(err, ErrInvalidSig) {
			t.Errorf("%s: err = %v, want %v", tt.doc, err, ErrInvalidSig)
		}
	}
}

func TestParseApproval(t *testing.T) {
	a := testKey(t, 1).Sign(b3.Sum(nil), noon)
	got, err := ParseApproval(a.Bytes())
	if err != nil || got != a {
		t.Errorf("round trip = %+v, %v", got, err)
	}
	for _, tt := range []struct{ old, to, field string }{
		{`"ed25519"`, `"rsa"`, "algo"},
		{`"sig":"`, `"sig":" `, "sig"},
		{`==","signed_at"`, `=","signed_at"`, "sig"},
		{`.000Z`, `.000+00:00`, "signed_at"},
		{`T12:`, `T1:`, "signed_at"},
		{`.000Z`, `,000Z`, "signed_at"},
		{`2026-03-01`, `2026-02-29`, "signed_at"},
		{`"org:`, `"ORG:`, "signer_id"},
		{`"signer_id"`, `"Signer_id"`, "signer_id"},
		{`{`, `{"x":1,`, "x"},
		{`{`, `{"algo":"ed25519",`, "algo"},
		{`{`, `{"received_at":"",`, "received_at"},
	} {
		_, err := ParseApproval([]byte(strings.Replace(string(a.Bytes()), tt.old, tt.to, 1)))
		wantField(t, tt.old+" -> "+tt.to, err, tt.field)
	}
}

func TestCheckClock(t *testing.T) {
	const skew = 5 * time.Minute
	created := FormatTime(noon)
	for _, tt := range []struct {
		at   time.Time
		want error
	}{
		{noon, nil},
		{noon.Add(time.Hour + skew), nil},
		{noon.Add(time.Hour + skew + time.Second), ErrClockSkew},
		{noon.Add(-skew), nil},
		{noon.Add(-skew - time.Second), ErrClockSkew},
	} {
		a := Approval{SignedAt: FormatTime(tt.at)}
		if err := a.CheckClock(created, noon.Add(time.Hour), skew); !errors.Is(err, tt.want) {
			t.Errorf("signed at %s: err = %v, want %v", tt.at, err, tt.want)
		}
	}
}

// testKey is the key of signer n, the same in every run.
func testKey(t testing.TB, n byte) *Key {
	t.Helper()
	k, err := NewKey("org:test#k"+string('a'+rune(n)%26)+string('a'+rune(n)/26),
		bytes.NewReader(bytes.Repeat([]byte{n + 1}, 32)))
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// wantField demands a *FieldError that names field.
func wantField(t testing.TB, doc string, err error, field string) {
	t.Helper()
	var fe *FieldError
	if !errors.As(err, &fe) || fe.Field != field {
		t.Errorf("%s: err = %v, want a fault of %q", doc, err, field)
	}
}
