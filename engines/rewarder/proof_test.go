package rewarder_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"sort"
	"strconv"
	"strings"
	"testing"

	"ronbox/appliance/b3"
	"ronbox/appliance/merkle"
	"ronbox/engines"
	"ronbox/engines/rewarder"
	"ronbox/engines/rewarder/record"
)

var (
	headRoot  = regexp.MustCompile(`"alloc":{"chunk_rows":"512","count":"(\d+)","root":"(b3:[0-9a-f]{64})"}`)
	headRunID = regexp.MustCompile(`"run_key":"(b3:[0-9a-f]{64})"`)
)

// holds verifies a proof against a commitment, independently of the engine.
func holds(p rewarder.RewardProof, commitment b3.Digest) bool {
	root, key := headRoot.FindSubmatch(p.Header), headRunID.FindSubmatch(p.Header)
	if root == nil || key == nil || p.Commitment != commitment || record.Commitment(p.Header) != commitment {
		return false
	}
	count, _ := strconv.ParseUint(string(root[1]), 10, 64)
	runKey, _ := b3.Parse(string(key[1]))
	for _, l := range p.Leaves {
		leaf := record.AppendLeaf(nil, runKey, l.Index,
			record.AppendAllocation(nil, []byte(l.Actor), l.Amount, l.Score))
		if got, ok := merkle.Climb(merkle.Leaf(leaf), l.Index, count, l.Path); !ok || got.String() != string(root[2]) {
			return false
		}
	}
	switch l := p.Leaves; {
	case !p.Absent:
		return len(l) == 1 && l[0].Actor == p.Actor
	case len(l) == 0:
		return count == 0
	case len(l) == 1:
		return l[0].Index == 0 && p.Actor < l[0].Actor || l[0].Index == count-1 && l[0].Actor < p.Actor
	}
	return len(p.Leaves) == 2 && p.Leaves[0].Index+1 == p.Leaves[1].Index && p.Leaves[0].Actor < p.Actor &&
		p.Actor < p.Leaves[1].Actor
}

// flip changes one bit of a proof.
func flip(p rewarder.RewardProof, dice *rand.Rand) rewarder.RewardProof {
	q := p
	q.Header = bytes.Clone(p.Header)
	q.Leaves = append([]rewarder.ProofLeaf{}, p.Leaves...)
	bit := func(b []byte) { b[dice.IntN(len(b))] ^= 1 << dice.IntN(8) }
	amount := func(a engines.Amount) engines.Amount {
		b := a.AppendLE(nil)
		bit(b)
		return engines.AmountLE(b)
	}
	if len(q.Leaves) == 0 || dice.IntN(8) == 0 {
		if dice.IntN(2) == 0 {
			bit(q.Header)
		} else {
			bit(q.Commitment[:])
		}
		return q
	}
	l := &q.Leaves[dice.IntN(len(q.Leaves))]
	switch dice.IntN(5) {
	case 0:
		b := []byte(l.Actor)
		bit(b)
		l.Actor = string(b)
	case 1:
		l.Amount = amount(l.Amount)
	case 2:
		l.Score = amount(l.Score)
	case 3:
		l.Index ^= 1 << dice.IntN(64)
	default:
		if len(l.Path) == 0 {
			return flip(p, dice)
		}
		l.Path = append([]b3.Digest{}, l.Path...)
		bit(l.Path[dice.IntN(len(l.Path))][:])
	}
	return q
}

// For random runs, every actor has a proof of its allocation, and every name between and around the
// actors has a proof of absence. No proof verifies after a change of one bit. The amounts are those
// that the ledger has paid.
func TestProofsOfDrawnRuns(t *testing.T) {
	t.Parallel()
	runs := 200
	if testing.Short() {
		runs = 20
	}
	dice := rand.New(rand.NewPCG(3, 4))
	r := newRig(t, inMemory).start()
	p := policy(func(p *record.Policy) { p.Dust, p.ActorMax, p.Excess = n64(3), n64(900), record.Redistribute })
	r.put(p)
	for i := range runs {
		n := dice.IntN(12)
		switch i % 50 {
		case 1:
			n = 513 + dice.IntN(200)
		case 2:
			n = []int{511, 512, 1024, 1025}[i/50%4]
		}
		qty := map[string]uint64{}
		for range n {
			qty["a"+strconv.FormatUint(dice.Uint64N(1<<40), 36)] = dice.Uint64N(1 << dice.IntN(20))
		}
		var actors, rows []string
		for a := range qty {
			actors = append(actors, a)
		}
		sort.Strings(actors)
		for _, a := range actors {
			rows = append(rows, fmt.Sprint(a, " requests ", qty[a]))
		}
		epoch := fmt.Sprint("e", i)
		r.mustCompute(epoch, r.seal(inputOf(epoch, dice.Uint64N(20000)), usage(rows...)), p)
		run := r.await(epoch, rewarder.Sealed, rewarder.Settling, rewarder.Settled, rewarder.Quarantined)
		page, err := r.e.Allocations(r.ctx(), rewarder.DefaultTenant, epoch, "", rewarder.MaxPage)
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]bool{}
		all := slices.Clone(page.Allocations)
		for _, a := range page.Allocations {
			got[a.Actor] = true
		}
		for page.Next != "" {
			if page, err = r.e.Allocations(r.ctx(), rewarder.DefaultTenant, epoch, page.Next, 1+dice.IntN(300)); err != nil {
				t.Fatal(err)
			}
			for _, a := range page.Allocations {
				got[a.Actor] = true
			}
			all = append(all, page.Allocations...)
		}
		limit := 1 + dice.IntN(rewarder.MaxLargest)
		slices.SortStableFunc(all, func(a, b record.Allocation) int { return b.Amount.Cmp(a.Amount) })
		if page, err = r.e.Largest(r.ctx(), rewarder.DefaultTenant, epoch, limit); err != nil || page.Next != "" ||
			!slices.Equal(page.Allocations, all[:min(limit, len(all))]) {
			t.Fatalf("%s: the %d largest are %+v, %v", epoch, limit, page.Allocations, err)
		}
		if uint64(len(got)) != run.Actors {
			t.Fatalf("%s: pages have %d of %d", epoch, len(got), run.Actors)
		}
		for _, actor := range append(actors, "a", "zzzz", "a"+strings.Repeat("m", 5), "b") {
			proof, err := r.e.Proof(r.ctx(), rewarder.DefaultTenant, epoch, actor)
			if err != nil || proof.Absent == got[actor] || !holds(proof, run.Commitment) {
				t.Fatalf("%s of %s, who gets something: %v: %+v, %v", epoch, actor, got[actor], proof, err)
			}
			for range max(1, 64/(1+len(actors))) {
				if bad := flip(proof, dice); holds(bad, run.Commitment) {
					t.Fatalf("%s of %s: %+v still holds, after %+v", epoch, actor, bad, proof)
				}
			}
		}
	}
}

func TestProofOfNothing(t *testing.T) {
	r := newRig(t).only(rewarder.TaskScheduler)
	p := policy()
	r.put(p)
	if _, err := r.e.Proof(r.ctx(), rewarder.DefaultTenant, "e", "a"); err == nil {
		t.Error("a proof of an epoch that is not there")
	}
	r.mustCompute("e", r.seal(inputOf("e", 10), usage("a requests 1")), p)
	for _, ask := range []func() error{
		func() error { _, err := r.e.Proof(r.ctx(), rewarder.DefaultTenant, "e", "a"); return err },
		func() error { _, err := r.e.Allocations(r.ctx(), rewarder.DefaultTenant, "e", "", 1); return err },
		func() error { _, err := r.e.Settlement(r.ctx(), rewarder.DefaultTenant, "e", 0, 1); return err },
		func() error { _, err := r.e.Emit(r.ctx(), alice, "e", false); return err },
	} {
		if state, ok := asA[*rewarder.ConflictError](ask()); !ok || state.What != "state" ||
			state.Has != string(rewarder.Accepted) {
			t.Errorf("of a run that is not sealed: %v", state)
		}
	}
	if f, ok := asA[*rewarder.FieldError](
		func() error { _, err := r.e.Proof(r.ctx(), rewarder.DefaultTenant, "e", "sys:x"); return err }(),
	); !ok ||
		f.Field != "actor" {
		t.Errorf("of no actor: %v", f)
	}
}
