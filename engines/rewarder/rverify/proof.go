package rverify

import (
	"math/bits"
	"strconv"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"ronbox/appliance/b3"
)

// climb returns the root of a tree of n leaves from a leaf and its Merkle path, given from the leaf
// up. It returns false if the path has the wrong length.
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

// Allocation is an actor's entry in the payout set, in a proof with its Merkle path to the root.
type Allocation struct {
	Actor  string      `json:"actor"`
	Amount string      `json:"amount_minor"`
	Index  uint64      `json:"index"`
	Path   []b3.Digest `json:"path"`
	Score  string      `json:"score"`
}

// Proof proves the allocation of an actor in a run, or its absence by its neighbours.
type Proof struct {
	Absent     bool           `json:"absent"`
	Actor      string         `json:"actor"`
	Commitment string         `json:"commitment"`
	Header     jsontext.Value `json:"header"` // the manifest
	Leaves     []Allocation   `json:"leaves"`
	Schema     string         `json:"schema"`
}

// Proven is the statement that a valid proof proves.
type Proven struct {
	OK     bool   `json:"ok"`
	Epoch  string `json:"epoch"`
	Actor  string `json:"actor"`
	Absent bool   `json:"absent"`
	Amount string `json:"amount_minor"` // "0" if the actor is absent, as is Score
	Score  string `json:"score"`
}

// VerifyProof checks all parts of a proof against the commitment of its run. An error describes the
// first fault.
func VerifyProof(raw []byte, commitment b3.Digest) (Proven, error) {
	var p Proof
	if json.Unmarshal(raw, &p, json.RejectUnknownMembers(true)) != nil {
		return Proven{}, wrong("proof", "is not a proof in strict JSON")
	}
	var c checker
	c.fail(p.Schema != "ronbox.rw.proof/1", "proof.schema", "must be ronbox.rw.proof/1")
	c.fail(commit(p.Header) != commitment || p.Commitment != commitment.String(), "proof.header",
		"is that of another run: it does not hash to %s", commitment)
	c.match("proof.actor", p.Actor, actorName)
	var header document
	c.fail(json.Unmarshal(p.Header, &header) != nil, "proof.header", "is not a manifest")
	count := c.number("proof.header.alloc.count", header.text("alloc.count"), most64).Uint64()
	runKey := digest(header.text("run_key"))
	for i, l := range p.Leaves {
		at := "proof.leaves." + strconv.Itoa(i)
		c.match(at+".actor", l.Actor, actorName)
		amount, score := c.number(at+".amount_minor", l.Amount, most128), c.number(at+".score", l.Score, most128)
		if c.err != nil {
			return Proven{}, c.err
		}
		leaf := leafHash(appendAllocation(nil, runKey, l.Index, l.Actor, numberOf(amount), numberOf(score)))
		root, ok := climb(leaf, l.Index, count, l.Path)
		c.fail(!ok || root.String() != header.text("alloc.root"), at+".path", "does not lead to the root of the run")
	}
	out := Proven{OK: true, Epoch: header.text("epoch_id"), Actor: p.Actor, Absent: p.Absent, Amount: "0", Score: "0"}
	if p.Absent {
		c.fail(!p.gap(count), "proof.leaves", "must be the neighbours of the absent actor")
	} else {
		c.fail(len(p.Leaves) != 1 || p.Leaves[0].Actor != p.Actor, "proof.leaves", "must be the one of the actor")
		if c.err == nil {
			out.Amount, out.Score = p.Leaves[0].Amount, p.Leaves[0].Score
		}
	}
	if c.err != nil {
		return Proven{}, c.err
	}
	return out, nil
}

// gap reports whether the leaves enclose the absent actor: two neighbours, the first or the last
// leaf alone, or no leaf of an empty set.
func (p *Proof) gap(count uint64) bool {
	l := p.Leaves
	return len(l) == 0 && count == 0 ||
		len(l) == 1 && (l[0].Index == 0 && p.Actor < l[0].Actor || l[0].Index == count-1 && p.Actor > l[0].Actor) ||
		len(l) == 2 && l[0].Index+1 == l[1].Index && l[0].Actor < p.Actor && p.Actor < l[1].Actor
}
