package console

import (
	"strconv"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"ronbox/httpapi/wire/registry"
)

// Numbers of rows on the page of the registry.
const (
	timeline = 12 // versions
	diffRows = 20 // items put, and items removed
)

// maxProof is the largest proof that a page has, bytes. Most of a proof is the payload of the
// version.
const maxProof = 256 << 10

// registryData is the data of the page of the registry.
type registryData struct {
	Head       part[registry.Head]
	Hub        hub
	Versions   part[registry.VersionList]
	Proposals  part[registry.ProposalList]
	Signers    part[registry.Signers]
	Set        signerSet
	SetText    string
	Checkpoint part[string]
	From, To   uint64
	Diff       part[registry.Diff]
	Put        []change
	Removed    []string
	Cut        bool // the diff has more
	ID         string
	Item       part[registry.ItemProof]
	Text       string // the item that was searched for
	Present    bool
	Proof      part[string] // of Item; "": longer than maxProof
}

// signerSet is the part of a signer set that the page shows.
type signerSet struct {
	Threshold    int `json:"threshold"`
	ThresholdGov int `json:"threshold_gov"`
	Signers      []struct {
		ID     string `json:"signer_id"`
		Status string `json:"status"`
		Since  uint64 `json:"since_version"`
	} `json:"signers"`
}

// change is an item that a version put.
type change struct{ ID, Text string }

func registryPage(v *view) any {
	h, ctx := v.h, v.ctx
	d := registryData{Head: read(h.registry.Head(ctx)), Hub: v.hub(read(v.h.node.Status(ctx)))}
	if !d.Head.OK() || d.Head.V.Version == 0 {
		return d
	}
	newest := d.Head.V.Version
	before, _ := strconv.ParseUint(v.in.Get("before"), 10, 64)
	d.Versions = read(h.registry.Versions(ctx, before, timeline))
	d.Proposals = read(h.registry.Proposals(ctx, "", maxRows))
	d.Signers = read(h.registry.Signers(ctx, 0))
	_ = json.Unmarshal(d.Signers.V.SignerSet, &d.Set) // the node's own answer
	d.SetText = indented(d.Signers.V.SignerSet)
	note, err := h.registry.Checkpoint(ctx)
	d.Checkpoint = read(string(note), err)
	d.From, _ = strconv.ParseUint(v.in.Get("from"), 10, 64)
	d.To, _ = strconv.ParseUint(v.in.Get("to"), 10, 64)
	if d.From > 0 && d.To > 0 {
		d.Diff = read(h.registry.Diff(ctx, d.From, d.To))
		for _, raw := range d.Diff.V.Put[:min(len(d.Diff.V.Put), diffRows)] {
			d.Put = append(d.Put, change{itemID(raw), string(raw)})
		}
	}
	d.Removed = d.Diff.V.Remove[:min(len(d.Diff.V.Remove), diffRows)]
	d.Cut = len(d.Put) < len(d.Diff.V.Put) || len(d.Removed) < len(d.Diff.V.Remove)
	if d.ID = v.in.Get("item"); d.ID != "" {
		d.search(v, newest)
	}
	return d
}

// search looks for the item d.ID in a version. If the log cannot prove it yet, for instance before
// the next checkpoint, the page shows the item without a proof.
func (d *registryData) search(v *view, version uint64) {
	proof, err := v.h.registry.VersionProof(v.ctx, version, d.ID)
	if err == nil {
		d.Item.V = *proof.Item
		var text []byte
		text, err = json.Marshal(proof)
		if len(text) <= maxProof {
			d.Proof.V = string(text)
		}
	} else {
		d.Item = read(v.h.registry.Item(v.ctx, version, d.ID))
	}
	d.Proof = read(d.Proof.V, err)
	if d.Present = d.Item.V.Item != nil; d.Present {
		d.Text = indented(jsontext.Value(d.Item.V.Item.Item.Bytes))
	}
}

// itemID returns the id of an item.
func itemID(raw jsontext.Value) string {
	var item struct {
		ID string `json:"id"`
	}
	_ = json.Unmarshal(raw, &item) // a member that is not there leaves it empty
	return item.ID
}

// indented returns JSON as people read it.
func indented(raw jsontext.Value) string {
	out := raw.Clone()
	if len(out) == 0 || out.Indent() != nil {
		return string(raw)
	}
	return string(out)
}
