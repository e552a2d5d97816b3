package console

import (
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"ronbox/httpapi/edge"
	"ronbox/httpapi/index"
	"ronbox/httpapi/node"
	"ronbox/httpapi/rewarder"
)

// rewardsData is the data of the page of rewards.
type rewardsData struct {
	Epochs part[rewarder.EpochPage]
	Epoch  string // the epoch that is shown; "": none
	Run    part[rewarder.Run]
	Parked part[rewarder.ParkedPage]
	Actor  string
	Proof  part[string]
}

func rewardsPage(v *view) any {
	h, ctx := v.h, v.ctx
	d := rewardsData{
		Epochs: read(h.rewarder.Epochs(ctx, v.in.Get("after"), maxRows)),
		Epoch:  v.in.Get("epoch"),
		Actor:  strings.TrimSpace(v.in.Get("actor")),
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
	}
	return d
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

// operationsData is the data of the page of operations.
type operationsData struct {
	Audit    part[node.AuditPage] // newest first
	Tokens   part[node.TokenList]
	Config   part[node.ConfigShow]
	Changed  []node.ConfigKey // keys that are not at their default
	Tasks    part[node.TaskList]
	Queues   part[node.QueueList]
	File     part[node.DBInfo]
	Level    part[node.LogLevel]
	Sessions []sessionRow
	From     uint64
}

// auditRows is how many rows of the audit chain the page shows.
const auditRows = 40

func operationsPage(v *view) any {
	h, ctx := v.h, v.ctx
	d := operationsData{
		Tokens: read(h.node.Tokens(ctx, "", 0)),
		Config: read(h.node.Config(ctx)),
		Tasks:  read(h.node.Tasks(ctx)),
		Queues: read(h.node.Queues(ctx)),
		File:   read(h.node.DBInfo(ctx)),
		Level:  read(h.node.LogLevel(ctx)),
	}
	for _, k := range d.Config.V.Keys {
		if k.Source != "default" {
			d.Changed = append(d.Changed, k)
		}
	}
	d.From, _ = strconv.ParseUint(v.in.Get("from"), 10, 64)
	if d.From == 0 {
		first := read(h.node.Audit(ctx, 1, 1))
		d.From = max(first.V.First, first.V.Last-min(first.V.Last, auditRows-1))
	}
	d.Audit = read(h.node.Audit(ctx, d.From, auditRows))
	slices.Reverse(d.Audit.V.Rows)
	if d.Audit.OK() { // a session that reads the audit may see who else looks
		d.Sessions = h.sessions.list(h.d.Now())
	}
	return d
}

// postEnd ends another session, for a session that entered with a code and may end tokens.
func (h *Console) postEnd(v *view, in url.Values) error {
	if !v.s.write {
		return h.fault(v.c, v.s, http.StatusForbidden, errReadOnly.Error())
	}
	if v.s.token != "" {
		return h.fault(v.c, v.s, http.StatusForbidden, "Only a session that entered with a code may end others.")
	}
	if _, err := h.node.VerifyToken(v.ctx, node.VerifyRequest{Token: "none"}); err != nil {
		return h.fault(v.c, v.s, http.StatusForbidden, explain(err))
	}
	if h.sessions.endByID(in.Get("id")) {
		h.note(v.c, "console.ended", v.s, in.Get("id"))
	}
	return see(v.c, prefix+"operations#sessions")
}
