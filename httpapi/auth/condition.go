package auth

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"ronbox/engines"
)

// condition is one caveat, read. It holds for a request or it does not; with a fault it holds for none.
type condition struct {
	text    string
	key     string
	fault   string
	service string   // the only one that reads such a caveat, "" for all
	list    []string // of which the request must have one
	nets    []netip.Prefix
	at      time.Time
	rate    int            // per second
	limit   *engines.Grant // this caveat's part of what the engine checks
}

// timed says whether c is about time: a token that fails only there is void, not merely too narrow.
func (c *condition) timed() bool { return c.key == "exp" || c.key == "nbf" || c.key == "ttl" }

// holds judges c. What the request does not know yet is left to its engine, and a rate to who counts.
func (c *condition) holds(q *query) bool {
	if c.fault != "" || c.service != "" && c.service != q.Service {
		return false
	}
	switch c.key {
	case "scope":
		return Implies(c.list, q.Scope)
	case "aud":
		return slices.Contains(c.list, q.Service)
	case "method":
		return slices.Contains(c.list, q.Method)
	case "path":
		return inPaths(c.list, q.Path)
	case "ip":
		return inNets(c.nets, q.IP.Unmap().WithZone(""))
	case "exp", "ttl":
		return q.Now.Before(c.at.Add(q.skew))
	case "nbf":
		return !q.Now.Before(c.at.Add(-q.skew))
	case "registry.signer":
		return q.Signer == "" || q.Signer == c.list[0]
	case "amnesia":
		return q.amnesia
	case "rate":
		return true
	}
	return exceeded(c.limit, q) == nil
}

// reason says why c does not hold for q.
func (c *condition) reason(q *query) string {
	if c.fault != "" {
		return c.fault
	}
	if c.service != "" && c.service != q.Service {
		return fmt.Sprintf("only %s reads it, and the request is to %q", c.service, q.Service)
	}
	switch c.key {
	case "scope":
		return fmt.Sprintf("the request needs %s", q.Scope)
	case "aud":
		return fmt.Sprintf("the request is to %q", q.Service)
	case "method":
		return fmt.Sprintf("the request's method is %q", q.Method)
	case "path":
		return fmt.Sprintf("the request's path is %q", q.Path)
	case "ip":
		if !q.IP.IsValid() {
			return "the request comes from no address"
		}
		return fmt.Sprintf("the request comes from %s", q.IP)
	case "exp", "ttl":
		return fmt.Sprintf("expired at %s", c.at.UTC().Format(time.RFC3339))
	case "nbf":
		return fmt.Sprintf("not in force before %s", c.at.UTC().Format(time.RFC3339))
	case "registry.signer":
		return fmt.Sprintf("the request is for signer %q", q.Signer)
	case "amnesia":
		return "the node keeps its data on disk"
	}
	return exceeded(c.limit, q).Error()
}

// exceeded asks a grant for all that the request knows.
func exceeded(g *engines.Grant, q *query) error {
	var err error
	ask := func(known bool, check func() error) {
		if known && err == nil {
			err = check()
		}
	}
	ask(q.Tenant != "", func() error { return g.Tenant(q.Tenant) })
	ask(q.Account != "", func() error { return g.Account(q.Account) })
	ask(q.Asset != "", func() error { return g.Asset(q.Asset) })
	ask(q.Epoch != "", func() error { return g.Epoch(q.Epoch) })
	ask(q.Bytes > 0, func() error { return g.Bytes(q.Bytes) })
	ask(true, func() error { return g.Run(0) }) // 0 runs are used up at once
	ask(q.Amount != "", func() error {
		n, err := engines.ParseAmount(q.Amount)
		if err != nil {
			return err
		}
		if err := g.Amount(n); err != nil {
			return err
		}
		return g.Daily(engines.Amount{}, n)
	})
	return err
}

func inPaths(patterns []string, p string) bool {
	return cleanPath(p) && slices.ContainsFunc(patterns, func(pattern string) bool { return pathMatches(pattern, p) })
}

func inNets(nets []netip.Prefix, ip netip.Addr) bool {
	return ip.IsValid() && slices.ContainsFunc(nets, func(n netip.Prefix) bool { return n.Contains(ip) })
}

// pathMatches says whether a request for p is covered by the pattern.
func pathMatches(pattern, p string) bool {
	below, open := strings.CutSuffix(pattern, "*")
	if !open {
		return p == pattern
	}
	return len(p) > len(below) && strings.HasPrefix(p, below)
}
