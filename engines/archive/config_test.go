package archive

import (
	"strings"
	"testing"
	"time"

	"filippo.io/age"

	"ronbox/appliance/flow"
)

// A configuration says what is wrong with it, and repeats no identity.
func TestConfig(t *testing.T) {
	id, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	good := func(c *Config) {
		c.Target, c.Recipients = "file:///mnt/usb", []string{id.Recipient().String()}
	}
	onS3 := func(c *Config) {
		c.Target, c.Endpoint, c.CredentialsFile = "s3://bucket/a", "https://s3.example.org", "/etc/ronbox/s3"
	}
	for _, tt := range []struct {
		name   string
		change func(c *Config)
		want   string // "": it is valid
	}{
		{"off", func(c *Config) { c.Target, c.Recipients = "", nil }, ""},
		{"on", func(*Config) {}, ""},
		{"in the clear", func(c *Config) { c.Recipients, c.Plaintext = nil, true }, ""},
		{"nobody reads it", func(c *Config) { c.Recipients = nil }, "recipients = []"},
		{"both", func(c *Config) { c.Plaintext = true }, "plaintext = true"},
		{"too many", func(c *Config) { c.Recipients = make([]string, 9) }, "at most 8"},
		{"an identity", func(c *Config) { c.Recipients = []string{id.String()} }, "number 1 is an identity"},
		{"no key", func(c *Config) { c.Recipients = []string{"age1"} }, "number 1 is not a public key"},
		{"another store", func(c *Config) { c.Target = "ftp://host/dir" }, "or s3://bucket"},
		{"a bucket", onS3, ""},
		{"no bucket", func(c *Config) { onS3(c); c.Target = "s3://" }, "want s3://bucket"},
		{"no server", func(c *Config) { onS3(c); c.Endpoint = "" }, "endpoint"},
		{"no region", func(c *Config) { onS3(c); c.Region = "" }, "region"},
		{"no credentials", func(c *Config) { onS3(c); c.CredentialsFile = "" }, "credentials_file"},
		{"encrypted without TLS", func(c *Config) { onS3(c); c.Endpoint = "http://192.0.2.1" }, ""},
		{"neither encrypted nor TLS", func(c *Config) {
			onS3(c)
			c.Endpoint, c.Recipients, c.Plaintext = "http://192.0.2.1", nil, true
		}, "without recipients it must be https://"},
		{"never synced", func(c *Config) { c.Fsync = "never" }, "fsync"},
		{"too slow", func(c *Config) { c.MaxRate = 1 }, "max_rate"},
		{"kept an hour", func(c *Config) { c.Keep = 3600e9 }, "keep"},
		{"all is kept", func(c *Config) { c.Keep, c.MaxRate = 0, 0 }, ""},
		{"too often", func(c *Config) { c.Every = 1 }, "every"},
		{"too small", func(c *Config) { c.MaxLocal = 1 }, "max_local"},
	} {
		c := DefaultConfig()
		good(&c)
		tt.change(&c)
		err := c.Validate()
		switch {
		case tt.want == "" && err != nil, tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)):
			t.Errorf("%s: %v, want %q", tt.name, err, tt.want)
		case err != nil && strings.Contains(strings.ToUpper(err.Error()), id.String()):
			t.Errorf("%s: the error repeats the identity", tt.name)
		}
	}
}

// A tap without its store, as that of an init, captures nothing and disturbs nobody.
func TestBeforeBind(t *testing.T) {
	cfg := DefaultConfig()
	cfg.Target, cfg.Plaintext = "file://"+t.TempDir(), true
	a, err := New(cfg, Deps{Dir: t.TempDir(), Catalog: flow.NewCatalog(nil, nil), Now: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	a.Tap().Write([]byte("an entry"))
	a.Tap().Undo()
	if n, _ := a.tap.waiting(); n != 0 || a.tap.reason() != "" {
		t.Errorf("%d bytes, %q", n, a.tap.reason())
	}
}
