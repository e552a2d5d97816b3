package edge

import (
	"context"
	"net/http"
	"time"

	"ronbox/engines/edge/extract"
	"ronbox/httpapi"
	"ronbox/httpapi/openapi"
	edgeapi "ronbox/httpapi/wire/edge"
)

const (
	extractsPath = prefix + "extracts"

	// planWithin is the time to read the directories of a large archive over a slow line.
	planWithin = time.Hour
	// maxStart is the size of a body with the largest region.
	maxStart = 1<<20 + 64<<10
)

// Extracts is the part of the extracts that the routes call.
type Extracts interface {
	Begin(ctx context.Context, r extract.Request) (extract.Info, error)
	List() []extract.Info
	Remove(ctx context.Context, pack string) error
}

// extractions returns the routes of the extracts of this node.
func (h handlers) extractions() []httpapi.Route {
	return httpapi.Routes(func(r *httpapi.Route) {
		r.Pattern, r.Endpoint = extractsPath+r.Pattern, "/edge/extracts"
		r.Scope, r.Local = scopePack, true
	}, httpapi.Route{
		Method:   http.MethodGet,
		Class:    httpapi.ClassRead,
		Handle:   h.getExtracts,
		Deadline: httpapi.DefaultDeadline,
		ID:       "listExtracts",
		Summary:  "The extracts of this node",
		Answers:  httpapi.Answers(http.StatusOK, edgeapi.ExtractList{}),
	}, httpapi.Route{
		Method:   http.MethodPost,
		Class:    httpapi.ClassWrite,
		Handle:   h.postExtract,
		Deadline: planWithin,
		Body:     httpapi.JSONBody,
		MaxBody:  maxStart,
		In:       edgeapi.ExtractStart{},
		ID:       "extractPack",
		Summary:  "Make a pack of a region of an archive at a host",
		Doc: "Reads the directories of a PMTiles archive at a host of edge.allow, and then answers: all tiles, bytes " +
			"and ranges are known, and there is room. The node reads the tiles afterwards, also after restarts, " +
			"checks the pack, and serves it. A repetition answers with the extract as it is while it is read; one " +
			"that has failed begins anew. With dry_run it answers 200 and changes nothing.",
		Answers: append(httpapi.Answers(http.StatusAccepted, edgeapi.Extract{}),
			httpapi.Answers(http.StatusOK, edgeapi.Extract{})...),
		Problems: []int{http.StatusNotFound, http.StatusUnprocessableEntity, http.StatusFailedDependency,
			http.StatusBadGateway, http.StatusInsufficientStorage},
	}, httpapi.Route{
		Method:   http.MethodDelete,
		Pattern:  "/:" + paramPack,
		Class:    httpapi.ClassWrite,
		Handle:   h.deleteExtract,
		Deadline: httpapi.DefaultDeadline,
		AnyParam: true,
		ID:       "removeExtract",
		Summary:  "Remove an extract from this node",
		Doc: "Ends the extract, and removes what was read of it. A pack that it has become stays. A repetition " +
			"answers 404.",
		Answers:  []openapi.Answer{{Status: http.StatusNoContent, Doc: "the extract is removed"}},
		Problems: []int{http.StatusNotFound},
	})
}

// extractOf converts an extract.
func extractOf(i extract.Info) edgeapi.Extract {
	return edgeapi.Extract{
		Pack:      i.Pack,
		URL:       i.URL,
		BBox:      i.BBox,
		MinZoom:   i.MinZoom,
		MaxZoom:   i.MaxZoom,
		State:     string(i.State),
		Tiles:     i.Tiles,
		Bytes:     i.Bytes,
		DoneBytes: i.Done,
		Requests:  i.Requests,
		LeftS:     int64(i.Left.Round(time.Second) / time.Second),
		ETag:      i.ETag,
		Fault:     i.Fault,
		Refused:   i.Refused,
	}
}

// getExtracts serves GET /edge/extracts.
func (h handlers) getExtracts(c *httpapi.Request) error {
	out := edgeapi.ExtractList{Extracts: []edgeapi.Extract{}}
	for _, i := range h.extracts.List() {
		out.Extracts = append(out.Extracts, extractOf(i))
	}
	return c.Respond(http.StatusOK, out)
}

// postExtract serves POST /edge/extracts.
func (h handlers) postExtract(c *httpapi.Request) error {
	var in edgeapi.ExtractStart
	if err := c.Decode(&in); err != nil {
		return err
	}
	q := extract.Request{
		Pack: in.Pack, URL: in.URL, Region: in.Region, MinZoom: in.MinZoom, MaxZoom: in.MaxZoom, DryRun: in.DryRun,
	}
	if len(in.BBox) > 0 {
		if len(in.BBox) != 4 {
			return httpapi.BadBody("bbox", "must have four numbers: west, south, east, north")
		}
		q.BBox = (*[4]float64)(in.BBox)
	}
	i, err := h.extracts.Begin(c.Context(), q)
	if err != nil {
		return err
	}
	if in.DryRun {
		return c.Respond(http.StatusOK, extractOf(i))
	}
	return c.Respond(http.StatusAccepted, extractOf(i))
}

// deleteExtract serves DELETE /edge/extracts/:pack.
func (h handlers) deleteExtract(c *httpapi.Request) error {
	if err := h.extracts.Remove(c.Context(), c.Param(paramPack)); err != nil {
		return err
	}
	c.WriteHeader(http.StatusNoContent)
	return nil
}
