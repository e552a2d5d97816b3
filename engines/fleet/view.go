package fleet

import (
	"slices"
	"strings"
	"time"

	"ronbox/appliance/b3"
)

// DefaultEpoch is the length of an epoch if no item sets one.
const DefaultEpoch = 24 * time.Hour

// Services of a node that other nodes use.
const (
	ServiceIndex = "index"
	ServiceEdge  = "edge"
)

// View is the meaning of the items of one version of the registry to the nodes of a fleet. It is
// immutable. A nil *View means that the fleet is off, or that the registry has no version yet; it
// has no nodes.
type View struct {
	Version    uint64
	Genesis    b3.Digest
	Self       string      // id of this node's item, as "node/a"; "": not set
	Nodes      []Node      // sorted by id
	Placements []Placement // sorted by id
	Services   []Service   // sorted by id
	Pins       []Pin       // sorted by id
	BadPins    []BadPin    // sorted by id; they pin no policy
	Epoch      time.Duration
	Faults     []Fault // items that are ignored, sorted by id

	owners map[string]int // name suffix → index in Nodes
}

// Node is a sound item of kind node.
type Node struct {
	ID       string   // "node/<name>", also its account
	Endpoint string   // URL without path
	Region   string   // "": none
	Identity string   // peer id of its Ed25519 key
	SPKI     []string // pins of its TLS key, as upstream.ParsePin reads them; empty: CA certificates
	Services []string // as ServiceIndex; sorted
	Names    []string // canonical name suffixes that it owns; sorted
}

// Placement is a sound item of kind placement: nodes of Region keep Content.
type Placement struct {
	ID      string
	Region  string // "": every region
	Content string // "b3:<hex>" or "name:<name>"
}

// Service is a sound item of kind service, other than service/fleet.
type Service struct {
	ID       string // "service/<what>@<region>#<n>"
	What     string
	Region   string
	Endpoint string // URL
}

// Pin is a sound item of kind policy_pin: of Tenant, only pinned policies run.
type Pin struct {
	ID     string // "policy/<tenant>/<policy>"
	Tenant string
	Policy string
	Digest b3.Digest
}

// BadPin is an item of kind policy_pin with a fault. It was to bind its tenant, so of that tenant
// nothing runs that no sound item pins.
type BadPin struct {
	Fault
	Tenant string // "": its id names none, and it binds every tenant
}

// PinsOf returns the sound pins of a tenant, and those with a fault that bind it.
func (v *View) PinsOf(tenant string) (pins []Pin, bad []BadPin) {
	tenant = strings.ToLower(tenant)
	for _, p := range v.Pins {
		if p.Tenant == tenant {
			pins = append(pins, p)
		}
	}
	for _, p := range v.BadPins {
		if p.Tenant == tenant || p.Tenant == "" {
			bad = append(bad, p)
		}
	}
	return pins, bad
}

// Fault is the reason why an item is ignored.
type Fault struct {
	ID     string `json:"id"`
	Field  string `json:"field"` // dotted path of the member, as "meta.spki"; "": the whole item
	Reason string `json:"reason"`
}

// Has reports whether the node offers a service to other nodes.
func (n Node) Has(service string) bool { return slices.Contains(n.Services, service) }

// Node returns the node with an id, as "node/a".
func (v *View) Node(id string) (Node, bool) {
	if v == nil {
		return Node{}, false
	}
	at, ok := slices.BinarySearchFunc(v.Nodes, id, func(n Node, id string) int { return strings.Compare(n.ID, id) })
	if !ok {
		return Node{}, false
	}
	return v.Nodes[at], true
}

// Owner returns the node that owns a name: the one with the longest suffix of it. name is
// canonical, without "name:" and without a version.
func (v *View) Owner(name string) (Node, bool) {
	if v == nil {
		return Node{}, false
	}
	for suffix, more := name, true; more; _, suffix, more = strings.Cut(suffix, ".") {
		if i, ok := v.owners[suffix]; ok {
			return v.Nodes[i], true
		}
	}
	return Node{}, false
}
