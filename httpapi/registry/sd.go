package registry

import (
	"net"
	"net/url"
	"strconv"
	"sync/atomic"

	"github.com/go-json-experiment/json"

	"ronbox/appliance/b3"
	"ronbox/engines/fleet"
	"ronbox/engines/registry/tables"
	"ronbox/httpapi"
	registryapi "ronbox/httpapi/wire/registry"
)

// discovery holds the service items of the newest version that was asked for.
type discovery struct{ last atomic.Pointer[discovered] }

// discovered is the service items of one version. It is immutable.
type discovered struct {
	head     b3.Digest // hash of the entry
	services []fleet.Service
}

// of returns the service items of a version.
func (d *discovery) of(head *tables.HeadView) []fleet.Service {
	if last := d.last.Load(); last != nil && last.head == head.Head.Hash {
		return last.services
	}
	v := fleet.New(head.Head.Version, head.Genesis(), "", head.Items.All())
	d.last.Store(&discovered{head.Head.Hash, v.Services})
	return v.Services
}

var servicesWhat = httpapi.Text("what", "only services of this kind, as in service/<what>@<region>#<n>")

// getServices serves GET /registry/sd. The list is empty if there is no such service: Prometheus
// then has no targets.
func (h handlers) getServices(c *httpapi.Request) error {
	what, err := servicesWhat.Of(c)
	if err != nil {
		return err
	}
	head := h.reg.Head()
	groups := []registryapi.TargetGroup{}
	for _, s := range h.discovery.of(head) {
		if what == "" || s.What == what {
			groups = append(groups, targetGroup(s))
		}
	}
	body, err := json.Marshal(groups, json.Deterministic(true))
	if err != nil {
		return err
	}
	etag := strconv.Quote(strconv.FormatUint(head.Head.Version, 10))
	return c.SendTagged(httpapi.CacheAsk, etag, append(body, '\n'))
}

// targetGroup returns the group of one service.
func targetGroup(s fleet.Service) registryapi.TargetGroup {
	at, err := url.Parse(s.Endpoint)
	if err != nil {
		at = &url.URL{} // cannot happen: the View has parsed it
	}
	port := at.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[at.Scheme]
	}
	labels := map[string]string{
		"__scheme__":           at.Scheme,
		"__meta_ronbox_id":     s.ID,
		"__meta_ronbox_what":   s.What,
		"__meta_ronbox_region": s.Region,
	}
	if at.Path != "" && at.Path != "/" {
		labels["__metrics_path__"] = at.Path
	}
	return registryapi.TargetGroup{Targets: []string{net.JoinHostPort(at.Hostname(), port)}, Labels: labels}
}
