package history

import (
	"context"
	"errors"
	"slices"

	"ronbox/appliance/b3"
	"ronbox/engines/archive/object"
)

// damage is the error of a copy whose header is damaged.
type damage struct {
	n     uint64 // of the period
	cause error
}

// held returns the complete copies and those with a damaged header, each in their order.
func (a *Archive) held(ctx context.Context) (all []Held, damaged []damage, err error) {
	for _, c := range a.Periods {
		h, whole, err := a.Whole(ctx, c)
		switch {
		case errors.Is(err, object.ErrDamaged):
			damaged = append(damaged, damage{c.N, err})
		case err != nil:
			return nil, nil, err
		case whole:
			all = append(all, h)
		}
	}
	return all, damaged, nil
}

// chain returns the complete copies that lead to a statement, newest first, and what is missing
// between and before them. There is at least one copy.
func (a *Archive) chain(ctx context.Context, last b3.Digest) (chain []Held, missing []Gap, err error) {
	all, damaged, err := a.held(ctx)
	if err != nil {
		return nil, nil, err
	}
	heads, several := headsOf(all), conflict(all)
	if !last.IsZero() {
		heads = slices.DeleteFunc(slices.Clone(all), func(h Held) bool { return h.Statement != last })
	}
	switch {
	case len(damaged) > 0 && (len(heads) == 0 || last.IsZero()): // of a period that is wanted, perhaps
		return nil, nil, damaged[0].cause
	case len(heads) == 0:
		return nil, nil, ErrNoPeriod
	case last.IsZero() && several:
		return nil, nil, &HistoriesError{heads}
	}
	for h, known := heads[len(heads)-1], true; known; {
		chain = append(chain, h)
		end := h.Period - 1
		if h, known = before(all, h, several); h.Period < end {
			missing = append(missing, Gap{h.Period + 1, end})
		}
	}
	slices.Reverse(missing)
	for _, d := range damaged {
		if slices.ContainsFunc(missing, func(g Gap) bool { return g.First <= d.n && d.n <= g.Last }) {
			return nil, nil, d.cause
		}
	}
	return chain, missing, nil
}

// before returns the copy that h follows, or, beyond a hole in the only history, the next one. Its
// period is 0 if there is none.
func before(all []Held, h Held, several bool) (Held, bool) {
	for _, b := range slices.Backward(all) {
		if b.Period == h.Period-1 && b.Statement == h.Before || b.Period < h.Period && !several {
			return b, true
		}
	}
	return Held{}, false
}

// conflict reports whether copies are of several histories: two of one period have not the same
// statement, or one does not follow that of the period before.
func conflict(all []Held) bool {
	of := map[uint64]b3.Digest{}
	for _, h := range all {
		if one, known := of[h.Period]; known && one != h.Statement {
			return true
		}
		if one, known := of[h.Period-1]; known && one != h.Before {
			return true
		}
		of[h.Period] = h.Statement
	}
	return false
}

// headsOf returns the copies that no other one follows, one of each statement, by period.
func headsOf(all []Held) (heads []Held) {
	for _, h := range all {
		if !slices.ContainsFunc(all, func(o Held) bool { return o.Before == h.Statement }) &&
			!slices.ContainsFunc(heads, func(o Held) bool { return o.Statement == h.Statement }) {
			heads = append(heads, h)
		}
	}
	return heads
}
