package calculus

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"ronbox/engines"
)

// Breach is returned when a policy and an input allow no payout set. Has and Need are the two
// numbers that disagree, if any.
type Breach struct{ Reason, Has, Need string }

func (b *Breach) Error() string { return fmt.Sprintf("%s: has %s, needs %s", b.Reason, b.Has, b.Need) }

// Overflow returns the breach for numbers that do not fit.
func Overflow() *Breach { return &Breach{Reason: "overflow"} }

// Term returns the score of a quantity, floor(q·num/den). ok is false if it does not fit.
func Term(q engines.Amount, num, den uint64) (term engines.Amount, ok bool) {
	term, _, ok = engines.Product(q, engines.AmountOf(0, num)).Div(engines.AmountOf(0, den))
	return term, ok
}

// Rule holds the parameters of a policy. A zero ActorMax or Guarantee means none.
type Rule struct {
	ActorMax, Guarantee, Dust engines.Amount
	Redistribute              bool // shares above ActorMax go to other actors, not to the residual
	Remainder                 bool // largest remainder; otherwise fractions of a unit go to the residual
}

// Shared is the result of Share.
type Shared struct {
	Score            engines.Amount // sum of all scores
	Payout, Residual engines.Amount
	Paid             uint64 // number of amounts above 0
}

// checkEvery is the number of actors between two checks of the context.
const checkEvery = 4096

// share is a computation in progress.
type share struct {
	Rule
	ctx     context.Context
	scores  []engines.Amount
	amounts []engines.Amount
	fixed   []bool         // actors at the cap; nil: none
	pool    engines.Amount // the part that is shared by score
	total   engines.Amount // sum of the scores that share it
}

// Share shares pool among scores, which are above 0 and in the order of their actors. amounts holds
// one amount per score. A *Breach means that the pool cannot be shared; any other error is the
// cause of ctx.
func Share(
	ctx context.Context, pool engines.Amount, scores []engines.Amount, rule Rule,
) (out Shared, amounts []engines.Amount, err error) {
	s := &share{Rule: rule, ctx: ctx, scores: scores, amounts: make([]engines.Amount, len(scores)), pool: pool}
	if err = s.each(func(i int) (ok bool) { s.total, ok = s.total.Add(scores[i]); return ok }); err != nil {
		return out, nil, err
	}
	out = Shared{Score: s.total, Residual: pool}
	if len(scores) == 0 || pool.IsZero() {
		return out, s.amounts, nil
	}
	all := engines.Product(rule.Guarantee, engines.AmountOf(0, uint64(len(scores))))
	guaranteed, ok := engines.AmountOf(all[1], all[0]), all[2] == 0 // 64 bits times 128 bits are 192 bits
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

// each calls fn for each actor until fn returns false, which is an overflow, or ctx ends.
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

// redistribute fixes actors at the cap while their share of the rest is above it: the largest score
// first, and the first actor among equal scores.
func (s *share) redistribute() {
	most, _ := s.ActorMax.Sub(s.Guarantee) // policies with a cap below the guarantee are refused
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
		s.pool, _ = s.pool.Sub(most) // cannot fail: the share is above the cap
		s.total, _ = s.total.Sub(s.scores[i])
	}
}

// divide assigns to each actor that is not fixed the floor of its share. The remaining units go one
// each to the largest remainders, and to the first actors among equal remainders.
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
	_, n := left.Parts() // fewer than the number of actors
	slices.SortFunc(remainders, func(a, b engines.Amount) int { return b.Cmp(a) })
	cut := remainders[n-1]
	ties := int(n) - slices.Index(remainders, cut)
	return s.each(func(i int) (ok bool) {
		// computed again: a second list would dominate the memory of a run
		_, remainder, _ := engines.Product(s.pool, s.scores[i]).Div(s.total)
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

// finish adds guarantees, cuts amounts above the cap, and drops dust.
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
	rest, ok := out.Residual.Sub(out.Payout)
	if err == nil && !ok {
		return &Breach{"conservation", out.Residual.String(), out.Payout.String()}
	}
	out.Residual = rest
	return err
}
