package rverify

import (
	"cmp"
	"math/big"
	"slices"
	"strings"
)

// share is what one actor scored and gets.
type share struct {
	actor                    string
	score, amount, remainder *big.Int // remainder of the quota
}

// outcome is what the rules make of an epoch.
type outcome struct {
	breach   string   // the word for a run that pays nobody, since its policy or its numbers do not allow it
	pool     *big.Int // after the policy's bound
	eligible int      // actors with a score
	score    *big.Int // of all
	shares   []*share // of those who are paid, by actor
	paid     *big.Int
}

// compute applies calculus 1, rule by rule, to the rows of an epoch.
func compute(u Usage, p *Policy, pool, available *big.Int, saturated bool) outcome {
	o := outcome{pool: smaller(pool, p.PoolMax), score: new(big.Int), paid: new(big.Int)}
	if o.pool.Cmp(available) > 0 {
		o.breach = "unfunded"
		return o
	}
	eligible, fits := scores(u, p)
	for _, s := range eligible {
		o.score.Add(o.score, s.score)
	}
	if saturated || !fits || o.score.Cmp(most128) > 0 {
		o.breach, o.score = "overflow", new(big.Int)
		return o
	}
	if o.eligible = len(eligible); o.eligible == 0 || o.pool.Sign() == 0 {
		return o
	}
	rest := new(big.Int).Sub(o.pool, new(big.Int).Mul(p.guarantee, big.NewInt(int64(o.eligible))))
	if rest.Sign() < 0 {
		o.breach = "guarantee"
		return o
	}
	divide(eligible, rest, new(big.Int).Set(o.score), p)
	for _, s := range eligible {
		s.amount.Add(s.amount, p.guarantee)
		if p.actorMax.Sign() > 0 && !p.redistribute {
			s.amount = smaller(s.amount, p.actorMax)
		}
		if s.amount.Sign() > 0 && s.amount.Cmp(p.dust) >= 0 {
			o.paid.Add(o.paid, s.amount)
			o.shares = append(o.shares, s)
		}
	}
	return o
}

func smaller(a, b *big.Int) *big.Int {
	if a.Cmp(b) < 0 {
		return a
	}
	return b
}

// scores adds up each actor's quantities, row by row bounded, and weighs each metric on its own. It leaves out those without a score; fits is
// false when a score has more than 128 bits.
func scores(u Usage, p *Policy) (out []*share, fits bool) {
	for from, to := 0, 0; from < len(u); from = to {
		sums := map[string]*big.Int{}
		for ; to < len(u) && u[to].Actor == u[from].Actor; to++ {
			qty, _ := new(big.Int).SetString(u[to].Qty, 10)
			if most := p.weights[u[to].Metric].rowMax; most.Sign() > 0 {
				qty = smaller(qty, most)
			}
			sums[u[to].Metric] = new(big.Int).Add(qty, cmp.Or(sums[u[to].Metric], new(big.Int)))
		}
		s := &share{actor: u[from].Actor, score: new(big.Int), amount: new(big.Int), remainder: new(big.Int)}
		for _, metric := range p.metrics {
			points := new(big.Int).Mul(cmp.Or(sums[metric], new(big.Int)), p.weights[metric].num)
			s.score.Add(s.score, points.Quo(points, p.weights[metric].den))
		}
		if s.score.Cmp(most128) > 0 {
			return nil, false
		}
		if s.score.Sign() > 0 {
			out = append(out, s)
		}
	}
	return out, true
}

// divide gives the pool to the actors by their scores, which sum to total.
func divide(actors []*share, pool, total *big.Int, p *Policy) {
	open := slices.Clone(actors)
	slices.SortFunc(open, func(a, b *share) int { return cmp.Or(b.score.Cmp(a.score), strings.Compare(a.actor, b.actor)) })
	if p.actorMax.Sign() > 0 && p.redistribute { // those whose share would be above the cap get just that, the largest first
		most := new(big.Int).Sub(p.actorMax, p.guarantee)
		for len(open) > 0 && new(big.Int).Mul(pool, open[0].score).Cmp(new(big.Int).Mul(most, total)) > 0 {
			open[0].amount.Set(most)
			pool.Sub(pool, most)
			total.Sub(total, open[0].score)
			open = open[1:]
		}
	}
	rest := new(big.Int).Set(pool)
	for _, s := range open {
		s.amount.QuoRem(new(big.Int).Mul(pool, s.score), total, s.remainder)
		rest.Sub(rest, s.amount)
	}
	if p.floor || len(open) == 0 {
		return
	}
	slices.SortFunc(open, func(a, b *share) int { return cmp.Or(b.remainder.Cmp(a.remainder), strings.Compare(a.actor, b.actor)) })
	for _, s := range open[:rest.Int64()] { // fewer than there are actors
		s.amount.Add(s.amount, big.NewInt(1))
	}
}
