package rverify

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"ronbox/appliance/host/hosttest"
	"ronbox/engines"
	"ronbox/engines/rewarder/calculus"
)

var epochs = flag.Int("epochs", 20_000, "how many drawn epochs the two computations are compared on")

// edges are numbers at the bounds of 64 and 128 bits, and small ones.
func edges(d *rand.Rand) engines.Amount {
	switch d.IntN(10) {
	case 0:
		return engines.Amount{}
	case 1:
		return engines.AmountOf(0, 1)
	case 2:
		return engines.AmountOf(0, 1<<64-1-d.Uint64N(2))
	case 3:
		return engines.AmountOf(1, d.Uint64N(2)) // 2^64, 2^64+1
	case 4:
		return engines.AmountOf(1<<64-1, 1<<64-1)
	case 5:
		return engines.AmountOf(d.Uint64(), d.Uint64())
	case 6:
		return engines.AmountOf(0, d.Uint64())
	}
	return engines.AmountOf(0, d.Uint64N(10_000))
}

// low returns the lower 64 bits of a number.
func low(a engines.Amount) uint64 {
	_, lo := a.Parts()
	return lo
}

// ratio is the weight of a metric.
type ratio struct{ num, den uint64 }

// drawn is a random epoch for both implementations.
type drawn struct {
	e       epoch
	rule    calculus.Rule
	weights map[string]ratio
	rowMax  map[string]uint64
	rows    []Row // as they are drawn: sorted by actor, each metric once
	pool    engines.Amount
}

func draw(d *rand.Rand) drawn {
	out := drawn{
		weights: map[string]ratio{}, rowMax: map[string]uint64{}, pool: edges(d),
		rule: calculus.Rule{Redistribute: d.IntN(2) == 0, Remainder: d.IntN(3) > 0},
	}
	weights := map[string]string{}
	for _, m := range []string{"m", "n", "o"}[:1+d.IntN(3)] {
		w := ratio{low(edges(d)), max(low(edges(d)), 1)}
		if d.IntN(2) == 0 {
			w = ratio{1 + d.Uint64N(5), 1 + d.Uint64N(5)}
		}
		out.weights[m] = w
		if d.IntN(3) == 0 {
			out.rowMax[m] = low(edges(d))
		}
		weights[m] = fmt.Sprintf("%d/%d/%d", w.num, w.den, out.rowMax[m])
	}
	if d.IntN(2) == 0 {
		out.rule.ActorMax = edges(d)
	}
	if d.IntN(3) == 0 {
		out.rule.Guarantee = edges(d)
	}
	if d.IntN(3) == 0 {
		out.rule.Dust = edges(d)
	}
	none := engines.Amount{}
	if out.rule.Guarantee != none && out.rule.Guarantee.Less(out.rule.Dust) {
		out.rule.Dust = out.rule.Guarantee
	}
	if out.rule.ActorMax != none && out.rule.ActorMax.Less(out.rule.Guarantee) {
		out.rule.Guarantee, out.rule.ActorMax = out.rule.ActorMax, out.rule.Guarantee
	}
	if out.rule.ActorMax != none && out.rule.ActorMax.Less(out.rule.Dust) ||
		out.rule.Guarantee != none && out.rule.Guarantee.Less(out.rule.Dust) {
		out.rule.Dust = none
	}
	big := d.IntN(4) == 0
	for i := range d.IntN(12) {
		for _, m := range []string{"m", "n", "o"} {
			if _, has := weights[m]; !has || d.IntN(3) == 0 {
				continue
			}
			qty := d.Uint64N(1000)
			if big {
				qty = low(edges(d))
			}
			out.rows = append(out.rows,
				Row{Actor: fmt.Sprintf("a%02d", i), Metric: m, Qty: strconv.FormatUint(qty, 10)})
		}
	}
	var csv strings.Builder
	for _, r := range out.rows {
		fmt.Fprintf(&csv, "%s,%s,%s\n", r.Actor, r.Metric, r.Qty)
	}
	policy := map[string]string{
		"caps.actor_max_minor":   out.rule.ActorMax.String(),
		"floors.guarantee_minor": out.rule.Guarantee.String(),
		"floors.dust_minor":      out.rule.Dust.String(),
		"caps.excess":            map[bool]string{true: "redistribute", false: "residual"}[out.rule.Redistribute],
		"rounding":               map[bool]string{true: "largest_remainder", false: "floor"}[out.rule.Remainder],
	}
	out.e = epoch{policy: policy, weights: weights, csv: csv.String(), pool: out.pool.String()}
	return out
}

// shared returns the result of the engine's calculus: amounts by actor, or a breach.
func (x *drawn) shared(t *testing.T) (paid []string, payout, residual, score, breach string) {
	var names []string
	var scores []engines.Amount
	for i := 0; i < len(x.rows); {
		actor, sum, ok := x.rows[i].Actor, engines.Amount{}, true
		for ; i < len(x.rows) && x.rows[i].Actor == actor; i++ {
			r := x.rows[i]
			qty, _ := strconv.ParseUint(r.Qty, 10, 64)
			if most := x.rowMax[r.Metric]; most > 0 {
				qty = min(qty, most)
			}
			term, fits := calculus.Term(engines.AmountOf(0, qty), x.weights[r.Metric].num, x.weights[r.Metric].den)
			if ok = ok && fits; ok {
				sum, ok = sum.Add(term)
			}
		}
		if !ok {
			return nil, "", "", "", "overflow"
		}
		if !sum.IsZero() {
			names, scores = append(names, actor), append(scores, sum)
		}
	}
	out, amounts, err := calculus.Share(context.Background(), x.pool, scores, x.rule)
	if b, ok := errors.AsType[*calculus.Breach](err); ok {
		return nil, "", "", "", b.Reason
	}
	if err != nil {
		t.Fatal(err)
	}
	for i, a := range amounts {
		if !a.IsZero() {
			paid = append(paid, names[i]+"="+a.String())
		}
	}
	return paid, out.Payout.String(), out.Residual.String(), out.Score.String(), ""
}

// Both implementations, which share no code, agree on every epoch.
func TestSameAsTheEngine(t *testing.T) {
	n := *epochs
	if testing.Short() {
		n /= 10
	}
	d := rand.New(rand.NewPCG(hosttest.Seed(t, "EPOCHS_SEED"), 0))
	breaches, payments := map[string]int{}, 0
	for i := range n {
		x := draw(d)
		paid, payout, residual, score, breach := x.shared(t)
		r := x.e.run(t)
		breaches[breach]++
		if r.Reason != breach {
			t.Fatalf("epoch %d: %q, the engine says %q\n%+v", i, r.Reason, breach, x)
		}
		if breach != "" {
			continue
		}
		var own []string
		for _, a := range r.allocations(t) {
			own = append(own, a.Actor+"="+a.Amount)
		}
		payments += len(own)
		totals := r.manifest["totals"].(document)
		if fmt.Sprint(own) != fmt.Sprint(paid) || r.Payout.String() != payout || r.Residual.String() != residual ||
			totals["score"] != score {
			t.Fatalf(
				"epoch %d: %v, paid %s, residual %s, score %v\nthe engine: %v, paid %s, residual %s, score %s\n%+v",
				i, own, r.Payout, r.Residual, totals["score"], paid, payout, residual, score, x)
		}
	}
	t.Logf("%d epochs, %d payments, breaches %v", n, payments, breaches)
	if breaches["overflow"] == 0 || breaches["guarantee"] == 0 || payments < n {
		t.Errorf("the draws are one-sided: %d payments, breaches %v", payments, breaches)
	}
}
