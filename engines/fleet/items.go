package fleet

import (
	"crypto/ed25519"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/mr-tron/base58"
	"golang.org/x/mod/semver"

	"ronbox/appliance/b3"
	"ronbox/appliance/sig"
	"ronbox/appliance/upstream"
)

// Prefixes of the ids of items, and the id of the item with the settings of the fleet.
const (
	nodePrefix      = "node/"
	placementPrefix = "placement/"
	servicePrefix   = "service/"
	policyPrefix    = "policy/"
	fleetItem       = servicePrefix + "fleet"
)

// Bounds of names, in bytes.
const (
	maxWord   = 63 // of a node, a placement, a service or a tenant
	maxPolicy = 64 // of a policy, as the rewarder's
	maxRegion = 32 // as the index's
	maxName   = 253
	maxLabel  = 63
)

// ValidNodeID reports whether s is the id of a node: "node/" and a word.
func ValidNodeID(s string) bool {
	name, ok := strings.CutPrefix(s, nodePrefix)
	return ok && isWord(name, maxWord, "_-")
}

// nodeMeta is the meta of a node.
type nodeMeta struct {
	Identity string   `json:"identity"`
	SPKI     []string `json:"spki"`
	Services []string `json:"services"`
	Names    []string `json:"names"`
}

// node parses an item of kind node.
func (d *item) node() Node {
	if !ValidNodeID(d.ID) {
		d.fault("id", "must be node/ and [a-z0-9][a-z0-9_-]{0,62}")
	}
	if !isNodeEndpoint(d.Endpoint) {
		d.fault("endpoint", "must be https://host:port, or http:// on loopback, without path, query or user")
	}
	d.checkRegion()
	var meta nodeMeta
	if d.decode(&meta) {
		d.checkNode(&meta)
	}
	return Node{
		ID:       d.ID,
		Endpoint: strings.TrimSuffix(d.Endpoint, "/"),
		Region:   d.Region,
		Identity: meta.Identity,
		SPKI:     meta.SPKI,
		Services: slices.Sorted(slices.Values(meta.Services)),
		Names:    slices.Sorted(slices.Values(meta.Names)),
	}
}

// checkNode records the faults of the meta of a node.
func (d *item) checkNode(meta *nodeMeta) {
	if !isIdentity(meta.Identity) {
		d.fault("meta.identity", "must be the peer id of an Ed25519 key, as `ronbox index identity` prints it")
	}
	for i, pin := range meta.SPKI {
		if _, err := upstream.ParsePin(pin); err != nil {
			d.fault("meta.spki."+strconv.Itoa(i), "must be sha256: and 64 hex digits or the base64 of a SHA-256")
		}
	}
	if meta.Services == nil {
		d.fault("meta.services", `is missing: the services that other nodes may use, as ["index","edge"]`)
	}
	for i, service := range meta.Services {
		if !isWord(service, maxWord, "_-") {
			d.fault("meta.services."+strconv.Itoa(i), "must be the name of a service, as index or edge")
		}
	}
	for i, suffix := range meta.Names {
		if !isName(suffix) {
			d.fault("meta.names."+strconv.Itoa(i), "must be a name in lower case, without a dot at either end")
		}
	}
	d.checkTwice("meta.services", meta.Services)
	d.checkTwice("meta.names", meta.Names)
}

// checkTwice records a fault if a list has an element twice.
func (d *item) checkTwice(field string, list []string) {
	for i, s := range list {
		if slices.Contains(list[:i], s) {
			d.fault(field+"."+strconv.Itoa(i), "is there twice")
		}
	}
}

// checkRegion records a fault of the region. An item may have none.
func (d *item) checkRegion() {
	if d.Region != "" && !isRegion(d.Region) {
		d.fault("region", "must be at most %d of a-z, 0-9 and hyphens", maxRegion)
	}
}

// placement parses an item of kind placement.
func (d *item) placement() Placement {
	var meta struct {
		Content string `json:"content"`
	}
	decoded := d.decode(&meta)
	if name, ok := strings.CutPrefix(d.ID, placementPrefix); !ok || !isWord(name, maxWord, "_-.") {
		d.fault("id", "must be placement/ and [a-z0-9][a-z0-9._-]{0,62}")
	}
	d.checkRegion()
	if _, err := b3.Parse(meta.Content); decoded && err != nil && !isNameKey(meta.Content) {
		d.fault("meta.content", "must be b3: and 64 hex digits, or name: and a name")
	}
	return Placement{ID: d.ID, Region: d.Region, Content: meta.Content}
}

// service parses an item of kind service other than service/fleet.
func (d *item) service() Service {
	rest := strings.TrimPrefix(d.ID, servicePrefix)
	what, rest, _ := strings.Cut(rest, "@")
	region, n, _ := strings.Cut(rest, "#")
	number, err := strconv.ParseUint(n, 10, 32)
	if !strings.HasPrefix(d.ID, servicePrefix) || !isWord(what, maxWord, "_-.") || !isRegion(region) ||
		err != nil || strconv.FormatUint(number, 10) != n {
		d.fault("id", "must be service/<what>@<region>#<number>, or service/fleet")
	}
	if d.Region != "" && d.Region != region {
		d.fault("region", "must be the one of the id, %s", region)
	}
	u, err := url.Parse(d.Endpoint)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Hostname() == "" || u.User != nil {
		d.fault("endpoint", "must be an http:// or https:// URL with a host, without a user")
	}
	return Service{ID: d.ID, What: what, Region: region, Endpoint: d.Endpoint}
}

// pin parses an item of kind policy_pin.
func (d *item) pin() Pin {
	var meta struct {
		Policy string `json:"policy"`
	}
	decoded := d.decode(&meta)
	rest, ok := strings.CutPrefix(d.ID, policyPrefix)
	tenant, policy, two := strings.Cut(rest, "/")
	if !ok || !two || !isWord(tenant, maxWord, "_-") || !isWord(policy, maxPolicy, "_.-") {
		d.fault("id", "must be policy/<tenant>/<policy> in lower case")
	}
	digest, err := b3.Parse(meta.Policy)
	if decoded && (err != nil || digest.IsZero()) {
		d.fault("meta.policy", "must be the hash of a policy: b3: and 64 hex digits")
	}
	return Pin{ID: d.ID, Tenant: tenant, Policy: policy, Digest: digest}
}

// tenant returns the tenant that the id of a pin with a fault names, or "".
func (d *item) tenant() string {
	rest, ok := strings.CutPrefix(d.ID, policyPrefix)
	tenant, _, _ := strings.Cut(rest, "/")
	if !ok || !isWord(tenant, maxWord, "_-") {
		return ""
	}
	return tenant
}

// isWord reports whether s is 1 to most bytes of a-z, 0-9 and others, and begins with a letter or a
// digit.
func isWord(s string, most int, others string) bool {
	for i := range len(s) {
		plain := s[i] >= 'a' && s[i] <= 'z' || s[i] >= '0' && s[i] <= '9'
		if !plain && (i == 0 || strings.IndexByte(others, s[i]) < 0) {
			return false
		}
	}
	return s != "" && len(s) <= most
}

// isRegion reports whether s is a region.
func isRegion(s string) bool {
	return s != "" && len(s) <= maxRegion && strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789-") == ""
}

// isName reports whether s is a canonical name: labels of a-z, 0-9 and inner hyphens between dots.
func isName(s string) bool {
	if s == "" || len(s) > maxName {
		return false
	}
	for label := range strings.SplitSeq(s, ".") {
		if !isWord(label, maxLabel, "-") || strings.HasSuffix(label, "-") {
			return false
		}
	}
	return true
}

// isNameKey reports whether s is "name:" and a name, with or without a version.
func isNameKey(s string) bool {
	rest, ok := strings.CutPrefix(s, "name:")
	name, version, versioned := strings.Cut(rest, "@")
	return ok && isName(name) && (!versioned || semver.Canonical("v"+version) == "v"+version)
}

// isNodeEndpoint reports whether s is a URL that nodes may be called at: https, or http on
// loopback.
func isNodeEndpoint(s string) bool {
	u, err := url.Parse(s)
	if err != nil || u.Hostname() == "" || u.User != nil || strings.Trim(u.Path, "/") != "" ||
		u.RawQuery != "" || u.ForceQuery || u.Fragment != "" {
		return false
	}
	ip, err := netip.ParseAddr(u.Hostname())
	loopback := u.Hostname() == "localhost" || err == nil && ip.Unmap().IsLoopback()
	return u.Scheme == "https" || u.Scheme == "http" && loopback
}

// identityHead precedes the 32 bytes of an Ed25519 key in a peer id: the identity multihash of a
// protobuf.
var identityHead = []byte{0x00, 0x24, 0x08, 0x01, 0x12, 0x20}

// isIdentity reports whether s is the peer id of a safe Ed25519 key in base58.
func isIdentity(s string) bool {
	const most = 64 // a peer id has 52 characters
	if len(s) > most {
		return false
	}
	raw, err := base58.Decode(s)
	if err != nil || len(raw) != len(identityHead)+ed25519.PublicKeySize || base58.Encode(raw) != s {
		return false
	}
	return slices.Equal(raw[:len(identityHead)], identityHead) && sig.CheckKey(raw[len(identityHead):]) == nil
}
