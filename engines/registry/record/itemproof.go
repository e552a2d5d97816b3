package record

import (
	"errors"
	"fmt"

	"golang.org/x/mod/sumdb/tlog"
)

// ItemProof proves the presence or absence of an id in a set. Presence is proven by the descriptor
// with its place, absence by its two neighbours with consecutive places. At an end of the set, and
// in the empty set, a neighbour is nil.
type ItemProof struct {
	Version uint64  `json:"version" min:"1"` // filled in by the caller
	ID      string  `json:"id"`
	Count   int     `json:"count" doc:"descriptors of the version"`
	Root    string  `json:"items_root" format:"sha256"`
	Item    *ItemAt `json:"item,omitzero"`
	// of an absent id
	Left  *ItemAt `json:"left,omitzero" doc:"the descriptor before it in the order of ids"`
	Right *ItemAt `json:"right,omitzero" doc:"the descriptor behind it"`
}

// ItemAt is a descriptor with its place in the order of ids and the proof of it.
type ItemAt struct {
	Index  int         `json:"index"`
	Item   Item        `json:"item"`
	Hashes []tlog.Hash `json:"hashes" doc:"standard base64 of 32 bytes each, from the leaf upwards"`
}

// errProof is returned for an invalid proof.
var errProof = errors.New("the proof does not hold")

// Prove returns the proof for an id, which must be valid.
func (s Items) Prove(id string) (ItemProof, error) {
	if !validID(id) {
		return ItemProof{}, fieldf("id", "is not a descriptor id")
	}
	p := ItemProof{ID: id, Count: s.Len(), Root: s.Root()}
	at, has := s.search(0, id)
	if has {
		p.Item = s.at(at)
		return p, nil
	}
	if at > 0 {
		p.Left = s.at(at - 1)
	}
	if at < s.Len() {
		p.Right = s.at(at)
	}
	return p, nil
}

func (s Items) at(i int) *ItemAt {
	return &ItemAt{Index: i, Item: *s.sorted[i], Hashes: s.tree.path(i)}
}

// Verify checks the proof against the root and the number of descriptors of a signed payload. It
// returns the descriptor, or nil if the proof is one of absence.
func (p ItemProof) Verify(root string, count int) (*Item, error) {
	if p.Root != root || p.Count != count {
		return nil, fmt.Errorf("%w: it is of another set", errProof)
	}
	if p.Item != nil {
		if p.Left != nil || p.Right != nil || p.Item.Item.ID != p.ID {
			return nil, fmt.Errorf("%w: it is of another id", errProof)
		}
		return &p.Item.Item, p.check(p.Item)
	}
	next := 0
	if p.Left != nil {
		if p.Left.Item.ID >= p.ID {
			return nil, fmt.Errorf("%w: the left neighbour does not lie left of %s", errProof, p.ID)
		}
		if err := p.check(p.Left); err != nil {
			return nil, err
		}
		next = p.Left.Index + 1
	}
	if p.Right == nil {
		if next != p.Count || p.Count == 0 && root != (Items{}).Root() {
			return nil, fmt.Errorf("%w: something may lie right of %s", errProof, p.ID)
		}
		return nil, nil
	}
	if p.Right.Item.ID <= p.ID || p.Right.Index != next {
		return nil, fmt.Errorf("%w: the neighbours of %s do not follow one another", errProof, p.ID)
	}
	return nil, p.check(p.Right)
}

// check checks one descriptor and its place against the root.
func (p ItemProof) check(at *ItemAt) error {
	it, err := ParseItem(at.Item.Bytes)
	if err != nil || it.ID != at.Item.ID || string(it.Bytes) != string(at.Item.Bytes) {
		return fmt.Errorf("%w: %q is not a descriptor in canonical form", errProof, at.Item.ID)
	}
	if at.Index < 0 || at.Index >= p.Count {
		return fmt.Errorf("%w: place %d of %d", errProof, at.Index, p.Count)
	}
	root, ok := parseRoot(p.Root)
	if !ok {
		return fmt.Errorf("%w: %.80q is not a root", errProof, p.Root)
	}
	if err := tlog.CheckRecord(at.Hashes, int64(p.Count), root, int64(at.Index),
		tlog.RecordHash(at.Item.Bytes)); err != nil {
		return fmt.Errorf("%w: %w", errProof, err)
	}
	return nil
}
