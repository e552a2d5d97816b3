package console

import (
	"strings"

	"github.com/go-json-experiment/json"

	"ronbox/httpapi/edge"
	"ronbox/httpapi/index"
	"ronbox/httpapi/rewarder"
)

// rewardsData is the data of the page of rewards.
type rewardsData struct {
	Epochs part[rewarder.EpochPage]
	Epoch  string // the epoch that is shown, the newest unless one is named; "": none
	Run    part[rewarder.Run]
	Parked part[rewarder.ParkedPage]
	Actor  string
	Proof  part[string]
	Share  *share // of the actor, nil if it has none
}

// share is what an actor gets, as its proof says.
type share struct {
	Amount string `json:"amount_minor"`
	Score  string `json:"score"`
}

func rewardsPage(v *view) any {
	h, ctx := v.h, v.ctx
	d := rewardsData{
		Epochs: read(h.rewarder.Epochs(ctx, v.in.Get("after"), maxRows)),
		Epoch:  v.in.Get("epoch"),
		Actor:  strings.TrimSpace(v.in.Get("actor")),
	}
	if n := len(d.Epochs.V.Epochs); d.Epoch == "" && n > 0 {
		d.Epoch = d.Epochs.V.Epochs[n-1].Epoch
	}
	if d.Epoch == "" {
		return d
	}
	d.Run = read(h.rewarder.Epoch(ctx, d.Epoch))
	if d.Run.V.Parked > 0 {
		d.Parked = read(h.rewarder.Parked(ctx, d.Epoch, 0, maxRows))
	}
	if d.Actor != "" {
		proof, err := h.rewarder.Proof(ctx, d.Epoch, d.Actor)
		d.Proof = read(string(proof), err)
		d.Share = shareIn(proof, d.Actor)
	}
	return d
}

// shareIn returns the share of an actor, nil if the proof is one of absence.
func shareIn(proof []byte, actor string) *share {
	var in struct {
		Absent bool `json:"absent"`
		Leaves []struct {
			Actor string `json:"actor"`
			share
		} `json:"leaves"`
	}
	if json.Unmarshal(proof, &in) != nil || in.Absent {
		return nil
	}
	for _, leaf := range in.Leaves {
		if leaf.Actor == actor {
			return &leaf.share
		}
	}
	return nil
}

// edgeData is the data of the page of the edge.
type edgeData struct {
	Catalog part[edge.Catalog]
	Keys    part[edge.StoredList]
	Prefix  string
}

func edgePage(v *view) any {
	d := edgeData{Catalog: read(v.h.edge.Catalog(v.ctx)), Prefix: strings.TrimSpace(v.in.Get("prefix"))}
	d.Keys = read(v.h.edge.EdgeKeys(v.ctx, d.Prefix, v.in.Get("after"), maxRows, false))
	return d
}

// indexData is the data of the page of the index.
type indexData struct {
	Names    part[index.NameList]
	Peers    part[index.PeerList]
	Identity part[index.NodeIdentity]
	Prefix   string
	Key      string
	Found    part[index.Resolved]
	Served   part[index.Providers] // who serves the manifest that was found
}

func indexPage(v *view) any {
	h, ctx := v.h, v.ctx
	d := indexData{
		Prefix:   strings.TrimSpace(v.in.Get("prefix")),
		Key:      strings.TrimSpace(v.in.Get("key")),
		Peers:    read(h.index.Peers(ctx)),
		Identity: read(h.index.Identity(ctx)),
	}
	d.Names = read(h.index.Names(ctx, d.Prefix, v.in.Get("after"), maxRows))
	if d.Key == "" {
		return d
	}
	d.Found = read(h.index.Resolve(ctx, d.Key, false))
	if d.Found.OK() {
		d.Served = read(h.index.Providers(ctx, index.ProvidersQuery{CID: d.Found.V.Manifest}))
	}
	return d
}
