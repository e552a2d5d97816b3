package calculus_test

import (
	"cmp"
	"context"
	"errors"
	"math/big"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"ronbox/engines"
	"ronbox/engines/rewarder/calculus"
)

func n64(n uint64) engines.Amount { return engines.AmountOf(0, n) }

func nums(all ...uint64) (out []engines.Amount) {
	for _, n := range all {
		out = append(out, n64(n))
	}
	return out
}

var most = engines.AmountOf(^uint64(0), ^uint64(0))

func toBig(a engines.Amount) *big.Int {
	n, _ := new(big.Int).SetString(a.String(), 10)
	return n
}

// edges are numbers at the bounds of carries and limbs.
func edges() *rapid.Generator[engines.Amount] {
	fixed := append(nums(0, 1, 2, 3, ^uint64(0)-1, ^uint64(0)), engines.AmountOf(1, 0), engines.AmountOf(1, 1),
		engines.AmountOf(1<<63, 0), most)
	return rapid.OneOf(rapid.SampledFrom(fixed), rapid.Custom(func(t *rapid.T) engines.Amount {
		return engines.AmountOf(rapid.Uint64().Draw(t, "hi"), rapid.Uint64().Draw(t, "lo"))
	}), rapid.Custom(func(t *rapid.T) engines.Amount { return n64(rapid.Uint64Max(1_000_000).Draw(t, "small")) }))
}

func TestDivIsBigs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b, d := edges().Draw(t, "a"),
			edges().Draw(t, "b"),
			edges().Filter(func(a engines.Amount) bool { return !a.IsZero() }).
				Draw(t, "d")
		q, r, ok := engines.Product(a, b).Div(d)
		wantQ, wantR := new(big.Int).QuoRem(new(big.Int).Mul(toBig(a), toBig(b)), toBig(d), new(big.Int))
		if ok != (wantQ.BitLen() <= 128) {
			t.Fatalf("%s·%s/%s: fits %v", a, b, d, ok)
		}
		if ok && (toBig(q).Cmp(wantQ) != 0 || toBig(r).Cmp(wantR) != 0) {
			t.Fatalf("%s·%s/%s = %s rest %s, want %s rest %s", a, b, d, q, r, wantQ, wantR)
		}
	})
}

// plain is a direct implementation of Share over big integers.
func plain(pool *big.Int, scores []*big.Int, rule calculus.Rule) (amounts []*big.Int, breach string) {
	n := int64(len(scores))
	total := new(big.Int)
	for _, x := range scores {
		total.Add(total, x)
	}
	if total.BitLen() > 128 {
		return nil, "overflow"
	}
	amounts = make([]*big.Int, n)
	for i := range amounts {
		amounts[i] = new(big.Int)
	}
	if n == 0 || pool.Sign() == 0 {
		return amounts, ""
	}
	guarantee, left := toBig(rule.Guarantee), new(big.Int).Set(pool)
	left.Sub(left, new(big.Int).Mul(guarantee, big.NewInt(n)))
	if left.Sign() < 0 {
		return nil, "guarantee"
	}
	order := make([]int, n)
	for i := range order {
		order[i] = i
	}
	fixed := make([]bool, n)
	capped := !rule.ActorMax.IsZero()
	if capped && rule.Redistribute {
		c := new(big.Int).Sub(toBig(rule.ActorMax), guarantee)
		slices.SortStableFunc(order, func(a, b int) int { return scores[b].Cmp(scores[a]) })
		for _, i := range order {
			if new(big.Int).Mul(left, scores[i]).Cmp(new(big.Int).Mul(c, total)) <= 0 {
				break
			}
			fixed[i] = true
			amounts[i].Set(c)
			left.Sub(left, c)
			total.Sub(total, scores[i])
		}
	}
	if total.Sign() > 0 {
		rest, remainders := new(big.Int).Set(left), make([]*big.Int, n)
		for i := range amounts {
			remainders[i] = new(big.Int)
			if !fixed[i] {
				amounts[i].QuoRem(new(big.Int).Mul(left, scores[i]), total, remainders[i])
				rest.Sub(rest, amounts[i])
			}
		}
		if rule.Remainder {
			slices.SortStableFunc(
				order,
				func(a, b int) int { return cmp.Or(remainders[b].Cmp(remainders[a]), cmp.Compare(a, b)) },
			)
			for _, i := range order[:rest.Int64()] {
				amounts[i].Add(amounts[i], big.NewInt(1))
			}
		}
	}
	for _, a := range amounts {
		a.Add(a, guarantee)
		if capped && a.Cmp(toBig(rule.ActorMax)) > 0 {
			a.Set(toBig(rule.ActorMax))
		}
		if a.Cmp(toBig(rule.Dust)) < 0 {
			a.SetInt64(0)
		}
	}
	return amounts, ""
}

// drawRule draws a valid rule.
func drawRule(t *rapid.T) calculus.Rule {
	r := calculus.Rule{Redistribute: rapid.Bool().Draw(t, "redistribute"), Remainder: rapid.Bool().Draw(t, "remainder")}
	small := rapid.Custom(func(t *rapid.T) engines.Amount { return n64(rapid.Uint64Max(1000).Draw(t, "n")) })
	if rapid.Bool().Draw(t, "capped") {
		r.ActorMax = rapid.OneOf(small, edges()).Draw(t, "cap")
	}
	if rapid.Bool().Draw(t, "floors") {
		r.Dust, r.Guarantee = small.Draw(t, "dust"), small.Draw(t, "guarantee")
	}
	if !r.Guarantee.IsZero() && r.Guarantee.Less(r.Dust) {
		r.Guarantee, r.Dust = r.Dust, r.Guarantee
	}
	if !r.ActorMax.IsZero() && (r.ActorMax.Less(r.Guarantee) || r.ActorMax.Less(r.Dust)) {
		r.ActorMax = most
	}
	return r
}

func drawScores(t *rapid.T) []engines.Amount {
	score := rapid.OneOf(
		edges(),
		rapid.Custom(func(t *rapid.T) engines.Amount { return n64(rapid.Uint64Range(1, 50).Draw(t, "score")) }),
	)
	return rapid.SliceOfN(score.Filter(func(a engines.Amount) bool { return !a.IsZero() }), 0, 40).Draw(t, "scores")
}

func TestShareIsThePlainRule(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rule, scores, pool := drawRule(t), drawScores(t), edges().Draw(t, "pool")
		out, amounts, err := calculus.Share(context.Background(), pool, scores, rule)
		var xs []*big.Int
		for _, x := range scores {
			xs = append(xs, toBig(x))
		}
		want, reason := plain(toBig(pool), xs, rule)
		var breach *calculus.Breach
		if errors.As(err, &breach) {
			if breach.Reason != reason {
				t.Fatalf("breach %v, want %q", breach, reason)
			}
			return
		}
		if err != nil || reason != "" {
			t.Fatalf("Share: %v, want %q", err, reason)
		}
		sum := new(big.Int)
		for i, a := range amounts {
			if toBig(a).Cmp(want[i]) != 0 {
				t.Fatalf("amount %d is %s, want %s", i, a, want[i])
			}
			if !rule.ActorMax.IsZero() && rule.ActorMax.Less(a) {
				t.Fatalf("amount %d is %s, above the cap", i, a)
			}
			sum.Add(sum, want[i])
		}
		if toBig(out.Payout).Cmp(sum) != 0 || new(big.Int).Add(sum, toBig(out.Residual)).Cmp(toBig(pool)) != 0 {
			t.Fatalf("%s are paid and %s are left of %s", out.Payout, out.Residual, pool)
		}
	})
}

// Without caps, floors and guarantees the whole pool is paid, each amount is within a unit of its
// exact share, and a higher score never gets less.
func TestShareIsFair(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		scores, pool := drawScores(t), edges().Draw(t, "pool")
		out, amounts, err := calculus.Share(context.Background(), pool, scores, calculus.Rule{Remainder: true})
		if err != nil || len(scores) == 0 {
			return
		}
		if !out.Residual.IsZero() {
			t.Fatalf("%s are left", out.Residual)
		}
		for i, a := range amounts {
			exact := new(big.Int).Mul(toBig(pool), toBig(scores[i]))
			gap := new(big.Int).Sub(new(big.Int).Mul(toBig(a), toBig(out.Score)), exact)
			if gap.CmpAbs(toBig(out.Score)) >= 0 {
				t.Fatalf("amount %d is %s: not within a unit", i, a)
			}
			for j, b := range amounts {
				if scores[i].Less(scores[j]) && b.Less(a) {
					t.Fatalf("score %s gets %s, score %s gets %s", scores[i], a, scores[j], b)
				}
			}
		}
	})
}

// The shares do not depend on the order of actors, except for the units that equal claims compete
// for.
func TestOrderMovesAUnitAtMost(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rule, scores, pool := drawRule(t), drawScores(t), edges().Draw(t, "pool")
		rule.Dust = engines.Amount{} // a unit less may be below it
		order := rapid.Permutation(indexes(len(scores))).Draw(t, "order")
		mixed := make([]engines.Amount, len(scores))
		for to, from := range order {
			mixed[to] = scores[from]
		}
		one, a, err1 := calculus.Share(context.Background(), pool, scores, rule)
		two, b, err2 := calculus.Share(context.Background(), pool, mixed, rule)
		if (err1 == nil) != (err2 == nil) || err1 == nil && one.Payout != two.Payout {
			t.Fatalf("%+v %v, in another order %+v %v", one, err1, two, err2)
		}
		for to, from := range order {
			if err1 == nil && new(big.Int).Sub(toBig(a[from]), toBig(b[to])).CmpAbs(big.NewInt(1)) > 0 {
				t.Fatalf("actor %d gets %s, in another order %s", from, a[from], b[to])
			}
		}
	})
}

func indexes(n int) (out []int) {
	for i := range n {
		out = append(out, i)
	}
	return out
}

func TestShareEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, _, err := calculus.Share(ctx, n64(5), nums(1, 2), calculus.Rule{}); !errors.Is(err, context.Canceled) {
		t.Errorf("err = %v", err)
	}
}

func TestSmallVectors(t *testing.T) {
	for _, v := range []struct {
		name    string
		pool    engines.Amount
		scores  []engines.Amount
		rule    calculus.Rule
		amounts []engines.Amount
		breach  string
	}{
		{"W2", n64(1000), nums(122, 220), calculus.Rule{}, nums(356, 643), ""},
		{"W3", n64(1000), nums(122, 220), calculus.Rule{Remainder: true}, nums(357, 643), ""},
		{"W6", n64(100), nums(1, 2, 3, 4), calculus.Rule{Guarantee: n64(30)}, nil, "guarantee"},
		{"W9", most, nums(2), calculus.Rule{Remainder: true}, []engines.Amount{most}, ""},
		{"W10", n64(5), []engines.Amount{most, most}, calculus.Rule{Remainder: true}, nil, "overflow"},
		{"W11 no activity", n64(500), nil, calculus.Rule{Remainder: true}, nil, ""},
		{"W11 dust", n64(10), nums(4, 4), calculus.Rule{Remainder: true, Dust: n64(100)}, nums(0, 0), ""},
		{"W13 28", n64(28), nums(18, 2, 21), calculus.Rule{Remainder: true}, nums(12, 2, 14), ""},
		{"W13 29", n64(29), nums(18, 2, 21), calculus.Rule{Remainder: true}, nums(13, 1, 15), ""},
		{"cap of nothing", n64(29), nums(18, 2),
			calculus.Rule{Remainder: true, Redistribute: true, ActorMax: n64(3), Guarantee: n64(3)}, nums(3, 3), ""},
	} {
		_, amounts, err := calculus.Share(context.Background(), v.pool, v.scores, v.rule)
		var breach *calculus.Breach
		if errors.As(err, &breach) != (v.breach != "") || breach != nil && breach.Reason != v.breach {
			t.Errorf("%s: %v, want a breach %q", v.name, err, v.breach)
		}
		if err == nil && !slices.Equal(amounts, v.amounts) {
			t.Errorf("%s: %v, want %v", v.name, amounts, v.amounts)
		}
	}
}

func BenchmarkShare(b *testing.B) {
	const actors = 1_000_000
	dice := rand.New(rand.NewPCG(1, 2))
	scores := make([]engines.Amount, actors)
	var xs []*big.Int
	for i := range scores {
		n := 1 + dice.Uint64N(1<<40)
		scores[i] = n64(n)
		xs = append(xs, new(big.Int).SetUint64(n))
	}
	pool := n64(1_000_000_007_000)
	for _, rule := range []struct {
		name string
		calculus.Rule
	}{{"plain", calculus.Rule{Remainder: true}}, {"capped",
		calculus.Rule{Remainder: true, Redistribute: true, ActorMax: n64(1_900_000)}}} {
		b.Run(rule.name+"/engine", func(b *testing.B) {
			for b.Loop() {
				if _, _, err := calculus.Share(context.Background(), pool, scores, rule.Rule); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(actors)*float64(b.N)/b.Elapsed().Seconds(), "actors/s")
		})
		b.Run(rule.name+"/reference", func(b *testing.B) {
			for b.Loop() {
				plain(toBig(pool), xs, rule.Rule)
			}
			b.ReportMetric(float64(actors)*float64(b.N)/b.Elapsed().Seconds(), "actors/s")
		})
	}
}
