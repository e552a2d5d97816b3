package auth

import (
	"encoding/base64"
	"fmt"
	"testing"
)

// Four caveats, as most tokens have: the steady use of one token, and its first use.
func BenchmarkCheck(b *testing.B) {
	a := newRig()
	token, r := mint(b, a, "path = /registry/*", "method = GET,POST"), propose()
	b.Run("proven", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := a.Check(token, r); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("first", func(b *testing.B) {
		cfg, state := a.cfg.Load(), *a.State()
		b.ReportAllocs()
		for b.Loop() {
			state.verified = newVerifiedCache()
			if _, err := a.authenticate(token, r.Now, cfg, &state); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// A stranger can measure only this: the refusal takes about as long for every fault of the token.
func BenchmarkRefusal(b *testing.B) {
	a := newRig()
	good := mint(b, a, "path = /registry/*", "method = GET,POST")
	raw, err := base64.RawURLEncoding.DecodeString(good)
	if err != nil {
		b.Fatal(err)
	}
	forged, garbled := append([]byte{}, raw...), append([]byte{}, raw...)
	forged[len(forged)-1] ^= 1
	garbled[0] = 9
	d, err := decode(a.codec, good, 4096, 64)
	if err != nil {
		b.Fatal(err)
	}
	unknown := d.id
	unknown.Kid = "k9"
	for _, tt := range []struct{ doc, token string }{
		{"bad MAC", base64.RawURLEncoding.EncodeToString(forged)},
		{"unknown kid", appendRaw(b, sealedWith(secret, unknown), d.caveats()...)},
		{"garbled", base64.RawURLEncoding.EncodeToString(garbled)},
	} {
		b.Run(tt.doc, func(b *testing.B) {
			r := unnamed() // any other is soon turned away
			b.ReportAllocs()
			for b.Loop() {
				if _, err := a.Check(tt.token, r); err == nil {
					b.Fatal("passes")
				}
			}
		})
	}
}

// One more revocation in a set of the largest size.
func BenchmarkWith(b *testing.B) {
	list := make([]Revocation, 100_000)
	for i := range list {
		list[i] = Revocation{What: "tid", Value: fmt.Sprintf("01JTC%021d", i), At: noon}
	}
	s := NewState(secret, nil, list, 0)
	one := Revocation{What: "tid", At: noon}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		one.Value = list[i%len(list)].Value + "x"
		s = s.With(one)
	}
}
