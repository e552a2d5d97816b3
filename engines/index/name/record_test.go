package name_test

import (
	"bytes"
	"crypto/ed25519"
	"errors"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"ronbox/appliance/b3"
	"ronbox/engines/index/name"
	"ronbox/engines/index/name/nametest"
)

var (
	noon = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	own  = nametest.Key(1)
)

// A signed record is parsed back unchanged. A record with any byte changed, cut off or added is
// refused.
func TestRecordsHold(t *testing.T) {
	cid, k := nametest.Digest("content"), nametest.Parse("name:docs.example@1.2.3")
	prov := nametest.SignedProvider(nametest.Key(2), cid, "eu-west-1", noon, time.Hour)
	named := nametest.SignedName(nametest.Key(2), k, cid, 7, noon)
	trusted := []ed25519.PublicKey{nametest.Public(nametest.Key(3)), nametest.Public(nametest.Key(2))}
	r, err := name.ParseProviderRecord(prov, noon)
	signer := name.PeerIDOf(nametest.Public(nametest.Key(2)))
	if err != nil || r.CID != cid || r.Region != "eu-west-1" || r.Peer != signer ||
		r.ExpiresMS() != noon.Add(time.Hour).UnixMilli() {
		t.Errorf("provider: %+v, %v", r, err)
	}
	n, _, err := name.ParseNameRecord(named, k, trusted, noon)
	if err != nil || n.Manifest != cid || n.Seq != 7 || n.Key != k {
		t.Errorf("name: %+v, %v", n, err)
	}
	if !bytes.Contains(named, []byte(k.String())) || !bytes.Contains(named, []byte(cid.String())) {
		t.Error("the key or the manifest is not in what is signed")
	}
	mustFail := func(what string, err error) {
		if _, ok := errors.AsType[*name.RecordError](err); !ok {
			t.Errorf("%s: %v", what, err)
		}
	}
	for i := range prov {
		bad := bytes.Clone(prov)
		bad[i] ^= 1
		_, err := name.ParseProviderRecord(bad, noon)
		mustFail("a bit of a provider record", err)
	}
	for i := range named {
		bad := bytes.Clone(named)
		bad[i] ^= 1
		_, _, err := name.ParseNameRecord(bad, k, trusted, noon)
		mustFail("a bit of a name record", err)
	}
	for _, raw := range [][]byte{
		nil, prov[:64], prov[:len(prov)-1], append(bytes.Clone(prov), 0), make([]byte, name.MaxRecord+1),
	} {
		_, err := name.ParseProviderRecord(raw, noon)
		mustFail("cut", err)
	}
	_, _, err = name.ParseNameRecord(named, nametest.Parse("name:docs.example"), trusted, noon)
	mustFail("another key", err)
	_, _, err = name.ParseNameRecord(named, k, trusted[:1], noon)
	mustFail("no trust", err)
	_, _, err = name.ParseNameRecord(named, k, trusted, noon.Add(time.Hour))
	mustFail("a name past its time", err)
	_, _, err = name.ParseNameRecord(named, k, trusted, noon.Add(-6*time.Minute))
	mustFail("a name of the future", err)
}

// Values beyond any bound of a provider record are refused with the name of the member.
func TestProviderBounds(t *testing.T) {
	long := "/dns4/" + strings.Repeat("a", name.MaxAddr) + "/tcp/1"
	for _, tt := range []struct {
		field  string
		change func(*name.ProviderRecord)
	}{
		{"cid", func(r *name.ProviderRecord) { r.CID = b3.Digest{} }},
		{"addrs", func(r *name.ProviderRecord) { r.Addrs = nil }},
		{"addrs", func(r *name.ProviderRecord) { r.Addrs = make([]string, name.MaxAddrs+1) }},
		{"addrs", func(r *name.ProviderRecord) { r.Addrs = []string{"https://box.example"} }},
		{"addrs", func(r *name.ProviderRecord) { r.Addrs = []string{"/ip6/2001:DB8::1/tcp/1"} }},
		{"addrs", func(r *name.ProviderRecord) { r.Addrs = []string{long} }},
		{"region", func(r *name.ProviderRecord) { r.Region = "EU" }},
		{"region", func(r *name.ProviderRecord) { r.Region = strings.Repeat("a", name.MaxRegion+1) }},
		{"ttl", func(r *name.ProviderRecord) { r.TTLSec = 59 }},
		{"ttl", func(r *name.ProviderRecord) { r.TTLSec = 48*3600 + 1 }},
		{"ttl", func(r *name.ProviderRecord) { r.AtMS -= 3_600_000 }},
		{"ts", func(r *name.ProviderRecord) { r.AtMS += 300_001 }},
		{"ts", func(r *name.ProviderRecord) { r.AtMS = 0 }},
	} {
		r := name.ProviderRecord{
			CID:    nametest.Digest("c"),
			Addrs:  []string{"/ip4/127.0.0.1/tcp/8443/http"},
			AtMS:   noon.UnixMilli(),
			TTLSec: 3600,
		}
		tt.change(&r)
		_, err := r.Sign(own, noon)
		if bad, ok := errors.AsType[*name.RecordError](err); !ok || bad.Field != tt.field {
			t.Errorf("%s: %+v: %v", tt.field, r, err)
		}
		raw, err := name.Seal(&r, own)
		if err == nil {
			_, err = name.ParseProviderRecord(raw, noon)
		}
		if _, ok := errors.AsType[*name.RecordError](err); !ok {
			t.Errorf("%s: taken from another: %v", tt.field, err)
		}
	}
	foreign := name.ProviderRecord{
		CID:    nametest.Digest("c"),
		Peer:   name.PeerIDOf(nametest.Public(nametest.Key(3))),
		Addrs:  []string{"/ip4/192.0.2.1/tcp/1"},
		AtMS:   noon.UnixMilli(),
		TTLSec: 3600,
	}
	raw, _ := name.Seal(&foreign, own)
	if _, err := name.ParseProviderRecord(raw, noon); err == nil {
		t.Error("a record that another peer signed was taken")
	}
	small := name.ProviderRecord{
		CID:    nametest.Digest("c"),
		Peer:   name.PeerIDOf(make([]byte, 32)),
		Addrs:  []string{"/ip4/192.0.2.1/tcp/1"},
		AtMS:   noon.UnixMilli(),
		TTLSec: 3600,
	}
	body, _ := name.Encode(&small)
	if _, err := name.ParseProviderRecord(append(make([]byte, 64), body...), noon); err == nil {
		t.Error("a record under a key of small order was taken")
	}
}

// The result of merge does not depend on the order or the repetition of sets.
func TestMergeIsAJoin(t *testing.T) {
	provider := rapid.Custom(func(t *rapid.T) name.Provider {
		return name.Provider{
			Peer:      name.PeerID(rapid.SampledFrom([]string{"a", "b", "c", "d"}).Draw(t, "peer")),
			Verified:  rapid.Bool().Draw(t, "verified"),
			AtMS:      int64(rapid.IntRange(1, 3).Draw(t, "at")),
			ExpiresMS: int64(rapid.IntRange(1, 3).Draw(t, "expires")),
			Addrs:     []string{rapid.SampledFrom([]string{"/x", "/y"}).Draw(t, "addr")},
			Record:    []byte{byte(rapid.IntRange(0, 2).Draw(t, "record"))},
		}
	})
	same := func(a, b []name.Provider) bool { return name.SetETag(a) == name.SetETag(b) && len(a) == len(b) }
	rapid.Check(t, func(t *rapid.T) {
		sets := rapid.SliceOfN(rapid.SliceOf(provider), 3, 3).Draw(t, "sets")
		a, b, c := sets[0], sets[1], sets[2]
		if !same(name.Merge(name.Merge(a, b), c), name.Merge(a, name.Merge(b, c))) {
			t.Error("not associative")
		}
		if !same(name.Merge(a, b), name.Merge(b, a)) {
			t.Error("not commutative")
		}
		if once := name.Merge(a); !same(name.Merge(once, once), once) {
			t.Error("not idempotent")
		}
	})
}

// The rank is a total order for every region, independent of the order of the input.
func TestRankIsATotalOrder(t *testing.T) {
	regions := []string{"", "eu-west-1", "eu-west-3", "us-east-1", "eu"}
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(2, 8).Draw(t, "n")
		set := make([]name.Provider, n)
		for i := range set {
			set[i] = name.Provider{
				Peer:      name.PeerID(rune('a' + i)),
				Verified:  rapid.Bool().Draw(t, "verified"),
				AtMS:      int64(rapid.IntRange(0, 2).Draw(t, "at")),
				Region:    rapid.SampledFrom(regions).Draw(t, "region"),
				ExpiresMS: 10,
			}
		}
		asked := rapid.SampledFrom(regions).Draw(t, "asked")
		for i := range set {
			for j := range set {
				ij, ji := name.Compare(&set[i], &set[j], asked), name.Compare(&set[j], &set[i], asked)
				if ij != -ji || ij == 0 && i != j {
					t.Fatalf("%+v, %+v: %d, %d", set[i], set[j], ij, ji)
				}
				for k := range set {
					if ij < 0 && name.Compare(&set[j], &set[k], asked) < 0 && name.Compare(&set[i], &set[k], asked) >= 0 {
						t.Fatalf("not transitive: %+v, %+v, %+v", set[i], set[j], set[k])
					}
				}
			}
		}
		mixed := rapid.Permutation(set).Draw(t, "mixed")
		a, b := name.Rank(set, asked, 0, 0), name.Rank(mixed, asked, 0, 0)
		for i := range a {
			if a[i].Peer != b[i].Peer {
				t.Fatalf("%v, %v", a, b)
			}
			if i > 0 && name.Nearness(a[i].Region, asked) > name.Nearness(a[i-1].Region, asked) {
				t.Fatalf("a nearer one comes later: %v", a)
			}
		}
	})
	if got := name.Rank([]name.Provider{{Peer: "a", ExpiresMS: 5}, {Peer: "b", ExpiresMS: 6}, {Peer: "c", ExpiresMS: 7}}, "", 1,
		5); len(got) != 1 ||
		got[0].Peer != "b" {
		t.Errorf("expired or beyond the limit: %v", got)
	}
}

func FuzzRecord(f *testing.F) {
	cid := nametest.Digest("content")
	f.Add(nametest.SignedProvider(own, cid, "eu-west-1", noon, time.Hour))
	f.Add(nametest.SignedName(own, nametest.Parse("name:docs.example"), cid, 1, noon))
	f.Add(append(make([]byte, 64), 0xbf, 0xff))
	f.Fuzz(func(t *testing.T, raw []byte) {
		if r, err := name.ParseProviderRecord(raw, noon); err == nil {
			if k, ok := r.Peer.Key(); !ok || !r.Sound(raw, k, noon) {
				t.Errorf("taken: %+v", r)
			}
		}
		if n, _, err := name.ParseNameRecord(raw, nametest.Parse("name:docs.example"), []ed25519.PublicKey{nametest.Public(own)},
			noon); err == nil &&
			n.Key != nametest.Parse("name:docs.example") {
			t.Errorf("taken: %+v", n)
		}
	})
}
