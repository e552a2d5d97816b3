package console

import (
	"context"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"ronbox/appliance/b3"
	"ronbox/httpapi/wire/edge"
	"ronbox/httpapi/wire/index"
	"ronbox/httpapi/wire/rewarder"
)

// rewardsData is the data of the page of rewards.
type rewardsData struct {
	Epochs part[rewarder.EpochPage]
	Epoch  string // the epoch that is shown, the newest unless one is named; "": none
	Run    part[rewarder.Run]
	Asset  string // that the run pays, "" until it is computed
	Units  units
	Assets map[b3.Digest]string // that the runs of a policy pay, by its hash
	Shares part[rewarder.AllocationPage]
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
	if d.Epoch == "" {
		all, _ := h.epochs(ctx) // of an error d.Epochs tells
		last := all.Last()
		if last == nil {
			return d
		}
		d.Epoch = last.Epoch
	}
	d.Run = read(h.rewarder.Epoch(ctx, d.Epoch))
	d.Asset = assetOf(&d.Run.V)
	assets, _ := h.wallet.Assets(ctx) // minor units are right too
	d.Units = unitsOf(assets)
	d.Assets = v.assetsOf(d.Epochs.V.Epochs, &d.Run.V)
	if d.Run.V.Actors > 0 && d.Asset != "" {
		d.Shares = read(h.rewarder.Largest(ctx, d.Epoch, largestShares))
	}
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

// mostPolicies bounds the policies of which a page asks for the asset. Runs of others show minor
// units.
const mostPolicies = 8

// assetsOf returns the assets that runs pay, by their policies. The list of runs has no manifests,
// so it asks for one run of each policy, but for that of known.
func (v *view) assetsOf(runs []rewarder.Run, known *rewarder.Run) map[b3.Digest]string {
	out := map[b3.Digest]string{}
	if asset := assetOf(known); asset != "" {
		out[known.PolicyHash] = asset
	}
	asked := 0
	for i := range runs {
		run := &runs[i]
		if _, has := out[run.PolicyHash]; has || run.Commitment.IsZero() || asked == mostPolicies {
			continue // without a commitment there is no manifest
		}
		asked++
		one, _ := v.h.rewarder.Epoch(v.ctx, run.Epoch) // minor units are right too
		out[run.PolicyHash] = assetOf(&one)
	}
	return out
}

// largestShares is how many shares of an epoch the page lists.
const largestShares = 20

// assetOf returns the asset that a run pays, "" until it is computed.
func assetOf(run *rewarder.Run) string {
	var manifest struct {
		Asset string `json:"asset"`
	}
	_ = json.Unmarshal(run.Manifest, &manifest) // the node's own answer, which may lack it
	return manifest.Asset
}

// Bounds of the epochs that a page looks at to find the newest one.
const (
	maxEpochs  = 1000
	epochsRead = 250 // at once
)

// epochList is the first epochs of the node, in the order of their ids.
type epochList struct {
	All  []rewarder.Run
	More bool // there are more
}

// epochs reads the epochs of the node, at most maxEpochs.
func (h *Console) epochs(ctx context.Context) (out epochList, err error) {
	next := ""
	for len(out.All) < maxEpochs {
		page, err := h.rewarder.Epochs(ctx, next, epochsRead)
		if err != nil {
			return epochList{}, err
		}
		out.All = append(out.All, page.Epochs...)
		if next = page.Next; next == "" {
			return out, nil
		}
	}
	out.More = true
	return out, nil
}

// Last returns the epoch that was accepted last among those that were read, nil if there is none.
func (l epochList) Last() *rewarder.Run {
	var last *rewarder.Run
	var since time.Time
	for i := range l.All {
		at, _ := time.Parse(time.RFC3339Nano, l.All[i].AcceptedAt)
		if last == nil || !at.Before(since) {
			last, since = &l.All[i], at
		}
	}
	return last
}

// Parked returns the epochs with parked payees, as many as a page lists.
func (l epochList) Parked() (out []rewarder.Run) {
	for _, run := range l.All {
		if run.Parked > 0 && len(out) < maxRows {
			out = append(out, run)
		}
	}
	return out
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
	Sites   part[index.NameList] // names of this node, which sites have
	Store   part[edge.Store]
	Keys    part[edge.StoredList]
	Prefix  string
}

func edgePage(v *view) any {
	d := edgeData{Catalog: read(v.h.edge.Catalog(v.ctx)), Prefix: strings.TrimSpace(v.in.Get("prefix"))}
	if v.h.d.Info().Services["index"] != "off" {
		d.Sites = read(v.h.index.Names(v.ctx, sitePrefix, v.in.Get("sites"), maxRows))
	}
	d.Store = read(v.h.edge.EdgeStore(v.ctx))
	d.Keys = read(v.h.edge.EdgeKeys(v.ctx, d.Prefix, v.in.Get("after"), maxRows, false))
	return d
}

// sitePrefix begins the keys of names.
const sitePrefix = "name:"

// siteData is the data of the page of a site.
type siteData struct {
	Name   string // its key in the index
	Site   string // as its URL has it
	Found  part[index.Resolved]
	Served part[index.Providers]
}

func sitePage(v *view) any {
	d := siteData{Name: strings.TrimSpace(v.in.Get("name"))}
	d.Site = strings.TrimPrefix(d.Name, sitePrefix)
	d.Found = read(v.h.index.Resolve(v.ctx, d.Name, false))
	if d.Found.OK() {
		d.Served = read(v.h.index.Providers(v.ctx, index.ProvidersQuery{CID: d.Found.V.Manifest}))
	}
	return d
}

// packData is the data of the page of a pack.
type packData struct {
	ID      string
	Catalog part[edge.Catalog]
	Pack    *edge.Pack // nil: there is none
}

func packPage(v *view) any {
	d := packData{ID: v.in.Get("id"), Catalog: read(v.h.edge.Catalog(v.ctx))}
	for i := range d.Catalog.V.Packs {
		if d.Catalog.V.Packs[i].ID == d.ID {
			d.Pack = &d.Catalog.V.Packs[i]
		}
	}
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
