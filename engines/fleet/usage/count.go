package usage

import (
	"fmt"
	"maps"
	"math"
	"math/bits"
	"slices"
	"strings"
)

// Cap is the share of an epoch that one pair of nodes may count for, in hundredths of a percent.
type Cap uint64

// Values of a Cap.
const (
	DefaultCap Cap = 2_000
	NoCap      Cap = 10_000
)

// ParseCap parses a percentage from 0.01% to 100%, such as 20% or 12.5%.
func ParseCap(text string) (Cap, error) {
	bad := fmt.Errorf("%.20q: must be a percentage from 0.01%% to 100%%, such as 20%%", text)
	number, ok := strings.CutSuffix(text, "%")
	whole, fraction, dot := strings.Cut(number, ".")
	digits := whole + (fraction + "00")[:2]
	if !ok || whole == "" || len(whole) > 3 || dot && (fraction == "" || len(fraction) > 2) {
		return 0, bad
	}
	c := Cap(0)
	for _, d := range []byte(digits) {
		if d < '0' || d > '9' {
			return 0, bad
		}
		c = 10*c + Cap(d-'0')
	}
	if c == 0 || c > NoCap {
		return 0, bad
	}
	return c, nil
}

// String returns the percentage, as ParseCap reads it.
func (c Cap) String() string {
	text := fmt.Sprintf("%d.%02d", c/100, c%100)
	return strings.TrimSuffix(strings.TrimRight(text, "0"), ".") + "%"
}

// Counted is the usage of an epoch, after the cap of each pair.
type Counted struct {
	Nodes    []Node // by id; nodes that served nothing are left out
	Pairs    []Pair // those that the cap has cut, by their nodes
	Attested uint64 // bytes of all statements, without those about the node itself and about others than members
	Limit    uint64 // bytes that a pair counts for at most
}

// Node is the usage that a node has earned by serving others.
type Node struct {
	Node   string `json:"node"`
	Bytes  uint64 `json:"bytes"`  // that count
	Asked  uint64 `json:"asked"`  // attested bytes of objects that were asked for
	Placed uint64 `json:"placed"` // attested bytes of placed objects
}

// Pair is two nodes that served each other, in both directions together.
type Pair struct {
	A        string `json:"a"`
	B        string `json:"b"`
	Attested uint64 `json:"attested"`
	Counted  uint64 `json:"counted"`
}

// Count adds up the statements of the members of a fleet: one statement of each node. It leaves out
// rows about the node itself and about nodes that are not members.
//
// A pair of nodes, both directions together, counts for at most two bounds: the share of the bytes
// that are attested, and the share of the bytes that count. So a pair that attests any number of
// bytes has at most the share. If there are n pairs and 1/n is more than the share, the second
// bound is 1/n, since no less is possible. Sums are rounded down.
func Count(statements []Statement, members []string, share Cap) Counted {
	member := map[string]bool{}
	for _, id := range members {
		member[id] = true
	}
	pairs, nodes := map[[2]string]uint64{}, map[string]*Node{}
	out := Counted{Nodes: []Node{}, Pairs: []Pair{}}
	each := func(visit func(pair [2]string, r Row)) {
		for i := range statements {
			for _, r := range statements[i].Rows {
				if from := statements[i].Node; r.Node != from && member[r.Node] && member[from] && r.Bytes() > 0 {
					visit([2]string{min(from, r.Node), max(from, r.Node)}, r)
				}
			}
		}
	}
	each(func(pair [2]string, r Row) {
		pairs[pair] += r.Bytes()
		out.Attested += r.Bytes()
	})
	out.Limit = limit(slices.Sorted(maps.Values(pairs)), out.Attested, share)
	each(func(pair [2]string, r Row) {
		n := nodes[r.Node]
		if n == nil {
			n = &Node{Node: r.Node}
			nodes[r.Node] = n
		}
		n.Asked, n.Placed = n.Asked+r.Asked, n.Placed+r.Placed
		if has := pairs[pair]; has > out.Limit {
			n.Bytes += product(r.Bytes(), out.Limit, has)
		} else {
			n.Bytes += r.Bytes()
		}
	})
	for _, id := range slices.Sorted(maps.Keys(nodes)) {
		out.Nodes = append(out.Nodes, *nodes[id])
	}
	for pair, has := range pairs {
		if has > out.Limit {
			out.Pairs = append(out.Pairs, Pair{pair[0], pair[1], has, out.Limit})
		}
	}
	slices.SortFunc(out.Pairs, func(a, b Pair) int { return strings.Compare(a.A+" "+a.B, b.A+" "+b.B) })
	return out
}

// limit returns the most bytes of a pair: the greatest number c that is at most the share of sum,
// and the share of the sum of min(b, c) over all b. sorted holds the bytes of the pairs, ascending.
func limit(sorted []uint64, sum uint64, share Cap) uint64 {
	n := uint64(len(sorted))
	if n == 0 {
		return 0
	}
	top, under := uint64(share), uint64(NoCap)
	if n*top < under {
		top, under = 1, n
	}
	most := product(sum, uint64(share), uint64(NoCap))
	// If the m greatest pairs are cut to c, then c = share · (rest + m·c), which c solves.
	rest := sum
	for m := uint64(0); m < n; m++ {
		if m > 0 {
			rest -= sorted[n-m]
		}
		if m*top >= under {
			continue
		}
		// It is the greatest c once it leaves the next smaller pair whole.
		if c := product(rest, top, under-m*top); c >= sorted[n-m-1] {
			return min(c, most)
		}
	}
	return min(sorted[0], most)
}

// product returns a·b/c, rounded down, or the greatest number if that is less.
func product(a, b, c uint64) uint64 {
	high, low := bits.Mul64(a, b)
	if high >= c {
		return math.MaxUint64
	}
	q, _ := bits.Div64(high, low, c)
	return q
}
