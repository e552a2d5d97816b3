package origin

import (
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Freshness describes the life of an answer in a shared cache (RFC 9111).
type Freshness struct {
	For    time.Duration // from the answer on
	Given  bool          // the host names For; if not, it is 0
	Demand bool          // the host demands that it is asked once the answer is stale
}

// mostFresh is the longest freshness: a host that names more means "for ever".
const mostFresh = 365 * 24 * time.Hour

// FreshnessOf reads a header. A malformed number of seconds is 0, as RFC 9111 4.2.1 advises.
func FreshnessOf(h http.Header) (f Freshness) {
	var shared, private time.Duration = -1, -1
	noCache := false
	for _, directive := range listed(h["Cache-Control"]) {
		name, value, _ := strings.Cut(directive, "=")
		switch strings.ToLower(strings.TrimSpace(name)) {
		case "no-cache": // with field names it counts as without
			noCache, f.Demand = true, true
		case "must-revalidate", "proxy-revalidate":
			f.Demand = true
		case "s-maxage":
			shared, f.Demand = seconds(value), true
		case "max-age":
			private = seconds(value)
		}
	}
	switch {
	case noCache:
		return Freshness{Given: true, Demand: true}
	case shared >= 0:
		f.For, f.Given = shared, true
	case private >= 0:
		f.For, f.Given = private, true
	case len(h["Expires"]) > 0:
		f.For, f.Given = expires(h), true
	}
	if f.Given {
		f.For = max(0, f.For-age(h))
	}
	return f
}

// seconds parses a number of seconds, which may be quoted.
func seconds(text string) time.Duration {
	n, err := strconv.ParseUint(strings.Trim(strings.TrimSpace(text), `"`), 10, 64)
	if err != nil && n != math.MaxUint64 { // more than fits is very long
		return 0
	}
	return time.Duration(min(n, uint64(mostFresh/time.Second))) * time.Second
}

// expires returns Expires less Date, or 0 if one of them is malformed.
func expires(h http.Header) time.Duration {
	end, err := http.ParseTime(h.Get("Expires"))
	from, bad := http.ParseTime(h.Get("Date"))
	if err != nil || bad != nil {
		return 0
	}
	return min(max(0, end.Sub(from)), mostFresh)
}

// age returns how long the answer was in other caches.
func age(h http.Header) time.Duration {
	if h.Get("Age") == "" {
		return 0
	}
	return seconds(h.Get("Age"))
}

// WeakTag returns the entity tag of an answer, weak or strong, or "" if it does not have exactly
// one that is well formed.
func WeakTag(h http.Header) string {
	tags := h["Etag"]
	if len(tags) != 1 {
		return ""
	}
	inner := strings.TrimPrefix(tags[0], "W/")
	if len(inner) < 2 || inner[0] != '"' || inner[len(inner)-1] != '"' ||
		strings.ContainsFunc(inner[1:len(inner)-1], func(r rune) bool { return r <= ' ' || r == '"' || r == 0x7f }) {
		return ""
	}
	return tags[0]
}
