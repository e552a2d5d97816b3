package follow

import (
	"ronbox/engines/registry/record"
	"ronbox/engines/registry/tables"
)

// followed returns a version of the hub as a step appends it. epoch is that of the set in force
// before it. The error is a *FollowFault: what cannot be stored is no version.
func (f *Run) followed(entry *record.Artifact, p *record.Payload,
	epoch uint64) (v tables.FollowedVersion, err error) {
	v.ID, err = tables.ParseID(entry.ProposalID)
	if err != nil {
		return v, faultf(Unsound, "version %d: %v", entry.Version, err)
	}
	v.NewVersion = tables.NewVersion{
		ID: v.ID, Number: entry.Version, Hash: entry.Hash(), PayloadB3: entry.PayloadB3, PrevHash: p.PrevHash,
		CommittedAt: entry.CommittedAt, Epoch: epoch, Entry: entry.Bytes(),
	}
	if p.SignerSet != nil {
		v.Epoch, v.Set = p.SignerSet.Epoch, p.SignerSet.Bytes()
	}
	v.Packed = f.deps.Reader.Codec.Pack(p.Bytes())
	return v, nil
}
