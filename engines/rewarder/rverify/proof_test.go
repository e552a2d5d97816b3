package rverify

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"ronbox/appliance/b3"
	"ronbox/appliance/host/hosttest"
)

// pathOf returns the path from leaf i to the root, by the definition of RFC 6962.
func pathOf(leaves []b3.Digest, i int) []b3.Digest {
	if len(leaves) == 1 {
		return []b3.Digest{}
	}
	left := 1
	for 2*left < len(leaves) {
		left *= 2
	}
	if i < left {
		return append(pathOf(leaves[:left], i), treeHash(leaves[left:]))
	}
	return append(pathOf(leaves[left:], i-left), treeHash(leaves[:left]))
}

// payouts is a run with its allocations in memory.
type payouts struct {
	Run
	Allocations []Allocation
	leaves      []b3.Digest
}

func payoutsOf(t testing.TB, r Run) payouts { return payouts{r, r.allocations(t), r.leaves(t)} }

// prove builds the proof of an actor as a node does.
func (r *payouts) prove(actor string) Proof {
	header := canonical(r.manifest)
	p := Proof{
		Actor:      actor,
		Commitment: r.Commitment.String(),
		Header:     jsontext.Value(header),
		Leaves:     []Allocation{},
		Schema:     "ronbox.rw.proof/1",
	}
	at, there := slices.BinarySearchFunc(r.Allocations, actor,
		func(a Allocation, s string) int { return strings.Compare(a.Actor, s) })
	from, to := at-1, at+1
	if there {
		from = at
	}
	p.Absent = !there
	for i := max(from, 0); i < min(to, len(r.Allocations)); i++ {
		a := r.Allocations[i]
		a.Path = pathOf(r.leaves, i)
		p.Leaves = append(p.Leaves, a)
	}
	return p
}

func encode(t testing.TB, p Proof) []byte {
	raw, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func drawRun(t testing.TB, d *rand.Rand) payouts {
	var csv strings.Builder
	for i := range d.IntN(71) {
		fmt.Fprintf(&csv, "a%03d,m,%d\n", 2*i+1, d.IntN(50))
	}
	e := epoch{csv: csv.String(), pool: fmt.Sprint(d.IntN(5000))}
	return payoutsOf(t, e.run(t))
}

// Every actor of 200 runs, paid or not, has a valid proof. A proof with any changed bit is invalid.
func TestProofs(t *testing.T) {
	d := rand.New(rand.NewPCG(hosttest.Seed(t, "PROOFS_SEED"), 0))
	runs := 200
	if testing.Short() {
		runs = 20
	}
	for range runs {
		r := drawRun(t, d)
		for i := range 142 {
			actor := fmt.Sprintf("a%03d", i)
			raw := encode(t, r.prove(actor))
			got, err := VerifyProof(raw, r.Commitment)
			if err != nil || got.Actor != actor || !r.gives(got) {
				t.Fatalf("%s: %v, %+v", actor, err, got)
			}
			if i%20 == d.IntN(20) {
				r.spoil(t, d, raw)
			}
		}
	}
}

// gives reports whether p states the allocation of its actor.
func (r *payouts) gives(p Proven) bool {
	at := slices.IndexFunc(r.Allocations, func(a Allocation) bool { return a.Actor == p.Actor })
	return p.Absent == (at < 0) &&
		(at < 0 || p.Amount == r.Allocations[at].Amount && p.Score == r.Allocations[at].Score)
}

// spoil changes bits of a proof. A proof that is still valid proves another actor of the same gap.
func (r *payouts) spoil(t *testing.T, d *rand.Rand, raw []byte) {
	t.Helper()
	want, _ := VerifyProof(raw, r.Commitment)
	for range 40 {
		bad, at := slices.Clone(raw), d.IntN(len(raw))
		bad[at] ^= 1 << d.IntN(8)
		if got, err := VerifyProof(bad, r.Commitment); err == nil && (got.Actor == want.Actor || !r.gives(got)) {
			t.Fatalf("byte %d of\n%s\nas %q proves %+v", at, raw, bad[at], got)
		}
	}
	of := r.Commitment
	of[d.IntN(len(of))] ^= 1
	if _, err := VerifyProof(raw, of); err == nil {
		t.Fatal("it proves as much of another commitment")
	}
}

// A proof of absence needs the two neighbours, and a leaf proves only its own actor.
func TestFalseProofs(t *testing.T) {
	e := epoch{csv: "b,m,1\nd,m,1\nf,m,1\nh,m,1\nj,m,1\n", pool: "100"}
	r := payoutsOf(t, e.run(t))
	leaf := func(i int) Allocation {
		a := r.Allocations[i]
		a.Path = pathOf(r.leaves, i)
		return a
	}
	for _, tt := range []struct {
		doc, actor string
		leaves     []Allocation
	}{
		{"nothing at all", "c", nil},
		{"the right edge for the left", "c", []Allocation{leaf(4)}},
		{"the left edge for the right", "c", []Allocation{leaf(0)}},
		{"an inner leaf as an edge", "c", []Allocation{leaf(1)}},
		{"neighbours of another gap", "c", []Allocation{leaf(1), leaf(2)}},
		{"no neighbours", "c", []Allocation{leaf(0), leaf(2)}},
		{"the wrong way round", "c", []Allocation{leaf(1), leaf(0)}},
		{"one who is there", "d", []Allocation{leaf(0), leaf(1)}},
		{"one who is there, between", "d", []Allocation{leaf(0), leaf(2)}},
		{"three", "c", []Allocation{leaf(0), leaf(1), leaf(2)}},
	} {
		p := r.prove(tt.actor)
		p.Absent, p.Leaves = true, append([]Allocation{}, tt.leaves...)
		if _, err := VerifyProof(encode(t, p), r.Commitment); err == nil {
			t.Errorf("%s: %s is absent", tt.doc, tt.actor)
		}
	}
	p := r.prove("d")
	p.Actor = "f"
	if _, err := VerifyProof(encode(t, p), r.Commitment); err == nil {
		t.Error("a leaf stands for another actor")
	}
	p = r.prove("d")
	p.Leaves[0].Index = 0
	if _, err := VerifyProof(encode(t, p), r.Commitment); err == nil {
		t.Error("a leaf stands at another index")
	}
}

// A paid actor has no proof of absence: neither from other leaves of the tree, nor with other
// indices, paths or another count.
func TestNobodyWhoIsPaidIsAbsent(t *testing.T) {
	e := epoch{csv: "b,m,1\nd,m,1\nf,m,1\nh,m,1\nj,m,1\n", pool: "100"}
	r := payoutsOf(t, e.run(t))
	n := len(r.Allocations)
	leaf := func(i, as int) Allocation {
		a := r.Allocations[i]
		a.Index, a.Path = uint64(as), pathOf(r.leaves, i)
		return a
	}
	try := func(p Proof, leaves ...Allocation) {
		t.Helper()
		p.Absent, p.Leaves = true, append([]Allocation{}, leaves...)
		if got, err := VerifyProof(encode(t, p), r.Commitment); err == nil {
			t.Errorf("%+v proves %+v", p, got)
		}
	}
	for _, paid := range r.Allocations {
		p := r.prove(paid.Actor)
		fewer := p
		fewer.Header = jsontext.Value(strings.Replace(string(p.Header), `"count":"5"`, `"count":"1"`, 1))
		try(p)
		for i := range n {
			for as := range n + 1 {
				try(p, leaf(i, as))
				try(fewer, leaf(i, as))
				for j := range n {
					try(p, leaf(i, as), leaf(j, as+1))
				}
			}
			short := leaf(i, i)
			short.Path = short.Path[1:]
			try(p, short)
		}
	}
}

func FuzzProof(f *testing.F) {
	e := epoch{csv: "b,m,1\nd,m,2\nf,m,3\n", pool: "100"}
	r := payoutsOf(f, e.run(f))
	for _, actor := range []string{"a", "b", "c", "g"} {
		f.Add(encode(f, r.prove(actor)))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		if got, err := VerifyProof(raw, r.Commitment); err == nil && !r.gives(got) {
			t.Errorf("%s proves %+v", raw, got)
		}
	})
}
