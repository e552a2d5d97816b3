package appliance

import (
	"strings"
	"time"

	"ronbox/store"
)

// sweepRows is how many rows one sweep looks at: far below what makes a commit slow.
const sweepRows = 1000

// keepRetired is how long a retired key stays in the list.
const keepRetired = 30 * 24 * time.Hour

// sweepAuth removes what has expired, retires keys whose overlap is over, and forgets those retired long ago.
type sweepAuth struct {
	Skew int64 // ns: how much later than its time a token may still be taken
}

// Kind implements store.Command.
func (sweepAuth) Kind() string { return "node.sweep_auth/1" }

// swept is the result of a sweep.
type swept struct {
	authChange
	tokens, revocations, retired int
	more                         bool // a full sweep: ask again
}

// Apply goes through what expires first.
func (c sweepAuth) Apply(r store.Reader, at store.Stamp, w *store.Writes) (swept, error) {
	var out swept
	now := at.At - c.Skew
	rows := 0
	for id := range expiries.Range(r, expiryPrefix, expires(seconds(now), "")) {
		if rows++; rows > sweepRows {
			out.more = true
			break
		}
		expiries.Delete(w, id)
		if key := id.row(); strings.HasPrefix(key, tokenPrefix) {
			tokens.Delete(w, tokenID(key))
			out.tokens++
		} else {
			revocations.Delete(w, revID(key))
			out.purged = append(out.purged, revID(key))
			out.revocations++
		}
	}
	if rows > 0 {
		totals.Put(w, totalTokens, total(r, totalTokens)-uint64(out.tokens))
		totals.Put(w, totalRevocations, total(r, totalRevocations)-uint64(out.revocations))
	}
	c.keys(r, at, w, &out)
	return out, nil
}

// due says whether a sweep would find something.
func (c sweepAuth) due(r store.Reader, now time.Time) bool {
	edge := now.UnixNano() - c.Skew
	for range expiries.Range(r, expiryPrefix, expires(seconds(edge), "")) {
		return true
	}
	for _, k := range readKids(r) {
		if k.State == kidVerify && k.VerifyUntil < edge || k.State == kidRetired && k.VerifyUntil < edge-int64(keepRetired) {
			return true
		}
	}
	return false
}

// keys ends overlaps. What it does to a key that verified is on the audit chain.
func (c sweepAuth) keys(r store.Reader, at store.Stamp, w *store.Writes, out *swept) {
	var left []keyed
	gone := false
	for _, k := range readKids(r) {
		switch {
		case k.State == kidVerify && k.VerifyUntil < at.At-c.Skew:
			k.retire(at, w)
			out.retired++
			w.Audit(store.Event{Event: "auth.kid_retired", Decision: "allow", Principal: "janitor",
				Reason: "its last token has expired", Detail: map[string]string{"kid": k.id.kid()}})
		case k.State == kidRetired && k.VerifyUntil < at.At-c.Skew-int64(keepRetired):
			kids.Delete(w, k.id)
			gone = true
			continue
		}
		left = append(left, k)
	}
	if out.retired > 0 || gone {
		out.authChange.keys = left
	}
}
