package main

import (
	"errors"
	"fmt"

	"github.com/go-json-experiment/json/jsontext"

	"ronbox/engines/registry/record"
	"ronbox/httpapi/wire"
)

// payload builds what the signers sign: the delta on top of the base, complete and canonical.
func (ap *applier) payload(put []record.Item, remove []string) (*record.Payload, record.Items, error) {
	draft := record.Draft{Version: ap.base.Version + 1, Put: put, Remove: remove}
	p, items, err := record.Complete(draft.Bytes(), ap.base, ap.now())
	switch {
	case errors.Is(err, record.ErrHardLimit) && sizeOf(put, remove) > maxBody-wrapper:
		return nil, items, tooLarge(sizeOf(put, remove), put, remove)
	case err != nil:
		return nil, items, fmt.Errorf("build version %d: %w", draft.Version, err)
	case len(p.Bytes()) > maxBody-wrapper:
		return nil, items, tooLarge(len(p.Bytes()), put, remove)
	}
	return p, items, nil
}

// sizeOf is the least that a delta takes in a payload.
func sizeOf(put []record.Item, remove []string) int {
	n := 0
	for _, it := range put {
		n += len(it.Bytes) + 1
	}
	for _, id := range remove {
		n += len(id) + 3
	}
	return n
}

func tooLarge(n int, put []record.Item, remove []string) error {
	steps := n/(maxBody-wrapper) + 1
	f := failed(exitFailed, "delta_too_large",
		fmt.Sprintf("reach it in %d steps: make files that hold part of the changes each, and apply them in order, this one last", steps),
		"the change, %d put and %d removed, takes %s in one signed payload; a request holds %s",
		len(put), len(remove), byteUnit(int64(n)), byteUnit(maxBody))
	f.details = map[string]any{"bytes": n, "max_bytes": maxBody, "steps": steps}
	return f
}

// checkKeys finds out before anything is sent whether the keys can reach the threshold.
func checkKeys(keys []*record.Key, set *record.SignerSet) error {
	for _, k := range keys {
		s, known := set.Find(k.SignerID)
		switch {
		case !known:
			return failed(exitDenied, "unknown_signer", "`ronbox registry signers` shows who may sign", "%s is not in the signer set", k.SignerID)
		case s.Status != record.StatusActive:
			return failed(exitDenied, "revoked_key", "sign with an active key", "the key of %s is %s", k.SignerID, s.Status)
		case s.PublicKey != k.Public():
			return failed(exitDenied, "unknown_signer", "use the key file of that signer", "the signer set has another public key for %s", k.SignerID)
		}
	}
	if len(keys) < set.Threshold {
		return failed(exitDenied, "quorum", "add --key for more signers, or use propose, approve and commit",
			"%d keys given, the signer set needs %d approvals", len(keys), set.Threshold)
	}
	return nil
}

func parseSignerSet(raw jsontext.Value) (*record.SignerSet, error) {
	set, err := record.ParseSignerSet(raw)
	if err != nil {
		return nil, fmt.Errorf("signer set: %w", err)
	}
	return set, nil
}

// approvalBody is an approval as it crosses the wire.
func approvalBody(a record.Approval) wire.Approval { return wire.Approval(a) }
