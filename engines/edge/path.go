package edge

import (
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

// target is what a path below /edge/assets/ means: one of the three.
type target struct {
	digest b3.Digest // of "b3/<hex>"; zero: not that
	pack   string    // the id of "<id>.pmtiles"; "": not that
	url    string    // of "<host>/<path>": what it is fetched from, and found by; "": not that
	host   string    // of url, with its port
}

// parsePath reads a path below /edge/assets/, which is decoded already. ErrNotFound is a path that is sound and means nothing, a *PathError one
// that is not.
func parsePath(path string) (target, error) {
	if why := pathFault(path); why != "" {
		return target{}, &PathError{Path: path, Reason: why}
	}
	first, rest, more := strings.Cut(path, "/")
	switch {
	case !more:
		if id, ok := strings.CutSuffix(first, ".pmtiles"); ok && id != "" {
			return target{pack: id}, nil
		}
	case first == "b3":
		if d, err := b3.Parse("b3:" + rest); err == nil {
			return target{digest: d}, nil
		}
	case checkHost(first) == nil:
		u := url.URL{Scheme: "https", Host: first, Path: "/" + rest}
		return target{url: u.String(), host: first}, nil
	}
	return target{}, ErrNotFound
}

// parseURL reads the URL of a fill, and gives the path below /edge/assets/ that it is found by.
func parseURL(text string) (t target, path string, err error) {
	u, err := url.Parse(text)
	if err == nil {
		path = u.Host + u.Path
		t, err = parsePath(path)
	}
	if _, sound := errors.AsType[*PathError](err); !sound && (err != nil || t.url != u.String()) {
		return target{}, "", &PathError{Path: text, Reason: "must be https://, a DNS name or localhost, and a path, without user, query, fragment or encoded slash"}
	}
	return t, path, err
}

// pathFault says what is wrong with a decoded path, "": nothing.
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
	for segment := range strings.SplitSeq(path, "/") {
		switch {
		case segment == "" || segment == "." || segment == "..":
			return "has an empty or dotted segment"
		case len(segment) > maxSegment:
			return "has a segment longer than 255 bytes"
		}
	}
	return ""
}

// hostForm is localhost, or a DNS name in lower case whose last part is none of a number, as addresses have it; then perhaps a port.
var hostForm = regexp.MustCompile(`^(localhost|([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z]([a-z0-9-]{0,61}[a-z0-9])?)(:[1-9][0-9]{0,4})?$`)

// checkHost accepts a host in the one spelling that edge.allow has. Addresses are refused, however they are written.
func checkHost(host string) error {
	_, port, has := strings.Cut(host, ":")
	_, err := strconv.ParseUint(port, 10, 16)
	if !hostForm.MatchString(host) || len(host) > 253 || has && err != nil || port == "443" {
		return errors.New("must be a DNS name in lower case (international ones as xn--…) or localhost, and :port if it is not 443")
	}
	return nil
}
