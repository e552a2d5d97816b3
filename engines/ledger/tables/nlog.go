package tables

import (
	"ronbox/appliance/b3"
	"ronbox/appliance/merkle"
	"ronbox/store"
)

// The log of names is a tree over the names of the accounts and assets of closed periods. Each
// closing appends the accounts that were opened in its period, then the assets.

var nlog = store.NewTable(bNlog, store.U64(), digestValue()).Summed()

// NameNodes reads the stored nodes of the log of names.
func NameNodes(r store.Reader) merkle.ReadNode {
	return func(pos uint64) (b3.Digest, error) {
		d, known := nlog.Get(r, pos)
		if !known {
			return d, missing(bNlog, seqKey(pos))
		}
		return d, nil
	}
}

// AppendName writes the nodes that a name brings as leaf number size. fresh has the nodes that the
// running command wrote before, and gets these.
func AppendName(r store.Reader, w *store.Writes, size uint64, leaf b3.Digest, fresh map[uint64]b3.Digest) error {
	stored := NameNodes(r)
	nodes, err := merkle.LogNodes(size, leaf, func(pos uint64) (b3.Digest, error) {
		if d, ok := fresh[pos]; ok {
			return d, nil
		}
		return stored(pos)
	})
	for _, n := range nodes {
		nlog.Put(w, n.Pos, n.Hash)
		fresh[n.Pos] = n.Hash
	}
	return err
}

// NamesRoot returns the root of the log of the first size names.
func NamesRoot(r store.Reader, size uint64) (b3.Digest, error) {
	return merkle.LogRoot(size, NameNodes(r))
}
