package name

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"slices"
	"strings"

	"ronbox/appliance/b3"
)

// nearness returns how near a region is to the requested one: 2 for the same region, 1 for the same
// area (the part before the last hyphen), otherwise 0.
func Nearness(region, asked string) int {
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

// compare orders providers for a region, the best first: those of this node's file, then the
// nearer, the verified, the later signed, and the smaller id. It is a total order of providers with
// different ids.
func compare(a, b *Provider, region string) int {
	if a.Filed != b.Filed {
		return first(a.Filed, b.Filed)
	}
	if near := cmp.Compare(Nearness(b.Region, region), Nearness(a.Region, region)); near != 0 {
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

// first orders true before false.
func first(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}

// rank returns at most limit providers that have not expired at now, in Unix ms, the best first.
// Limit 0 means all.
func Rank(set []Provider, region string, limit int, now int64) []Provider {
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

// merge joins sets of providers. For each peer it keeps the verified entry, then the later signed,
// then the one with the greater record. A provider that one set has from this node's file is marked
// so in the result. merge is associative, commutative and idempotent; the result is ordered by id.
func Merge(sets ...[]Provider) []Provider {
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

// capped returns at most MaxProviders of set: those of this node's file first, then those that
// expire last.
func Cap(set []Provider) []Provider {
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

// firstExpiry returns the earliest expiry of set in Unix ms, or 0 if set is empty.
func FirstExpiry(set []Provider) (first int64) {
	for i := range set {
		if first == 0 || set[i].ExpiresMS < first {
			first = set[i].ExpiresMS
		}
	}
	return first
}

// etagOf returns the ETag of a set of providers: the BLAKE3 of their peers, addresses and regions
// in the order of peers.
func SetETag(set []Provider) string {
	order := slices.Clone(set)
	slices.SortFunc(order, func(a, b Provider) int { return cmp.Compare(a.Peer, b.Peer) })
	h := b3.New()
	put := func(s string) {
		_, _ = h.Write(binary.BigEndian.AppendUint32(nil, uint32(len(s)))) // a hash never fails
		_, _ = h.Write([]byte(s))
	}
	for i := range order {
		put(string(order[i].Peer))
		put(order[i].Region)
		for _, a := range order[i].Addrs {
			put(a)
		}
	}
	return ETag(h.Sum32())
}

func ETag(d b3.Digest) string { return `"` + d.String() + `"` }
