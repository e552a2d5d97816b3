package tables

import (
	"ronbox/appliance/b3"
	"ronbox/engines/merkle"
	"ronbox/store"
)

var mlog = store.NewTable(bMlog, store.U64(), digestValue()).Summed().Alone()

// LogNodes reads the stored nodes of the log of batch roots. A node that is not there is a RowError.
func LogNodes(r store.Reader) merkle.ReadNode {
	return func(pos uint64) (b3.Digest, error) {
		d, known := mlog.Get(r, pos)
		if !known {
			return d, missing(bMlog, seqKey(pos))
		}
		return d, nil
	}
}

// LogNode reads one node.
func LogNode(r store.Reader, pos uint64) (b3.Digest, bool) { return mlog.Get(r, pos) }

// PutLogNodes writes nodes, in ascending order of position.
func PutLogNodes(w *store.Writes, nodes ...merkle.LogNode) {
	for _, n := range nodes {
		mlog.Put(w, n.Pos, n.Hash)
	}
}
