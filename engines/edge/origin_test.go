package edge

import (
	"context"
	"errors"
	"testing"

	"ronbox/engines/upstream"
)

// A host that is not listed is not asked, whoever says so.
func TestListedHosts(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(r *rig) { r.cfg.Mode, r.cfg.Allow = ModeLive, []string{"example.com", "example.net:8443"} })
	for _, host := range []string{"example.org", "example.com:443", "example.com:8443", "example.net", "EXAMPLE.com", ""} {
		if err := r.e.ask(context.Background(), host, upstream.Request{URL: "https://" + host + "/"}, nil); !errors.Is(err, errHost) {
			t.Errorf("%s: %v", host, err)
		}
	}
	for _, u := range []string{"https://example.org/", "http://example.com/", "https://example.com:444/", "https://u:p@example.com/", "https://127.0.0.1/"} {
		if err := r.e.ask(context.Background(), "example.com", upstream.Request{URL: u}, nil); !errors.Is(err, upstream.ErrURL) {
			t.Errorf("%s: %v", u, err)
		}
	}
}
