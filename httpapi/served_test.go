package httpapi

import "testing"

// Every row, and every path without one, is of a service that is served: whatever counts or limits by service finds it.
func TestEveryRowIsOfAServedService(t *testing.T) {
	for doc, change := range map[string]func(*Settings, *Deps){
		"all":         func(*Settings, *Deps) {},
		"no registry": func(_ *Settings, d *Deps) { d.Registry = nil },
		"no wallet":   func(_ *Settings, d *Deps) { d.Wallet = nil },
		"neither":     func(_ *Settings, d *Deps) { d.Registry, d.Wallet = nil, nil },
	} {
		r := newRig(t, change)
		for _, route := range r.routes {
			if r.services[route.Service] == nil {
				t.Errorf("%s: %s %s is of %q, which is not served", doc, route.Method, route.Pattern, route.Service)
			}
		}
		for _, b := range r.router.none {
			if r.services[b.route.Service] == nil {
				t.Errorf("%s: what has no row is of %q, which is not served", doc, b.route.Service)
			}
		}
		for _, path := range []string{registryPrefix, walletPrefix, adminPrefix, "/"} {
			if service := r.serviceOf(path + "none"); r.services[service] == nil {
				t.Errorf("%s: %snone is of %q, which is not served", doc, path, service)
			}
		}
	}
}
