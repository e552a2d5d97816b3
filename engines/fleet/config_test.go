package fleet

import (
	"strings"
	"testing"
)

func TestConfigValidate(t *testing.T) {
	for _, tt := range []struct {
		doc    string
		change func(*Config)
		key    string // of the fault; "": valid
	}{
		{"the default", func(*Config) {}, ""},
		{"a node", func(c *Config) { c.Node = "node/a_b-1" }, ""},
		{"a bare name", func(c *Config) { c.Node = "a" }, "node"},
		{"capitals", func(c *Config) { c.Node = "node/A" }, "node"},
		{"a long name", func(c *Config) { c.Node = "node/" + strings.Repeat("a", 64) }, "node"},
		{"networks", func(c *Config) { c.AllowPrivate = []string{"10.0.0.0/8", "fd00::/8"} }, ""},
		{"an address", func(c *Config) { c.AllowPrivate = []string{"10.0.0.1"} }, "allow_private"},
		{"host bits", func(c *Config) { c.AllowPrivate = []string{"10.0.0.1/8"} }, "allow_private"},
		{"many networks", func(c *Config) { c.AllowPrivate = make([]string, maxNetworks+1) }, "allow_private"},
	} {
		c := DefaultConfig()
		tt.change(&c)
		err := c.Validate()
		if (err == nil) != (tt.key == "") || err != nil && !strings.HasPrefix(err.Error(), tt.key) {
			t.Errorf("%s: err = %v, want a fault of %q", tt.doc, err, tt.key)
		}
	}
}
