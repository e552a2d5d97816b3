package front

import (
	"strings"
	"testing"
	"time"

	"ronbox/appliance/unit"
)

// What a client may count on, however it came about, is not changed in passing.
func TestDefaultTimeouts(t *testing.T) {
	c := DefaultConfig()
	for _, tt := range []struct {
		key       string
		got, want unit.Duration
	}{
		{"read_timeout", c.ReadTimeout, unit.Duration(5 * time.Second)},
		{"write_timeout", c.WriteTimeout, unit.Duration(5 * time.Second)},
		{"idle_timeout", c.IdleTimeout, unit.Duration(60 * time.Second)},
	} {
		if tt.got != tt.want {
			t.Errorf("%s = %s, want %s", tt.key, tt.got, tt.want)
		}
	}
}

func TestConfigFaultsAreJoined(t *testing.T) {
	if err := DefaultConfig().Validate(); err != nil {
		t.Errorf("defaults: %v", err)
	}
	bad := Config{
		Bind:         "nowhere",
		MetricsAllow: []string{"x"},
		HealthCIDRs:  []string{"1"},
		Trusted:      []string{"y"},
		CORS: CORS{
			AllowOrigins: []string{"https://a.example/"},
			AllowMethods: []string{"G T"},
			AllowHeaders: []string{""},
		},
	}
	err := bad.Validate()
	for _, key := range []string{"bind", "acceptors", "connection_limit_per_ip", "health_cidrs", "decompress_ratio_cap", "trusted_proxies", "cors.allow_origins", "cors.allow_methods",
		"cors.allow_headers", "metrics_allow", "max_conns", "max_header", "max_body_bytes", "read_timeout", "write_timeout", "idle_timeout"} {
		if err == nil || !strings.Contains(err.Error(), key) {
			t.Errorf("%v does not name %s", err, key)
		}
	}
	for _, bind := range []string{"127.0.0.1:99999", "127.0.0.1:http", "127.0.0.1:"} {
		bad := DefaultConfig()
		bad.Bind = bind
		if err := bad.Validate(); err == nil || !strings.Contains(err.Error(), "port") {
			t.Errorf("bind %q: err = %v, want a word on the port", bind, err)
		}
	}
}

// An IPv4 network in the clothes of IPv6 would match no client.
func TestNetworksAreWrittenPlainly(t *testing.T) {
	for text, ok := range map[string]bool{
		"10.0.0.0/8": true, "::/0": true, "2001:db8::/32": true, "::ffff:10.0.0.0/104": false, "::ffff:0:0/96": false, "10.0.0.1": false, "fe80::1%eth0/64": false,
	} {
		if got, err := ParseNetworks([]string{text}); (err == nil) != ok {
			t.Errorf("%s: %v %v", text, got, err)
		}
	}
}
