package fleet

import (
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"ronbox/appliance/b3"
	"ronbox/appliance/unit"
	"ronbox/engines/registry/record"
)

// maxReason bounds the bytes of a reason, which may quote an item.
const maxReason = 200

// item holds the members of a descriptor that the conventions are about.
type item struct {
	ID       string         `json:"id"`
	Kind     string         `json:"kind"`
	Endpoint string         `json:"endpoint"`
	Region   string         `json:"region"`
	Meta     jsontext.Value `json:"meta"`

	faults []Fault
}

// New returns the view of the items of a version. self is the id of this node's item, "" if it has
// none. The order of the items does not matter. Expiries of items are not read: the fleet changes
// by versions, not by clocks, so that all nodes see the same one.
func New(version uint64, genesis b3.Digest, self string, items iter.Seq[record.Item]) *View {
	v := &View{Version: version, Genesis: genesis, Self: self, Epoch: DefaultEpoch}
	for it := range items {
		v.read(it)
	}
	v.dropTwins()
	slices.SortFunc(v.Nodes, func(a, b Node) int { return strings.Compare(a.ID, b.ID) })
	slices.SortFunc(v.Placements, func(a, b Placement) int { return strings.Compare(a.ID, b.ID) })
	slices.SortFunc(v.Services, func(a, b Service) int { return strings.Compare(a.ID, b.ID) })
	slices.SortFunc(v.Pins, func(a, b Pin) int { return strings.Compare(a.ID, b.ID) })
	slices.SortFunc(v.BadPins, func(a, b BadPin) int { return strings.Compare(a.ID, b.ID) })
	slices.SortStableFunc(v.Faults, func(a, b Fault) int { return strings.Compare(a.ID, b.ID) })
	v.owners = make(map[string]int)
	for i, n := range v.Nodes {
		for _, suffix := range n.Names {
			v.owners[suffix] = i
		}
	}
	return v
}

// read adds one item to its list, or its faults to Faults.
func (v *View) read(it record.Item) {
	d := item{ID: it.ID}
	if err := json.Unmarshal(it.Bytes, &d); err != nil {
		v.Faults = append(v.Faults, Fault{it.ID, "", "is not a descriptor"})
		return
	}
	switch {
	case d.Kind == "node":
		readInto(&v.Nodes, &d, (*item).node)
	case d.Kind == "placement":
		readInto(&v.Placements, &d, (*item).placement)
	case d.Kind == "policy_pin":
		readInto(&v.Pins, &d, (*item).pin)
		if len(d.faults) > 0 {
			v.BadPins = append(v.BadPins, BadPin{d.faults[0], d.tenant()})
		}
	case d.ID == fleetItem && d.Kind == "service":
		if epoch := d.epoch(); len(d.faults) == 0 {
			v.Epoch = epoch
		}
	case d.Kind == "service":
		readInto(&v.Services, &d, (*item).service)
	}
	v.Faults = append(v.Faults, d.faults...)
}

// readInto appends what parse makes of d, unless it finds a fault.
func readInto[T any](list *[]T, d *item, parse func(*item) T) {
	if parsed := parse(d); len(d.faults) == 0 {
		*list = append(*list, parsed)
	}
}

// fault records a fault of a member.
func (d *item) fault(field, format string, args ...any) {
	reason := unit.Clip(fmt.Sprintf(format, args...), maxReason)
	d.faults = append(d.faults, Fault{d.ID, unit.Clip(field, maxReason), reason})
}

// decode decodes the meta into a struct, and reports whether it could. Members that the struct does
// not have are ignored.
func (d *item) decode(into any) bool {
	err := json.Unmarshal(d.Meta, into)
	if err == nil {
		return true
	}
	field := "meta"
	if wrong, ok := errors.AsType[*json.SemanticError](err); ok {
		for token := range wrong.JSONPointer.Tokens() {
			field += "." + token
		}
		d.fault(field, "must not be a JSON %s", wrong.JSONKind)
		return false
	}
	d.fault(field, "is not JSON")
	return false
}

// dropTwins removes the nodes that share an identity or a name suffix with another.
func (v *View) dropTwins() {
	claims := map[string][]string{} // ids of the nodes that claim an identity or a suffix
	for _, n := range v.Nodes {
		claims[n.Identity] = append(claims[n.Identity], n.ID)
		for _, suffix := range n.Names {
			claims["."+suffix] = append(claims["."+suffix], n.ID)
		}
	}
	v.Nodes = slices.DeleteFunc(v.Nodes, func(n Node) bool {
		before := len(v.Faults)
		v.twin(n.ID, "meta.identity", n.Identity, claims[n.Identity])
		for _, suffix := range n.Names {
			v.twin(n.ID, "meta.names", suffix, claims["."+suffix])
		}
		return len(v.Faults) > before
	})
}

// twin records a fault of a node if another node claims the same text.
func (v *View) twin(id, field, text string, claimed []string) {
	if len(claimed) < 2 {
		return
	}
	other := slices.Min(slices.DeleteFunc(slices.Clone(claimed), func(c string) bool { return c == id }))
	reason := fmt.Sprintf("%s is claimed by %s too: both items are ignored", text, other)
	v.Faults = append(v.Faults, Fault{id, field, reason})
}

// Bounds of an epoch: a collection takes seconds, and a statement is kept for 90 days.
const (
	minEpoch = 10 * time.Second
	maxEpoch = 31 * 24 * time.Hour
)

// epoch parses service/fleet.
func (d *item) epoch() time.Duration {
	var meta struct {
		Epoch *string `json:"epoch"`
	}
	if !d.decode(&meta) || meta.Epoch == nil {
		return DefaultEpoch
	}
	epoch, err := unit.ParseDuration(*meta.Epoch)
	if err != nil || epoch.D() < minEpoch || epoch.D() > maxEpoch || epoch.D()%time.Second != 0 {
		d.fault("meta.epoch", "must be a duration from %s to %s, of whole seconds",
			unit.Duration(minEpoch), unit.Duration(maxEpoch))
	}
	return epoch.D()
}
