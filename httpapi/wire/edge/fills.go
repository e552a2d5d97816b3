package edge

import (
	"net/http"

	"ronbox/httpapi/refusal"
)

// fillRefusals has the rows of fills that a host has made fail.
var fillRefusals = refusal.Table{
	{
		Reason: "upstream_not_found",
		Title:  "Not fetched", Status: http.StatusNotFound,
		Means:   "The host does not have the content.",
		Changed: "Nothing was stored.",
		Next:    "Check the URL.",
	},
	{
		Reason: "etag_invalid",
		Title:  "Not fetched", Status: http.StatusFailedDependency,
		Means:   "The host sent an invalid ETag.",
		Changed: "Nothing was stored.",
		Next:    "Report it to the operator of the host.",
	},
	{
		Reason: "digest_mismatch",
		Title:  "Not fetched", Status: http.StatusFailedDependency,
		Means:   "The fetched content does not have the expected digest.",
		Changed: "Nothing was stored.",
		Next:    "Check the URL and the digest. The host serves other bytes.",
	},
	{
		Reason: "not_cacheable",
		Title:  "Not fetched", Status: http.StatusFailedDependency,
		Means:   "The host marks the content as private or forbids storing it.",
		Changed: "Nothing was stored.",
		Next:    "Fetch it from the host directly, or have the host allow caching.",
	},
	{
		Reason: "object_cap",
		Title:  "Not fetched", Status: http.StatusFailedDependency,
		Means:   "The content is larger than the edge stores (edge.fill.max_object_bytes).",
		Changed: "Nothing was stored.",
		Next:    "Raise the limit, or serve it from a pack.",
	},
	{
		Reason: "upstream_4xx",
		Title:  "Not fetched", Status: http.StatusFailedDependency,
		Means:   "The host refused the fetch.",
		Changed: "Nothing was stored.",
		Next:    "Check the URL and what the host demands, such as a token.",
	},
	{
		Reason: "timeout", Cause: CauseFill,
		Title: "Not fetched", Status: http.StatusServiceUnavailable,
		Retry: true, Wait: refusal.WaitDegraded,
		Means:   "Every try to fetch the content took too long.",
		Changed: "Nothing was stored.",
		Next:    "Run the same command again.",
		Call:    "Send the same request again after Retry-After.",
	},
	{
		Reason: "upstream_unavailable",
		Title:  "Not fetched", Status: http.StatusServiceUnavailable,
		Retry: true, Wait: refusal.WaitDegraded,
		Means:   "The host failed repeatedly, and is not asked for a while.",
		Changed: "Nothing was stored.",
		Next:    "Run the same command again later.",
		Call:    "Send the same request again after Retry-After.",
	},
	{
		Reason: "upstream_5xx",
		Title:  "Not fetched", Status: http.StatusBadGateway,
		Retry: true, Wait: refusal.WaitDegraded,
		Means:   "The host failed. The edge has already retried.",
		Changed: "Nothing was stored.",
		Next:    "Run the same command again later.",
		Call:    "Send the same request again after Retry-After.",
	},
	{
		Reason: "upstream_connect",
		Title:  "Not fetched", Status: http.StatusBadGateway,
		Retry: true, Wait: refusal.WaitDegraded,
		Means:   "The host cannot be reached, or its certificate is not trusted.",
		Changed: "Nothing was stored.",
		Next:    "Check the network, and edge.ca_file if the host has a private CA.",
	},
	{
		Reason: "upstream_truncated",
		Title:  "Not fetched", Status: http.StatusBadGateway,
		Retry: true, Wait: refusal.WaitDegraded,
		Means:   "The connection ended before the whole content was fetched.",
		Changed: "Nothing is served. The part is kept for the next try.",
		Next:    "Run the same command again; the fetch is resumed.",
		Call:    "Send the same request again after Retry-After. The fetch is resumed.",
	},
	{
		Reason: "upstream_unframed",
		Title:  "Not fetched", Status: http.StatusBadGateway,
		Means:   "The answer of the host has no length, so its end cannot be recognized.",
		Changed: "Nothing was stored.",
		Next:    "Have the host send a Content-Length.",
	},
	{
		Reason: "redirect_loop",
		Title:  "Not fetched", Status: http.StatusBadGateway,
		Means:   "The host redirects without an end, or to a host that is not allowed.",
		Changed: "Nothing was stored.",
		Next:    "Use the final URL, and add its host to edge.allow.",
	},
}
