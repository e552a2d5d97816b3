package httpapi

import (
	"net/http"
	"slices"
	"strings"

	"ronbox/httpapi/front"
)

// cors says which pages may read answers. A nil cors says none.
type cors struct {
	origins []string // exact, or "*" alone
	methods string
	headers string
}

const (
	corsAllow  = "Access-Control-Allow-Origin"
	corsMaxAge = "600" // seconds that a browser may remember a permission; a reload is then known everywhere
	corsExpose = "Etag, Retry-After, X-Corr-Id, Idempotent-Replayed, RateLimit"
)

func newCORS(c front.CORS) *cors {
	if len(c.AllowOrigins) == 0 {
		return nil
	}
	return &cors{
		origins: slices.Clone(c.AllowOrigins), methods: strings.Join(c.AllowMethods, ", "), headers: strings.Join(c.AllowHeaders, ", "),
	}
}

// allows gives what to tell a page of origin, "" for nothing.
func (k *cors) allows(origin string) string {
	switch {
	case origin == "":
		return ""
	case slices.Contains(k.origins, "*"):
		return "*"
	case slices.Contains(k.origins, origin):
		return origin
	}
	return ""
}

// shared tells the rows whose answers a page may read, refusals and their Retry-After included. The metrics are open by
// the place that asks, which is the browser's and not the page's.
func shared(r *Route) bool { return r.Class != ClassBypass || r.Scope == "" }

// share lets the pages of allowed origins read the answer. All others are denied by saying nothing.
func share(_ *Server, _ *bound, next handler) handler {
	return func(c *call) error {
		if k := c.live.cors; k != nil {
			k.mark(c)
		}
		return next(c)
	}
}

// mark says whether the page that asks may read the answer; caches must know that it depends on the page.
func (k *cors) mark(c *call) {
	h := c.Header()
	h.Add("Vary", "Origin")
	if who := k.allows(c.r.Header.Get("Origin")); who != "" {
		h.Set(corsAllow, who)
		h.Set("Access-Control-Expose-Headers", corsExpose)
	}
}

// preflight answers a browser that asks ahead for a page that is let in. It returns false when there is nothing to allow.
func (k *cors) preflight(c *call) bool {
	h := c.Header()
	if c.r.Method != http.MethodOptions || c.r.Header.Get("Access-Control-Request-Method") == "" || h.Get(corsAllow) == "" {
		return false
	}
	h.Set("Access-Control-Allow-Methods", k.methods)
	h.Set("Access-Control-Allow-Headers", k.headers)
	h.Set("Access-Control-Max-Age", corsMaxAge)
	c.WriteHeader(http.StatusNoContent)
	return true
}
