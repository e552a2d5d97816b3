package edge

import (
	"context"
	"net/http"

	"ronbox/engines/edge"
	"ronbox/httpapi"
	"ronbox/httpapi/client"
)

const placementsPath = prefix + "placements"

// PlacementList is the answer of GET /edge/placements.
type PlacementList struct {
	Placements []Placement `json:"placements"` // by id; empty without a fleet
}

// Placement describes what the registry places on this node, and how much of it is there.
type Placement struct {
	ID       string `json:"id"`      // placement/…
	Content  string `json:"content"` // b3:… or name:…
	State    string `json:"state"`   // waiting, fetching, complete or refused
	Manifest string `json:"manifest,omitzero"`
	Objects  int    `json:"objects"` // distinct ones, with the manifest
	Missing  int    `json:"missing"` // objects that are not pinned here yet
	Wanted   int64  `json:"wanted"`  // bytes of all objects
	Bytes    int64  `json:"bytes"`   // bytes of the objects that are pinned here
	Reason   string `json:"reason,omitzero"`
}

// placementOf converts a placement of the engine.
func placementOf(p edge.Placed) Placement {
	out := Placement{
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
		Answers:  httpapi.Answers(http.StatusOK, PlacementList{}),
	}}
}

// getPlacements serves GET /edge/placements.
func (h handlers) getPlacements(c *httpapi.Request) error {
	all := h.e.Placements()
	out := PlacementList{Placements: make([]Placement, len(all))}
	for i, p := range all {
		out.Placements[i] = placementOf(p)
	}
	return c.Respond(http.StatusOK, out)
}

// EdgePlacements returns what the registry places on the node.
func (c Client) EdgePlacements(ctx context.Context) (PlacementList, error) {
	return client.Ask[PlacementList](ctx, c.Client, client.Call{Path: placementsPath})
}
