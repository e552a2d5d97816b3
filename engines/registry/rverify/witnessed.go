package rverify

import (
	"slices"

	"ronbox/engines/registry/checkpoint"
	"ronbox/engines/registry/record"
)

// Kinds of problems of the newest checkpoint, which the log itself does not decide.
const (
	KindWitness Kind = "witness_quorum" // no checkpoint over the log meets the witness policy
	KindTooOld  Kind = "too_old"        // the newest checkpoint is older than the reader accepts
)

// Checkpoints returns the checkpoints of a log that one of its log keys has signed, the newest first.
func Checkpoints(r LogReader, t TreeReader) ([]checkpoint.Signed, error) {
	keys, _, err := trustedKeys(r)
	if err != nil {
		return nil, err
	}
	var all []checkpoint.Signed
	for _, raw := range t.Notes() {
		if s, err := keys.Open(slices.Clone(raw)); err == nil {
			all = append(all, s)
		}
	}
	slices.Reverse(all) // the latest comes last
	return all, nil
}

// SignersInForce returns the signer set of the last epoch; nil for a log without a genesis.
func SignersInForce(r LogReader) (set *record.SignerSet, err error) {
	for epoch, raw := range r.Epochs() {
		if len(raw) < 8 {
			return nil, problemf(KindChain, 0, "epoch %d is cut", epoch)
		}
		if set, err = record.ParseSignerSet(raw[8:]); err != nil {
			return nil, problemf(KindChain, 0, "epoch %d: %v", epoch, err)
		}
	}
	return set, nil
}
