package asset

import (
	"cmp"
	"encoding/hex"
	"errors"
	"net/url"
	"regexp"
	"strconv"
	"strings"

	"ronbox/appliance/b3"
)

// Target is the meaning of a path below /edge/assets/. One of Digest, Pack and URL is set.
type Target struct {
	Digest b3.Digest // of "b3/<hex>"
	Pack   string    // the id of "<id>.pmtiles"
	URL    string    // https:// and "<host>/<path>", with its query, in canonical spelling
	Old    string    // URL as releases of edge schema 2 spelled it; "" if they spelled it the same
	Host   string    // of URL, with its port
	Name   string    // of the asset in memory, unique among assets
}

// ParsePath parses an escaped path below /edge/assets/ and the query after it. Spellings of a URL
// that RFC 3986 calls equivalent have the same target, and no other spellings have. Only a path
// that begins with a host has a query; for others the query is ignored. It returns ErrNotFound for
// a valid path without a meaning, and a *PathError for an invalid one.
func ParsePath(path, query string) (Target, error) {
	given := path
	path, why := canonicalPath(path)
	if why != "" {
		return Target{}, &PathError{Path: given, Reason: why}
	}
	first, rest, more := strings.Cut(path, "/")
	if !more {
		if id, ok := strings.CutSuffix(first, ".pmtiles"); ok && id != "" {
			return Target{Pack: id}, nil
		}
		return Target{}, ErrNotFound
	}
	if first == "b3" {
		d, err := b3.Parse("b3:" + rest)
		if err != nil {
			return Target{}, ErrNotFound
		}
		return Target{Digest: d, Name: path}, nil
	}
	host := canonicalHost(first)
	if CheckHost(host) != nil {
		return Target{}, ErrNotFound
	}
	if why := queryFault(query); why != "" {
		return Target{}, &PathError{Path: given, Reason: why}
	}
	if len(path)-2*strings.Count(path, "%")+len(query) > maxPath {
		return Target{}, &PathError{Path: given, Reason: "is longer than 2048 bytes with its query"}
	}
	asked := query
	query = canonical(query, inQuery)
	t := Target{URL: "https://" + ShownPath(host+"/"+rest, query), Host: host, Name: NameOf(host+"/"+rest, query)}
	if old := oldSpelling(host, "/"+rest, asked); old != t.URL {
		t.Old = old
	}
	return t, nil
}

// oldSpelling returns the URL of a path and a query in the spelling of edge schema 2, which encoded
// the decoded path. It returns "" if that schema had no such path.
func oldSpelling(host, path, query string) string {
	decoded := path
	if strings.Contains(path, "%") {
		if strings.Contains(path, "%2F") {
			return ""
		}
		decoded, _ = url.PathUnescape(path) // it is canonical
	}
	return (&url.URL{Scheme: "https", Host: host, Path: decoded, RawQuery: query}).String()
}

// ParseURL parses the URL of a fill. path is the path below /edge/assets/ under which the object is
// served, with its query.
func ParseURL(text string) (t Target, path string, err error) {
	u, err := url.Parse(text)
	if err == nil && u.Scheme == "https" && u.User == nil && u.Opaque == "" && !u.ForceQuery &&
		!strings.Contains(text, "#") {
		t, err = ParsePath(u.Host+cmp.Or(EscapedPath(u), "/"), u.RawQuery)
		path = strings.TrimPrefix(t.URL, "https://")
	}
	if _, sound := errors.AsType[*PathError](err); !sound && t.URL == "" {
		return Target{}, "", &PathError{
			Path: Shown(text),
			Reason: "must be https://, a DNS name or localhost, and a path that begins with /, " +
				"without user and fragment",
		}
	}
	return t, path, err
}

// EscapedPath returns the path of a URL as it was written. Unlike the method of url.URL, it does
// not change the spelling if the path has characters that should have been encoded.
func EscapedPath(u *url.URL) string { return cmp.Or(u.RawPath, u.EscapedPath()) }

// NameOf returns the name of an asset in memory. A path contains no line feed, and only an
// asset of a host has a query.
func NameOf(path, query string) string {
	if query == "" || strings.HasPrefix(path, "b3/") {
		return path
	}
	return path + "\n" + query
}

// ShownPath returns a path with its query.
func ShownPath(path, query string) string {
	if query == "" {
		return path
	}
	return path + "?" + query
}

// Redacted replaces the query of a URL in log lines, events and errors, because the query of a
// signed URL is a credential.
const Redacted = "?redacted"

// Shown returns a URL with its query redacted.
func Shown(url string) string {
	before, _, query := strings.Cut(url, "?")
	if !query {
		return url
	}
	return before + Redacted
}

// queryForm matches a query in a text, including the query of a quoted URL.
var queryForm = regexp.MustCompile(`\?(\\.|[^\s"\\])*`)

// Redact returns a text with all queries redacted.
func Redact(text string) string { return queryForm.ReplaceAllLiteralString(text, Redacted) }

// queryFault describes a fault of an undecoded query, or returns "".
func queryFault(query string) string {
	if strings.ContainsFunc(query, func(r rune) bool { return r <= ' ' || r >= 0x7f || r == '#' }) {
		return "has a query with a space, a control character, a # or a byte that is not ASCII: encode it as %XX"
	}
	return ""
}

// hostForm matches localhost, or a DNS name in lower case whose last label does not begin with a
// digit, so that it is not an address; then optionally a port.
var hostForm = regexp.MustCompile(
	`^(localhost|([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z]([a-z0-9-]{0,61}[a-z0-9])?)(:[1-9][0-9]{0,4})?$`)

// CheckHost returns an error unless host is spelled as in edge.allow. Addresses are refused in
// every form.
func CheckHost(host string) error {
	_, port, has := strings.Cut(host, ":")
	_, err := strconv.ParseUint(port, 10, 16)
	if !hostForm.MatchString(host) || len(host) > 253 || has && err != nil || port == "443" {
		return errors.New(
			"must be a DNS name in lower case (international ones as xn--…) or localhost, and :port if it is not 443")
	}
	return nil
}

// PathOf returns the path of an object below /edge/assets/.
func PathOf(d b3.Digest) string { return "b3/" + hex.EncodeToString(d[:]) }
