package record

import (
	"fmt"

	"ronbox/appliance/b3"
)

// Base is what a payload builds on: the version before it. The zero Base, but for its origin, is the empty log.
type Base struct {
	Origin    string // "" takes any
	Version   uint64
	PayloadB3 b3.Digest
	Items     Items
	Signers   *SignerSet // nil for the empty log
}

// Check holds the payload against what it builds on and answers the items it makes of them. Errors: ErrVersionSkew, ErrChainMismatch,
// ErrHardLimit, or a *FieldError.
func (p *Payload) Check(b Base) (Items, error) {
	if err := p.checkLinks(b); err != nil {
		return Items{}, err
	}
	items, err := p.apply(b.Items)
	if err != nil {
		return Items{}, err
	}
	return items, p.checkItems(items)
}

// checkLinks holds the payload's place in the log against the base.
func (p *Payload) checkLinks(b Base) error {
	if p.Version != b.Version+1 {
		return fmt.Errorf("%w: version %d on %d", ErrVersionSkew, p.Version, b.Version)
	}
	if p.PrevHash != b.PayloadB3 {
		return fmt.Errorf("%w: version %d names %s, the base is %s", ErrChainMismatch, p.Version, p.PrevHash, b.PayloadB3)
	}
	if b.Origin != "" && p.Origin != b.Origin {
		return fieldf("origin", "must be %q", b.Origin)
	}
	return p.checkKind(b)
}

// checkItems holds what the payload says of its items against them.
func (p *Payload) checkItems(items Items) error {
	if items.Len() != p.ItemsCount {
		return fieldf("items_count", "is %d, the set has %d", p.ItemsCount, items.Len())
	}
	if root := items.Root(); root != p.ItemsRoot {
		return fieldf("items_root", "is %s, the set has %s", p.ItemsRoot, root)
	}
	return nil
}

// checkKind holds kind, mode and signer set against each other and against the set in force.
func (p *Payload) checkKind(b Base) error {
	switch {
	case p.Version == 1 && p.Kind != KindGenesis:
		return fieldf("kind", "version 1 must be %s", KindGenesis)
	case p.Version > 1 && p.Kind == KindGenesis:
		return fieldf("kind", "only version 1 is %s", KindGenesis)
	case p.Kind == KindSigners, p.Kind == KindSupersede:
		return fieldf("kind", "this release does not take %s", p.Kind)
	case p.Kind == KindGenesis && p.Mode != ModeFull:
		return fieldf("mode", "%s must be %s", KindGenesis, ModeFull)
	case p.Kind == KindGenesis && p.SignerSet == nil:
		return fieldf("signer_set", "missing: %s brings the first", KindGenesis)
	case p.Kind == KindUpdate && p.SignerSet != nil:
		return fieldf("signer_set", "an %s does not change signers", KindUpdate)
	}
	set := b.Signers
	if p.SignerSet != nil {
		if err := p.SignerSet.follows("signer_set.", b.Signers); err != nil {
			return err
		}
		set = p.SignerSet
	}
	if set == nil {
		return fmt.Errorf("%w: the base has no signer set", ErrChainMismatch)
	}
	if want := set.B3(); p.SignerSetB3 != want {
		return fieldf("signer_set_b3", "is %s, the set in force is %s", p.SignerSetB3, want)
	}
	return nil
}

// apply makes the items after this version from those before it.
func (p *Payload) apply(base Items) (Items, error) {
	if p.Mode == ModeFull {
		return base.become(p.Put)
	}
	return base.Apply(p.Put, p.Remove)
}
