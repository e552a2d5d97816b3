package auth

import (
	"errors"
	"fmt"
	"math"
	"net/netip"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"ronbox/engines"
)

// maxCaveatBytes bounds the text of one caveat.
const maxCaveatBytes = 1024

// caveat is one restriction of the form "key op value".
type caveat struct {
	key, op, value string
}

// parseCaveat splits key, operator and value, which are separated by one space each.
func parseCaveat(s string) (caveat, error) {
	key, rest, ok1 := strings.Cut(s, " ")
	op, value, ok2 := strings.Cut(rest, " ")
	if !ok1 || !ok2 || key == "" || op == "" || value == "" || value != strings.TrimSpace(value) ||
		len(s) > maxCaveatBytes {
		return caveat{}, errors.New("not of the form key op value")
	}
	return caveat{key: key, op: op, value: value}, nil
}

// condition is a parsed caveat. A condition with a fault is never met.
type condition struct {
	text    string
	key     string
	fault   string
	service string   // the only service that reads such a caveat; "": all
	list    []string // permitted values
	nets    []netip.Prefix
	at      time.Time
	rate    int            // per second
	limit   *engines.Grant // the part that engines check
}

// timed reports whether c restricts the time. A token that fails such a condition is invalid
// instead of insufficient.
func (c *condition) timed() bool { return c.key == "exp" || c.key == "nbf" || c.key == "ttl" }

// holds reports whether q meets c. Unknown fields are left to the engine, and a rate to admit.
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

// reason returns the reason why q does not meet c.
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
		return fmt.Sprintf("expired at %s", formatTime(c.at))
	case "nbf":
		return fmt.Sprintf("not in force before %s", formatTime(c.at))
	case "registry.signer":
		return fmt.Sprintf("the request is for signer %q", q.Signer)
	case "amnesia":
		return "the node keeps its data on disk"
	}
	return exceeded(c.limit, q).Error()
}

// exceeded checks the known fields of a request against a grant.
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
	ask(true, func() error { return g.Run(0) }) // 0 runs are exceeded at once
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

// pathMatches reports whether the pattern includes p.
func pathMatches(pattern, p string) bool {
	below, open := strings.CutSuffix(pattern, "*")
	if !open {
		return p == pattern
	}
	return len(p) > len(below) && strings.HasPrefix(p, below)
}

// maxWord bounds the ids in caveats, in bytes.
const maxWord = 128

// parseList parses a non-empty list of comma-separated values. One invalid value makes the list
// invalid.
func parseList[T any](value string, one func(string) (T, error)) ([]T, error) {
	items := make([]T, 0, 1+strings.Count(value, ","))
	for item := range strings.SplitSeq(value, ",") {
		v, err := one(item)
		if err != nil {
			return nil, err
		}
		items = append(items, v)
	}
	return items, nil
}

func parseService(s string) (string, error) {
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
	// Parse also accepts a comma as decimal point and a one-digit hour
	loose := strings.Contains(s, ",") || len(s) > 13 && s[13] != ':'
	if year := t.UTC().Year(); err != nil || loose || year < 0 || year > 9999 {
		return time.Time{}, fmt.Errorf("%q is not an RFC 3339 time", s)
	}
	return t, nil
}

// formatTime formats a time in the form of a caveat.
func formatTime(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// parsePrefix parses a network without host bits, or one address. It refuses an IPv4 network in
// IPv6 form, which would match no address.
func parsePrefix(s string) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(s)
	if err != nil {
		a, err := netip.ParseAddr(s)
		if err != nil || a.Zone() != "" {
			return netip.Prefix{}, fmt.Errorf("%q is not a network or an address", s)
		}
		p = netip.PrefixFrom(a, a.BitLen())
	}
	if p != p.Masked() || p.Addr().Is4In6() {
		return netip.Prefix{}, fmt.Errorf("%q is not a network without host bits, IPv4 written as IPv4", s)
	}
	return p, nil
}

// parseWord parses an id: printable, without spaces, and not a list or a pattern.
func parseWord(s string) (string, error) {
	if s == "" || len(s) > maxWord || !printable(s) || strings.ContainsAny(s, " ,*") {
		return "", fmt.Errorf("%q is not one id of at most %d bytes", s, maxWord)
	}
	return s, nil
}

// parseAccount parses an account "x", or "prefix*" for all accounts with that prefix.
func parseAccount(s string) (string, error) {
	prefix, open := strings.CutSuffix(s, "*")
	if open && prefix == "" {
		return s, nil
	}
	if _, err := parseWord(prefix); err != nil {
		return "", fmt.Errorf("%q is not an account such as x or prefix*", s)
	}
	return s, nil
}

// parseAsset parses the code of an asset.
func parseAsset(s string) (string, error) {
	for i := range len(s) {
		if (s[i] < 'a' || s[i] > 'z') && (s[i] < '0' || s[i] > '9') {
			return "", fmt.Errorf("%q is not an asset such as ron", s)
		}
	}
	if s == "" || len(s) > 16 {
		return "", fmt.Errorf("%q is not an asset of 1 to 16 letters", s)
	}
	return s, nil
}

// parseCount parses a whole number in its canonical form.
func parseCount(s string) (uint64, error) {
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil || strconv.FormatUint(n, 10) != s || n > math.MaxInt64 {
		return 0, fmt.Errorf("%q is not a whole number", s)
	}
	return n, nil
}

// maxRate is the highest rate of a caveat, per second. A node cannot exceed it anyway.
const maxRate = 1_000_000

// parseRate parses "n/s".
func parseRate(s string) (int, error) {
	digits, ok := strings.CutSuffix(s, "/s")
	n, err := parseCount(digits)
	if !ok || err != nil || n < 1 || n > maxRate {
		return 0, fmt.Errorf("%q is not a rate such as 10/s, 1 to %d", s, maxRate)
	}
	return int(n), nil
}

// parsePath parses a path "/p", or "/p/*" for all paths below it.
func parsePath(s string) (string, error) {
	bare, below := strings.CutSuffix(s, "/*")
	whole := below && bare == "" // "/*" is every path
	if strings.Contains(bare, "*") || below && bare == "/" || !whole && !cleanPath(bare) {
		return "", fmt.Errorf("%q is not a path such as /p or /p/*", s)
	}
	return s, nil
}

// cleanPath reports whether p has no empty, "." or ".." segments, because other software could
// resolve these to another path.
func cleanPath(p string) bool {
	return strings.HasPrefix(p, "/") && path.Clean(p) == p
}
