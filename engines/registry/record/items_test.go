package record

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"golang.org/x/mod/sumdb/tlog"
	"pgregory.net/rapid"
)

// The roots that the certificate transparency project publishes for RFC 6962.
func TestRFC6962Vectors(t *testing.T) {
	leaves := []string{
		"", "00", "10", "2021", "3031", "40414243", "5051525354555657", "606162636465666768696a6b6c6d6e6f",
	}
	roots := []string{
		"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
		"6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
		"fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
		"aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
		"d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
		"4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
		"76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
		"ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
		"5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
	}
	var hashes []tlog.Hash
	for n, want := range roots {
		if got := rootText(newTree(hashes, tree{}).root()); got != "sha256:"+want {
			t.Errorf("%d leaves: %s, want %s", n, got, want)
		}
		if n < len(leaves) {
			data, _ := hex.DecodeString(leaves[n])
			hashes = append(hashes, tlog.RecordHash(data))
		}
	}
}

// A tree built on another equals one built from nothing, and the one another library builds.
func TestTreeReuse(t *testing.T) {
	leaf := rapid.Map(rapid.IntRange(0, 3), func(n int) tlog.Hash { return sha256.Sum256([]byte{byte(n)}) })
	rapid.Check(t, func(t *rapid.T) {
		old := rapid.SliceOfN(leaf, 0, 40).Draw(t, "old")
		now := rapid.SliceOfN(leaf, 0, 40).Draw(t, "now")
		got := newTree(now, newTree(old, tree{})).root()
		if want := newTree(now, tree{}).root(); got != want {
			t.Fatalf("reused: %s, want %s", got, want)
		}
		var stored []tlog.Hash
		read := tlog.HashReaderFunc(func(at []int64) (out []tlog.Hash, err error) {
			for _, i := range at {
				out = append(out, stored[i])
			}
			return out, nil
		})
		for i, h := range now {
			more, err := tlog.StoredHashesForRecordHash(int64(i), h, read)
			if err != nil {
				t.Fatal(err)
			}
			stored = append(stored, more...)
		}
		if want, err := tlog.TreeHash(int64(len(now)), read); err != nil || want != got {
			t.Fatalf("tlog has %s, want %s: %v", want, got, err)
		}
	})
}

// testItem is a small descriptor.
func testItem(t fatal, id string, generation int) Item {
	it, err := ParseItem(fmt.Appendf(nil, `{"id":%q,"kind":"node","meta":{"generation":%d}}`, id, generation))
	if err != nil {
		t.Fatal(err)
	}
	return it
}

// fatal is what testing.TB and rapid.T share.
type fatal interface {
	Fatal(args ...any)
}

// genSet draws a small set as a map from id to generation.
var genSet = rapid.MapOfN(rapid.StringMatching(`[ab][a-c]{0,2}`), rapid.IntRange(0, 2), 0, 12)

func itemsOf(t fatal, set map[string]int) Items {
	var all []Item
	for id, generation := range set {
		all = append(all, testItem(t, id, generation))
	}
	items, err := NewItems(all)
	if err != nil {
		t.Fatal(err)
	}
	return items
}

// Diff is the inverse of Apply: from any set to any other, whatever the order of the delta, and the
// set it starts from stays as it was.
func TestDiffApply(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := genSet.Draw(t, "a"), genSet.Draw(t, "b")
		from, to := itemsOf(t, a), itemsOf(t, b)
		before := from.Root()
		put, remove := Diff(from, to)
		shuffle := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		shuffle.Shuffle(len(put), func(i, j int) { put[i], put[j] = put[j], put[i] })
		shuffle.Shuffle(len(remove), func(i, j int) { remove[i], remove[j] = remove[j], remove[i] })
		got, err := from.Apply(put, remove)
		if err != nil || got.Root() != to.Root() || got.Len() != len(b) {
			t.Fatalf("%v to %v: %d items, %v", a, b, got.Len(), err)
		}
		if put, remove := Diff(got, to); len(put)+len(remove) != 0 {
			t.Fatalf("still differs: %v %v", put, remove)
		}
		if !slices.Equal(ids(got), slices.Sorted(maps.Keys(b))) {
			t.Fatalf("ids = %v, want %v", ids(got), slices.Sorted(maps.Keys(b)))
		}
		if put, remove := Diff(got, from); true {
			if back, err := got.Apply(put, remove); err != nil || back.Root() != before {
				t.Fatalf("does not come back: %v", err)
			}
		}
		if from.Root() != before || itemsOf(t, a).Root() != before {
			t.Fatal("the set changed")
		}
		for id := range b {
			if it, ok := got.Get(id); !ok || it.ID != id {
				t.Fatalf("%s is not found", id)
			}
		}
	})
}

func ids(s Items) []string {
	var out []string
	for it := range s.All() {
		out = append(out, it.ID)
	}
	return out
}

func TestApplyRefuses(t *testing.T) {
	base := itemsOf(t, map[string]int{"a": 1, "b": 1})
	for _, tt := range []struct {
		doc    string
		put    []Item
		remove []string
		field  string
	}{
		{"an id put twice", []Item{testItem(t, "c", 1), testItem(t, "c", 2)}, nil, "put"},
		{"an id put and removed", []Item{testItem(t, "a", 2)}, []string{"a"}, "put"},
		{"an id removed twice", nil, []string{"a", "a"}, "put"},
		{"an id removed that is not there", nil, []string{"c"}, "remove"},
	} {
		_, err := base.Apply(tt.put, tt.remove)
		wantField(t, tt.doc, err, tt.field)
	}
	many := make([]Item, MaxItems+1)
	for i := range many {
		many[i] = Item{ID: fmt.Sprintf("i%06d", i), Bytes: []byte("{}")}
	}
	if _, err := NewItems(many); !errors.Is(err, ErrHardLimit) {
		t.Errorf("%d items: %v", len(many), err)
	}
	if _, err := NewItems(many[1:]); err != nil {
		t.Errorf("%d items: %v", MaxItems, err)
	}
	if base.Root() != itemsOf(t, map[string]int{"a": 1, "b": 1}).Root() {
		t.Error("a refused delta changed the set")
	}
}

func TestParseItem(t *testing.T) {
	full := `{"expires_at":"2027-01-01T00:00:00Z","id":"service/s3@eu#1","kind":"service","endpoint":"https://s3","region":"eu","meta":{"b":1,"a":[]}}`
	it, err := ParseItem([]byte(full))
	if err != nil {
		t.Fatal(err)
	}
	want := `{"endpoint":"https://s3","expires_at":"2027-01-01T00:00:00Z","id":"service/s3@eu#1","kind":"service","meta":{"a":[],"b":1},"region":"eu"}`
	if it.ID != "service/s3@eu#1" || string(it.Bytes) != want {
		t.Errorf("%s: %s", it.ID, it.Bytes)
	}
	for _, tt := range []struct{ old, to, field string }{
		{`"id":"service/s3@eu#1",`, ``, "id"},
		{`service/s3@eu#1`, `Service`, "id"},
		{`service/s3@eu#1`, ``, "id"},
		{`service/s3@eu#1`, `-a`, "id"},
		{`service/s3@eu#1`, `a b`, "id"},
		{`service/s3@eu#1`, `é`, "id"},
		{`service/s3@eu#1`, strings.Repeat("a", 201), "id"},
		{`"id":"service/s3@eu#1"`, `"id":1`, "id"},
		{`"kind":"service"`, `"kind":"svc"`, "kind"},
		{`https://s3`, strings.Repeat("a", 513), "endpoint"},
		{`https://s3`, ``, "endpoint"},
		{`"eu"`, `""`, "region"},
		{`00:00:00Z`, `00:00:00+00:00`, "expires_at"},
		{`00:00:00Z`, `24:00:00Z`, "expires_at"},
		{`{"b":1,"a":[]}`, `[]`, "meta"},
		{`{"b":1,"a":[]}`, `{"b":1.5}`, "meta.b"},
		{`,"meta":{"b":1,"a":[]}`, ``, "meta"},
		{`"meta"`, `"Meta"`, "meta"},
		{`"meta"`, `"x":1,"meta"`, "x"},
	} {
		_, err := ParseItem([]byte(strings.Replace(full, tt.old, tt.to, 1)))
		wantField(t, tt.old+" -> "+tt.to, err, tt.field)
	}
	_, err = ParseItem([]byte(`[]`))
	wantField(t, "an array", err, "")
	deep := strings.Repeat("[", 13) + strings.Repeat("]", 13)
	if _, err := ParseItem([]byte(`{"id":"a","kind":"node","meta":{"x":` + deep[1:len(deep)-1] + `}}`)); err != nil {
		t.Errorf("as deep as a payload allows: %v", err)
	}
	if _, err := ParseItem([]byte(`{"id":"a","kind":"node","meta":{"x":` + deep + `}}`)); err == nil {
		t.Error("deeper than a payload allows")
	}
	large := func(n int) []byte {
		const rest = `{"id":"a","kind":"node","meta":{"x":""}}`
		return fmt.Appendf(nil, `{"id":"a","kind":"node","meta":{"x":"%s"}}`, strings.Repeat("x", n-len(rest)))
	}
	if _, err := ParseItem(large(MaxDescriptor)); err != nil {
		t.Errorf("the largest: %v", err)
	}
	for _, n := range []int{MaxDescriptor + 1, 5 * MaxDescriptor} {
		if _, err := ParseItem(large(n)); !errors.Is(err, ErrHardLimit) {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
}
