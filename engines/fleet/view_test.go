package fleet

import (
	"crypto/ed25519"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/mr-tron/base58"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"ronbox/appliance/b3"
	"ronbox/engines/registry/record"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// identity returns the peer id of key n.
func identity(n byte) string {
	seed := make([]byte, ed25519.SeedSize)
	seed[0] = n
	key := ed25519.NewKeyFromSeed(seed).Public().(ed25519.PublicKey)
	return base58.Encode(append(slices.Clone(identityHead), key...))
}

// parsed parses descriptors.
func parsed(t testing.TB, raw ...string) (items []record.Item) {
	t.Helper()
	for _, r := range raw {
		it, err := record.ParseItem([]byte(r))
		if err != nil {
			t.Fatalf("%s: %v", r, err)
		}
		items = append(items, it)
	}
	return items
}

func viewOf(t testing.TB, raw ...string) *View {
	t.Helper()
	return New(7, b3.Sum(nil), "node/a", slices.Values(parsed(t, raw...)))
}

// nodeItem is the item of a node with key n.
func nodeItem(name string, n byte, names ...string) string {
	return fmt.Sprintf(`{"id":"node/%s","kind":"node","endpoint":"https://%s.example:8443","region":"eu-1",`+
		`"meta":{"identity":%q,"services":["index","edge"],"names":[%s]}}`, name, name, identity(n), quoted(names))
}

func quoted(all []string) string {
	var out []string
	for _, s := range all {
		out = append(out, fmt.Sprintf("%q", s))
	}
	return strings.Join(out, ",")
}

func TestView(t *testing.T) {
	pin := "sha256:" + strings.Repeat("ab", 32)
	v := viewOf(t,
		nodeItem("b", 2, "docs.example", "b.example"),
		`{"id":"node/a","kind":"node","endpoint":"https://10.0.0.1/","meta":{"identity":"`+identity(1)+
			`","spki":["`+pin+`"],"services":[],"other":{"x":1}}}`,
		`{"id":"placement/docs","kind":"placement","region":"eu-1","meta":{"content":"name:docs.example@1.0.0"}}`,
		`{"id":"service/metrics@eu-1#12","kind":"service","endpoint":"https://m.example/metrics","meta":{"any":[1]}}`,
		`{"id":"service/fleet","kind":"service","meta":{"epoch":"20s"}}`,
		`{"id":"policy/acme/base.1","kind":"policy_pin","meta":{"policy":"`+b3.Sum([]byte("p")).String()+`"}}`,
		`{"id":"eu-1","kind":"region","meta":{}}`,
	)
	want := &View{
		Version: 7, Genesis: b3.Sum(nil), Self: "node/a", Epoch: 20 * time.Second,
		Nodes: []Node{
			{ID: "node/a", Endpoint: "https://10.0.0.1", Identity: identity(1), SPKI: []string{pin}},
			{
				ID: "node/b", Endpoint: "https://b.example:8443", Region: "eu-1", Identity: identity(2),
				Services: []string{"edge", "index"}, Names: []string{"b.example", "docs.example"},
			},
		},
		Placements: []Placement{{"placement/docs", "eu-1", "name:docs.example@1.0.0"}},
		Services:   []Service{{"service/metrics@eu-1#12", "metrics", "eu-1", "https://m.example/metrics"}},
		Pins:       []Pin{{"policy/acme/base.1", "acme", "base.1", b3.Sum([]byte("p"))}},
		owners:     map[string]int{"b.example": 1, "docs.example": 1},
	}
	if !reflect.DeepEqual(v, want) {
		t.Errorf("view =\n%+v, want\n%+v", v, want)
	}
	for name, want := range map[string]string{
		"docs.example": "node/b", "v2.docs.example": "node/b", "mydocs.example": "", "example": "", "": "",
	} {
		if n, _ := v.Owner(name); n.ID != want {
			t.Errorf("owner of %q = %q, want %q", name, n.ID, want)
		}
	}
	if n, ok := v.Node("node/b"); !ok || !n.Has(ServiceEdge) || n.Has("ledger") {
		t.Errorf("node/b = %+v, %t", n, ok)
	}
	var none *View
	if _, ok := none.Owner("docs.example"); ok {
		t.Error("a nil view has an owner")
	}
	if _, ok := none.Node("node/b"); ok {
		t.Error("a nil view has a node")
	}
}

// A pin with a fault binds the tenant that it names, and every tenant if it names none.
func TestBadPinsBind(t *testing.T) {
	hash := b3.Sum([]byte("p")).String()
	v := viewOf(t,
		`{"id":"policy/acme/base","kind":"policy_pin","meta":{"policy":"b3:00"}}`,
		`{"id":"policy/acme/next","kind":"policy_pin","meta":{"policy":"`+hash+`"}}`,
		`{"id":"policy/other","kind":"policy_pin","meta":{"policy":"`+hash+`"}}`,
		`{"id":"placement/x","kind":"placement","meta":{}}`,
	)
	for tenant, want := range map[string][2]int{"acme": {1, 1}, "ACME": {1, 1}, "other": {0, 1}, "free": {0, 0}} {
		pins, bad := v.PinsOf(tenant)
		if len(pins) != want[0] || len(bad) != want[1] {
			t.Errorf("%s: pins %v, with a fault %v", tenant, pins, bad)
		}
	}
	v = viewOf(t, `{"id":"policies/acme/base","kind":"policy_pin","meta":{"policy":"`+hash+`"}}`)
	if _, bad := v.PinsOf("free"); len(bad) != 1 || bad[0].ID != "policies/acme/base" || bad[0].Field != "id" {
		t.Errorf("a pin of no tenant: %v", bad)
	}
}

func TestLongestSuffixOwns(t *testing.T) {
	v := viewOf(t, nodeItem("a", 1, "example"), nodeItem("b", 2, "docs.example"), nodeItem("c", 3, "x.docs.example"))
	for name, want := range map[string]string{
		"example": "node/a", "www.example": "node/a", "docs.example": "node/b", "y.docs.example": "node/b",
		"x.docs.example": "node/c", "y.x.docs.example": "node/c",
	} {
		if n, _ := v.Owner(name); n.ID != want {
			t.Errorf("owner of %s = %q, want %s", name, n.ID, want)
		}
	}
}

func TestFaults(t *testing.T) {
	node := nodeItem("b", 2, "docs.example")
	for _, tt := range []struct{ doc, item, field string }{
		{"no name", strings.Replace(node, "node/b", "node/", 1), "id"},
		{"a name with a dot", strings.Replace(node, "node/b", "node/b.c", 1), "id"},
		{"another prefix", strings.Replace(node, "node/b", "b", 1), "id"},
		{"plain http", strings.Replace(node, "https:", "http:", 1), "endpoint"},
		{"a path", strings.Replace(node, ":8443", ":8443/x", 1), "endpoint"},
		{"a user", strings.Replace(node, "//b", "//me@b", 1), "endpoint"},
		{"no endpoint", strings.Replace(node, `"endpoint":"https://b.example:8443",`, "", 1), "endpoint"},
		{"a region with a dot", strings.Replace(node, "eu-1", "eu.1", 1), "region"},
		{"no identity", strings.Replace(node, identity(2), "", 1), "meta.identity"},
		{"another key", strings.Replace(node, identity(2), "QmYyQSo1c1Ym7orWxLYvCrM2EmxFTANf8wXmmE7DWjhx5N", 1),
			"meta.identity"},
		{"a number for a list", strings.Replace(node, `["index","edge"]`, "7", 1), "meta.services"},
		{"a number in a list", strings.Replace(node, `"edge"`, "7", 1), "meta.services.1"},
		{"a number for names", strings.Replace(node, `["docs.example"]`, "7", 1), "meta.names"},
		{"an object for content", `{"id":"placement/x","kind":"placement","meta":{"content":{}}}`, "meta.content"},
		{"no services", strings.Replace(node, `"services"`, `"service"`, 1), "meta.services"},
		{"a service in capitals", strings.Replace(node, `"edge"`, `"Edge"`, 1), "meta.services.1"},
		{"a service twice", strings.Replace(node, `"edge"`, `"index"`, 1), "meta.services.1"},
		{"every name", strings.Replace(node, "docs.example", "*", 1), "meta.names.0"},
		{"the empty name", strings.Replace(node, "docs.example", "", 1), "meta.names.0"},
		{"a leading dot", strings.Replace(node, "docs.example", ".docs.example", 1), "meta.names.0"},
		{"a bad pin", strings.Replace(node, `"names"`, `"spki":["sha256:00"],"names"`, 1), "meta.spki.0"},
		{"an unknown content", `{"id":"placement/x","kind":"placement","meta":{"content":"docs.example"}}`, "meta.content"},
		{"no content", `{"id":"placement/x","kind":"placement","meta":{}}`, "meta.content"},
		{"placement without a name", `{"id":"placement/","kind":"placement","meta":{"content":"name:a"}}`, "id"},
		{"a short epoch", `{"id":"service/fleet","kind":"service","meta":{"epoch":"1s"}}`, "meta.epoch"},
		{
			"an epoch of half a second more, which no statement can name",
			`{"id":"service/fleet","kind":"service","meta":{"epoch":"10s500ms"}}`, "meta.epoch",
		},
		{"an epoch as number", `{"id":"service/fleet","kind":"service","meta":{"epoch":20}}`, "meta.epoch"},
		{"a service without number", `{"id":"service/m@eu","kind":"service","endpoint":"http://m","meta":{}}`, "id"},
		{"a number with zero", `{"id":"service/m@eu#01","kind":"service","endpoint":"http://m","meta":{}}`, "id"},
		{"another region", `{"id":"service/m@eu#1","kind":"service","region":"us","endpoint":"http://m","meta":{}}`,
			"region"},
		{"a service without host", `{"id":"service/m@eu#1","kind":"service","endpoint":"http://","meta":{}}`, "endpoint"},
		{"a pin of nothing", `{"id":"policy/acme/p","kind":"policy_pin","meta":{"policy":"b3:00"}}`, "meta.policy"},
		{"a pin without tenant", `{"id":"policy/p","kind":"policy_pin","meta":{"policy":"` + b3.Sum(nil).String() + `"}}`,
			"id"},
	} {
		v := viewOf(t, tt.item)
		if len(v.Faults) != 1 || v.Faults[0].Field != tt.field || v.Faults[0].Reason == "" {
			t.Errorf("%s: faults = %+v, want one of %q", tt.doc, v.Faults, tt.field)
		}
		if n := len(v.Nodes) + len(v.Placements) + len(v.Services) + len(v.Pins); n > 0 || v.Epoch != DefaultEpoch {
			t.Errorf("%s: the item is in the view", tt.doc)
		}
	}
}

func TestTwinsAreBothOut(t *testing.T) {
	v := viewOf(t,
		nodeItem("a", 1, "a.example"), nodeItem("b", 1, "b.example"), // one identity
		nodeItem("c", 3, "docs.example", "c.example"), nodeItem("d", 4, "docs.example"), // one name
		nodeItem("e", 5, "e.example"),
		strings.Replace(nodeItem("f", 5, "e.example"), "https:", "ftp:", 1), // faulty: it claims nothing
	)
	if len(v.Nodes) != 1 || v.Nodes[0].ID != "node/e" {
		t.Errorf("nodes = %+v, want node/e alone", v.Nodes)
	}
	var got []string
	for _, f := range v.Faults {
		got = append(got, f.ID+" "+f.Field)
	}
	want := []string{"node/a meta.identity", "node/b meta.identity", "node/c meta.names", "node/d meta.names",
		"node/f endpoint"}
	if !slices.Equal(got, want) {
		t.Errorf("faults = %q, want %q", got, want)
	}
	if n, ok := v.Owner("docs.example"); ok {
		t.Errorf("docs.example belongs to %s, of two that claim it", n.ID)
	}
}

// Whatever the items: no two nodes share an identity or a suffix, the order of the items does not
// matter, each item is used or has a fault, and the owner of a name has its longest suffix.
func TestViewLaws(t *testing.T) {
	labels := rapid.SampledFrom([]string{"example", "docs.example", "a.docs.example", "b.example", "*", "x"})
	rapid.Check(t, func(t *rapid.T) {
		var items []record.Item
		for i := range rapid.IntRange(0, 8).Draw(t, "nodes") {
			names := rapid.SliceOfN(labels, 0, 3).Draw(t, "names")
			raw := nodeItem(string(rune('a'+i)), rapid.ByteRange(0, 9).Draw(t, "key"), names...)
			it, err := record.ParseItem([]byte(raw))
			if err != nil {
				t.Fatal(err)
			}
			items = append(items, it)
		}
		v := New(1, b3.Digest{}, "", slices.Values(items))
		shuffled := New(1, b3.Digest{}, "", slices.Values(rapid.Permutation(items).Draw(t, "order")))
		if !reflect.DeepEqual(v, shuffled) {
			t.Fatalf("the order matters: %+v, %+v", v, shuffled)
		}
		identities, suffixes := map[string]string{}, map[string]string{}
		for _, n := range v.Nodes {
			if other, taken := identities[n.Identity]; taken {
				t.Fatalf("%s and %s have one identity", n.ID, other)
			}
			identities[n.Identity] = n.ID
			for _, s := range n.Names {
				if other, taken := suffixes[s]; taken {
					t.Fatalf("%s and %s own %s", n.ID, other, s)
				}
				suffixes[s] = n.ID
			}
		}
		for _, it := range items {
			_, used := v.Node(it.ID)
			if faulty := slices.ContainsFunc(v.Faults, func(f Fault) bool { return f.ID == it.ID }); used == faulty {
				t.Fatalf("%s: used %t, faulty %t", it.ID, used, faulty)
			}
		}
		name := labels.Draw(t, "name")
		longest, owner := "", ""
		for s, id := range suffixes {
			if (name == s || strings.HasSuffix(name, "."+s)) && len(s) > len(longest) {
				longest, owner = s, id
			}
		}
		if got, _ := v.Owner(name); got.ID != owner {
			t.Fatalf("owner of %s = %q, want %q", name, got.ID, owner)
		}
	})
}

// The parser accepts any meta that a registry accepts, without a panic, and what it takes is sound.
func FuzzMeta(f *testing.F) {
	for _, meta := range []string{
		`{"identity":"` + identity(1) + `","services":["index"],"names":["docs.example"]}`,
		`{"content":"name:docs.example"}`, `{"epoch":"24h"}`, `{"policy":"b3:00"}`, `{"names":[[]]}`, `{}`,
	} {
		for kind := range 4 {
			f.Add(kind, "a", "https://a.example", meta)
		}
	}
	kinds := []string{"node", "placement", "service", "policy_pin"}
	prefixes := []string{"node/", "placement/", "service/", "policy/"}
	f.Fuzz(func(t *testing.T, kind int, id, endpoint, meta string) {
		at := uint(kind) % uint(len(kinds))
		quote := func(s string) string { raw, _ := json.Marshal(s); return string(raw) }
		it, err := record.ParseItem([]byte(`{"id":` + quote(prefixes[at]+id) + `,"kind":"` + kinds[at] +
			`","endpoint":` + quote(endpoint) + `,"meta":` + meta + `}`))
		if err != nil {
			return // the registry refuses it
		}
		v := New(1, b3.Digest{}, "", slices.Values([]record.Item{it}))
		taken := len(v.Nodes) + len(v.Placements) + len(v.Services) + len(v.Pins)
		if isFleet := it.ID == fleetItem; taken == 1 && len(v.Faults) > 0 || taken != 1 && len(v.Faults) == 0 && !isFleet {
			t.Fatalf("%s: %d taken, faults %+v", it.Bytes, taken, v.Faults)
		}
		for _, fault := range v.Faults {
			if fault.ID != it.ID || fault.Reason == "" || len(fault.Field) > 300 || len(fault.Reason) > 300 {
				t.Fatalf("fault %+v", fault)
			}
		}
		for _, n := range v.Nodes {
			if !ValidNodeID(n.ID) || !isIdentity(n.Identity) || strings.HasSuffix(n.Endpoint, "/") {
				t.Fatalf("node %+v", n)
			}
		}
	})
}
