package edge

import (
	"net/http"

	"ronbox/httpapi/refusal"
)

// Causes of refusals.
const (
	CauseFill      = "fill"
	CauseFills     = "fills"
	CauseObject    = "object"
	CauseOffline   = "offline"
	CauseRunning   = "running"
	CauseScript    = "script"
	CauseStatement = "statement"
)

// ExitRefused is the exit code of commands for a pack that would not be served.
const ExitRefused = 3

// Refusals has the rows of the edge. The reasons of failed fills are those of package asset.
var Refusals = append(refusal.Table{
	{
		Reason: "stale",
		Title:  "Object is stale", Status: http.StatusGatewayTimeout,
		Retry: true, Wait: refusal.WaitDegraded,
		Means:   "The stored object is stale, its host demands to be asked before it is used, and did not answer.",
		Changed: "Nothing.",
		Next:    "Try again later. With edge.cache.strict = false the stale object is served.",
	},
	{
		Reason: "missing",
		Title:  "Bytes of the site are missing", Status: http.StatusGatewayTimeout,
		Retry: true, Wait: refusal.WaitDegraded,
		Means:   "The bytes of the file are not stored here, and no node sent them in time.",
		Changed: "Nothing.",
		Next:    "Try again later. The manifest is current, so no older bytes are served.",
	},
	{
		Reason: "bad_manifest",
		Title:  "Manifest is not sound", Status: http.StatusBadGateway,
		Means:   "The manifest of the site is not sound, or does not match one of its objects.",
		Changed: "Nothing.",
		Next:    "The owner of the name publishes the site again (`ronbox edge publish`).",
	},
	{
		Reason: "bad_path",
		Title:  "Malformed path", Status: http.StatusBadRequest,
		Means:   "The path of an asset is malformed, for instance because it encodes a slash or a control character.",
		Changed: "Nothing.",
		Next:    "Send the path as `ronbox edge list` prints it.",
	},
	{
		Reason: "bad_tile",
		Title:  "Invalid tile", Status: http.StatusBadRequest,
		Means:   "The coordinates of the tile are malformed or do not exist at this zoom level.",
		Changed: "Nothing.",
		Next:    "Send /edge/tiles/NAME/Z/X/Y.EXT with decimal numbers from 0 to 2^Z-1.",
	},
	{
		Reason: "bad_ext",
		Title:  "Wrong extension", Status: http.StatusBadRequest,
		Means:   "The tiles of the pack have another file extension.",
		Changed: "Nothing.",
		Next:    "GET /edge/tiles/NAME.json shows the URL of its tiles.",
	},
	{
		Reason: "not_found",
		Title:  "Not found", Status: http.StatusNotFound,
		Means:   "There is no such object, pack or file, and it may not be fetched.",
		Changed: "Nothing.",
		Next:    "`ronbox edge list` lists what is stored, GET /edge/catalog the packs.",
	},
	{
		Reason: "not_found", Cause: CauseStatement,
		Title: "No statement", Status: http.StatusNotFound,
		Means:   "This node ran in no fleet in that epoch, the epoch is in the future, or its statement is too old.",
		Changed: "Nothing.",
		Next:    "Ask for another epoch, or another node.",
	},
	{
		Reason: "not_allowed", Cause: CauseOffline,
		Title: "Nothing is fetched", Status: http.StatusForbidden,
		Exit:    refusal.ExitFailed,
		Means:   "edge.mode is \"offline\", so nothing is fetched.",
		Changed: "Nothing.",
		Next:    "Set edge.mode to \"live\" and add the host to edge.allow.",
	},
	{
		Reason: "forbidden", Cause: CauseScript,
		Title: "Not for pages of this node", Status: http.StatusForbidden,
		Means:   "A page of this node may not run stored objects as script, style or worker.",
		Changed: "Nothing.",
		Next:    "Serve the page from another origin.",
	},
	{
		Reason: "not_acceptable",
		Title:  "No acceptable coding", Status: http.StatusNotAcceptable,
		Means:   "The tile is stored in a compression that the client does not accept, and it cannot be decoded here.",
		Changed: "Nothing.",
		Next:    "Send Accept-Encoding with the compression of the pack, such as gzip.",
	},
	{
		Reason: "tile_too_large",
		Title:  "Tile is too large to decode", Status: http.StatusNotAcceptable,
		Means: "The tile has more than 10 MiB when it is decoded, and the client does not accept the compression in " +
			"which it is stored.",
		Changed: "Nothing.",
		Next:    "Send Accept-Encoding with the compression of the pack, such as gzip.",
	},
	{
		Reason: "epoch_open",
		Title:  "Epoch is not final", Status: http.StatusConflict,
		Means:   "The statement of the epoch is not final yet.",
		Changed: "Nothing.",
		Next:    "Ask again after {final_at}.",
	},
	{
		Reason: "pins_full",
		Title:  "Too many pins", Status: http.StatusConflict,
		Means:   "The maximum number of URLs, or of bytes, is pinned.",
		Changed: "Nothing was pinned.",
		Next:    "Unpin other URLs with `ronbox edge unpin`, or raise edge.cas.max_pinned or edge.cas.max_urls.",
	},
	{
		Reason: "body_cap", Cause: CauseObject,
		Title: "Object is too large", Status: http.StatusRequestEntityTooLarge,
		Means:   "The object is longer than edge.fill.max_object_bytes.",
		Changed: "Nothing was stored.",
		Next:    "Raise the limit, or serve it from a pack.",
	},
	{
		Reason: "pack_refused",
		Title:  "Pack is refused", Status: http.StatusUnprocessableEntity, Exit: ExitRefused,
		Means: "The pack would not be served: its check failed, another file has its id, or the source of an " +
			"extract is no sound PMTiles archive.",
		Changed: "Nothing was stored.",
		Next:    "`ronbox edge packs verify` names the faults of a file. Send a sound one.",
	},
	{
		Reason: "packs_full",
		Title:  "No room for the pack", Status: http.StatusInsufficientStorage,
		Means: "With the pack the folder of packs would have more than edge.packs.max_bytes, or the disk less free " +
			"than edge.cas.min_free.",
		Changed: "Nothing was stored.",
		Next:    "Remove packs with `ronbox edge packs remove`, or raise edge.packs.max_bytes.",
	},
	{
		Reason: "bad_region",
		Title:  "Invalid region", Status: http.StatusBadRequest,
		Means: "The bbox or the region of an extract is malformed, has too many points, or no tile of the source, " +
			"or the zoom levels are not those of the source. The answer names the member.",
		Changed: "Nothing.",
		Next: "Send a bbox as west, south, east, north in degrees, or a Polygon or MultiPolygon of GeoJSON of at " +
			"most 1 MiB and 100,000 points.",
	},
	{
		Reason: "too_many_tiles",
		Title:  "Too many tiles", Status: http.StatusUnprocessableEntity,
		Means: "The extract has more tiles than edge.extract.max_tiles. Tiles with one content in sequence count " +
			"once.",
		Changed: "Nothing.",
		Next: "Ask for fewer zoom levels, as the answer advises, or for a smaller region, or raise " +
			"edge.extract.max_tiles.",
	},
	{
		Reason: "no_ranges",
		Title:  "Host sends no ranges", Status: http.StatusFailedDependency,
		Means: "The host does not answer with the range of the file that was asked for, so no part of it can be " +
			"read.",
		Changed: "Nothing was stored.",
		Next:    "Use a host that supports Range, or fetch the whole file and send it with `ronbox edge packs put`.",
	},
	{
		Reason: "source_changed",
		Title:  "Source has changed", Status: http.StatusFailedDependency,
		Means:   "The file at the host was replaced or removed while it was read.",
		Changed: "Nothing was stored.",
		Next:    "Run the same command again: it begins anew.",
	},
	{
		Reason: "extracts_full",
		Title:  "Too many extracts", Status: http.StatusTooManyRequests,
		Retry: true, Wait: refusal.WaitBusy,
		Means:   "Eight extracts are waiting or being read.",
		Changed: "Nothing. The extract was not begun.",
		Next:    "Wait until one is done, or remove one: `ronbox edge extracts`.",
		Call:    "Send the same request again after an extract is done.",
	},
	{
		Reason: "other_digest",
		Title:  "Other bytes than expected", Status: http.StatusUnprocessableEntity,
		Means:   "The bytes that were sent do not have the expected hash.",
		Changed: "Nothing was stored.",
		Next:    "Compute the hash of the file again (`ronbox edge put` does), and send it again.",
	},
	{
		Reason: "invalid_range",
		Title:  "Range not satisfiable", Status: http.StatusRequestedRangeNotSatisfiable,
		Means:   "The requested range is malformed, or not within the content.",
		Changed: "Nothing.",
		Next:    "Content-Range has the size. Request one range within it.",
	},
	{
		Reason: "corrupt", Cause: CauseObject,
		Title: "Stored object was damaged", Status: http.StatusServiceUnavailable,
		Retry: true, Wait: refusal.WaitDegraded,
		Means:   "The stored object is damaged, and is set aside.",
		Changed: "Nothing.",
		Next:    "Run the same command again: it is fetched again. `ronbox edge verify --fix` repairs all of them.",
		Call:    "Send the same request again after Retry-After. The object is fetched again.",
	},
	{
		Reason: "rate_limit", Cause: CauseFills,
		Title: "Too many requests", Status: http.StatusTooManyRequests,
		Retry: true, Wait: refusal.WaitBusy,
		Means:   "Too many requests need a fill (edge.ingress.rps_limit).",
		Changed: "Nothing. The request was not begun.",
		Next:    "Run the same command again.",
		Call:    "Send the same request again after Retry-After.",
	},
	{
		Reason: "busy",
		Title:  "Too many fills", Status: http.StatusTooManyRequests,
		Retry: true, Wait: refusal.WaitBusy,
		Means:   "The queue of fills is full.",
		Changed: "Nothing. The request was not enqueued.",
		Next:    "Run the same command again. If it lasts, raise edge.fill.workers.",
		Call:    "Send the same request again after Retry-After.",
	},
	{
		Reason: "amnesia",
		Title:  "Nothing may be stored", Status: http.StatusServiceUnavailable,
		Exit: refusal.ExitFailed, Wait: refusal.WaitDegraded,
		Means:   "The node writes nothing to a disk (amnesia.enabled), so it fetches nothing. Packs are served.",
		Changed: "Nothing.",
		Next:    "Use a node with a data directory for this operation. A retry does not help.",
	},
	{
		Reason: "cas_unavailable",
		Title:  "Content store is not open", Status: http.StatusServiceUnavailable,
		Retry: true, Wait: refusal.WaitDegraded,
		Means:   "The content store of the edge is not open.",
		Changed: "Nothing.",
		Next: "`ronbox status` shows the cause. Correct the folder and its permissions; the node opens it " +
			"again by itself.",
	},
	{
		Reason: "cas_full",
		Title:  "Content store is full", Status: http.StatusServiceUnavailable,
		Retry: true, Wait: refusal.WaitDegraded,
		Means:   "The content store of the edge is full, and everything in it is pinned or in use.",
		Changed: "Nothing.",
		Next:    "Raise edge.cas.max_bytes, make room on the disk, or remove pins (`ronbox edge unpin`).",
	},
	{
		Reason: "storage",
		Title:  "Content store fails", Status: http.StatusServiceUnavailable,
		Retry: true, Wait: refusal.WaitDegraded,
		Means: "The disk does not read or write the content store of the edge, as with an I/O error or a " +
			"read-only mount.",
		Changed: "Nothing.",
		Next: "`ronbox status` shows the cause. Check the disk; the node tries again every few seconds. " +
			"`ronbox edge verify` reads all that is stored.",
	},
	{
		Reason: "names_unavailable",
		Title:  "Name cannot be looked up", Status: http.StatusServiceUnavailable,
		Retry: true, Wait: refusal.WaitDegraded,
		Means: "The name of the site cannot be looked up: the index is off, is damaged, or its peers do " +
			"not answer.",
		Changed: "Nothing.",
		Next:    "Check `ronbox status` and `ronbox index peers`, then try again.",
	},
	{
		Reason: "pack_opening",
		Title:  "Pack is being opened", Status: http.StatusServiceUnavailable,
		Retry: true, Wait: refusal.WaitDegraded,
		Means:   "The pack is being opened.",
		Changed: "Nothing.",
		Next:    "Run the same command again. GET /edge/catalog shows its state.",
		Call:    "Send the same request again after Retry-After.",
	},
	{
		Reason: "pack_verifying",
		Title:  "Pack is being verified", Status: http.StatusServiceUnavailable,
		Retry: true, Wait: refusal.WaitDegraded,
		Means: "The structure of the pack is being checked. Its tiles are served afterwards, and its file once it " +
			"is hashed.",
		Changed: "Nothing.",
		Next:    "Run the same command again. GET /edge/catalog shows its state.",
		Call:    "Send the same request again after Retry-After.",
	},
	{
		Reason: "pack_failed",
		Title:  "Pack is invalid", Status: http.StatusServiceUnavailable,
		Exit:    refusal.ExitFailed,
		Means:   "The pack is invalid and is not served.",
		Changed: "Nothing.",
		Next:    "`ronbox edge packs` names the fault. Replace the file. A retry does not help.",
	},
	{
		Reason: "timeout", Cause: CauseRunning,
		Title: "Deadline passed", Status: http.StatusServiceUnavailable,
		Retry: true, Wait: refusal.WaitBusy,
		Means:   "The request took too long.",
		Changed: "Unknown. It may go on.",
		Next:    "Run the same command again, or allow more with --timeout.",
		Call:    "Send the same request again.",
	},
	{
		Reason: "not_allowed",
		Title:  "Not fetched", Status: http.StatusForbidden,
		Exit:    refusal.ExitFailed,
		Means:   "The node does not fetch from this host: it is not in edge.allow, or its address is private.",
		Changed: "Nothing was stored.",
		Next: "Set edge.mode to \"live\" and add the host to edge.allow; for a private address add its " +
			"network to edge.allow_private.",
	},
}, fillRefusals...)
