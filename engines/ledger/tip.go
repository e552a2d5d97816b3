package ledger

import (
	"fmt"

	"ronbox/appliance/b3"
	"ronbox/engines"
	"ronbox/engines/ledger/tables"
	"ronbox/engines/merkle"
	"ronbox/store"
)

// tip is where the ledger ends: the head, the assets, and the newest nodes of the log of batch roots. It is a value; what it points to is
// only added to.
type tip struct {
	tables.Head
	assets *assets
	log    logTail
	hand   hand
	lack   error // why the rows do not follow the journal to its end, after a boot that met damage; nil: they do
}

// unread is why rows may be older than the journal, or an asset that is not among the assets be declared all the same: a boot that met damage did
// not come to all of them.
func (t *tip) unread() error {
	if t.lack == nil && t.Batches != 0 && len(t.assets.byRef) != int(t.Assets) {
		return fmt.Errorf("%w: %w: %d of %d assets are known", ErrSafeMode, store.ErrCorrupt, len(t.assets.byRef), t.Assets)
	}
	return t.lack
}

// logTail are the nodes of the log that are not flushed: those from the position base on.
type logTail struct {
	base  uint64
	nodes []b3.Digest
}

// node reads a node, from the file if it was flushed.
func (l *logTail) node(r store.Reader) merkle.ReadNode {
	return func(pos uint64) (b3.Digest, error) {
		if pos >= l.base && pos-l.base < uint64(len(l.nodes)) {
			return l.nodes[pos-l.base], nil
		}
		return tables.LogNodes(r)(pos)
	}
}

// add appends the nodes that a batch root brings as leaf number size.
func (l *logTail) add(r store.Reader, size uint64, root b3.Digest) error {
	nodes, err := merkle.LogNodes(size, root, l.node(r))
	if err != nil {
		return err
	}
	for i := range nodes {
		l.nodes = append(l.nodes, nodes[i].Hash)
	}
	return nil
}

// assets are the declared assets, immutable.
type assets struct {
	byName map[string]*asset
	byRef  []*asset // by ref - 1
}

// asset is one of them.
type asset struct {
	ref     uint32
	name    string
	account string // its issuance account
	issuer  uint64 // ref of that
	seq     uint64 // of the record that declared it
}

func newAsset(ref uint32, name string, issuer, seq uint64) *asset {
	return &asset{ref: ref, name: name, account: engines.IssuanceAccount(name), issuer: issuer, seq: seq}
}

func (a *assets) get(name string) *asset { return a.byName[name] }

func (a *assets) of(ref uint32) *asset {
	if ref == 0 || int(ref) > len(a.byRef) {
		return nil
	}
	return a.byRef[ref-1]
}

// follows refuses a ref that is not the one behind the others: a row of one between them is missing.
func (a *assets) follows(ref uint32) error {
	if n := len(a.byRef); int(ref) != n+1 {
		return damage("it has asset %d behind asset %d", ref, n)
	}
	return nil
}

// with is a and one more.
func (a *assets) with(n *asset) *assets {
	next := &assets{byName: make(map[string]*asset, len(a.byName)+1), byRef: append(a.byRef[:len(a.byRef):len(a.byRef)], n)}
	for _, each := range next.byRef {
		next.byName[each.name] = each
	}
	return next
}
