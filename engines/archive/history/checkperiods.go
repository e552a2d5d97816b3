package history

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"ronbox/appliance/b3"
	"ronbox/engines/archive/object"
)

// checkPeriods verifies the files of closed periods of one node: every part, and that the archive
// has the file that each one follows.
func (a *Archive) checkPeriods(ctx context.Context, c *Checked, o Options) error {
	var whole, cut []Held
	for _, p := range a.Periods {
		file, sound, err := a.checkCopy(ctx, c, p, o)
		switch h := (Held{Copy: p, FileHeader: file}); {
		case err != nil:
			return err
		case sound:
			c.Periods++
			whole = append(whole, h)
		case file.Period > 0:
			cut = append(cut, h)
		}
	}
	lacks := map[b3.Digest]bool{}
	for _, h := range whole {
		follows := func(b Held) bool { return b.Statement == h.Before }
		if h.Period == 1 || lacks[h.Before] || slices.ContainsFunc(whole, follows) {
			continue
		}
		lacks[h.Before] = true
		before := uint64(0) // the last one before the hole
		for _, b := range whole {
			if b.Period < h.Period-1 {
				before = max(before, b.Period)
			}
		}
		c.found(h.Copy.name(before+1), fmt.Errorf("there is no complete copy up to the file that period %d follows: "+
			"copy the file into ledger.periods_dir of a member that has an archive, and restart it", h.Period))
	}
	for _, h := range cut {
		a.cutCopy(c, h, whole, lacks[h.Statement])
	}
	return nil
}

// name returns the begin of the names of the objects of a period.
func (c *Copy) name(n uint64) string { return fmt.Sprintf("%s/periods/%06d", c.Node, n) }

// checkCopy verifies a copy, and returns the header of its file. It reports whether the copy is
// complete. The header is zero if the copy is not sound.
func (a *Archive) checkCopy(
	ctx context.Context, c *Checked, p *Copy, o Options,
) (file object.FileHeader, whole bool, err error) {
	was, none := len(c.Findings), object.FileHeader{}
	hash := b3.New()
	for n, part := range p.Parts {
		if part.Number != n {
			c.found(partName(part.Name, n), errors.New("it is missing"))
			return none, false, nil
		}
		v := &verification{run: run{a: a, o: o, signer: o.Signer}, c: c}
		got, plain, err := v.read(ctx, part.Item)
		if err != nil {
			return none, false, err
		}
		switch {
		case got == nil:
			continue
		case file == none: // the first part that could be read
			file = *got.File
		case !got.File.SameFile(file):
			c.found(part.Name, errors.New("it is not of the file of the parts before it"))
		}
		if plain == nil {
			hash = nil
		}
		if hash != nil {
			_, _ = hash.Write(plain) // never fails
		}
	}
	if hash != nil && len(p.Parts) == file.Parts() && len(c.Findings) == was && hash.Sum32() != file.B3 {
		c.found(p.Parts[0].Name, fmt.Errorf("%w: its parts are not the file", object.ErrDamaged))
	}
	if len(c.Findings) > was {
		return none, false, nil
	}
	return file, len(p.Parts) == file.Parts(), nil
}

// cutCopy judges a copy whose end is missing. If no complete copy follows it and there is another
// one, or if it is young and the newest, it is being made, or the closing was ended that made it.
func (a *Archive) cutCopy(c *Checked, h Held, whole []Held, needed bool) {
	p := h.Copy
	f := Finding{
		partName(p.Parts[0].Name, len(p.Parts)), fmt.Sprintf("it is missing, with all after it of %d", h.Parts()),
	}
	other := slices.ContainsFunc(whole, func(o Held) bool { return o.Period == p.N })
	newest := p.N == a.Periods[len(a.Periods)-1].N && a.now.Sub(p.Newest()) <= baseWithin
	if needed || !other && !newest {
		c.Findings = append(c.Findings, f)
		return
	}
	f.Problem = "it is being sent, or its closing was ended"
	c.Notes = append(c.Notes, f)
}
