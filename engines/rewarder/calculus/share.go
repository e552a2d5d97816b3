package calculus

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"ronbox/engines"
)

// Breach says that a policy and an input give no payout set. Has and Need are the two numbers that disagree, if there are two.
type Breach struct{ Reason, Has, Need string }

func (b *Breach) Error() string { return fmt.Sprintf("%s: has %s, needs %s", b.Reason, b.Has, b.Need) }

// Overflow is the breach of numbers that do not fit.
func Overflow() *Breach { return &Breach{Reason: "overflow"} }

// Term is the score of a quantity, floor(q·num/den); ok is false if it does not fit.
func Term(q engines.Amount, num, den uint64) (term engines.Amount, ok bool) {
	term, _, ok = engines.Product(q, engines.AmountOf(0, num)).Div(engines.AmountOf(0, den))
	return term, ok
}

// Rule is the part of a policy that shares. A zero ActorMax or Guarantee is none.
type Rule struct {
	ActorMax, Guarantee, Dust engines.Amount
	Redistribute              bool // shares above ActorMax go to the others, not to the residual
	Remainder                 bool // largest remainder; else what is below a unit goes to the residual
}

// Shared is what became of a pool.
type Shared struct {
	Score            engines.Amount // of all
	Payout, Residual engines.Amount
	Paid             uint64 // amounts above 0
}

// checkEvery is after how many actors the context is looked at.
const checkEvery = 4096

// share is a pool on its way.
type share struct {
	Rule
	ctx     context.Context
	scores  []engines.Amount
	amounts []engines.Amount
	fixed   []bool         // who has reached the cap; nil: nobody
	pool    engines.Amount // what is shared by score
	total   engines.Amount // score of those who share it
}

// Share shares pool among scores, each above 0 and in the order of their actors: amounts has one for each. A *Breach means that it cannot be
// shared; any other error is the cause of ctx.
func Share(ctx context.Context, pool engines.Amount, scores []engines.Amount, rule Rule) (out Shared, amounts []engines.Amount, err error) {
	s := &share{Rule: rule, ctx: ctx, scores: scores, amounts: make([]engines.Amount, len(scores)), pool: pool}
	if err = s.each(func(i int) (ok bool) { s.total, ok = s.total.Add(scores[i]); return ok }); err != nil {
		return out, nil, err
	}
	out = Shared{Score: s.total, Residual: pool}
	if len(scores) == 0 || pool.IsZero() {
		return out, s.amounts, nil
	}
	all := engines.Product(rule.Guarantee, engines.AmountOf(0, uint64(len(scores))))
	guaranteed, ok := engines.AmountOf(all[1], all[0]), all[2] == 0 // 64 bits times 128 are 192
	if s.pool, _ = pool.Sub(guaranteed); !ok || pool.Less(guaranteed) {
		return out, nil, &Breach{"guarantee", pool.String(), guaranteed.String()}
	}
	if rule.Redistribute && !rule.ActorMax.IsZero() {
		s.redistribute()
	}
	if err = s.divide(); err != nil {
		return out, nil, err
	}
	err = s.finish(&out)
	return out, s.amounts, err
}

// each calls fn for each actor, until one does not fit or ctx ends.
func (s *share) each(fn func(i int) (ok bool)) error {
	for i := range s.scores {
		if i%checkEvery == 0 && s.ctx.Err() != nil {
			return context.Cause(s.ctx)
		}
		if !fn(i) {
			return Overflow()
		}
	}
	return nil
}

// redistribute fixes actors at the cap, the largest score first, of equal ones the first actor, while their share of what is left is above it.
func (s *share) redistribute() {
	most, _ := s.ActorMax.Sub(s.Guarantee) // a policy whose cap is below its guarantee is refused
	order := make([]uint32, len(s.scores))
	for i := range order {
		order[i] = uint32(i)
	}
	slices.SortFunc(order, func(a, b uint32) int { return cmp.Or(s.scores[b].Cmp(s.scores[a]), cmp.Compare(a, b)) })
	s.fixed = make([]bool, len(s.scores))
	for _, i := range order {
		if !engines.Product(most, s.total).Less(engines.Product(s.pool, s.scores[i])) {
			return
		}
		s.fixed[i], s.amounts[i] = true, most
		s.pool, _ = s.pool.Sub(most) // its share is above the cap, so there is as much
		s.total, _ = s.total.Sub(s.scores[i])
	}
}

// divide gives each actor that is not fixed the floor of its share, and of the units that are left one each to the largest remainders, of equal
// ones to the first actors.
func (s *share) divide() error {
	if s.total.IsZero() {
		return nil
	}
	left, remainders := s.pool, make([]engines.Amount, len(s.scores))
	if err := s.each(func(i int) (ok bool) {
		if s.fixed != nil && s.fixed[i] {
			return true
		}
		s.amounts[i], remainders[i], ok = engines.Product(s.pool, s.scores[i]).Div(s.total)
		left, _ = left.Sub(s.amounts[i])
		return ok
	}); err != nil || !s.Remainder || left.IsZero() {
		return err
	}
	_, n := left.Parts() // fewer than there are actors
	slices.SortFunc(remainders, func(a, b engines.Amount) int { return b.Cmp(a) })
	cut := remainders[n-1]
	ties := int(n) - slices.Index(remainders, cut)
	return s.each(func(i int) (ok bool) {
		_, remainder, _ := engines.Product(s.pool, s.scores[i]).Div(s.total) // again, since a second list would be the most that a run holds
		c := remainder.Cmp(cut)
		if c < 0 || c == 0 && ties == 0 || s.fixed != nil && s.fixed[i] {
			return true
		}
		if c == 0 {
			ties--
		}
		s.amounts[i], ok = s.amounts[i].Add(engines.AmountOf(0, 1))
		return ok
	})
}

// finish adds guarantees, cuts what is above the cap and drops dust.
func (s *share) finish(out *Shared) error {
	err := s.each(func(i int) bool {
		a, ok := s.amounts[i].Add(s.Guarantee)
		if !s.ActorMax.IsZero() && s.ActorMax.Less(a) {
			a = s.ActorMax
		}
		if a.Less(s.Dust) {
			a = engines.Amount{}
		}
		if s.amounts[i] = a; !a.IsZero() {
			out.Paid++
		}
		sum, fits := out.Payout.Add(a)
		out.Payout = sum
		return ok && fits
	})
	if rest, ok := out.Residual.Sub(out.Payout); err == nil && !ok {
		return &Breach{"conservation", out.Residual.String(), out.Payout.String()}
	} else {
		out.Residual = rest
	}
	return err
}
