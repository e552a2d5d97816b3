package edge

import (
	"errors"

	"ronbox/engines/edge/asset"
	"ronbox/httpapi"
)

// Errors of the HTTP layer itself.
var (
	errRange        = errors.New("the range is malformed, or not within the content; Content-Range has the size")
	errPrecondition = errors.New("the content does not have a tag of If-Match")
	errPath         = &asset.PathError{Reason: "encodes a slash, a backslash or a control character"}
	errTile         = errors.New("the path of a tile is /z/x/y.ext, with decimal numbers without leading zeros")
	errExt          = errors.New("the tiles of the pack have another extension; see its TileJSON")
	errEpoch        = errors.New("an epoch is a decimal number from 1, without leading zeros")
	errScript       = errors.New("a page of this node may not run stored objects as script, style or worker")
	errHost         = errors.New("the host of the request is not valid in URLs of tiles: set edge.public_url")
)

// seedWords maps reasons of the frame and the engine to those of edge_rejects_total.
var seedWords = map[string]string{
	httpapi.ReasonRatioCap: httpapi.ReasonInflateCap,
	httpapi.ReasonInflight: httpapi.ReasonRate,
	httpapi.ReasonBusy:     httpapi.ReasonRate,
}
