package index

import (
	"encoding/hex"
	"net/http"
	"strconv"
	"time"

	"ronbox/engines/index/name"
	"ronbox/httpapi"
	indexapi "ronbox/httpapi/wire/index"
)

// postProviders serves POST /index/providers.
func (h handlers) postProviders(c *httpapi.Request) error {
	var in indexapi.Announce
	if err := c.Decode(&in); err != nil {
		return err
	}
	all, err := announcements(&in)
	if err != nil {
		return err
	}
	done, err := h.idx.Announce(c.Context(), c.Actor(), all, c.CorrID())
	if err != nil {
		return err
	}
	out := indexapi.AnnounceResults{Results: make([]indexapi.AnnounceResult, len(done))}
	for i, d := range done {
		r := &out.Results[i]
		if r.Accepted = d.Err == nil; !r.Accepted {
			r.Reason = d.Err.Error()
		}
		if !d.CID.IsZero() {
			r.CID = d.CID.String()
		}
		r.Peer, r.ExpiresMS = string(d.Peer), d.ExpiresMS
	}
	return c.Respond(http.StatusOK, out)
}

// announcements checks the form of a request. The engine checks the records.
func announcements(in *indexapi.Announce) ([]name.Announcement, error) {
	if n := len(in.Providers); n == 0 || n > name.MaxAnnouncements {
		return nil, httpapi.BadBody("providers", "must hold 1 to "+strconv.Itoa(name.MaxAnnouncements)+" records")
	}
	out := make([]name.Announcement, len(in.Providers))
	for i := range in.Providers {
		a, member := &in.Providers[i], "providers."+strconv.Itoa(i)
		if a.Record != nil {
			if a.CID != "" || a.Addrs != nil || a.Region != "" || a.TTL != 0 {
				return nil, httpapi.BadBody(member, "must hold a record or the other members")
			}
			out[i].Record = a.Record
			continue
		}
		cid, err := name.ParseCID(a.CID)
		switch {
		case err != nil:
			return nil, httpapi.BadBody(member+".cid",
				`must be "b3:" and 64 lower-case hex digits, or a CID of BLAKE3 with 32 bytes`)
		case a.TTL > maxTTL:
			return nil, httpapi.BadBody(member+".ttl_s", "must be 60 to 172800")
		}
		out[i] = name.Announcement{CID: cid, Addrs: a.Addrs, Region: a.Region, TTL: time.Duration(a.TTL) * time.Second}
	}
	return out, nil
}

// maxTTL keeps the conversion to a duration from overflowing. The engine checks the bounds.
const maxTTL = 1 << 31 // seconds

// deleteProvider serves DELETE /index/providers/:cid.
func (h handlers) deleteProvider(c *httpapi.Request) error {
	cid, err := name.ParseCID(c.Param(paramCID))
	if err != nil {
		return err
	}
	if err := h.idx.Withdraw(c.Context(), c.Actor(), cid, "", c.CorrID()); err != nil {
		return err
	}
	return c.Empty()
}

// postReindex serves POST /index/reindex.
func (h handlers) postReindex(c *httpapi.Request) error {
	var in indexapi.Reindex
	if err := c.Decode(&in); err != nil {
		return err
	}
	if len(in.Keys) > maxReindex {
		return httpapi.BadBody("keys", "must hold at most "+strconv.Itoa(maxReindex))
	}
	queued, err := h.idx.Reindex(c.Context(), c.Actor(), in.Keys, c.CorrID())
	if err != nil {
		return err
	}
	return c.Respond(http.StatusAccepted, indexapi.Reindexed{Queued: queued})
}

// getPeers serves GET /index/peers.
func (h handlers) getPeers(c *httpapi.Request) error {
	all := h.idx.Peers()
	out := indexapi.PeerList{Peers: make([]indexapi.PeerState, len(all))}
	for i, p := range all {
		out.Peers[i] = indexapi.PeerState{
			Target:       p.Target,
			Node:         p.Node,
			Region:       p.Region,
			State:        p.Breaker,
			RetryAfterMS: p.RetryAfter.Milliseconds(),
			Asked:        p.Asked,
			Failed:       p.Failed,
			LastError:    p.LastError,
		}
	}
	return c.Respond(http.StatusOK, out)
}

// getIdentity serves GET /index/identity.
func (h handlers) getIdentity(c *httpapi.Request) error {
	id, key := h.idx.Identity()
	return c.RespondCached(http.StatusOK, httpapi.CacheAsk,
		indexapi.NodeIdentity{Peer: string(id), Key: hex.EncodeToString(key)})
}
