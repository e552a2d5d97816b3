package auth

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"ronbox/appliance/unit"
)

// maxCaveatBytes bounds one caveat's text.
const maxCaveatBytes = 1024

// caveat is one restriction, "key op value".
type caveat struct {
	key, op, value string
}

var errUnknownCaveat = errors.New("unknown caveat")

// parseCaveat takes key, operator and value with exactly one space between them.
func parseCaveat(s string) (caveat, error) {
	key, rest, ok1 := strings.Cut(s, " ")
	op, value, ok2 := strings.Cut(rest, " ")
	if !ok1 || !ok2 || key == "" || op == "" || value == "" || value != strings.TrimSpace(value) || len(s) > maxCaveatBytes {
		return caveat{}, errors.New("not of the form key op value")
	}
	return caveat{key: key, op: op, value: value}, nil
}

// query is what the caveats of one token are judged against.
type query struct {
	Request
	issued time.Time
	skew   time.Duration
	signer string // narrowed by registry.signer
}

// holds judges one caveat. An error says that it is unknown or malformed, whatever the request; false that it is not met.
func (q *query) holds(c caveat) (bool, error) {
	switch c.key + " " + c.op {
	case "scope =":
		return listHolds(c.value, NormalScope, func(scopes []string) bool { return grants(scopes, q.Scope) })
	case "aud =":
		return listHolds(c.value, parseWord, func(words []string) bool { return slices.Contains(words, q.Service) })
	case "method =":
		return listHolds(c.value, parseMethod, func(methods []string) bool { return slices.Contains(methods, q.Method) })
	case "path =":
		return listHolds(c.value, parsePath, q.inPaths)
	case "ip =":
		return listHolds(c.value, parsePrefix, q.inNets)
	case "exp <":
		at, err := parseTime(c.value)
		return q.Now.Before(at.Add(q.skew)), err
	case "nbf >":
		at, err := parseTime(c.value)
		return !q.Now.Before(at.Add(-q.skew)), err
	case "ttl =":
		ttl, err := unit.ParseDuration(c.value)
		return q.Now.Before(q.issued.Add(ttl.D()).Add(q.skew)), err
	case "registry.signer =":
		return q.narrowSigner(c.value)
	}
	return false, errUnknownCaveat
}

func listHolds[T any](value string, one func(string) (T, error), has func([]T) bool) (bool, error) {
	items, err := parseList(value, one)
	return err == nil && has(items), err
}

func (q *query) inPaths(patterns []string) bool {
	return cleanPath(q.Path) && slices.ContainsFunc(patterns, func(p string) bool { return pathMatches(p, q.Path) })
}

func (q *query) inNets(nets []netip.Prefix) bool {
	ip := q.IP.Unmap()
	return ip.IsValid() && slices.ContainsFunc(nets, func(n netip.Prefix) bool { return n.Contains(ip) })
}

// narrowSigner ties the actor to one signer; two different ones leave none.
func (q *query) narrowSigner(id string) (bool, error) {
	if err := checkName("registry.signer", id, maxSub); err != nil || strings.ContainsAny(id, ", ") {
		return false, errors.New("not a signer id")
	}
	if q.signer != "" && q.signer != id {
		return false, nil
	}
	q.signer = id
	return true, nil
}

// timed says whether c is about time: a token that fails only there is void, not merely too narrow.
func (c caveat) timed() bool {
	return c.key == "exp" || c.key == "nbf" || c.key == "ttl"
}

func parseWord(s string) (string, error) {
	if !scopeWord(s) {
		return "", fmt.Errorf("%q is not a service", s)
	}
	return s, nil
}

func parseMethod(s string) (string, error) {
	for i := range len(s) {
		if s[i] < 'A' || s[i] > 'Z' {
			return "", fmt.Errorf("%q is not a method", s)
		}
	}
	if s == "" {
		return "", errors.New("empty method")
	}
	return s, nil
}

func parseTime(s string) (time.Time, error) {
	t, err := time.Parse(time.RFC3339, s)
	if err != nil {
		return time.Time{}, fmt.Errorf("%q is not an RFC 3339 time", s)
	}
	return t, nil
}

// parsePrefix reads a network without host bits, or one address.
func parsePrefix(s string) (netip.Prefix, error) {
	if p, err := netip.ParsePrefix(s); err == nil && p == p.Masked() {
		return p, nil
	}
	a, err := netip.ParseAddr(s)
	if err != nil || a.Zone() != "" {
		return netip.Prefix{}, fmt.Errorf("%q is not a network or an address", s)
	}
	return netip.PrefixFrom(a, a.BitLen()), nil
}
