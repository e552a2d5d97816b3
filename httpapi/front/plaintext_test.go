package front

import (
	"errors"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"
)

func TestCheckPlaintext(t *testing.T) {
	for bind, exposed := range map[string]bool{
		"127.0.0.1:80": false, "127.9.9.9:80": false, "[::1]:80": false, "[::ffff:127.0.0.1]:80": false, "localhost:80": false, "a host:80": false,
		":80": true, "0.0.0.0:80": true, "[::]:80": true, "192.0.2.7:0": true, "[fe80::1%eth0]:80": true, "[::ffff:192.0.2.7]:80": true,
	} {
		c := DefaultConfig()
		c.Bind = bind
		if err := CheckPlaintext(c, TLSConfig{}); errors.Is(err, ErrPlaintext) != exposed ||
			Exposed(c, TLSConfig{}) != exposed {
			t.Errorf("%s: %v", bind, err)
		}
		if err := CheckPlaintext(c, TLSConfig{Enabled: true}); err != nil || Exposed(c, TLSConfig{Enabled: true}) {
			t.Errorf("%s with TLS: %v", bind, err)
		}
		c.Plaintext = true
		if err := CheckPlaintext(c, TLSConfig{}); err != nil || Exposed(c, TLSConfig{}) != exposed {
			t.Errorf("%s, allowed: %v", bind, err)
		}
	}
}

// Without TLS other hosts are not served, at start and after a reload, even on an inherited socket,
// unless the configuration permits it.
func TestPlaintextIsRefused(t *testing.T) {
	inherited := func(s *setup) {
		l, err := net.Listen("tcp", "0.0.0.0:0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
		s.o.Inherited = map[string]net.Listener{"ronbox-http": l}
	}
	everywhere := func(s *setup) { s.cfg.Bind = "0.0.0.0:0" }
	allow := func(s *setup) { s.cfg.Plaintext = true }
	for _, change := range []func(*setup){everywhere, inherited} {
		if err := newRig(t, change).Listen(t.Context()); !errors.Is(err, ErrPlaintext) {
			t.Errorf("plaintext: %v, want ErrPlaintext", err)
		}
		newRig(t, change, withTLS(t)).listening(t)
		log := &lines{}
		r := newRig(t, change, allow, func(s *setup) {
			s.o.Log = hclog.New(&hclog.LoggerOptions{Output: log, Level: hclog.Warn})
		}).listening(t)
		if !strings.Contains(log.String(), "listen.plaintext") {
			t.Error("no warning")
		}
		again := setup{cfg: r.cfg, tls: r.tls, uds: r.uds}
		again.cfg.Plaintext = false
		if _, _, err := r.Prepare(t.Context(), again.cfg, again.tls, again.uds); !errors.Is(err, ErrPlaintext) {
			t.Errorf("a reload that takes the permission away: %v, want ErrPlaintext", err)
		}
	}
}

func TestReloadToPlaintextIsRefused(t *testing.T) {
	r := newRig(t).listening(t)
	at := r.Addr()
	cfg := r.cfg
	cfg.Bind = "0.0.0.0:0"
	if _, _, err := r.Prepare(t.Context(), cfg, r.tls, r.uds); !errors.Is(err, ErrPlaintext) {
		t.Errorf("a reload: %v, want ErrPlaintext", err)
	}
	if status, _, _ := ask(t, r.dial(t), "/"); status != http.StatusOK || r.Addr() != at {
		t.Errorf("%d at %s, want the old address %s", status, r.Addr(), at)
	}
	secure := newRig(t, withTLS(t), func(s *setup) { s.cfg.Bind = "0.0.0.0:0" }).listening(t)
	if _, _, err := secure.Prepare(t.Context(), secure.cfg, TLSConfig{}, secure.uds); !errors.Is(err, ErrPlaintext) {
		t.Errorf("TLS is taken away: %v, want ErrPlaintext", err)
	}
}
