package rverify

import (
	"encoding/binary"
	"math/big"
	"math/bits"
	"strconv"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"ronbox/appliance/b3"
)

// The tree has the shape of RFC 6962 and BLAKE3 for its hash: a leaf hashes 0x00 and its bytes, a node 0x01 and its children, no leaf at all nothing.
func leafHash(raw []byte) b3.Digest     { return b3.Sum(append([]byte{0}, raw...)) }
func nodeHash(l, r b3.Digest) b3.Digest { return b3.Sum(append(append([]byte{1}, l[:]...), r[:]...)) }

func treeHash(leaves []b3.Digest) b3.Digest {
	if len(leaves) == 0 {
		return b3.Sum(nil)
	}
	if len(leaves) == 1 {
		return leaves[0]
	}
	left := 1 << (bits.Len(uint(len(leaves)-1)) - 1) // the largest power of two below
	return nodeHash(treeHash(leaves[:left]), treeHash(leaves[left:]))
}

// climb is the root above a leaf of a tree of n, of which path gives the hashes beside the way, from below; false if it has not just as many.
func climb(leaf b3.Digest, index, n uint64, path []b3.Digest) (b3.Digest, bool) {
	if n <= 1 || len(path) == 0 {
		return leaf, n == 1 && index == 0 && len(path) == 0
	}
	left := uint64(1) << (bits.Len64(n-1) - 1)
	beside, path := path[len(path)-1], path[:len(path)-1]
	if index < left {
		root, ok := climb(leaf, index, left, path)
		return nodeHash(root, beside), ok
	}
	root, ok := climb(leaf, index-left, n-left, path)
	return nodeHash(beside, root), ok
}

// Allocation is one actor's place in the payout set, and in a proof the way from there to the root.
type Allocation struct {
	Actor  string      `json:"actor"`
	Amount string      `json:"amount_minor"`
	Index  uint64      `json:"index"`
	Path   []b3.Digest `json:"path"`
	Score  string      `json:"score"`
}

// allocationHash is the leaf of an allocation in the tree of a run.
func allocationHash(runKey b3.Digest, index uint64, actor string, amount, score *big.Int) b3.Digest {
	raw := binary.BigEndian.AppendUint64(append([]byte(nil), runKey[:]...), index)
	raw = append(binary.BigEndian.AppendUint16(raw, uint16(len(actor))), actor...)
	raw = append(raw, amount.FillBytes(make([]byte, 16))...)
	return leafHash(append(raw, score.FillBytes(make([]byte, 16))...))
}

// Proof shows the allocation of one actor in a run, or by its neighbours that it has none.
type Proof struct {
	Absent     bool           `json:"absent"`
	Actor      string         `json:"actor"`
	Commitment string         `json:"commitment"`
	Header     jsontext.Value `json:"header"` // the manifest
	Leaves     []Allocation   `json:"leaves"`
	Schema     string         `json:"schema"`
}

// Proven is what a proof that holds proves.
type Proven struct {
	OK     bool   `json:"ok"`
	Epoch  string `json:"epoch"`
	Actor  string `json:"actor"`
	Absent bool   `json:"absent"`
	Amount string `json:"amount_minor"` // "0" of one that is absent, as the score
	Score  string `json:"score"`
}

// VerifyProof checks a proof against the commitment of its run, whole: an error tells why it proves nothing.
func VerifyProof(raw []byte, commitment b3.Digest) (Proven, error) {
	var p Proof
	if json.Unmarshal(raw, &p, json.RejectUnknownMembers(true)) != nil {
		return Proven{}, wrong("proof", "is none, in strict JSON")
	}
	var c checker
	c.fail(p.Schema != "ronbox.rw.proof/1", "proof.schema", "must be ronbox.rw.proof/1")
	c.fail(commit(p.Header) != commitment || p.Commitment != commitment.String(), "proof.header", "is that of another run: it does not hash to %s", commitment)
	c.match("proof.actor", p.Actor, actorName)
	var header document
	c.fail(json.Unmarshal(p.Header, &header) != nil, "proof.header", "is no manifest")
	count, runKey := c.number("proof.header.alloc.count", header.text("alloc.count"), most64).Uint64(), digest(header.text("run_key"))
	for i, l := range p.Leaves {
		at := "proof.leaves." + strconv.Itoa(i)
		c.match(at+".actor", l.Actor, actorName)
		amount, score := c.number(at+".amount_minor", l.Amount, most128), c.number(at+".score", l.Score, most128)
		if c.err != nil {
			return Proven{}, c.err
		}
		root, ok := climb(allocationHash(runKey, l.Index, l.Actor, amount, score), l.Index, count, l.Path)
		c.fail(!ok || root.String() != header.text("alloc.root"), at+".path", "does not lead to the root of the run")
	}
	out := Proven{OK: true, Epoch: header.text("epoch_id"), Actor: p.Actor, Absent: p.Absent, Amount: "0", Score: "0"}
	if p.Absent {
		c.fail(!p.gap(count), "proof.leaves", "must be those between which the actor would stand")
	} else if c.fail(len(p.Leaves) != 1 || p.Leaves[0].Actor != p.Actor, "proof.leaves", "must be the one of the actor"); c.err == nil {
		out.Amount, out.Score = p.Leaves[0].Amount, p.Leaves[0].Score
	}
	if c.err != nil {
		return Proven{}, c.err
	}
	return out, nil
}

// gap reports whether the actor would stand between the leaves: two neighbours, the first or the last alone, or none in an empty set.
func (p *Proof) gap(count uint64) bool {
	l := p.Leaves
	return len(l) == 0 && count == 0 ||
		len(l) == 1 && (l[0].Index == 0 && p.Actor < l[0].Actor || l[0].Index == count-1 && p.Actor > l[0].Actor) ||
		len(l) == 2 && l[0].Index+1 == l[1].Index && l[0].Actor < p.Actor && p.Actor < l[1].Actor
}
