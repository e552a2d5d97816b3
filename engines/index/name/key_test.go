package name_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/ipfs/go-cid"
	"github.com/multiformats/go-multibase"
	"github.com/multiformats/go-multihash"
	"pgregory.net/rapid"

	"ronbox/appliance/b3"
	"ronbox/engines/index/name"
	"ronbox/engines/index/name/nametest"
)

func TestParseKey(t *testing.T) {
	hex := strings.Repeat("0a", 32)
	for _, tt := range []struct{ in, want string }{ // "": refused
		{"name:docs.example", "name:docs.example"},
		{"name:Docs.EXAMPLE.", "name:docs.example"},
		{"name: docs.example ", "name:docs.example"},
		{"name:bücher.example", "name:xn--bcher-kva.example"},
		{"name:xn--bcher-kva.example", "name:xn--bcher-kva.example"},
		{"name:faß.de", "name:xn--fa-hia.de"},
		{"name:例え。テスト", "name:xn--r8jz45g.xn--zckzah"},
		{"name:a@1.2.3", "name:a@1.2.3"},
		{"name:a@1.2.3-rc.1", "name:a@1.2.3-rc.1"},
		{"name:" + strings.Repeat("a", 63), "name:" + strings.Repeat("a", 63)},
		{"b3:" + hex, "b3:" + hex},
		{"name:a_b", ""}, {"name:..", ""}, {"name:", ""}, {"name:.", ""}, {"name:a..b", ""}, {"name:-a", ""}, {"name:a-", ""}, {"name:a/b", ""},
		{"name:a b", ""}, {"name:a\x00", ""}, {"name:xn--a", ""}, {"name:" + strings.Repeat("a", 64), ""}, {"name:" + strings.Repeat("a.", 127) + "a", ""},
		{"name:a@", ""}, {"name:a@1", ""}, {"name:a@1.2", ""}, {"name:a@v1.2.3", ""}, {"name:a@1.2.3+b", ""}, {"name:a@01.2.3", ""}, {"name:a@1@1.0.0", ""},
		{"name:a@1.2.3-" + strings.Repeat("a", 64), ""}, {"a", ""}, {"", ""}, {"NAME:a", ""}, {"b3:" + strings.ToUpper(hex), ""}, {"b3:" + hex + "0", ""},
		{"b3:", ""}, {"name:" + strings.Repeat("a", name.MaxKeyText), ""},
	} {
		k, err := name.ParseKey(tt.in)
		if _, refused := errors.AsType[*name.KeyError](err); k.String() != tt.want || refused != (tt.want == "") {
			t.Errorf("%q: %q, %v, want %q", tt.in, k, err, tt.want)
		}
	}
}

// Normalisation is idempotent, and its results obey the rules of ASCII names.
func TestNormalizeIsIdempotent(t *testing.T) {
	names := rapid.OneOf(
		rapid.StringMatching(`[a-zA-Z0-9äöüßéñ例ー-]{1,12}(\.[a-zA-Zäß-]{1,8}){0,3}\.?`),
		rapid.StringOfN(rapid.SampledFrom([]rune("aA-.ßi̇ıK。．xn--ά·\u200d")), 0, 12, -1),
		rapid.String(),
	)
	rapid.Check(t, func(t *rapid.T) {
		in := names.Draw(t, "name")
		once, err := name.NormalizeName(in)
		if err != nil {
			return
		}
		if twice, err := name.NormalizeName(once); err != nil || twice != once {
			t.Errorf("%q: %q, then %q, %v", in, once, twice, err)
		}
		if err := name.CheckName(once); err != nil {
			t.Errorf("%q: %q: %v", in, once, err)
		}
	})
}

// A digest is parsed back from its CID in every multibase and codec.
func TestCIDRoundTrip(t *testing.T) {
	if got := name.CIDText(b3.Sum(nil)); got != "bafkr4ifpcne3t5pzugtkaqcn5i3nzskjtpfslsnnyejlpte2spfoihzsmi" {
		t.Errorf("the empty input is %s", got)
	}
	rapid.Check(t, func(t *rapid.T) {
		d := b3.Sum(rapid.SliceOf(rapid.Byte()).Draw(t, "bytes"))
		texts := []string{d.String(), name.CIDText(d)}
		mh, err := multihash.Encode(d[:], multihash.BLAKE3)
		if err != nil {
			t.Fatal(err)
		}
		for base := range multibase.EncodingToStr {
			text, err := cid.NewCidV1(rapid.SampledFrom([]uint64{cid.Raw, cid.DagProtobuf, cid.DagCBOR}).Draw(t, "codec"), mh).
				StringOfBase(base)
			if err == nil && base != multibase.Identity {
				texts = append(texts, text)
			}
		}
		if len(texts) < 10 {
			t.Fatalf("%d bases only", len(texts))
		}
		for _, text := range texts {
			if got, err := name.ParseCID(text); err != nil || got != d {
				t.Errorf("%s: %v, %v", text, got, err)
			}
		}
	})
	for _, foreign := range []string{"QmYwAPJzv5CZsnA625s3Xf2nemtYgPpHdWEz79ojWnPbdG", "bafkreifzjut3te7nhyekklss27nh3k72ysco7y32koao5eei66wof36n5e"} {
		if _, err := name.ParseCID(foreign); !errors.Is(err, name.ErrForeignCID) {
			t.Errorf("%s: %v", foreign, err)
		}
	}
	for _, bad := range []string{"", "b", "b3:00", "bafy", strings.Repeat("b", 1000), "/ipfs/x"} {
		if _, err := name.ParseCID(bad); err == nil || errors.Is(err, name.ErrForeignCID) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// A peer id has one spelling. That of an Ed25519 key contains the key.
func TestPeerIDs(t *testing.T) {
	id := name.PeerIDOf(nametest.Public(own))
	if k, ok := id.Key(); !ok || !k.Equal(nametest.Public(own)) || !strings.HasPrefix(string(id), "12D3Koo") {
		t.Errorf("%s: %x, %t", id, k, ok)
	}
	again, err := name.ParsePeerID(string(id))
	if err != nil || again != id {
		t.Errorf("%s: %s, %v", id, again, err)
	}
	if got, err := name.ParsePeerID("QmYyQSo1c1Ym7orWxLYvCrM2EmxFTANf8wXmmE7DWjhx5N"); err != nil ||
		got != "QmYyQSo1c1Ym7orWxLYvCrM2EmxFTANf8wXmmE7DWjhx5N" {
		t.Errorf("of an RSA key: %s, %v", got, err)
	} else if _, ok := got.Key(); ok {
		t.Error("a hash is taken for a key")
	}
	for _, bad := range []string{"", "12D3Koo", "x", "bafkr4ifpcne3t5pzugtkaqcn5i3nzskjtpfslsnnyejlpte2spfoihzsmi", strings.Repeat("1", 300)} {
		if got, err := name.ParsePeerID(bad); err == nil {
			t.Errorf("%q: %s", bad, got)
		}
	}
}

func FuzzB3Path(f *testing.F) {
	for _, s := range []string{"b3:" + strings.Repeat("0a", 32), "b3:", "b3:" + strings.Repeat("0A", 32), "b3:" + strings.Repeat("0a", 31) + "0g"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		k, err := name.ParseKey("b3:" + s)
		d, digestErr := b3.Parse("b3:" + s)
		c, cidErr := name.ParseCID("b3:" + s)
		if (err == nil) != (digestErr == nil) || (cidErr == nil) != (digestErr == nil) ||
			err == nil && (k.String() != d.String() || c != d) {
			t.Errorf("%q: %q, %v; %v, %v; %v, %v", s, k, err, d, digestErr, c, cidErr)
		}
	})
}

func FuzzKey(f *testing.F) {
	for _, s := range []string{"name:docs.example@1.0.0", "name:bücher.example", "name:..", "name:xn--bcher-kva", "name:a@1.0.0-rc.1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		k, err := name.ParseKey(s)
		if err != nil {
			return
		}
		if again, err := name.ParseKey(k.String()); err != nil || again != k {
			t.Errorf("%q: %q, then %q, %v", s, k, again, err)
		}
		if len(k.String()) > 512 {
			t.Errorf("%q is too long for a row", k)
		}
	})
}

func FuzzCID(f *testing.F) {
	f.Add("bafkr4ifpcne3t5pzugtkaqcn5i3nzskjtpfslsnnyejlpte2spfoihzsmi")
	f.Add("QmYwAPJzv5CZsnA625s3Xf2nemtYgPpHdWEz79ojWnPbdG")
	f.Add("12D3KooWDpJ7As7BWAwRMfu1VU2WCqNjvq387JEYKDBj4kx6nXTN")
	f.Fuzz(func(t *testing.T, s string) {
		if d, err := name.ParseCID(s); err == nil {
			if again, err := name.ParseCID(name.CIDText(d)); err != nil || again != d {
				t.Errorf("%q: %v, %v, %v", s, d, again, err)
			}
		}
		if p, err := name.ParsePeerID(s); err == nil {
			if again, err := name.ParsePeerID(string(p)); err != nil || again != p {
				t.Errorf("%q: %q, %q, %v", s, p, again, err)
			}
		}
	})
}
