package console

import (
	"ronbox/httpapi/wire/cluster"
	"ronbox/httpapi/wire/edge"
	"ronbox/httpapi/wire/index"
	"ronbox/httpapi/wire/node"
)

// clusterData is the data of the page of the cluster.
type clusterData struct {
	Self    *node.MemberStatus // nil: the node is no member
	Cluster part[cluster.ClusterStatus]
	Advice  string // while no node leads
}

func clusterPage(v *view) any {
	var d clusterData
	status := read(v.h.node.Status(v.ctx))
	if d.Self = status.V.Cluster; d.Self == nil && status.OK() {
		return d
	}
	d.Cluster = read(v.h.cluster.ClusterStatus(v.ctx))
	if d.Cluster.OK() && d.Cluster.V.Leader == "" {
		d.Advice = d.Cluster.V.Advice()
	}
	return d
}

// fleetData is the data of the page of the fleet.
type fleetData struct {
	Status     part[*node.FleetStatus] // nil: there is no fleet
	Hub        hub
	Peers      part[index.PeerList]
	Placements part[edge.PlacementList]
}

func fleetPage(v *view) any {
	status := read(v.h.node.Status(v.ctx))
	d := fleetData{Status: part[*node.FleetStatus]{status.V.Fleet, status.Fault}, Hub: v.hub(status)}
	services := v.h.d.Info().Services
	if services["index"] != "off" {
		d.Peers = read(v.h.index.Peers(v.ctx))
	}
	if services["edge"] != "off" {
		d.Placements = read(v.h.edge.EdgePlacements(v.ctx))
	}
	return d
}
