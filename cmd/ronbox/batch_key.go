package main

import (
	"encoding/hex"

	"github.com/go-json-experiment/json"

	"ronbox/appliance/b3"
)

// rowID is the identity of a row: what it says, and which of the rows it is that say the same. The nonce that the verb
// chooses is none of it, so that a row is the same in every run, in a copy of its file, and in one that has grown.
type rowID [16]byte

// identify gives each row its identity.
func identify(rows []batchRow) error {
	equal := make(map[rowID]uint32, len(rows))
	for i := range rows {
		raw, err := json.Marshal(rows[i].op, json.Deterministic(true))
		if err != nil {
			return err
		}
		says := shortSum(raw)
		rows[i].id = shortSum(says[:], []byte(decimal(uint64(equal[says]))))
		equal[says]++
	}
	return nil
}

func shortSum(parts ...[]byte) (id rowID) {
	h := b3.New()
	for _, p := range parts {
		_, _ = h.Write(p)
	}
	sum := h.Sum32()
	return rowID(sum[:len(id)])
}

// inputDigest is the identity of a file: its rows in order, however they are written down.
func inputDigest(rows []batchRow) string {
	h := b3.New()
	for i := range rows {
		_, _ = h.Write(rows[i].id[:])
	}
	return h.Sum32().String()
}

// ownerOf is what the keys of all requests begin with that belong to a run of this name. Whoever knows the name finds
// what was done for it.
func ownerOf(name string) string {
	sum := shortSum([]byte("ronbox wallet batch v2\n"), []byte(name))
	return "batch-" + hex.EncodeToString(sum[:8]) + "-"
}

// key names a request by its rows: sent again by any run of the name, with whatever nonces, it has the same key.
func (b *batchRun) key(rows []int) string {
	h := b3.New()
	for _, i := range rows {
		_, _ = h.Write(b.rows[i].id[:])
	}
	sum := h.Sum32()
	return b.owner + hex.EncodeToString(sum[:16])
}
