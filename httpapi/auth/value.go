package auth

import (
	"errors"
	"fmt"
	"math"
	"net/netip"
	"strconv"
	"strings"
	"time"
)

// maxWord bounds the ids in caveats, in bytes.
const maxWord = 128

// parseList reads comma-separated values, at least one; an item that one refuses spoils the list.
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
	loose := strings.Contains(s, ",") || len(s) > 13 && s[13] != ':' // what Parse lets pass: a comma for the point, one digit for the hour
	if year := t.UTC().Year(); err != nil || loose || year < 0 || year > 9999 {
		return time.Time{}, fmt.Errorf("%q is not an RFC 3339 time", s)
	}
	return t, nil
}

// parsePrefix reads a network without host bits, or one address. An IPv4 one written as IPv6 would meet no address, and is refused.
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

// parseWord reads one id: printable, in one piece, and not a list or a pattern.
func parseWord(s string) (string, error) {
	if s == "" || len(s) > maxWord || !printable(s) || strings.ContainsAny(s, " ,*") {
		return "", fmt.Errorf("%q is not one id of at most %d bytes", s, maxWord)
	}
	return s, nil
}

// parseAccount reads "x", one account, or "prefix*", all that begin so.
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

// parseAsset reads the code of an asset.
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

// parseCount reads a whole number in its one spelling.
func parseCount(s string) (uint64, error) {
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil || strconv.FormatUint(n, 10) != s || n > math.MaxInt64 {
		return 0, fmt.Errorf("%q is not a whole number", s)
	}
	return n, nil
}

// maxRate is the fastest rate a caveat may name, per second: more is no limit on one node.
const maxRate = 1_000_000

// parseRate reads "n/s".
func parseRate(s string) (int, error) {
	digits, ok := strings.CutSuffix(s, "/s")
	n, err := parseCount(digits)
	if !ok || err != nil || n < 1 || n > maxRate {
		return 0, fmt.Errorf("%q is not a rate such as 10/s, 1 to %d", s, maxRate)
	}
	return int(n), nil
}
