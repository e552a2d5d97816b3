package asset

import (
	"encoding/hex"
	"errors"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"ronbox/appliance/b3"
)

// Bounds of a path.
const (
	maxPath    = 2048 // bytes
	maxSegment = 255
)

// Target is the meaning of a path below /edge/assets/. One of Digest, Pack and URL is set.
type Target struct {
	Digest b3.Digest // of "b3/<hex>"
	Pack   string    // the id of "<id>.pmtiles"
	URL    string    // https:// and "<host>/<path>", with its query; the object is found under it
	Host   string    // of URL, with its port
	Name   string    // of the asset in memory, unique among assets
}

// ParsePath parses a decoded path below /edge/assets/ and the undecoded query after it. Only a path
// that begins with a host has a query; for others the query is ignored. It returns ErrNotFound for
// a valid path without a meaning, and a *PathError for an invalid one.
func ParsePath(path, query string) (Target, error) {
	if why := pathFault(path); why != "" {
		return Target{}, &PathError{Path: path, Reason: why}
	}
	first, rest, more := strings.Cut(path, "/")
	switch {
	case !more:
		if id, ok := strings.CutSuffix(first, ".pmtiles"); ok && id != "" {
			return Target{Pack: id}, nil
		}
	case first == "b3":
		if d, err := b3.Parse("b3:" + rest); err == nil {
			return Target{Digest: d, Name: path}, nil
		}
	case CheckHost(first) == nil:
		if why := queryFault(query); why != "" {
			return Target{}, &PathError{Path: path, Reason: why}
		}
		u := url.URL{Scheme: "https", Host: first, Path: "/" + rest, RawQuery: query}
		if len(path)+len(query) > maxPath {
			return Target{}, &PathError{Path: path, Reason: "is longer than 2048 bytes with its query"}
		}
		return Target{URL: u.String(), Host: first, Name: NameOf(path, query)}, nil
	}
	return Target{}, ErrNotFound
}

// ParseURL parses the URL of a fill. path is the decoded path below /edge/assets/ under which the
// object is served, with its query.
func ParseURL(text string) (t Target, path string, err error) {
	u, err := url.Parse(text)
	if err == nil {
		path = ShownPath(u.Host+u.Path, u.RawQuery)
		t, err = ParsePath(u.Host+u.Path, u.RawQuery)
	}
	if _, sound := errors.AsType[*PathError](err); !sound && (err != nil || t.URL != u.String()) {
		return Target{}, "", &PathError{
			Path: Shown(text),
			Reason: "must be https://, a DNS name or localhost, and a path that begins with /, " +
				"without user, fragment or encoded slash",
		}
	}
	return t, path, err
}

// NameOf returns the name of an asset in memory. A path contains no line feed, and only an
// asset of a host has a query.
func NameOf(path, query string) string {
	if query == "" || strings.HasPrefix(path, "b3/") {
		return path
	}
	return path + "\n" + query
}

// ShownPath returns a decoded path with its query. A ? in the path is not escaped.
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

// pathFault describes a fault of a decoded path, or returns "".
func pathFault(path string) string {
	switch {
	case len(path) > maxPath:
		return "is longer than 2048 bytes"
	case !utf8.ValidString(path):
		return "is not UTF-8"
	}
	for _, r := range path {
		if r < 0x20 || r >= 0x7f && r < 0xa0 || r == '\\' {
			return "has a control character or a backslash"
		}
	}
	dir := strings.TrimSuffix(path, "/") // "<host>/" and "<host>/dir/" are valid
	for segment := range strings.SplitSeq(dir, "/") {
		switch {
		case segment == "" || segment == "." || segment == "..":
			return "has an empty or dotted segment"
		case len(segment) > maxSegment:
			return "has a segment longer than 255 bytes"
		}
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
