package registry

import (
	"fmt"
	"time"

	"ronbox/engines/registry/checkpoint"
	"ronbox/engines/registry/record"
	"ronbox/engines/registry/tables"
)

// followed returns a version of the hub as a step appends it. epoch is that of the set in force
// before it.
func (e *Engine) followed(entry *record.Artifact, p *record.Payload,
	epoch uint64) (v tables.FollowedVersion, err error) {
	v.ID, err = tables.ParseID(entry.ProposalID)
	if err != nil {
		return v, fmt.Errorf("version %d: %w", entry.Version, err)
	}
	v.NewVersion = tables.NewVersion{
		ID: v.ID, Number: entry.Version, Hash: entry.Hash(), PayloadB3: entry.PayloadB3, PrevHash: p.PrevHash,
		CommittedAt: entry.CommittedAt, Epoch: epoch, Entry: entry.Bytes(),
	}
	if p.SignerSet != nil {
		v.Epoch, v.Set = p.SignerSet.Epoch, p.SignerSet.Bytes()
	}
	v.Packed = e.Codec.Pack(p.Bytes())
	return v, nil
}

// publishFollowed makes a synced step visible: first the checkpoint and the state, then the events.
// It runs in the committer and must not wait.
func (e *Engine) publishFollowed(next *tables.State, row tables.TreeRow, note *checkpoint.Signed, events []Update,
	took time.Duration) {
	signers := e.Head().Signers
	e.pub.Tree.Store(&row)
	if note != nil {
		e.pub.Latest.Store(note)
	}
	e.pub.State.Store(next.Bounded(next.View.MinVersion, e.pub.Covered()))
	for _, ev := range events {
		e.committed.Publish(ev)
		e.m.commitSeconds(took.Seconds())
	}
	e.m.updates["accepted"](len(events))
	e.m.commits(len(events))
	if signers != next.View.Signers {
		e.m.signers(next.View.Signers)
	}
}
