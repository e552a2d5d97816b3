package rverify

import (
	"bytes"
	"cmp"
	"math/big"
	"slices"
)

// number is a whole number below 2^128, big-endian. It stores the numbers of many actors compactly;
// computations use big.Int.
type number [16]byte

func numberOf(n *big.Int) (out number) {
	n.FillBytes(out[:])
	return out
}

func (n *number) into(z *big.Int) *big.Int { return z.SetBytes(n[:]) }
func (n *number) isZero() bool             { return *n == number{} }

// share holds the score of an actor, its amount, and the remainder of its quota.
type share struct{ score, amount, remainder number }

// shares holds the shares of all actors in their order. It allocates in blocks, because a growing
// slice is held twice for a moment.
type shares struct {
	blocks [][]share
	n      int
}

const blockShares = 4096

func (s *shares) add(score number) {
	if s.n%blockShares == 0 {
		s.blocks = append(s.blocks, make([]share, blockShares))
	}
	s.n++
	s.at(s.n - 1).score = score
}

func (s *shares) at(i int) *share { return &s.blocks[i/blockShares][i%blockShares] }

// outcome is the result of the rules for an epoch.
type outcome struct {
	breach   string   // reason of a quarantine, or ""
	pool     *big.Int // at most the bound of the policy
	eligible int      // number of actors with a score
	score    *big.Int // sum of all scores
	shares   shares   // of all actors; those with an amount are paid
	paid     *big.Int
	actors   uint64 // number of paid actors
}

// compute applies calculus 1 to the scores of an epoch.
func compute(of *scorer, p *Policy, pool, available *big.Int, saturated bool) outcome {
	o := outcome{pool: smaller(pool, p.PoolMax), score: new(big.Int), paid: new(big.Int)}
	if o.pool.Cmp(available) > 0 {
		o.breach = "unfunded"
		return o
	}
	if saturated || !of.fits || of.total.Cmp(most128) > 0 {
		o.breach = "overflow"
		return o
	}
	o.score.Set(&of.total)
	if o.eligible = of.eligible; o.eligible == 0 || o.pool.Sign() == 0 {
		return o
	}
	rest := new(big.Int).Sub(o.pool, new(big.Int).Mul(p.guarantee, big.NewInt(int64(o.eligible))))
	if rest.Sign() < 0 {
		o.breach = "guarantee"
		return o
	}
	o.shares = of.shares
	open := o.open()
	o.divide(open, rest, p)
	o.round(open, p)
	return o
}

func smaller(a, b *big.Int) *big.Int {
	if a.Cmp(b) < 0 {
		return a
	}
	return b
}

// open lists the actors with a score, in their order.
func (o *outcome) open() []uint32 {
	out := make([]uint32, 0, o.eligible)
	for i := range o.shares.n {
		if !o.shares.at(i).score.isZero() {
			out = append(out, uint32(i))
		}
	}
	return out
}

// divide shares the pool among the actors by their scores.
func (o *outcome) divide(actors []uint32, pool *big.Int, p *Policy) {
	var a, b big.Int
	total := new(big.Int).Set(o.score)
	open := slices.Clone(actors)
	slices.SortFunc(open, func(i, j uint32) int {
		a, b := o.shares.at(int(i)), o.shares.at(int(j))
		return cmp.Or(bytes.Compare(b.score[:], a.score[:]), cmp.Compare(i, j))
	})
	if p.actorMax.Sign() > 0 && p.redistribute { // cut shares to the cap, the largest first
		most := new(big.Int).Sub(p.actorMax, p.guarantee)
		for len(open) > 0 {
			s := o.shares.at(int(open[0]))
			score := s.score.into(&a)
			if a.Mul(pool, score).Cmp(b.Mul(most, total)) <= 0 {
				break
			}
			s.amount = numberOf(most)
			pool.Sub(pool, most)
			total.Sub(total, s.score.into(&a))
			open = open[1:]
		}
	}
	rest := new(big.Int).Set(pool)
	var quota, remainder big.Int
	for _, i := range open {
		s := o.shares.at(int(i))
		quota.QuoRem(a.Mul(pool, s.score.into(&b)), total, &remainder)
		s.amount, s.remainder = numberOf(&quota), numberOf(&remainder)
		rest.Sub(rest, &quota)
	}
	if p.floor || len(open) == 0 {
		return
	}
	slices.SortFunc(open, func(i, j uint32) int {
		a, b := o.shares.at(int(i)), o.shares.at(int(j))
		return cmp.Or(bytes.Compare(b.remainder[:], a.remainder[:]), cmp.Compare(i, j))
	})
	for _, i := range open[:rest.Int64()] { // fewer than the number of actors
		s := o.shares.at(int(i))
		s.amount = numberOf(a.Add(s.amount.into(&a), one))
	}
}

var one = big.NewInt(1)

// round adds the guarantee to each amount, cuts it at the cap, drops dust, and counts the payout.
func (o *outcome) round(actors []uint32, p *Policy) {
	var n big.Int
	for _, i := range actors {
		s := o.shares.at(int(i))
		n.Add(s.amount.into(&n), p.guarantee)
		if p.actorMax.Sign() > 0 && !p.redistribute && n.Cmp(p.actorMax) > 0 {
			n.Set(p.actorMax)
		}
		if n.Cmp(p.dust) < 0 {
			n.SetUint64(0)
		}
		if s.amount = numberOf(&n); n.Sign() > 0 {
			o.paid.Add(o.paid, &n)
			o.actors++
		}
	}
}

// scorer adds up the quantities of each actor, with the bound per row, and weighs each metric
// separately. Rows come in the order of actors.
type scorer struct {
	shares   shares
	fits     bool // no score exceeds 128 bits
	total    big.Int
	eligible int

	p     *Policy
	actor string
	sums  map[string]*big.Int // sums of the current actor, by metric
	n, m  big.Int
}

func newScorer(p *Policy) *scorer {
	s := &scorer{p: p, fits: true, sums: map[string]*big.Int{}}
	for _, metric := range p.metrics {
		s.sums[metric] = new(big.Int)
	}
	return s
}

func (s *scorer) add(r *Row) {
	if r.Actor != s.actor {
		s.end()
		s.actor = r.Actor
	}
	sum, weighed := s.sums[r.Metric]
	if !weighed {
		return // the policy lacks the metric, which check reports
	}
	qty, _ := parseQty(r.Qty)
	s.n.SetUint64(qty)
	if most := s.p.weights[r.Metric].rowMax; most.Sign() > 0 && s.n.Cmp(most) > 0 {
		s.n.Set(most)
	}
	sum.Add(sum, &s.n)
}

// end scores the actor of the rows that were added last.
func (s *scorer) end() {
	if s.actor == "" {
		return
	}
	score := s.n.SetUint64(0)
	for _, metric := range s.p.metrics {
		w, sum := s.p.weights[metric], s.sums[metric]
		s.m.Mul(sum, w.num)
		score.Add(score, s.m.Quo(&s.m, w.den))
		sum.SetUint64(0)
	}
	if s.fits = s.fits && score.Cmp(most128) <= 0; !s.fits {
		return // the run overflows and pays no actor
	}
	s.shares.add(numberOf(score))
	s.total.Add(&s.total, score)
	if score.Sign() > 0 {
		s.eligible++
	}
}
