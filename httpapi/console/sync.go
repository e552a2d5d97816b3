package console

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"ronbox/appliance/unit"
	"ronbox/httpapi/client"
	"ronbox/httpapi/wire/node"
	"ronbox/httpapi/wire/registry"
)

// inSync answers whether the node has what the others have.
func (d *overviewData) inSync(v *view) answer {
	a := answer{Question: "In sync?", Link: prefix + "cluster", light: unknown}
	if m := d.Status.V.Cluster; m != nil {
		d.inCluster(m, &a)
		return a
	}
	hub := v.hub(d.Status)
	switch {
	case hub.Follows:
		a.light, a.Link, a.Text = hub.light, prefix+"registry", hub.String()
		if hub.Why != "" {
			a.More = append(a.More, sentence{Text: hub.Why})
		}
	case !d.Status.OK():
		a.Text = d.Status.Fault
	case hub.Fault != "":
		a.Text = "It is no member of a cluster. Whether its registry follows another node is not known. " + hub.Fault
	default:
		a.light, a.Text = light{"good", "one node"}, "It is no member of a cluster, and its registry follows no other"
	}
	return a
}

// mostLag is the number of entries from which on a member is behind, as for the alert
// RonboxClusterLag.
const mostLag = 1000

// inCluster answers for a member of a cluster: by its own lag, and by the check of the node that
// judges the other members.
func (d *overviewData) inCluster(m *node.MemberStatus, a *answer) {
	switch {
	case m.Leader == "":
		a.light, a.Text = light{"bad", "no"}, "The cluster has no leader"
		return
	case m.Role == "leader":
		a.Text = "This node leads the cluster"
	case m.Lag == 0:
		a.Text = "This node follows " + m.Leader + ", and has all of its log"
	default:
		a.Text = fmt.Sprintf("This node follows %s, %s of the log behind", m.Leader, entries(m.Lag))
	}
	for _, c := range d.Checks.V {
		if c.Check == "cluster_tolerance" {
			a.light = light{c.Class, map[string]string{"good": "yes", "warn": "look", "bad": "no"}[c.Class]}
			a.More = append(a.More, sentence{Text: capital(c.Text)})
		}
	}
	switch {
	case m.Lag > mostLag && a.Class != "bad":
		a.light = light{"warn", "behind"}
	case a.light == unknown:
		a.More = append(a.More, sentence{Text: "The state of the other members is not known. " + d.Checks.Fault})
	}
}

// entries returns a number of entries with its noun.
func entries(n uint64) string {
	if n == 1 {
		return "1 entry"
	}
	return thousands(n) + " entries"
}

// hub is the node whose registry this one follows, as far as the session may know.
type hub struct {
	light
	Follows bool
	URL     string // "": not known
	Version uint64
	Age     string // of the newest checkpoint of the hub; "": not known
	Why     string // why the registry is not in sync
	Fault   string // why it is not known whether there is a hub
}

// String describes what the node has of its hub.
func (h hub) String() string {
	text := "The registry follows another node"
	if h.URL != "" {
		text = "The registry follows " + h.URL
	}
	text += ", version " + thousands(h.Version)
	if h.Age != "" {
		text += ", " + h.Age + " old"
	}
	return text
}

// ageHeader names the seconds since the log of the hub was signed. A follower that has read nothing
// of its hub sends none.
const ageHeader = "X-Registry-Age"

// followKey is the key of readiness that judges the copy of a follower. The doctor and the alert
// RonboxFollow go by it.
const followKey = "registry.follow_ok"

// hub returns the node that is followed.
func (v *view) hub(status part[node.Status]) (out hub) {
	if v.h.d.Info().Services["registry"] == "off" {
		return out
	}
	cfg := read(v.h.node.Config(v.ctx))
	for _, k := range cfg.V.Keys {
		if k.Key == "registry.follow.url" {
			out.URL = strings.Trim(fmt.Sprint(k.Value), `"`)
		}
	}
	if cfg.OK() && out.URL == "" {
		return out
	}
	var raw []byte
	var head registry.Head
	header, err := v.h.registry.Do(v.ctx, client.Call{Path: "/registry/head", Into: &raw})
	if err == nil && json.Unmarshal(raw, &head) == nil {
		out.Version = head.Version
		if age, err := strconv.ParseInt(header.Get(ageHeader), 10, 64); err == nil {
			out.Age = unit.Short(time.Duration(age) * time.Second)
		}
	}
	if out.Follows = out.URL != "" || out.Age != ""; !out.Follows {
		out.Fault = cfg.Fault
		return out
	}
	switch out.light = unknown; {
	case status.V.Causes[followKey] != "":
		out.light, out.Why = light{"bad", "no"}, capital(status.V.Causes[followKey])
	case status.OK() && out.Age != "":
		out.light = light{"good", "yes"}
	}
	return out
}
