package record

import (
	"fmt"

	"ronbox/appliance/b3"
)

// Base is the version that a payload builds on. The zero Base, apart from its origin, is the empty
// log.
type Base struct {
	Origin    string // "" takes any
	Version   uint64
	PayloadB3 b3.Digest
	Hash      b3.Digest // of its entry; zero while it is a proposal
	Items     Items
	Signers   *SignerSet // nil for the empty log
}

// Check compares the payload with its base and returns the items after it. Errors: ErrVersionSkew,
// ErrChainMismatch, ErrHardLimit, or a *FieldError.
func (p *Payload) Check(b Base) (Items, error) {
	if err := p.CheckLinks(b); err != nil {
		return Items{}, err
	}
	items, err := p.apply(b.Items)
	if err != nil {
		return Items{}, err
	}
	return items, p.CheckItems(items)
}

// CheckLinks compares the place of the payload in the log with the base. It ignores the items of
// the base.
func (p *Payload) CheckLinks(b Base) error {
	if p.Version != b.Version+1 {
		return fmt.Errorf("%w: version %d on %d", ErrVersionSkew, p.Version, b.Version)
	}
	if p.PrevHash != b.PayloadB3 {
		return fmt.Errorf("%w: version %d names %s, the base is %s", ErrChainMismatch, p.Version, p.PrevHash,
			b.PayloadB3)
	}
	if b.Origin != "" && p.Origin != b.Origin {
		return fieldf("origin", "must be %q", b.Origin)
	}
	return p.checkKind(b)
}

// CheckItems compares items_count and items_root with the items.
func (p *Payload) CheckItems(items Items) error {
	if items.Len() != p.ItemsCount {
		return fieldf("items_count", "is %d, the set has %d", p.ItemsCount, items.Len())
	}
	if root := items.Root(); root != p.ItemsRoot {
		return fieldf("items_root", "is %s, the set has %s", p.ItemsRoot, root)
	}
	return nil
}

// checkKind compares kind, mode and signer set with each other and with the set in force.
func (p *Payload) checkKind(b Base) error {
	switch {
	case p.Version == 1 && p.Kind != KindGenesis:
		return fieldf("kind", "version 1 must be %s", KindGenesis)
	case p.Version > 1 && p.Kind == KindGenesis:
		return fieldf("kind", "only version 1 is %s", KindGenesis)
	case p.Kind == KindGenesis && p.Mode != ModeFull:
		return fieldf("mode", "%s must be %s", KindGenesis, ModeFull)
	case p.Kind == KindGenesis && p.SignerSet == nil:
		return fieldf("signer_set", "missing: %s brings the first", KindGenesis)
	case p.Kind == KindSigners && p.SignerSet == nil:
		return fieldf("signer_set", "missing: kind %s changes it", KindSigners)
	case p.Kind == KindSigners && (p.Mode != ModeDelta || len(p.Put)+len(p.Remove) > 0):
		return fieldf("mode", "a change of signers is a %s without put and remove", ModeDelta)
	case p.SignerSet != nil && p.Kind != KindGenesis && p.Kind != KindSigners:
		return fieldf("signer_set", "kind %s does not change signers", p.Kind)
	case (p.Kind == KindSupersede) != (p.Supersede != nil):
		return fieldf("supersede", "is there iff the kind is %s", KindSupersede)
	case p.Supersede != nil && p.Supersede.Of != b.Hash:
		return fmt.Errorf("%w: supersede.of names entry %s, HEAD must be that: it is %s (zero: a proposal)",
			ErrChainMismatch, p.Supersede.Of, b.Hash)
	}
	if p.SignerSet != nil {
		if err := p.SignerSet.follows("signer_set.", b.Signers); err != nil {
			return err
		}
		if err := p.SignerSet.begins("signer_set.", b.Signers, p.Version); err != nil {
			return err
		}
	}
	set := p.SignersAfter(b.Signers)
	if set == nil {
		return fmt.Errorf("%w: the base has no signer set", ErrChainMismatch)
	}
	if want := set.B3(); p.SignerSetB3 != want {
		return fieldf("signer_set_b3", "is %s, the set in force is %s", p.SignerSetB3, want)
	}
	return nil
}

// SignersAfter returns the set in force after p, given the one before it.
func (p *Payload) SignersAfter(before *SignerSet) *SignerSet {
	if p.SignerSet != nil {
		return p.SignerSet
	}
	return before
}

// apply returns the items after this version, given those before it.
func (p *Payload) apply(base Items) (Items, error) {
	if p.Mode == ModeFull {
		return base.become(p.Put)
	}
	return base.Apply(p.Put, p.Remove)
}
