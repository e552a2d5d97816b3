package cluster

import (
	"strings"
	"testing"
	"time"

	"ronbox/appliance/unit"
)

func TestConfigValidate(t *testing.T) {
	for _, tt := range []struct {
		doc    string
		change func(*Config)
		key    string // of the fault; "": valid
	}{
		{"the default", func(*Config) {}, ""},
		{"any free port", func(c *Config) { c.Bind = "127.0.0.1:0" }, ""},
		{"all addresses", func(c *Config) { c.Bind, c.Advertise = "0.0.0.0:7946", "10.0.0.1:7946" }, ""},
		{"a name", func(c *Config) { c.Advertise = "a.example:7946" }, ""},
		{"no port", func(c *Config) { c.Bind = "127.0.0.1" }, "bind"},
		{"a port out of range", func(c *Config) { c.Bind = "127.0.0.1:70000" }, "bind"},
		{"an unknown port to dial", func(c *Config) { c.Advertise = "10.0.0.1:0" }, "advertise"},
		{"all addresses to dial", func(c *Config) { c.Advertise = "0.0.0.0:7946" }, "advertise"},
		{"no host to dial", func(c *Config) { c.Advertise = ":7946" }, "advertise"},
		{"a short heartbeat", func(c *Config) { c.Heartbeat = unit.Duration(time.Millisecond) }, "heartbeat"},
		{"a long heartbeat", func(c *Config) { c.Heartbeat = unit.Duration(time.Hour) }, "heartbeat"},
	} {
		c := DefaultConfig()
		tt.change(&c)
		err := c.Validate()
		if (err == nil) != (tt.key == "") || err != nil && !strings.HasPrefix(err.Error(), tt.key) {
			t.Errorf("%s: err = %v, want a fault of %q", tt.doc, err, tt.key)
		}
	}
}

func TestAddress(t *testing.T) {
	c := DefaultConfig()
	if c.Address() != c.Bind {
		t.Errorf("advertised as %s, bound to %s", c.Address(), c.Bind)
	}
	if c.Advertise = "a.example:1"; c.Address() != c.Advertise {
		t.Errorf("advertised as %s", c.Address())
	}
}
