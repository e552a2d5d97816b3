package server

import (
	"fmt"
	"io"
	"strings"

	"ronbox/appliance/flow"
	"ronbox/cmd/ronbox/server/config"
)

// Topology is the catalogue of a node of one kind.
type Topology struct {
	Title   string
	Catalog *flow.Catalog
}

// Topologies returns the topology of the node that cfg and its directory describe, of a node that
// uses the fleet and follows another, and of a member of a cluster. It opens and starts nothing.
func Topologies(cfg *config.Config, build Build) ([]Topology, error) {
	this, err := New(cfg, build, Options{})
	if err != nil {
		return nil, err
	}
	follows := *cfg
	follows.Fleet.Enabled = true
	follows.Registry.Follow.URL, follows.Registry.Follow.Genesis = "https://hub.example", "b3:"+strings.Repeat("0", 64)
	follower, err := assemble(&follows, build, Options{}, io.Discard)
	if err != nil {
		return nil, err
	}
	clustered, err := assemble(cfg, build, Options{sketch: true}, io.Discard)
	if err != nil {
		return nil, err
	}
	this.declareMember()
	clustered.declareMember()
	return []Topology{
		{"This node", this.catalog},
		{"A node with fleet.enabled that follows another (registry.follow)", follower.catalog},
		{"A member of a cluster", clustered.catalog},
	}, nil
}

// declareMember declares what the part of a member in the cluster declares once it listens.
func (n *Node) declareMember() {
	if m := n.part(); m != nil {
		n.catalog.DeclareTask(m.Declare()...)
	}
}

// TopologyDoc is the form of topologies in JSON: the first, and the others whole.
type TopologyDoc struct {
	flow.Doc
	Others []otherDoc `json:"others"`
}

type otherDoc struct {
	Title string `json:"title"`
	flow.Doc
}

// NewTopologyDoc returns the topologies for JSON.
func NewTopologyDoc(all []Topology) TopologyDoc {
	out := TopologyDoc{Doc: all[0].Catalog.Doc()}
	for _, t := range all[1:] {
		out.Others = append(out.Others, otherDoc{t.Title, t.Catalog.Doc()})
	}
	return out
}

// TopologyTables returns the first topology as tables, and of each other one the services that
// differ from it.
func TopologyTables(all []Topology) string {
	var w strings.Builder
	w.WriteString(all[0].Catalog.Markdown())
	for _, t := range all[1:] {
		fmt.Fprintf(&w, "\n## %s\n\nThe services that differ from the tables above.\n\n%s", t.Title,
			t.Catalog.MarkdownBeyond(all[0].Catalog))
	}
	return w.String()
}
