package index

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"slices"
	"strings"

	"ronbox/appliance/b3"
)

// nearness is how near a region is to the one that was asked for: 2 the same, 1 the same area (what stands before the last hyphen), 0 else.
func nearness(region, asked string) int {
	switch {
	case asked == "" || region == "":
		return 0
	case region == asked:
		return 2
	case area(region) != "" && area(region) == area(asked):
		return 1
	}
	return 0
}

func area(region string) string {
	if at := strings.LastIndexByte(region, '-'); at > 0 {
		return region[:at]
	}
	return ""
}

// compare orders providers for a region, the best first: those of this node's file, the nearer, the verified, the one
// signed later, the lesser id. It is a total order of providers with different ids.
func compare(a, b *Provider, region string) int {
	if a.Filed != b.Filed {
		return first(a.Filed, b.Filed)
	}
	if near := cmp.Compare(nearness(b.Region, region), nearness(a.Region, region)); near != 0 {
		return near
	}
	if a.Verified != b.Verified {
		return first(a.Verified, b.Verified)
	}
	if later := cmp.Compare(b.AtMS, a.AtMS); later != 0 {
		return later
	}
	return cmp.Compare(a.Peer, b.Peer)
}

// first orders what is before what is not.
func first(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}

// rank gives the providers that have not expired at now, Unix ms, in order, at most limit; 0 is all.
func rank(set []Provider, region string, limit int, now int64) []Provider {
	order := make([]*Provider, 0, len(set))
	for i := range set {
		if set[i].ExpiresMS > now {
			order = append(order, &set[i])
		}
	}
	slices.SortFunc(order, func(a, b *Provider) int { return compare(a, b, region) })
	if limit > 0 && len(order) > limit {
		order = order[:limit]
	}
	out := make([]Provider, len(order))
	for i, p := range order {
		out[i] = *p
	}
	return out
}

// merge joins sets of providers: of each peer the verified one stays, else the one signed later, else the one with the greater record. A
// provider that is in this node's file in one of the sets is so in the result. It is associative, commutative and
// idempotent; the order is by id.
func merge(sets ...[]Provider) []Provider {
	at := map[PeerID]int{}
	var out []Provider
	for _, set := range sets {
		for _, p := range set {
			i, known := at[p.Peer]
			switch {
			case !known:
				at[p.Peer] = len(out)
				out = append(out, p)
			case better(&p, &out[i]):
				p.Filed = p.Filed || out[i].Filed
				out[i] = p
			default:
				out[i].Filed = out[i].Filed || p.Filed
			}
		}
	}
	slices.SortFunc(out, func(a, b Provider) int { return cmp.Compare(a.Peer, b.Peer) })
	return out
}

// capped returns at most MaxProviders of set: those of this node's file first, then those that expire last.
func capped(set []Provider) []Provider {
	if len(set) <= MaxProviders {
		return set
	}
	slices.SortFunc(set, func(a, b Provider) int {
		return cmp.Or(first(a.Filed, b.Filed), cmp.Compare(b.ExpiresMS, a.ExpiresMS), cmp.Compare(a.Peer, b.Peer))
	})
	return set[:MaxProviders]
}

func better(a, b *Provider) bool {
	if a.Verified != b.Verified {
		return a.Verified
	}
	return cmp.Or(cmp.Compare(a.AtMS, b.AtMS), bytes.Compare(a.Record, b.Record),
		cmp.Compare(strings.Join(a.Addrs, " "), strings.Join(b.Addrs, " ")), cmp.Compare(a.ExpiresMS, b.ExpiresMS)) > 0
}

// firstExpiry is when the first of set expires, Unix ms; 0: it is empty.
func firstExpiry(set []Provider) (first int64) {
	for i := range set {
		if first == 0 || set[i].ExpiresMS < first {
			first = set[i].ExpiresMS
		}
	}
	return first
}

// etagOf names a set of providers: the BLAKE3 of peers, addresses and regions by peer.
func etagOf(set []Provider) string {
	order := slices.Clone(set)
	slices.SortFunc(order, func(a, b Provider) int { return cmp.Compare(a.Peer, b.Peer) })
	h := b3.New()
	put := func(s string) {
		_, _ = h.Write(binary.BigEndian.AppendUint32(nil, uint32(len(s)))) // a hash takes everything
		_, _ = h.Write([]byte(s))
	}
	for i := range order {
		put(string(order[i].Peer))
		put(order[i].Region)
		for _, a := range order[i].Addrs {
			put(a)
		}
	}
	return quoted(h.Sum32())
}

func quoted(d b3.Digest) string { return `"` + d.String() + `"` }
