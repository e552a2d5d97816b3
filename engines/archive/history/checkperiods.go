package history

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"ronbox/appliance/b3"
	"ronbox/engines/archive/object"
)

// checkPeriods verifies the files of closed periods of one node: every part, and that no period is
// missing before the last one.
func (a *Archive) checkPeriods(ctx context.Context, c *Checked, o Options) error {
	whole := map[uint64]bool{}
	for _, p := range a.Periods {
		ok, err := a.checkCopy(ctx, c, p, o)
		if err != nil {
			return err
		}
		if ok {
			c.Periods++
			whole[p.N] = true
		}
	}
	last := uint64(0)
	for _, n := range slices.Sorted(maps.Keys(whole)) {
		if n != last+1 {
			c.found(a.Periods[0].name(last+1), fmt.Errorf("there is no complete copy up to period %d: "+
				"the node makes one of a file that is in ledger.periods_dir when it starts", n-1))
		}
		last = n
	}
	return nil
}

// name returns the begin of the names of the objects of a period.
func (c *Copy) name(n uint64) string { return fmt.Sprintf("%s/periods/%06d", c.Node, n) }

// checkCopy verifies a copy. It reports whether the copy is complete and sound.
func (a *Archive) checkCopy(ctx context.Context, c *Checked, p *Copy, o Options) (whole bool, err error) {
	was := len(c.Findings)
	hash := b3.New()
	var file object.FileHeader // of the first part
	for n, part := range p.Parts {
		if part.Number != n {
			c.found(partName(part.Name, n), errors.New("it is missing"))
			return false, nil
		}
		v := &verification{run: run{a: a, o: o, signer: o.Signer}, c: c}
		got, plain, err := v.read(ctx, part.Item)
		if err != nil {
			return false, err
		}
		switch {
		case got == nil:
			continue
		case n == 0:
			file = *got.File
		case !got.File.SameFile(file):
			c.found(part.Name, errors.New("it is not of the file of the first part"))
		}
		if plain == nil {
			hash = nil
		}
		if hash != nil {
			_, _ = hash.Write(plain) // never fails
		}
	}
	switch {
	case len(c.Findings) > was:
		return false, nil
	case len(p.Parts) < file.Parts():
		return false, a.cutCopy(ctx, c, p, file.Parts())
	case hash != nil && hash.Sum32() != file.B3:
		c.found(p.Parts[0].Name, fmt.Errorf("%w: its parts are not the file", object.ErrDamaged))
		return false, nil
	}
	return true, nil
}

// cutCopy judges a copy whose end is missing. If there is another copy, or if it is young and the
// newest, it is being made, or the closing was ended that made it.
func (a *Archive) cutCopy(ctx context.Context, c *Checked, p *Copy, parts int) error {
	f := Finding{partName(p.Parts[0].Name, len(p.Parts)), fmt.Sprintf("it is missing, with all after it of %d", parts)}
	all, _, err := a.held(ctx)
	if err != nil {
		return err
	}
	other := slices.ContainsFunc(all, func(h Held) bool { return h.Period == p.N })
	newest := p.N == a.Periods[len(a.Periods)-1].N
	if !other && (!newest || a.now.Sub(p.Newest()) > baseWithin) {
		c.Findings = append(c.Findings, f)
		return nil
	}
	f.Problem = "it is being sent, or its closing was ended"
	c.Notes = append(c.Notes, f)
	return nil
}
