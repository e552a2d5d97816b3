package front

import (
	"errors"
	"fmt"
	"net/url"
	"regexp"
)

// token is the form of a method and of a header's name.
var token = regexp.MustCompile("^[!#$%&'*+.^_`|~0-9A-Za-z-]+$")

func (c CORS) validate() error {
	var faults []error
	for _, o := range c.AllowOrigins {
		if !isOrigin(o) {
			faults = append(faults, fmt.Errorf("cors.allow_origins: %q: must be an origin such as https://app.example, or \"*\"", o))
		}
	}
	for _, m := range c.AllowMethods {
		if !token.MatchString(m) {
			faults = append(faults, fmt.Errorf("cors.allow_methods: %q: must be a method such as GET", m))
		}
	}
	for _, h := range c.AllowHeaders {
		if !token.MatchString(h) {
			faults = append(faults, fmt.Errorf("cors.allow_headers: %q: must be the name of a header", h))
		}
	}
	return errors.Join(faults...)
}

// isOrigin takes scheme, host and port as a browser writes them, and nothing more.
func isOrigin(s string) bool {
	if s == "*" {
		return true
	}
	u, err := url.Parse(s)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "" && s == u.Scheme+"://"+u.Host
}
