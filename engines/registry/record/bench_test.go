package record

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"ronbox/appliance/b3"
)

// readStates reads the real descriptor sets of the project's test data.
func readStates(t testing.TB) []Items {
	t.Helper()
	files, err := filepath.Glob("../../../testdata/registry/*.ndjson")
	if err != nil || len(files) == 0 {
		t.Fatalf("no test data: %v", err)
	}
	var states []Items
	for _, name := range files {
		f, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		var all []Item
		for s := bufio.NewScanner(f); s.Scan(); {
			it, err := ParseItem(s.Bytes())
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			all = append(all, it)
		}
		_ = f.Close()
		items, err := NewItems(all)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		states = append(states, items)
	}
	return states
}

// The real states follow each other as deltas that fit a payload.
func TestRealStates(t *testing.T) {
	_, base := began(t, testSet(t, 1, 1))
	for i, state := range readStates(t) {
		put, remove := Diff(base.Items, state)
		p, items, err := Complete(Draft{Version: base.Version + 1, Put: put, Remove: remove}.Bytes(), base, noon)
		if err != nil || items.Root() != state.Root() {
			t.Fatalf("state %d: %v", i+1, err)
		}
		again, err := ParsePayload(p.Bytes())
		if err != nil {
			t.Fatalf("state %d: %v", i+1, err)
		}
		if _, err := again.Check(base); err != nil {
			t.Fatalf("state %d: %v", i+1, err)
		}
		base.Version, base.PayloadB3, base.Items = p.Version, p.B3(), items
	}
	if base.Items.Len() != 7633 {
		t.Errorf("%d descriptors, want 7633", base.Items.Len())
	}
}

func manyItems(t testing.TB, n int) Items {
	all := make([]Item, n)
	for i := range all {
		all[i] = testItem(t, fmt.Sprintf("service/s%06d@eu-central-1", i), 1)
	}
	items, err := NewItems(all)
	if err != nil {
		t.Fatal(err)
	}
	return items
}

func BenchmarkItems(b *testing.B) {
	for _, n := range []int{7_633, 50_000} {
		base := manyItems(b, n)
		all := make([]Item, 0, n)
		for it := range base.All() {
			all = append(all, it)
		}
		middle := all[n/2].ID
		for _, bb := range []struct {
			name   string
			put    []Item
			remove []string
		}{
			{"change one", []Item{testItem(b, middle, 2)}, nil},
			{"add one in the middle", []Item{testItem(b, middle+"x", 2)}, nil},
			{"remove the first", nil, []string{all[0].ID}},
		} {
			b.Run(fmt.Sprintf("%d/%s", n, bb.name), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					next, err := base.Apply(bb.put, bb.remove)
					if err != nil || next.Root() == base.Root() {
						b.Fatal(err)
					}
				}
			})
		}
		b.Run(fmt.Sprintf("%d/from nothing", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if next, err := NewItems(all); err != nil || next.Root() != base.Root() {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkVerifyApproval(b *testing.B) {
	k, sum := testKey(b, 1), b3.Sum([]byte("payload"))
	a := k.Sign(sum, noon)
	set, err := ParseSignerSet(
		(&SignerSet{Epoch: 1, Threshold: 1, ThresholdGov: 1, Signers: []Signer{k.Signer(1)}}).Bytes(),
	)
	if err != nil {
		b.Fatal(err)
	}
	b.Run("of a checked set", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if err := VerifyApproval(a, set.Signers[0], sum); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("of any key", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if err := VerifyApproval(a, k.Signer(1), sum); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkParse(b *testing.B) {
	states := readStates(b)
	_, base := began(b, testSet(b, 1, 1))
	put, _ := Diff(Items{}, states[0])
	p, _, err := Complete(Draft{Version: 2, Put: put}.Bytes(), base, noon)
	if err != nil {
		b.Fatal(err)
	}
	entry := testEntry(b)
	for _, bb := range []struct {
		name string
		raw  []byte
		call func(raw []byte) error
	}{
		{"canonical, 1918 descriptors", p.Bytes(), func(raw []byte) error { _, err := Canonical(raw); return err }},
		{"payload, 1918 descriptors", p.Bytes(), func(raw []byte) error { _, err := ParsePayload(raw); return err }},
		{"entry, 2 approvals", entry.Bytes(), func(raw []byte) error { _, err := ParseEntry(raw); return err }},
	} {
		b.Run(bb.name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(bb.raw)))
			for b.Loop() {
				if err := bb.call(bb.raw); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
