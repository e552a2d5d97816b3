package edge

import (
	"net/http"

	"ronbox/engines/edge/placed"
	"ronbox/httpapi"
	edgeapi "ronbox/httpapi/wire/edge"
)

const placementsPath = prefix + "placements"

// placementOf converts a placement of the engine.
func placementOf(p placed.Placement) edgeapi.Placement {
	out := edgeapi.Placement{
		ID: p.ID, Content: p.Content, State: p.State, Objects: p.Objects, Missing: p.Missing, Wanted: p.Wanted,
		Bytes: p.Bytes, Reason: p.Reason,
	}
	if !p.Manifest.IsZero() {
		out.Manifest = p.Manifest.String()
	}
	return out
}

// placements returns the route that lists placements.
func (h handlers) placements() []httpapi.Route {
	return []httpapi.Route{{
		Method:   http.MethodGet,
		Pattern:  placementsPath,
		Handle:   h.getPlacements,
		Scope:    scopeKeep,
		Class:    httpapi.ClassRead,
		Deadline: httpapi.DefaultDeadline,
		Endpoint: httpapi.EndpointRead,
		ID:       "listPlacements",
		Summary:  "What the registry places on this node, and how much of it is there",
		Answers:  httpapi.Answers(http.StatusOK, edgeapi.PlacementList{}),
	}}
}

// getPlacements serves GET /edge/placements.
func (h handlers) getPlacements(c *httpapi.Request) error {
	all := h.e.Placements()
	out := edgeapi.PlacementList{Placements: make([]edgeapi.Placement, len(all))}
	for i, p := range all {
		out.Placements[i] = placementOf(p)
	}
	return c.Respond(http.StatusOK, out)
}
