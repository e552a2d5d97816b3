package member

import (
	"context"
	"slices"

	"ronbox/engines/cluster"
	"ronbox/engines/edge/content"
	edgeapi "ronbox/httpapi/edge"
)

// newObjects returns what moves the objects of the edge between this member and the others.
func newObjects(m *Member) *edgeapi.Objects {
	o := &edgeapi.Objects{
		Client: m.client, Log: m.log, Sender: m.sender, Others: m.otherPorts,
		Leads: m.leads,
	}
	if c := m.d.Config(); c.Edge.Enabled && !c.Amnesia.Enabled {
		o.Shelf = content.NewShelf(c.Edge, c.Node.DataDir)
	}
	return o
}

// prepareObjects makes the folders of the content store. No other part of the node runs yet.
func (m *Member) prepareObjects() error {
	shelf, ok := m.objects.Shelf.(*content.Shelf)
	if !ok {
		return nil
	}
	err := shelf.Prepare()
	if err != nil {
		m.objects.Shelf = nil
	}
	return err
}

// otherPorts implements the member Others of edgeapi.Objects.
func (m *Member) otherPorts() (addrs []string, all bool) {
	members := m.raft.Status(context.Background()).Members
	members = slices.DeleteFunc(members, func(o cluster.Member) bool { return o.ID == m.id.ServerID() })
	slices.SortStableFunc(members, func(a, b cluster.Member) int {
		switch {
		case a.Role == b.Role:
			return 0
		case a.Role == cluster.RoleVoter:
			return -1
		}
		return 1
	})
	for _, o := range members {
		if o.Healthy {
			addrs = append(addrs, o.Addr)
		}
	}
	return addrs, len(addrs) == len(members)
}
