package registry

import (
	"ronbox/appliance/b3"
	"ronbox/engines/registry/record"
)

// HeadView is HEAD and what follows from it, ready to be served. It is immutable.
type HeadView struct {
	Head        record.Head // Version 0: no genesis yet
	Origin      string
	Incarnation string // of the store
	Expiry      string // the payload's advice to consumers, "" for none
	MinVersion  uint64 // oldest version that is not pruned; 0 before genesis

	CheckpointSize uint64 // of the latest checkpoint; 0 before the first
	Items          record.Items
	Signers        *record.SignerSet // in force; nil before genesis
	Document                         // of the head route

	genesis   b3.Digest // payload_b3 of version 1
	signersB3 b3.Digest // of Signers
}

// newHeadView fills in the document.
func newHeadView(v HeadView) *HeadView {
	v.Document = newDocument(v.Doc())
	return &v
}

// Doc is HEAD as a reader sees it.
func (v *HeadView) Doc() Head {
	return Head{
		Version: v.Head.Version, PayloadB3: v.Head.PayloadB3, CommittedAt: v.Head.CommittedAt, Hash: v.Head.Hash, Epoch: v.Head.Epoch,
		Expiry: v.Expiry, MinVersion: v.MinVersion, CheckpointSize: v.CheckpointSize, Incarnation: v.Incarnation,
	}
}

// ref is what a batch that builds on this HEAD expects.
func (v *HeadView) ref() HeadRef { return HeadRef{Version: v.Head.Version, Hash: v.Head.Hash} }

// base is what a payload for the next version builds on.
func (v *HeadView) base() record.Base {
	return record.Base{
		Origin: v.Origin, Version: v.Head.Version, PayloadB3: v.Head.PayloadB3, Hash: v.Head.Hash, Items: v.Items, Signers: v.Signers,
	}
}
