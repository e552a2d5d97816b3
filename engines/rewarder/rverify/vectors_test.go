package rverify

import (
	"bytes"
	"maps"
	"math/big"
	"math/bits"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"ronbox/appliance/b3"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const frozen = "../../../testdata/rewarder/w1"

// The commitment, the root and a leaf of the frozen run, computed by hand and by another program.
const (
	w1Commitment = "b3:c1ce5092e0b2efe4ce40d74b3f6944af6c291b2a09ea818cd5bfd8ca9c6480a0"
	w1Root       = "b3:c19d402cfe3de02df0ea5adfd01c41649486292ff0ce26806b6456c0c98895b5"
	w1LeafC      = "b3:1028783bfe130ab619ec25e6d8a5161a439b3fc51142bc66c24099216edce570"
	w1RunKey     = "b3:4ebb62dc37e40d76c434f64a5e79ea1d5749bca2e3f3d135ba1a461e26c890d4"
)

func TestFrozenRun(t *testing.T) {
	r, err := Verify(frozen)
	if err != nil {
		t.Fatal(err)
	}
	leaves := r.leaves(t)
	if r.Commitment.String() != w1Commitment || r.RunKey.String() != w1RunKey || leaves[2].String() != w1LeafC ||
		treeHash(leaves).String() != w1Root {
		t.Errorf("commitment %s, run key %s, leaf %s, root %s", r.Commitment, r.RunKey, leaves[2], treeHash(leaves))
	}
	again := t.TempDir() + "/out"
	if err := r.Write(again); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"policy.json", "snapshot.json", "rows.ndjson", "ledger.json", "run.json", "commitment.txt"} {
		a, _ := os.ReadFile(filepath.Join(frozen, name))
		b, err := os.ReadFile(filepath.Join(again, name))
		if err != nil || !bytes.Equal(a, b) {
			t.Errorf("%s: %v, is not as it is frozen", name, err)
		}
	}
}

// epoch is a small run that tests modify.
type epoch struct {
	policy          map[string]string // by path, over those of basePolicy
	weights         map[string]string // metric to num/den/row_max
	csv             string
	pool, available string
}

// basePolicy holds every member of a policy except its metrics.
func basePolicy() map[string]string {
	return map[string]string{
		"asset":                  "ron",
		"calculus":               "ronbox-calculus/1",
		"caps.actor_max_minor":   "0",
		"caps.excess":            "residual",
		"caps.pool_max_minor":    most128.String(),
		"floors.dust_minor":      "0",
		"floors.guarantee_minor": "0",
		"funding.account":        "pool:p",
		"funding.mode":           "transfer",
		"funding.source":         "creator_pool",
		"id":                     "p",
		"mode":                   "share",
		"residual.account":       "",
		"residual.mode":          "retain",
		"rounding":               "largest_remainder",
		"scale":                  "0",
		"schema":                 "ronbox.rw.policy/1",
		"shortfall":              "quarantine",
		"tenant":                 "default",
		"version":                "1",
	}
}

// policyJSON returns the policy of e.
func (e *epoch) policyJSON() []byte {
	flat := basePolicy()
	maps.Copy(flat, e.policy)
	weights := e.weights
	if weights == nil {
		weights = map[string]string{"m": "1/1/0"}
	}
	for name, w := range weights {
		parts := strings.Split(w, "/")
		flat["metrics."+name+".num"], flat["metrics."+name+".den"], flat["metrics."+name+".row_max"] = parts[0], parts[1], parts[2]
	}
	doc := map[string]any{}
	for _, path := range slices.Sorted(maps.Keys(flat)) {
		at, names := doc, strings.Split(path, ".")
		for _, name := range names[:len(names)-1] {
			if at[name] == nil {
				at[name] = map[string]any{}
			}
			at = at[name].(map[string]any)
		}
		at[names[len(names)-1]] = flat[path]
	}
	return canonical(doc)
}

func (e *epoch) run(t testing.TB) Run {
	t.Helper()
	p, err := ParsePolicy(e.policyJSON())
	if err != nil {
		t.Fatal(err)
	}
	u, err := ReadCSV(strings.NewReader("actor,metric,qty\n" + e.csv))
	if err != nil {
		t.Fatal(err)
	}
	s, err := u.Snapshot(&p, "e", e.pool)
	if err != nil {
		t.Fatal(err)
	}
	available := e.available
	if available == "" {
		available = e.pool
	}
	l, err := UnseenLedger(&p, available)
	if err != nil {
		t.Fatal(err)
	}
	r, err := Recompute(Inputs{Policy: p, Snapshot: s, Usage: u, Ledger: l})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// allocations returns the allocations of r in their order.
func (r *Run) allocations(t testing.TB) (out []Allocation) {
	t.Helper()
	if err := r.EachAllocation(func(a Allocation) error {
		out = append(out, a)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return out
}

// leaves returns the leaf hashes of the allocations of r.
func (r *Run) leaves(t testing.TB) (out []b3.Digest) {
	t.Helper()
	if err := r.each(func(index uint64, actor string, of *share) error {
		out = append(out, leafHash(appendAllocation(nil, r.RunKey, index, actor, of.amount, of.score)))
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return out
}

// treeHash returns the root of leaves by the definition of RFC 6962.
func treeHash(leaves []b3.Digest) b3.Digest {
	if len(leaves) == 0 {
		return b3.Sum(nil)
	}
	if len(leaves) == 1 {
		return leaves[0]
	}
	left := 1 << (bits.Len(uint(len(leaves)-1)) - 1) // the largest power of two below
	return nodeHash(treeHash(leaves[:left]), treeHash(leaves[left:]))
}

// The incremental root equals the root by definition.
func TestTree(t *testing.T) {
	var leaves []b3.Digest
	var all tree
	for n := range 140 {
		if got, want := all.root(), treeHash(leaves); got != want {
			t.Fatalf("of %d leaves: %s, want %s", n, got, want)
		}
		leaves = append(leaves, leafHash([]byte{byte(n)}))
		all.add(leaves[n])
	}
}

func (r *Run) amounts(t testing.TB) (out []string) {
	for _, a := range r.allocations(t) {
		out = append(out, a.Amount)
	}
	return out
}

// interop is the usage of two vectors that the Rust program also tests: scores 122 and 220.
const interop = "a,stored,100\na,served,50\na,up,10\nb,stored,200\nb,up,20\n"

func TestVectors(t *testing.T) {
	w1 := "acct_a,stored,600000\nacct_a,served,400003\nacct_a,up,3600\nacct_b,stored,50000\nacct_b,up,3600\nacct_c,served,100000\n" +
		"acct_d,stored,25000\nacct_e,up,1\nacct_f,served,3\n"
	weighed := map[string]string{"stored": "1/1/0", "served": "1/4/0", "up": "1/1/0"}
	capped := map[string]string{
		"caps.actor_max_minor": "400000",
		"caps.excess":          "redistribute",
		"caps.pool_max_minor":  "2000000",
		"floors.dust_minor":    "10",
	}
	residual := maps.Clone(capped)
	residual["caps.excess"] = "residual"
	floor := map[string]string{"rounding": "floor"}
	most64, most128 := "18446744073709551615", most128.String()
	for _, tt := range []struct {
		name                     string
		e                        epoch
		reason, amounts, residue string
	}{
		{"W1", epoch{capped, weighed, w1, "1000001", ""}, "", "400000 310422 144787 144786", "6"},
		{"W2", epoch{floor, map[string]string{"stored": "1/1/0", "served": "1/4/0", "up": "1/1/0"}, interop, "1000", ""}, "", "356 643", "1"},
		{"W3", epoch{nil, weighed, interop, "1000", ""}, "", "357 643", "0"},
		{"W4", epoch{residual, weighed, w1, "1000001", ""}, "", "400000 66403 30971 30971", "471656"},
		{"W6", epoch{map[string]string{"floors.guarantee_minor": "30"}, nil, "a,m,1\nb,m,1\nc,m,1\nd,m,1\n", "100", ""}, "guarantee", "", "100"},
		{"W9", epoch{nil, nil, "a,m,2\n", most128, ""}, "", most128, "0"},
		{"W10", epoch{nil, map[string]string{"m": most64 + "/1/0", "n": most64 + "/1/0", "o": "3/1/0"},
			"a,m," + most64 + "\na,n,2\nb,m," + most64 + "\nb,n,2\n", "5", ""}, "overflow", "", "5"},
		{"W11 no activity", epoch{nil, nil, "a,m,0\n", "500", ""}, "", "", "500"},
		{"W11 all dust", epoch{map[string]string{"floors.dust_minor": "100"}, nil, "a,m,1\nb,m,1\n", "10", ""}, "", "", "10"},
		{"W12", epoch{capped, weighed, w1, "1000001", "1000000"}, "unfunded", "", "1000001"},
		{"W13", epoch{nil, nil, "a,m,18\nb,m,2\nc,m,21\n", "28", ""}, "", "12 2 14", "0"},
		{"W13, a unit more", epoch{nil, nil, "a,m,18\nb,m,2\nc,m,21\n", "29", ""}, "", "13 1 15", "0"},
		{"a row counts so far only", epoch{nil, map[string]string{"m": "1/1/5"}, "a,m,9\nb,m,5\n", "10", ""}, "", "5 5", "0"},
		{"nothing to share", epoch{nil, nil, "a,m,9\n", "0", ""}, "", "", "0"},
		{"nobody at all", epoch{nil, nil, "", "7", ""}, "", "", "7"},
	} {
		r := tt.e.run(t)
		if got := strings.Join(r.amounts(t), " "); r.Reason != tt.reason || got != tt.amounts ||
			r.Residual.String() != tt.residue {
			t.Errorf("%s: %q, amounts %q, residual %s; want %q, %q, %s", tt.name, r.Reason, got, r.Residual, tt.reason,
				tt.amounts, tt.residue)
		}
		if sum := new(big.Int).Add(r.Payout, r.Residual); sum.Cmp(r.Pool) != 0 {
			t.Errorf("%s: paid and residual are %s of %s", tt.name, sum, r.Pool)
		}
	}
}

// The result does not depend on the order or the splitting of rows.
func TestCSVIsAddedUp(t *testing.T) {
	a, err := ReadCSV(strings.NewReader("actor,metric,qty,content\nx,m,1,\ny,m,2,\nx,m,41,\n"))
	if err != nil {
		t.Fatal(err)
	}
	b, err := ReadCSV(strings.NewReader("actor,metric,qty\ny,m,2\nx,m,42\n"))
	if err != nil || !slices.Equal(a, b) || len(a) != 2 || a[0] != (Row{Actor: "x", Metric: "m", Qty: "42"}) {
		t.Errorf("%v, %v, %v", a, b, err)
	}
	var again Usage
	err = readRows(bytes.NewReader(slices.Concat(a[0].Line(), a[1].Line())), true, func(r *Row) error {
		again = append(again, *r)
		return nil
	})
	if err != nil || !slices.Equal(a, again) {
		t.Errorf("%v, %v", again, err)
	}
}
