package edge

import (
	"net/http"
	"strconv"
	"time"

	"ronbox/engines/edge/asset"
)

// mostFresh is the longest time for which a client may use the object of a URL unasked.
const mostFresh = 24 * time.Hour

// freshness returns Age ("" if it is not known) and Cache-Control of the object of a URL. A client
// counts Age from max-age (RFC 9111, 4.2), so max-age is the age and what is left of the freshness.
func freshness(o *asset.Object) (age, control string) {
	old := time.Duration(0)
	if o.Checked != 0 {
		old = max(0, time.Duration(o.At-o.Checked)).Truncate(time.Second)
		age = seconds(old)
	}
	left := min(time.Duration(o.Fresh-o.At), mostFresh)
	if left < time.Second {
		return age, "no-cache"
	}
	return age, "public, max-age=" + seconds(old+left)
}

func seconds(d time.Duration) string { return strconv.FormatInt(int64(d/time.Second), 10) }

// cacheStatus returns the Cache-Status (RFC 9211) of an object. The ttl of the object of a URL is
// negative if it is stale.
func cacheStatus(o *asset.Object) string {
	ttl := ""
	if !o.Immutable && o.From != asset.FromPack && o.Fresh != 0 {
		ttl = "; ttl=" + seconds(time.Duration(o.Fresh-o.At))
	}
	switch {
	case o.Filled:
		return "fwd=uri-miss; stored"
	case o.Asked == http.StatusOK:
		return "fwd=stale; fwd-status=200; stored" + ttl
	case o.Asked != 0:
		return "fwd=stale; fwd-status=" + strconv.Itoa(o.Asked) + ttl
	case o.Silent:
		return "hit" + ttl + "; detail=silent"
	}
	return "hit" + ttl + "; detail=" + o.From
}
