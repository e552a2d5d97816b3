package scopes

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"ronbox/appliance/unit"
	"ronbox/httpapi"
	"ronbox/httpapi/auth"
	clusterhttp "ronbox/httpapi/cluster"
	edgeapi "ronbox/httpapi/edge"
	indexapi "ronbox/httpapi/index"
	nodehttp "ronbox/httpapi/node"
	registryapi "ronbox/httpapi/registry"
	rewarderapi "ronbox/httpapi/rewarder"
	wallethttp "ronbox/httpapi/wallet"
)

// Services returns every service without an engine. Its routes can be read but not served.
func Services() []httpapi.Service {
	return []httpapi.Service{
		nodehttp.New(nil),
		registryapi.New(struct{ registryapi.Engine }{}),
		wallethttp.New(nil),
		rewarderapi.New(nil),
		edgeapi.New(nil, nil, nil),
		indexapi.New(nil, &indexapi.Limits{}),
		clusterhttp.New(nil),
	}
}

// known returns every scope of the route tables, sorted. The caller must not modify it.
var known = sync.OnceValue(func() []string {
	// scopes of the frame, and of routes that may be public
	all := []string{auth.ScopeAdmin, httpapi.ScopeMetrics, indexapi.ScopeRead}
	for _, s := range Services() {
		for _, r := range s.Routes {
			all = append(append(all, r.AnyOf...), r.Scope, r.More)
		}
	}
	slices.Sort(all)
	return slices.DeleteFunc(slices.Compact(all), func(s string) bool { return s == "" })
})

// Check returns an error with the closest known scope if no route requires scope. It returns nil
// for an invalid scope, because auth reports that.
func Check(scope string) error {
	normal, err := auth.MintScope(scope)
	if err != nil || slices.Contains(known(), normal) {
		return nil
	}
	near := unit.Nearest(normal, known())
	if near == "" {
		return fmt.Errorf("unknown scope %s", scope)
	}
	return fmt.Errorf("unknown scope %s; did you mean %s?", scope, near)
}

// CheckAll joins the errors of Check.
func CheckAll(scopes []string) error {
	errs := make([]error, len(scopes))
	for i, s := range scopes {
		errs[i] = Check(s)
	}
	return errors.Join(errs...)
}

// CheckCaveats is CheckAll for the scopes in caveats of the form "key op value".
func CheckCaveats(caveats []string) error {
	var all []string
	for _, c := range caveats {
		if list, ok := strings.CutPrefix(c, "scope = "); ok {
			all = append(all, strings.Split(list, ",")...)
		}
	}
	return CheckAll(all)
}
