package obs

import (
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
)

// OTelConfig is the section [otel]: where spans go and how many of them.
type OTelConfig struct {
	Exporter     string  `toml:"exporter" reload:"r" oneof:"none otlp"` // "none" or "otlp"
	Endpoint     string  `toml:"endpoint" reload:"r"`                   // URL of an OTLP/HTTP collector; without a path it is /v1/traces
	SampleReads  float64 `toml:"sample_reads" reload:"r"`               // part of the traces that begin with a read, 0 to 1
	SampleWrites float64 `toml:"sample_writes" reload:"r"`              // part of all others, 0 to 1
}

// DefaultOTelConfig sends nothing.
func DefaultOTelConfig() OTelConfig {
	return OTelConfig{Exporter: "none", Endpoint: "http://127.0.0.1:4318", SampleReads: 0.05, SampleWrites: 1}
}

// Validate joins all faults.
func (c OTelConfig) Validate() error {
	var errs []error
	if c.Exporter != "none" && c.Exporter != "otlp" {
		errs = append(errs, fmt.Errorf("otel.exporter = %q: must be none or otlp", c.Exporter))
	}
	if _, err := c.url(); err != nil {
		errs = append(errs, fmt.Errorf("otel.endpoint = %s: %w", shownURL(c.Endpoint), err))
	}
	return errors.Join(append(errs, fraction("otel.sample_reads", c.SampleReads), fraction("otel.sample_writes", c.SampleWrites))...)
}

// url is the endpoint with its path.
func (c OTelConfig) url() (string, error) {
	u, err := url.Parse(c.Endpoint)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return "", errors.New("must be a URL such as http://127.0.0.1:4318")
	}
	if u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return "", errors.New("must be a URL of scheme, host, port and path only")
	}
	if u.Path == "" || u.Path == "/" {
		u.Path = "/v1/traces"
	}
	return u.String(), nil
}

// shownURL quotes an endpoint for a message, unless it holds a password or a query.
func shownURL(endpoint string) string {
	if strings.ContainsAny(endpoint, "@?") {
		return strconv.Quote(hidden)
	}
	return strconv.Quote(endpoint)
}

// sameTarget says whether c and d send to the same place.
func (c OTelConfig) sameTarget(d OTelConfig) bool {
	return c.Exporter == d.Exporter && (c.Exporter == "none" || c.Endpoint == d.Endpoint)
}

func fraction(key string, v float64) error {
	if !(v >= 0 && v <= 1) { // also refuses NaN
		return fmt.Errorf("%s = %v: must be 0..1", key, v)
	}
	return nil
}
