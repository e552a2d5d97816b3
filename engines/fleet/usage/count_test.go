package usage

import (
	"fmt"
	"reflect"
	"testing"

	"pgregory.net/rapid"
)

// from returns a statement of a node.
func from(node string, rows ...Row) Statement { return Statement{Node: node, Rows: rows} }

// bytesOf returns the counted bytes by node.
func bytesOf(c Counted) map[string]uint64 {
	out := map[string]uint64{}
	for _, n := range c.Nodes {
		out[n.Node] = n.Bytes
	}
	return out
}

func TestCount(t *testing.T) {
	five := []string{"a", "b", "c", "d", "e"}
	for _, tt := range []struct {
		doc   string
		in    []Statement
		share Cap
		want  map[string]uint64
	}{
		{"without a cap everything counts", []Statement{
			from("a", Row{"b", 100, 50, 2}), from("b", Row{"a", 7, 0, 1}, Row{"c", 1, 1, 1}),
		}, NoCap, map[string]uint64{"a": 7, "b": 150, "c": 2}},
		{"a node does not speak for itself", []Statement{
			from("a", Row{"a", 1 << 40, 0, 1}, Row{"b", 5, 0, 1}),
		}, NoCap, map[string]uint64{"b": 5}},
		{"strangers do not count", []Statement{
			from("a", Row{"x", 100, 0, 1}), from("x", Row{"a", 100, 0, 1}),
		}, NoCap, map[string]uint64{}},
		// 10 pairs: 9 of 100 bytes, and one that lies. It counts for a fifth of 900/0.8.
		{"a liar counts for its share", []Statement{
			from("a", Row{"b", MaxBytes, 0, 1}, Row{"c", 100, 0, 1}, Row{"d", 100, 0, 1}, Row{"e", 100, 0, 1}),
			from("b", Row{"c", 100, 0, 1}, Row{"d", 100, 0, 1}, Row{"e", 100, 0, 1}),
			from("c", Row{"d", 100, 0, 1}, Row{"e", 100, 0, 1}), from("d", Row{"e", 100, 0, 1}),
		}, DefaultCap, map[string]uint64{"b": 225, "c": 200, "d": 300, "e": 400}},
		{"a pair is both directions", []Statement{
			from("a", Row{"b", 3 << 40, 0, 1}, Row{"c", 100, 0, 1}, Row{"d", 100, 0, 1}, Row{"e", 100, 0, 1}),
			from("b", Row{"a", 1 << 40, 0, 1}, Row{"c", 100, 0, 1}, Row{"d", 100, 0, 1}, Row{"e", 100, 0, 1}),
			from("c", Row{"d", 100, 0, 1}, Row{"e", 100, 0, 1}), from("d", Row{"e", 100, 0, 1}),
		}, DefaultCap, map[string]uint64{"a": 56, "b": 168, "c": 200, "d": 300, "e": 400}},
		{"with two pairs each counts alike", []Statement{
			from("a", Row{"b", 1000, 0, 1}, Row{"c", 10, 0, 1}),
		}, DefaultCap, map[string]uint64{"b": 10, "c": 10}},
		{"one pair keeps the share of what it attests", []Statement{
			from("a", Row{"b", 1000, 0, 1}),
		}, DefaultCap, map[string]uint64{"b": 200}},
		{"nothing", nil, DefaultCap, map[string]uint64{}},
	} {
		if got := bytesOf(Count(tt.in, five, tt.share)); !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%s: %v, want %v", tt.doc, got, tt.want)
		}
	}
}

// Whatever is attested, no node counts for more than it, no pair for more than its share, and the
// greatest share that is possible is used.
func TestCountIsBounded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(2, 12).Draw(t, "nodes")
		share := Cap(rapid.IntRange(1, int(NoCap)).Draw(t, "cap"))
		var members []string
		for i := range n {
			members = append(members, fmt.Sprintf("node/%02d", i))
		}
		size := rapid.OneOf(rapid.Uint64Range(0, 100), rapid.Uint64Range(0, MaxBytes/2/uint64(n)))
		var in []Statement
		for _, id := range members {
			s := from(id)
			for _, other := range members {
				s.Rows = append(s.Rows, Row{other, size.Draw(t, "asked"), size.Draw(t, "placed"), 1})
			}
			in = append(in, s)
		}
		got := Count(in, members, share)
		attested, pairs, sum := map[string]uint64{}, map[[2]string]uint64{}, uint64(0)
		for _, s := range in {
			for _, r := range s.Rows {
				if r.Node != s.Node && r.Bytes() > 0 {
					attested[r.Node] += r.Bytes()
					pairs[[2]string{min(s.Node, r.Node), max(s.Node, r.Node)}] += r.Bytes()
					sum += r.Bytes()
				}
			}
		}
		if got.Attested != sum {
			t.Fatalf("attested %d, want %d", got.Attested, sum)
		}
		counted := uint64(0)
		for _, node := range got.Nodes {
			if node.Bytes > attested[node.Node] || node.Asked+node.Placed != attested[node.Node] {
				t.Fatalf("%+v of %d", node, attested[node.Node])
			}
			counted += node.Bytes
		}
		if counted > sum {
			t.Fatalf("counted %d of %d", counted, sum)
		}
		if sum == 0 {
			return
		}
		if got.Limit > product(sum, uint64(share), uint64(NoCap)) && len(pairs) > 0 {
			for _, has := range pairs {
				if has > product(sum, uint64(share), uint64(NoCap)) {
					t.Fatalf("limit %d is more than %s of %d", got.Limit, share, sum)
				}
			}
		}
		left := uint64(0) // before rounding by node
		for _, has := range pairs {
			left += min(has, got.Limit)
		}
		top := max(float64(share)/float64(NoCap), 1/float64(len(pairs)))
		for pair, has := range pairs {
			if c := min(has, got.Limit); float64(c) > top*float64(left)*(1+1e-9)+1 {
				t.Fatalf("%v counts for %d of %d, which is more than %s of %d pairs", pair, c, left, share, len(pairs))
			}
		}
	})
}

func TestCaps(t *testing.T) {
	for text, want := range map[string]Cap{
		"20%": 2000, "12.5%": 1250, "0.01%": 1, "100%": 10000, "100.00%": 10000, "5.25%": 525,
		"": 0, "20": 0, "0%": 0, "100.01%": 0, "1.%": 0, "1.234%": 0, ".5%": 0, "-1%": 0, "1e1%": 0,
		"99999999999999999999%": 0,
	} {
		got, err := ParseCap(text)
		if got != want || (err == nil) != (want > 0) {
			t.Errorf("%q: %d, %v, want %d", text, got, err, want)
		}
		if again, err := ParseCap(got.String()); want > 0 && (err != nil || again != want) {
			t.Errorf("%q is printed as %s", text, got)
		}
	}
}
