package index

import (
	"bytes"
	"crypto/ed25519"
	"errors"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"ronbox/appliance/b3"
)

var noon = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

// A signed record is parsed back unchanged. A record with any byte changed, cut off or added is
// refused.
func TestRecordsHold(t *testing.T) {
	cid, k := digest("content"), key("name:docs.example@1.2.3")
	prov, name := signed(seedKey(2), cid, "eu-west-1", noon, time.Hour), signedName(seedKey(2), k, cid, 7, noon)
	trusted := []ed25519.PublicKey{publicOf(seedKey(3)), publicOf(seedKey(2))}
	r, err := ParseProviderRecord(prov, noon)
	if err != nil || r.CID != cid || r.Region != "eu-west-1" || r.Peer != PeerIDOf(publicOf(seedKey(2))) ||
		r.ExpiresMS() != noon.Add(time.Hour).UnixMilli() {
		t.Errorf("provider: %+v, %v", r, err)
	}
	n, _, err := ParseNameRecord(name, k, trusted, noon)
	if err != nil || n.Manifest != cid || n.Seq != 7 || n.Key != k {
		t.Errorf("name: %+v, %v", n, err)
	}
	if !bytes.Contains(name, []byte(k.String())) || !bytes.Contains(name, []byte(cid.String())) {
		t.Error("the key or the manifest is not in what is signed")
	}
	mustFail := func(what string, err error) {
		if _, ok := errors.AsType[*RecordError](err); !ok {
			t.Errorf("%s: %v", what, err)
		}
	}
	for i := range prov {
		bad := bytes.Clone(prov)
		bad[i] ^= 1
		_, err := ParseProviderRecord(bad, noon)
		mustFail("a bit of a provider record", err)
	}
	for i := range name {
		bad := bytes.Clone(name)
		bad[i] ^= 1
		_, _, err := ParseNameRecord(bad, k, trusted, noon)
		mustFail("a bit of a name record", err)
	}
	for _, raw := range [][]byte{nil, prov[:64], prov[:len(prov)-1], append(bytes.Clone(prov), 0), make([]byte, maxRecord+1)} {
		_, err := ParseProviderRecord(raw, noon)
		mustFail("cut", err)
	}
	_, _, err = ParseNameRecord(name, key("name:docs.example"), trusted, noon)
	mustFail("another key", err)
	_, _, err = ParseNameRecord(name, k, trusted[:1], noon)
	mustFail("no trust", err)
	_, _, err = ParseNameRecord(name, k, trusted, noon.Add(time.Hour))
	mustFail("a name past its time", err)
	_, _, err = ParseNameRecord(name, k, trusted, noon.Add(-6*time.Minute))
	mustFail("a name of the future", err)
}

// Values beyond any bound of a provider record are refused with the name of the member.
func TestProviderBounds(t *testing.T) {
	long := "/dns4/" + strings.Repeat("a", maxAddr) + "/tcp/1"
	for _, tt := range []struct {
		field  string
		change func(*ProviderRecord)
	}{
		{"cid", func(r *ProviderRecord) { r.CID = b3.Digest{} }},
		{"addrs", func(r *ProviderRecord) { r.Addrs = nil }},
		{"addrs", func(r *ProviderRecord) { r.Addrs = make([]string, maxAddrs+1) }},
		{"addrs", func(r *ProviderRecord) { r.Addrs = []string{"https://box.example"} }},
		{"addrs", func(r *ProviderRecord) { r.Addrs = []string{"/ip6/2001:DB8::1/tcp/1"} }},
		{"addrs", func(r *ProviderRecord) { r.Addrs = []string{long} }},
		{"region", func(r *ProviderRecord) { r.Region = "EU" }},
		{"region", func(r *ProviderRecord) { r.Region = strings.Repeat("a", maxRegion+1) }},
		{"ttl", func(r *ProviderRecord) { r.TTLSec = 59 }},
		{"ttl", func(r *ProviderRecord) { r.TTLSec = 48*3600 + 1 }},
		{"ttl", func(r *ProviderRecord) { r.AtMS -= 3_600_000 }},
		{"ts", func(r *ProviderRecord) { r.AtMS += 300_001 }},
		{"ts", func(r *ProviderRecord) { r.AtMS = 0 }},
	} {
		r := ProviderRecord{
			CID:    digest("c"),
			Addrs:  []string{"/ip4/127.0.0.1/tcp/8443/http"},
			AtMS:   noon.UnixMilli(),
			TTLSec: 3600,
		}
		tt.change(&r)
		_, err := r.Sign(own, noon)
		if bad, ok := errors.AsType[*RecordError](err); !ok || bad.Field != tt.field {
			t.Errorf("%s: %+v: %v", tt.field, r, err)
		}
		raw, err := sealed(providerDomain, &r, own) // sealed without the checks of a good signer
		if err == nil {
			_, err = ParseProviderRecord(raw, noon)
		}
		if _, ok := errors.AsType[*RecordError](err); !ok {
			t.Errorf("%s: taken from another: %v", tt.field, err)
		}
	}
	foreign := ProviderRecord{
		CID:    digest("c"),
		Peer:   PeerIDOf(publicOf(seedKey(3))),
		Addrs:  []string{"/ip4/192.0.2.1/tcp/1"},
		AtMS:   noon.UnixMilli(),
		TTLSec: 3600,
	}
	raw, _ := sealed(providerDomain, &foreign, own)
	if _, err := ParseProviderRecord(raw, noon); err == nil {
		t.Error("a record that another peer signed was taken")
	}
	small := ProviderRecord{
		CID:    digest("c"),
		Peer:   PeerIDOf(make([]byte, 32)),
		Addrs:  []string{"/ip4/192.0.2.1/tcp/1"},
		AtMS:   noon.UnixMilli(),
		TTLSec: 3600,
	}
	body, _ := encMode.Marshal(&small)
	if _, err := ParseProviderRecord(append(make([]byte, 64), body...), noon); err == nil {
		t.Error("a record under a key of small order was taken")
	}
}

// The result of merge does not depend on the order or the repetition of sets.
func TestMergeIsAJoin(t *testing.T) {
	provider := rapid.Custom(func(t *rapid.T) Provider {
		return Provider{
			Peer:      PeerID(rapid.SampledFrom([]string{"a", "b", "c", "d"}).Draw(t, "peer")),
			Verified:  rapid.Bool().Draw(t, "verified"),
			AtMS:      int64(rapid.IntRange(1, 3).Draw(t, "at")),
			ExpiresMS: int64(rapid.IntRange(1, 3).Draw(t, "expires")),
			Addrs:     []string{rapid.SampledFrom([]string{"/x", "/y"}).Draw(t, "addr")},
			Record:    []byte{byte(rapid.IntRange(0, 2).Draw(t, "record"))},
		}
	})
	same := func(a, b []Provider) bool { return etagOf(a) == etagOf(b) && len(a) == len(b) }
	rapid.Check(t, func(t *rapid.T) {
		sets := rapid.SliceOfN(rapid.SliceOf(provider), 3, 3).Draw(t, "sets")
		a, b, c := sets[0], sets[1], sets[2]
		if !same(merge(merge(a, b), c), merge(a, merge(b, c))) {
			t.Error("not associative")
		}
		if !same(merge(a, b), merge(b, a)) {
			t.Error("not commutative")
		}
		if once := merge(a); !same(merge(once, once), once) {
			t.Error("not idempotent")
		}
	})
}

// The rank is a total order for every region, independent of the order of the input.
func TestRankIsATotalOrder(t *testing.T) {
	regions := []string{"", "eu-west-1", "eu-west-3", "us-east-1", "eu"}
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(2, 8).Draw(t, "n")
		set := make([]Provider, n)
		for i := range set {
			set[i] = Provider{
				Peer:      PeerID(rune('a' + i)),
				Verified:  rapid.Bool().Draw(t, "verified"),
				AtMS:      int64(rapid.IntRange(0, 2).Draw(t, "at")),
				Region:    rapid.SampledFrom(regions).Draw(t, "region"),
				ExpiresMS: 10,
			}
		}
		asked := rapid.SampledFrom(regions).Draw(t, "asked")
		for i := range set {
			for j := range set {
				ij, ji := compare(&set[i], &set[j], asked), compare(&set[j], &set[i], asked)
				if ij != -ji || ij == 0 && i != j {
					t.Fatalf("%+v, %+v: %d, %d", set[i], set[j], ij, ji)
				}
				for k := range set {
					if ij < 0 && compare(&set[j], &set[k], asked) < 0 && compare(&set[i], &set[k], asked) >= 0 {
						t.Fatalf("not transitive: %+v, %+v, %+v", set[i], set[j], set[k])
					}
				}
			}
		}
		mixed := rapid.Permutation(set).Draw(t, "mixed")
		a, b := rank(set, asked, 0, 0), rank(mixed, asked, 0, 0)
		for i := range a {
			if a[i].Peer != b[i].Peer {
				t.Fatalf("%v, %v", a, b)
			}
			if i > 0 && nearness(a[i].Region, asked) > nearness(a[i-1].Region, asked) {
				t.Fatalf("a nearer one comes later: %v", a)
			}
		}
	})
	if got := rank([]Provider{{Peer: "a", ExpiresMS: 5}, {Peer: "b", ExpiresMS: 6}, {Peer: "c", ExpiresMS: 7}}, "", 1,
		5); len(got) != 1 ||
		got[0].Peer != "b" {
		t.Errorf("expired or beyond the limit: %v", got)
	}
}

func FuzzRecord(f *testing.F) {
	cid := digest("content")
	f.Add(signed(own, cid, "eu-west-1", noon, time.Hour))
	f.Add(signedName(own, key("name:docs.example"), cid, 1, noon))
	f.Add(append(make([]byte, 64), 0xbf, 0xff))
	f.Fuzz(func(t *testing.T, raw []byte) {
		if r, err := ParseProviderRecord(raw, noon); err == nil {
			if k, ok := r.Peer.Key(); !ok || verify(providerDomain, raw, raw[64:], k) != nil || r.check(noon) != nil {
				t.Errorf("taken: %+v", r)
			}
		}
		if n, _, err := ParseNameRecord(raw, key("name:docs.example"), []ed25519.PublicKey{publicOf(own)},
			noon); err == nil &&
			n.Key != key("name:docs.example") {
			t.Errorf("taken: %+v", n)
		}
	})
}
